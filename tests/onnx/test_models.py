"""torch.onnx.export of whole models: ONNX Runtime and flambeau's own reading give the module's results at sizes that differ; files, names, errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.export import Dim
from tests.export.models import models

onnx = pytest.importorskip("onnx")
nn = torch.nn


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)

    def forward(self, x: Any, mask: Any) -> Any:
        return self.attention(x, x, x, attn_mask=mask, need_weights=False)[0]


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2)

    def forward(self, x: Any, hidden: Any) -> Any:
        return self.encoder(x, src_key_padding_mask=hidden)


class _Masked(nn.Module):
    def forward(self, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)


OURS = models(torch)
_BATCH, _TIME = Dim("batch", min=1), Dim("time", min=1, max=24)
MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], tuple[Any, ...]], Any]] = {
    "MLP": (OURS.MLP, lambda n: (torch.randn(n, 12),), ({0: _BATCH},)),
    "CNN": (OURS.CNN, lambda n: (torch.randn(n, 1, 8, 8),), ({0: _BATCH},)),
    "ResNet": (OURS.ResNet, lambda n: (torch.randn(n, 3, 8, 8),), ({0: _BATCH},)),
    "LSTM and GRU": (OURS.LSTM, lambda n: (torch.randint(0, 20, (n, n + 3)),), ({0: _BATCH, 1: _TIME},)),
    "GPT": (OURS.GPT, lambda n: (torch.randint(0, 30, (n, n + 3)),), ({0: _BATCH, 1: _TIME},)),
    "attention": (_Attention, lambda n: (torch.randn(n, 5, 16), ~torch.tril(torch.ones(5, 5)).bool()), ({0: _BATCH}, None)),
    "masked attention": (_Masked, lambda n: (torch.randn(n, 2, 5, 8), torch.randn(n, 2, 7, 8), torch.randn(n, 2, 7, 8), torch.rand(n, 1, 5, 7) > 0.5),
                         ({0: _BATCH},) * 4),
    "encoder": (_Encoder, lambda n: (torch.randn(n, 5, 16), torch.arange(5) > torch.randint(0, 5, (n, 1))), ({0: _BATCH}, {0: _BATCH})),
}  # fmt: skip


def _close(ours: Any, theirs: Any) -> None:
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("opset", [20, 23])
def test_a_model_gives_its_results_in_onnx_runtime_at_other_sizes(name: str, opset: int) -> None:
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    make, inputs, shapes = MODELS[name]
    model = make().eval()
    program = torch.onnx.export(model, inputs(3), dynamic_shapes=shapes, opset_version=opset)
    session = runtime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for size in (1, 2, 9):
        given = inputs(size)
        with torch.no_grad():
            wanted = torch.utils._pytree.tree_leaves(model(*given))
        theirs = session.run(None, dict(zip([i.name for i in session.get_inputs()], [x.numpy() for x in given], strict=True)))
        for a, b, c in zip(wanted, theirs, program(*given), strict=True):
            _close(a, b)
            _close(a, c)


def test_every_kind_of_input_and_write() -> None:
    """Keyword and nested inputs, constants, indexing, writes in place, a size as a result."""
    runtime = pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    x, y, k = torch.randn(4, 4), {"a": [torch.randn(3)]}, torch.tensor(2.0)
    program = torch.onnx.export(OURS.Tour(), (x, y), kwargs={"k": k})
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(program.exported_program.module()(x, y, k=k))
    session = runtime.InferenceSession(program.model_proto.SerializeToString(), providers=["CPUExecutionProvider"])
    theirs = session.run(None, dict(zip([i.name for i in session.get_inputs()], [x.numpy(), y["a"][0].numpy(), k.numpy()], strict=True)))
    for a, b in zip(wanted, theirs, strict=True):
        _close(a, b)


def test_a_file_pytorch_wrote_becomes_a_model(tmp_path: Path) -> None:
    oracle = pytest.importorskip("torch")
    model = models(oracle).CNN().eval()
    x = oracle.randn(2, 1, 8, 8)
    oracle.export.save(oracle.export.export(model, (x,)), str(tmp_path / "cnn.pt2"))
    program = torch.onnx.export(torch.export.load(str(tmp_path / "cnn.pt2")))
    _close(program(torch.from_numpy(x.numpy()))[0], model(x).detach())


def test_names_of_inputs_outputs_and_dims(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    torch.onnx.export(OURS.MLP().eval(), torch.randn(3, 12), path, input_names=["x"], output_names=["y"], dynamic_axes={"x": {0: "rows"}}, external_data=False)
    proto = onnx.load(path)
    assert [i.name for i in proto.graph.input] == ["x"] and [o.name for o in proto.graph.output] == ["y"]
    assert [d.dim_param or d.dim_value for d in proto.graph.input[0].type.tensor_type.shape.dim] == ["rows", 12]
    assert [d.dim_param or d.dim_value for d in proto.graph.output[0].type.tensor_type.shape.dim] == ["rows", 5]
    assert {"layers.0.weight", "layers.5.bias"} <= {t.name for t in proto.graph.initializer}
    assert os.listdir(tmp_path) == ["m.onnx"]


def test_tensors_beside_the_file(tmp_path: Path) -> None:
    model = OURS.MLP().eval()
    x = torch.randn(3, 12)
    program = torch.onnx.export(model, (x,), tmp_path / "m.onnx")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data"]
    with torch.no_grad():
        _close(torch.onnx.load(tmp_path / "m.onnx")(x), model(x))
    program.save(tmp_path / "one.onnx")
    assert sorted(os.listdir(tmp_path)) == ["m.onnx", "m.onnx.data", "one.onnx"]


def test_a_failed_save_leaves_the_old_file(tmp_path: Path, monkeypatch: Any) -> None:
    path = tmp_path / "m.onnx"
    program = torch.onnx.export(OURS.MLP().eval(), (torch.randn(3, 12),), path, external_data=False)
    before = path.read_bytes()

    def broken(*args: Any, **kwargs: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(onnx, "save_model", broken)
    with pytest.raises(OSError, match="no space"):
        program.save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["m.onnx"]


def test_shared_weights_are_one_initializer() -> None:
    program = torch.onnx.export(OURS.GPT().eval(), (torch.randint(0, 30, (2, 5)),))
    assert "tokens.weight" in {t.name for t in program.model_proto.graph.initializer}
    assert "head.weight" not in {t.name for t in program.model_proto.graph.initializer}


def test_wrong_calls_name_what_is_wrong() -> None:
    x = torch.randn(3, 12)
    with pytest.raises(ValueError, match="opset_version must be from 20"):
        torch.onnx.export(OURS.MLP(), (x,), opset_version=11)
    with pytest.raises(NotImplementedError, match="dynamo=False"):
        torch.onnx.export(OURS.MLP(), (x,), dynamo=False)
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module"):
        torch.onnx.export(lambda x: x, (x,))
    with pytest.raises(NotImplementedError, match="drops elements in training"):
        torch.onnx.export(nn.Dropout(), (x,))
    with pytest.raises(ValueError, match="output_names has 2 names"):
        torch.onnx.export(OURS.MLP(), (x,), output_names=["a", "b"])


def test_verify_finds_a_difference() -> None:
    program = torch.onnx.export(OURS.MLP().eval(), (torch.randn(3, 12),), verify=True)
    program.apply_weights({"layers.5.bias": torch.full((5,), 7.0)})
    with pytest.raises(torch.onnx.OnnxExporterError, match="differs"):
        program.check(torch.randn(3, 12))
