"""Quantized tensors against PyTorch's: integers, meaning, printing, files, and which functions take them."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as ft
from flambeau.quantized.affine import chosen
from tests.quantized.oracle import both, torch, values

KINDS = {"quint8": (0.0371, 77), "qint8": (0.0371, -7), "qint32": (1e-5, 3)}


@pytest.mark.parametrize("kind", KINDS)
def test_quantize_per_tensor(kind: str) -> None:
    x = np.concatenate([values((20000,), scale=4), (np.arange(-200, 200, dtype=np.float32) + 0.5) * np.float32(0.0371)])
    scale, zero_point = KINDS[kind]
    both(lambda t, x: t.quantize_per_tensor(x, scale, zero_point, getattr(t, kind)), x)
    both(lambda t, x: t.quantize_per_tensor(x, scale, zero_point, getattr(t, kind)).dequantize(), x)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_quantize_per_channel(axis: int) -> None:
    x = values((5, 6, 7))
    scales = np.random.default_rng(1).uniform(0.01, 0.1, x.shape[axis])
    zeros = np.random.default_rng(2).integers(0, 100, x.shape[axis])
    both(lambda t, x, s, z: t.quantize_per_channel(x, s, z, axis, t.quint8), x, scales, zeros)
    both(lambda t, x, s, z: t.quantize_per_channel(x, s, z, axis, t.quint8).dequantize(), x, scales, zeros)


def test_real_zero_points() -> None:
    both(
        lambda t, x, s, z: t.dequantize(t.quantize_per_channel(x, s, z, 0, t.quint4x2)), values((3, 8)), np.float32([0.1, 0.2, 0.3]), np.float32([3.5, 4.25, 0])
    )


@settings(max_examples=60, deadline=None)
@given(st.floats(-1e4, 1e4, width=32), st.floats(-1e4, 1e4, width=32), st.integers(-8, 0), st.sampled_from(["quint8", "qint8"]), st.booleans())
def test_chosen(a: float, b: float, power: int, kind: str, reduce: bool) -> None:
    x = np.float32(np.float32([a, b]) * np.float32(10.0**power))
    theirs = torch.quantize_per_tensor_dynamic(torch.from_numpy(x), getattr(torch, kind), reduce)
    low, high = (0, 255) if kind == "quint8" else (-128, 127)
    low, high = (low // 2, high // 2) if reduce else (low, high)
    assert chosen(float(x.min()), float(x.max()), low, high) == (theirs.q_scale(), theirs.q_zero_point())


# Functions of torch, of a tensor quantized as a whole (q) and one by channels (p).
CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "view": lambda t, q, p: q.view(-1), "getitem": lambda t, q, p: q[0], "transpose": lambda t, q, p: q.t().contiguous(), "relu": lambda t, q, p: t.relu(q),
    "max": lambda t, q, p: q.max(), "min": lambda t, q, p: q.min(), "max_dim": lambda t, q, p: q.max(1), "mean": lambda t, q, p: q.mean(),
    "mean_dim": lambda t, q, p: q.mean(0), "eq": lambda t, q, p: q == q, "gt": lambda t, q, p: q > 0.5, "cat": lambda t, q, p: t.cat([q, q]),
    "stack": lambda t, q, p: t.stack([q, q]), "item": lambda t, q, p: q[0, 0].item(), "sort": lambda t, q, p: q.sort()[0], "topk": lambda t, q, p: q.topk(2)[0],
    "sigmoid": lambda t, q, p: t.sigmoid(q), "tanh": lambda t, q, p: t.tanh(q), "hardsigmoid": lambda t, q, p: t.nn.functional.hardsigmoid(q),
    "clamp": lambda t, q, p: t.clamp(q, 0, 1), "hardtanh": lambda t, q, p: t.nn.functional.hardtanh(q, 0, 1),
    "max_pool2d": lambda t, q, p: t.nn.functional.max_pool2d(q[None, None], 2), "avg_pool2d": lambda t, q, p: t.nn.functional.avg_pool2d(q[None, None], 2),
    "adaptive": lambda t, q, p: t.nn.functional.adaptive_avg_pool2d(q[None], 1), "flatten": lambda t, q, p: t.flatten(q),
    "equal": lambda t, q, p: t.equal(q, q), "detach": lambda t, q, p: q.detach(), "permute": lambda t, q, p: q.permute(1, 0),
    "expand": lambda t, q, p: q.expand(3, 4, 6), "repeat": lambda t, q, p: q.repeat(2, 1), "masked_fill": lambda t, q, p: q.masked_fill(q > 0.5, 1.0),
    "fill": lambda t, q, p: q.clone().fill_(1.0), "index_select": lambda t, q, p: q.index_select(0, t.tensor([1])),
    "leaky_relu": lambda t, q, p: t.nn.functional.leaky_relu(q, 0.1), "nearest": lambda t, q, p: t.nn.functional.interpolate(q[None, None], scale_factor=2),
    "chunk": lambda t, q, p: t.chunk(q, 2), "split": lambda t, q, p: t.split(q, 1), "pad": lambda t, q, p: t.nn.functional.pad(q, (1, 1)),
    "copy": lambda t, q, p: q.clone().copy_(t.ones(4, 6)), "clone channels": lambda t, q, p: p.clone(), "a channel": lambda t, q, p: p[0],
    "dequantize": lambda t, q, p: t.dequantize([q, p]), "max_pool operator": lambda t, q, p: t.quantized_max_pool2d(q[None, None], [2, 2]),
    "max_pool1d operator": lambda t, q, p: t.quantized_max_pool1d(q[None], [3], [2], [1], [1], True),
    "add": lambda t, q, p: t.ops.quantized.add(q, q, 0.3, 5), "gelu": lambda t, q, p: t.nn.functional.gelu(q),
    "text": lambda t, q, p: (str(q), str(p), q.type(), q.numel(), q.element_size(), str(t.iinfo), q.is_contiguous())[:5],
    "int_repr": lambda t, q, p: (t.int_repr(q), t.int_repr(p)), "made": lambda t, q, p: t._make_per_tensor_quantized_tensor(q.int_repr(), 0.5, 1),
    "parts": lambda t, q, p: (q.q_scale(), q.q_zero_point(), p.q_per_channel_scales(), p.q_per_channel_zero_points(), p.q_per_channel_axis(), p.qscheme()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_functions(name: str) -> None:
    def function(t: Any, x: Any, s: Any, z: Any) -> Any:
        return CASES[name](t, t.quantize_per_tensor(x, 0.05, 60, t.quint8), t.quantize_per_channel(x, s, z, 0, t.qint8))

    both(function, values((4, 6)), np.linspace(0.02, 0.1, 4), np.arange(4))


REFUSED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda t, q, p: q + q, "sum": lambda t, q, p: q.sum(), "float": lambda t, q, p: q.float(), "numpy": lambda t, q, p: q.numpy(),

    "tolist": lambda t, q, p: q.tolist(), "item": lambda t, q, p: q.item(),
    "axis": lambda t, q, p: q.q_per_channel_axis(), "scale": lambda t, q, p: p.q_scale(),
    "relu by channels": lambda t, q, p: p.relu(), "plain": lambda t, q, p: t.ones(2).q_scale(),
    "double": lambda t, q, p: t.quantize_per_tensor(t.ones(2).double(), 0.1, 1, t.qint8),
    "int8": lambda t, q, p: t.quantize_per_tensor(t.ones(2), 0.1, 1, t.int8),
    "zero point": lambda t, q, p: t.quantize_per_tensor(t.ones(2), 0.1, 1000, t.qint8), "softmax": lambda t, q, p: q.softmax(-1),
    "scales": lambda t, q, p: t.quantize_per_channel(t.ones(2, 2), t.ones(3), t.zeros(3).long(), 0, t.qint8),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    kinds = []
    for t in (torch, ft):
        x = t.ones(4, 6)
        q, p = t.quantize_per_tensor(x, 0.05, 60, t.quint8), t.quantize_per_channel(x, t.ones(4), t.zeros(4).long(), 0, t.qint8)
        with pytest.raises((RuntimeError, TypeError, NotImplementedError)) as caught:
            REFUSED[name](t, q, p)
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize("kind", ["whole", "channels"])
def test_files(kind: str) -> None:
    def make(t: Any) -> Any:
        x = t.from_numpy(values((4, 5)))
        if kind == "whole":
            return t.quantize_per_tensor(x, 0.1, 3, t.qint8)
        return t.quantize_per_channel(x, t.tensor([0.1, 0.2, 0.3, 0.4]), t.arange(4), 0, t.qint8)

    theirs, ours = io.BytesIO(), io.BytesIO()
    torch.save({"q": make(torch), "row": make(torch)[1:]}, theirs)
    ft.save({"q": make(ft), "row": make(ft)[1:]}, ours)
    theirs.seek(0), ours.seek(0)
    read, given = ft.load(theirs), torch.load(ours)
    for name in ("q", "row"):
        assert str(read[name]) == str(given[name])
    q = make(ft)
    assert str(q) == str(pickle.loads(pickle.dumps(q))) == str(copy.deepcopy(q))


def test_malformed_files_are_refused() -> None:
    from flambeau.io.globals import rebuild_quantized
    from flambeau.quantized.schemes import per_channel_affine, per_tensor_affine

    storage = ft.storage.TypedStorage(wrap_storage=ft.zeros(4, dtype=ft.int8).untyped_storage(), dtype=ft.qint8)
    channels = [(per_channel_affine, ft.ones(n), ft.zeros(n), axis) for n, axis in ((3, 0), (4, 7))]
    for meaning in ((per_tensor_affine, "0.1", 0), *channels, ("x", 1.0, 0)):
        with pytest.raises(pickle.UnpicklingError):
            rebuild_quantized(storage, 0, (4,), (1,), meaning)
    with pytest.raises(pickle.UnpicklingError, match="outside"):
        rebuild_quantized(storage, 0, (5,), (1,), (per_tensor_affine, 0.1, 0))
