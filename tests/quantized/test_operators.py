"""torch.ops.quantized against PyTorch's kernels: element for element, or within one quantum where PyTorch rounds in another order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.quantized.oracle import both, values


def _q(t: Any, x: Any, scale: float, zero_point: int, kind: str = "quint8") -> Any:
    return t.quantize_per_tensor(x, scale, zero_point, getattr(t, kind))


PAIRS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "add": lambda o, a, b: o.add(a, b, 0.07, 111), "add_relu": lambda o, a, b: o.add_relu(a, b, 0.07, 0), "mul": lambda o, a, b: o.mul(a, b, 0.07, 111),
    "mul_relu": lambda o, a, b: o.mul_relu(a, b, 0.07, 3),
    "cat": lambda o, a, b: o.cat([a, b], 0, 0.06, 99), "cat_relu": lambda o, a, b: o.cat_relu([a, b], 0, 0.06, 99),
    "matmul": lambda o, a, b: o.matmul(a, b.t().contiguous(), 0.9, 120),
    "add_scalar": lambda o, a, b: o.add_scalar(a, 1.5),
    "mul_scalar": lambda o, a, b: o.mul_scalar(a, 1.5), "mul_scalar_negative": lambda o, a, b: o.mul_scalar(a, -1.5),
    "add_scalar_beyond": lambda o, a, b: o.add_scalar(a, 7.5), "hardswish": lambda o, a, b: o.hardswish(a, 0.05, 10),
    "elu": lambda o, a, b: o.elu(a, 0.05, 100),
    "leaky_relu": lambda o, a, b: o.leaky_relu(a, 0.1, False, 0.05, 10), "sigmoid": lambda o, a, b: o.sigmoid(a, 0.01, 3),
    "celu": lambda o, a, b: o.celu(a, 0.05, 100, 1.3),
}  # fmt: skip
_ROUNDING = {"elu", "hardswish", "celu", "leaky_relu", "add_scalar_beyond"}  # PyTorch's vectors and scalars round in different orders


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name: str) -> None:
    def function(t: Any, x: Any, y: Any) -> Any:
        return PAIRS[name](t.ops.quantized, _q(t, x, 0.03, 100), _q(t, y, 0.05, 90))

    both(function, values((40, 50), 1), values((40, 50), 2), quanta=int(name in _ROUNDING))


@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["linear", "linear_relu", "linear_dynamic", "linear_relu_dynamic"])
def test_linear(kind: str, channels: bool, bias: bool) -> None:
    def function(t: Any, x: Any, w: Any, b: Any) -> Any:
        scales = w.abs().amax(1).double() / 127
        qw = t.quantize_per_channel(w, scales, t.zeros(24).long(), 0, t.qint8) if channels else _q(t, w, 0.007, 0, "qint8")
        packed = t.ops.quantized.linear_prepack(qw, b if bias else None)
        if "dynamic" in kind:
            return getattr(t.ops.quantized, kind)(x, packed, True), getattr(t.ops.quantized, kind)(x[0], packed)
        return getattr(t.ops.quantized, kind)(_q(t, x, 0.04, 60), packed, 0.05, 0 if "relu" in kind else 100)

    both(function, values((3, 5, 64), 1), values((24, 64), 2, 0.2), values((24,), 3))


CONVOLUTIONS = [
    (1, (2, 6, 20), (8, 6, 3), (2,), (1,), (1,), 1), (2, (2, 8, 12, 13), (16, 8, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    (2, (1, 8, 12, 13), (8, 1, 3, 3), (2, 1), (0, 1), (2, 2), 8),
    (3, (1, 4, 6, 6, 6), (4, 4, 2, 2, 2), (1, 1, 1), (0, 0, 0), (1, 1, 1), 1),
]  # fmt: skip


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("relu", [False, True])
def test_convolutions(case: Any, relu: bool) -> None:
    dims, shape, filters, stride, padding, dilation, groups = case

    def function(t: Any, x: Any, w: Any, b: Any) -> Any:
        operators = t.ops.quantized
        qw = t.quantize_per_channel(w, w.abs().flatten(1).amax(1).double() / 127, t.zeros(filters[0]).long(), 0, t.qint8)
        packed = getattr(operators, f"conv{dims}d_prepack")(qw, b, list(stride), list(padding), list(dilation), groups)
        return getattr(operators, f"conv{dims}d" + "_relu" * relu)(_q(t, x, 0.03, 100), packed, 0.09, 0 if relu else 70)

    both(function, values(shape, 1), values(filters, 2, 0.2), values((filters[0],), 3))


@pytest.mark.parametrize("name", ["batch_norm2d", "batch_norm2d_relu", "layer_norm", "group_norm", "instance_norm"])
def test_norms(name: str) -> None:
    def function(t: Any, x: Any, w: Any, b: Any, m: Any) -> Any:
        q, o = _q(t, x, 0.03, 100), getattr(t.ops.quantized, name)
        if name.startswith("batch"):
            return o(q, w, b, m, w.abs() + 0.1, 1e-5, 0.05, 30)
        given = {"layer_norm": ([8, 5, 5], t.ones(8, 5, 5), t.zeros(8, 5, 5)), "group_norm": (2, w, b), "instance_norm": (w, b)}[name]
        return o(q, *given, 1e-5, 0.05, 30)

    both(function, values((2, 8, 5, 5), 1), values((8,), 2), values((8,), 3), values((8,), 4), quanta=1)


def test_unpacking_and_errors() -> None:
    w = _q(ft, ft.randn(4, 8), 0.1, 0, "qint8")
    packed = ft.ops.quantized.linear_prepack(w, None)
    weight, bias = ft.ops.quantized.linear_unpack(packed)
    assert bias is None and ft.equal(weight, w)
    with pytest.raises(RuntimeError, match="last dim must be 8"):
        ft.ops.quantized.linear_dynamic(ft.ones(2, 7), packed)
    with pytest.raises(RuntimeError, match="expected a quantized tensor"):
        ft.ops.quantized.linear(ft.ones(2, 8), packed, 0.1, 0)
    with pytest.raises(RuntimeError, match=r"must be of torch\.qint8"):
        ft.ops.quantized.linear_prepack(_q(ft, ft.randn(4, 8), 0.1, 0), None)
    with pytest.raises(RuntimeError, match="same dtype"):
        ft.ops.quantized.add(w, _q(ft, ft.randn(4, 8), 0.1, 0), 0.1, 0)
    with pytest.raises(AttributeError):
        _ = ft.ops.quantized.no_such_operator


def test_sums_of_a_large_weight_are_exact() -> None:
    """Products of the greatest integers, whose sums are beyond what 16 bits, and float32, hold exactly."""
    x = ft._make_per_tensor_quantized_tensor(ft.full((1, 4099), 255, dtype=ft.uint8), 1.0, 0)
    w = ft._make_per_tensor_quantized_tensor(ft.full((1, 4099), 127, dtype=ft.int8), 1.0, 0)
    packed = ft.ops.quantized.linear_prepack(w, None)
    assert packed._sums(x.int_repr(), 0).item() == 255 * 127 * 4099
    assert np.isclose(ft.ops.quantized.linear(x, packed, 1e6, 0).dequantize().item(), 133e6)
