"""torch.ao.quantization, eager: prepared, fed and converted models give PyTorch's results."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.quantized.oracle import same, torch, values

pytestmark = pytest.mark.filterwarnings("ignore")


def _copy(ours: Any, theirs: Any) -> None:
    ours.load_state_dict({k: ft.from_numpy(v.detach().numpy().copy()) for k, v in theirs.state_dict().items()})


def _network(t: Any) -> Any:
    return t.nn.Sequential(
        t.nn.Conv2d(1, 4, 3), t.nn.BatchNorm2d(4), t.nn.ReLU(), t.nn.MaxPool2d(2), t.nn.Flatten(), t.nn.Linear(36, 8), t.nn.ReLU(), t.nn.Linear(8, 5)
    )


def _pair() -> tuple[Any, Any]:
    torch.manual_seed(0)
    theirs, ours = _network(torch), _network(ft)
    theirs[1].running_mean.normal_()
    theirs[1].running_var.uniform_(0.5, 2)
    _copy(ours, theirs)
    return theirs, ours


@pytest.mark.parametrize("backend", ["x86", "qnnpack"])
def test_static(backend: str) -> None:
    results, texts, state = [], [], None
    for t, model in zip((torch, ft), _pair(), strict=True):
        q = t.ao.quantization
        wrapped = q.QuantWrapper(model.eval()).eval()
        q.fuse_modules(wrapped.module, [["0", "1", "2"], ["5", "6"]], inplace=True)
        wrapped.qconfig = q.get_default_qconfig(backend)
        prepared = q.prepare(wrapped)
        for i in range(4):
            prepared(t.from_numpy(values((8, 1, 8, 8), i) * (1 + i % 3)))
        made = q.convert(prepared)
        results.append(made(t.from_numpy(values((32, 1, 8, 8), 9))))
        texts.append([type(m).__name__ for m in made.modules() if type(m).__name__ != "LinearPackedParams"])
        if t is torch:
            file = io.BytesIO()
            torch.save(made.state_dict(), file)
            state = file
    np.testing.assert_allclose(results[1].numpy(), results[0].numpy(), rtol=1e-6, atol=1e-6)
    assert texts[0] == texts[1]
    assert state is not None
    state.seek(0)  # a quantized checkpoint of PyTorch's is read
    read = ft.load(state)
    assert list(read) == list(made.state_dict()) or sorted(read) == sorted(made.state_dict())
    made.load_state_dict(read)
    np.testing.assert_allclose(made(ft.from_numpy(values((32, 1, 8, 8), 9))).numpy(), results[0].numpy(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "LSTMCell", "GRUCell", "RNNCell", "Linear", "float16"])
def test_dynamic(kind: str) -> None:
    torch.manual_seed(1)
    rows = kind in ("LSTM", "GRU")

    def make(t: Any) -> Any:
        if kind in ("Linear", "float16"):
            return t.nn.Sequential(t.nn.Linear(12, 7))
        return t.nn.ModuleList([getattr(t.nn, kind)(12, 7, **({"num_layers": 2, "bidirectional": True} if rows else {}))])

    theirs, ours = make(torch), make(ft)
    _copy(ours, theirs)
    found = []
    for t, model in ((torch, theirs), (ft, ours)):
        made = t.ao.quantization.quantize_dynamic(model, dtype=t.float16 if kind == "float16" else t.qint8)
        assert type(made[0]).__name__ == kind.replace("float16", "Linear") and type(made[0]) is not type(model[0])
        x = t.from_numpy(values((5, 3, 12) if rows or kind == "Linear" else (3, 12), 2))
        y = made[0](x)
        found.append(y[0] if isinstance(y, tuple) else y)
    same(found[1], found[0])


def test_a_set_of_classes_and_embeddings() -> None:
    model = ft.nn.Sequential(ft.nn.Embedding(10, 8), ft.nn.Linear(8, 4), ft.nn.Linear(4, 4))
    made = ft.ao.quantization.quantize_dynamic(model, {ft.nn.Linear})
    assert [type(m).__name__ for m in made] == ["Embedding", "Linear", "Linear"] and not hasattr(made[0], "_weight")
    theirs = torch.nn.Sequential(torch.nn.Embedding(10, 8), torch.nn.Identity())
    ours = ft.nn.Sequential(ft.nn.Embedding(10, 8), ft.nn.Identity())
    _copy(ours, theirs)
    index = np.int64([1, 5, 5, 9])
    for dtype in ("quint8",):
        a = torch.ao.quantization.quantize_dynamic(theirs, dtype=getattr(torch, dtype))(torch.from_numpy(index))
        b = ft.ao.quantization.quantize_dynamic(ours, dtype=getattr(ft, dtype))(ft.from_numpy(index))
        np.testing.assert_allclose(b.numpy(), a.numpy(), atol=1e-6)


@pytest.mark.parametrize("version", [0, 1])
def test_training_with_rounding(version: int) -> None:
    losses = []
    for t, model in zip((torch, ft), _pair(), strict=True):
        q = t.ao.quantization
        wrapped = q.QuantWrapper(model).train()
        q.fuse_modules_qat(wrapped.module, [["0", "1", "2"], ["5", "6"]], inplace=True)
        wrapped.qconfig = q.get_default_qat_qconfig("fbgemm", version)
        prepared = q.prepare_qat(wrapped)
        optimizer = t.optim.SGD(prepared.parameters(), lr=0.05)
        target = t.from_numpy(np.random.default_rng(3).integers(0, 5, 16))
        for _ in range(4):
            loss = t.nn.functional.cross_entropy(prepared(t.from_numpy(values((16, 1, 8, 8), 5))), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        made = q.convert(prepared.eval())
        losses.append((loss.item(), t.nn.functional.cross_entropy(made(t.from_numpy(values((16, 1, 8, 8), 5))), target).item()))
    # A value next to the middle of two codes may go to the other one: a code is about a hundredth of the range.
    np.testing.assert_allclose(losses[1], losses[0], rtol=2e-2)


OBSERVERS = "MinMaxObserver MovingAverageMinMaxObserver HistogramObserver PerChannelMinMaxObserver MovingAveragePerChannelMinMaxObserver".split()


@pytest.mark.parametrize("name", OBSERVERS)
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("dtype", ["qint8", "quint8"])
def test_observers(name: str, symmetric: bool, dtype: str) -> None:
    found = []
    for t in (torch, ft):
        scheme = ("per_channel_" if "Channel" in name else "per_tensor_") + ("symmetric" if symmetric else "affine")
        reduce = dtype == "quint8" and not symmetric
        observer = getattr(t.ao.quantization, name)(dtype=getattr(t, dtype), qscheme=getattr(t, scheme), reduce_range=reduce)
        for i in range(3):
            observer(t.from_numpy(values((6, 50), i, 1 + i) + 0.3))
        found.append([v.numpy().reshape(-1) for v in observer.calculate_qparams()])
    np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-5)
    np.testing.assert_array_equal(found[1][1], found[0][1])


def test_operations_without_modules() -> None:
    class Residual(ft.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.quant, self.dequant = ft.ao.quantization.QuantStub(), ft.ao.quantization.DeQuantStub()
            self.linear = ft.nn.Linear(6, 6)
            self.add = ft.ao.nn.quantized.FloatFunctional()

        def forward(self, x: Any) -> Any:
            x = self.quant(x)
            return self.dequant(self.add.add_relu(self.linear(x), x))

    model = Residual().eval()
    model.qconfig = ft.ao.quantization.get_default_qconfig()
    x = ft.from_numpy(values((64, 6)))
    prepared = ft.ao.quantization.prepare(model)
    prepared(x)
    made = ft.ao.quantization.convert(prepared)
    assert type(made.add).__name__ == "QFunctional"
    assert (made(x) - model(x)).abs().max().item() < 0.1


def test_errors() -> None:
    q = ft.ao.quantization
    with pytest.raises(AssertionError, match="backend must be one of"):
        q.get_default_qconfig("cuda")
    with pytest.raises(NotImplementedError, match="Cannot fuse modules"):
        q.fuse_modules(ft.nn.Sequential(ft.nn.ReLU(), ft.nn.ReLU()).eval(), ["0", "1"])
    with pytest.raises(AssertionError, match="training mode"):
        q.prepare_qat(ft.nn.Linear(2, 2).eval())
    with pytest.raises(ValueError, match="QConfig received observer instance"):
        q.QConfig(activation=q.MinMaxObserver(), weight=q.MinMaxObserver)
    with pytest.warns(UserWarning, match="qconfig"):
        q.prepare(ft.nn.Sequential(ft.nn.Linear(2, 2)))
    with pytest.raises(NotImplementedError, match="Cannot reduce range"):
        q.MinMaxObserver(dtype=ft.quint8, qscheme=ft.per_tensor_symmetric, reduce_range=True)
    with pytest.raises(ValueError, match="Provide full qconfig"):
        q.quantize_dynamic(ft.nn.Linear(2, 2), dtype=ft.float32)
