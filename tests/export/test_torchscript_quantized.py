"""TorchScript archives of quantized models and of modules with forward hooks: PyTorch's numbers, and archives that PyTorch reads again."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
import torch.ao.quantization as q  # noqa: E402
from torch import nn  # noqa: E402
from torch.ao.quantization.quantize_fx import convert_fx, prepare_fx  # noqa: E402

from tests.export import torchscript_hooks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def _static(net: Any, x: Any, backend: str = "x86") -> Any:
    model = q.QuantWrapper(net).eval()
    model.qconfig = q.get_default_qconfig(backend)
    prepared = q.prepare(model)
    prepared(x)
    return q.convert(prepared)


def _convolutions() -> tuple[Any, Any]:
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3, stride=2, padding=(1, 0), groups=2), nn.Flatten(), nn.Linear(12, 10)
    ).eval()  # fmt: skip
    q.fuse_modules(net, [["0", "1"]], inplace=True)
    return _static(net, torch.randn(8, 1, 8, 8)), (torch.randn(3, 1, 8, 8),)


def _transposed() -> tuple[Any, Any]:
    net = nn.Sequential(nn.ConvTranspose2d(2, 4, 3, stride=2, output_padding=1), nn.Conv2d(4, 2, 1, bias=False))
    return _static(net, torch.randn(4, 2, 6, 6), "qnnpack"), (torch.randn(3, 2, 6, 6),)


def _one_dim() -> tuple[Any, Any]:
    net = nn.Sequential(nn.Conv1d(2, 4, 3, padding=2), nn.ReLU(), nn.Conv1d(4, 3, 3, stride=2, dilation=2))
    return _static(net, torch.randn(8, 2, 9)), (torch.randn(2, 2, 9),)


def _three_dims() -> tuple[Any, Any]:
    return _static(nn.Sequential(nn.Conv3d(2, 4, 3, padding=1)), torch.randn(2, 2, 5, 5, 5)), (torch.randn(2, 2, 5, 5, 5),)


def _reflected() -> tuple[Any, Any]:
    return _static(nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, padding_mode="reflect")), torch.randn(8, 1, 8, 8)), (torch.randn(2, 1, 8, 8),)


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.bn, self.end = nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.Linear(192, 10)

    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)) + x)
        return self.end(torch.flatten(torch.cat([x, x * x], 1)[:, :3], 1))


def _traced() -> tuple[Any, Any]:
    x = torch.randn(16, 3, 8, 8)
    prepared = prepare_fx(_Residual().eval(), q.get_default_qconfig_mapping("x86"), (x,))
    prepared(x)
    return convert_fx(prepared), (torch.randn(2, 3, 8, 8),)


def _dense(dtype: Any) -> tuple[Any, Any]:
    return q.quantize_dynamic(nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)), dtype=dtype), (torch.randn(3, 8),)


class _Sequences(nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x):
        y, _ = self.layer(x)
        return y


def _recurrent(layer: Any, dtype: Any = torch.qint8) -> tuple[Any, Any]:
    return q.quantize_dynamic(_Sequences(layer), {type(layer)}, dtype=dtype), (torch.randn(3, 5, 4),)


class _Cells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c, self.d = nn.LSTMCell(4, 6), nn.GRUCell(6, 6), nn.RNNCell(6, 5), nn.RNNCell(5, 5, nonlinearity="relu")

    def forward(self, x):
        h, _ = self.a(x)
        return self.d(self.c(self.b(h)))


class _Tables(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.sums = nn.Embedding(20, 8), nn.EmbeddingBag(20, 8, mode="sum", include_last_offset=True)
        self.rows.qconfig = self.sums.qconfig = q.float_qparams_weight_only_qconfig

    def forward(self, x, offsets):
        return self.rows(x), self.sums(x, offsets)


def _tables() -> tuple[Any, Any]:
    return q.convert(q.prepare(_Tables().eval())), (torch.randint(0, 20, (6,)), torch.tensor([0, 2, 6]))


CASES: dict[str, Callable[[], tuple[Any, Any]]] = {
    "convolutions": _convolutions, "transposed": _transposed, "one_dim": _one_dim, "three_dims": _three_dims, "reflected": _reflected, "traced": _traced,
    "dense": lambda: _dense(torch.qint8), "float16": lambda: _dense(torch.float16),
    "lstm": lambda: _recurrent(nn.LSTM(4, 6, 2, bidirectional=True, batch_first=True)), "lstm of float16": lambda: _recurrent(nn.LSTM(4, 6), torch.float16),
    "gru": lambda: _recurrent(nn.GRU(4, 6, 2)), "tables": _tables,
    "cells": lambda: (q.quantize_dynamic(_Cells(), {nn.LSTMCell, nn.GRUCell, nn.RNNCell}), (torch.randn(3, 4),)),
}  # fmt: skip


@cache
def made(name: str) -> tuple[Any, Any]:
    """(model, its arguments)."""
    torch.manual_seed(0)
    return CASES[name]()


def flat(v: Any) -> list[Any]:
    """The tensors of a result."""
    return [w for u in v for w in flat(u)] if isinstance(v, (tuple, list)) else [v]


def ours(v: Any) -> Any:
    """PyTorch's tensors here."""
    return [flambeau.from_numpy(a.numpy()) for a in v]


def saved(module: Any) -> bytes:
    """The bytes of an archive."""
    f = io.BytesIO()
    torch.jit.save(module, f)
    return f.getvalue()


@pytest.mark.parametrize("how", ["script", "trace", "freeze"])
@pytest.mark.parametrize("name", list(CASES))
def test_packed_weights(name: str, how: str) -> None:
    model, args = made(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program = torch.jit.trace(model, args) if how == "trace" else torch.jit.script(model)
        except Exception as error:  # what PyTorch itself does not script (a model of fx with constants of its own)
            pytest.skip(f"PyTorch: {str(error)[-80:]}")
    data = saved(torch.jit.freeze(program.eval()) if how == "freeze" else program)
    wanted = flat(torch.jit.load(io.BytesIO(data))(*args))
    loaded = flambeau.jit.load(io.BytesIO(data))
    again = io.BytesIO()
    flambeau.jit.save(loaded, again)
    for found in (flat(loaded(*ours(args))), flat(torch.jit.load(io.BytesIO(again.getvalue()))(*args))):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            x, y = a.detach().numpy(), b.detach().numpy()
            assert x.shape == y.shape and x.dtype == y.dtype
            # A sum that lies between two codes may be rounded to either.
            apart = np.abs(x - y) > 1e-6 * max(1.0, float(np.abs(y).max()))
            assert apart.mean() <= (0.02 if name in ("convolutions", "traced") else 0.0), (name, np.abs(x - y).max())


def test_states_that_are_not_pytorchs_are_refused() -> None:
    from flambeau.jit.torchscript.packed import CLASSES

    for kind in CLASSES.values():
        for state in (None, (), (1, 2), ("2", [], []), (3, [2, 1], [None, None]), (1, [flambeau.ones(2)], [], []), ("other", [], [], [], [])):
            with pytest.raises(RuntimeError, match=kind.name.rpartition(".")[2]):
                kind().made(state)


def test_hooks_of_scripted_modules(capsys: Any) -> None:
    torch.manual_seed(0)
    program = torch.jit.script(torchscript_hooks.hooked())
    data = saved(program)
    theirs, loaded = torch.jit.load(io.BytesIO(data)), flambeau.jit.load(io.BytesIO(data))
    again = io.BytesIO()
    flambeau.jit.save(loaded, again)
    x = torch.randn(2, 4)
    (here,) = ours((x,))
    calls: list[Callable[[Any, Any], Any]] = [
        lambda m, v: m(v),  # with hooks
        lambda m, v: m.forward(v),  # without the module's own, with those of what it calls
        lambda m, v: m.linear(v),
        lambda m, v: m.linear.forward(v),
    ]
    for call in calls:
        wanted = call(theirs, x)
        printed = capsys.readouterr().out
        for module in (loaded, flambeau.jit.load(io.BytesIO(again.getvalue()))):
            assert np.allclose(call(module, here).detach().numpy(), wanted.detach().numpy(), atol=1e-6)
            assert capsys.readouterr().out == printed
        assert np.allclose(call(torch.jit.load(io.BytesIO(again.getvalue())), x).detach().numpy(), wanted.detach().numpy(), atol=1e-6)
        capsys.readouterr()
