"""The exactly defined primitives against PyTorch on the CPU, where it is installed: bit for bit, every real dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.compiler.graph import COMPARE, UNARY_TO_BOOL
from flambeau.dtypes import ALL, bool_, dtype
from tests.emit.native import apply
from tests.emit.samples import assert_same, kind, sample, widen

torch = pytest.importorskip("torch")
Array = np.ndarray[Any, Any]
REAL = tuple(d for d in ALL if not d.is_complex)
BINARY = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "true_divide", "div_floor": "floor_divide",
    "remainder": "remainder", "fmod": "fmod", "maximum": "maximum", "minimum": "minimum", "fmax": "fmax",
    "fmin": "fmin", "copysign": "copysign", "nextafter": "nextafter", "bitwise_and": "bitwise_and",
    "bitwise_or": "bitwise_or", "bitwise_xor": "bitwise_xor", "shift_left": "bitwise_left_shift",
    "shift_right": "bitwise_right_shift", "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
}  # fmt: skip
UNARY = {
    "neg": "neg", "abs": "abs", "sgn": "sgn", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "round",
    "reciprocal": "reciprocal", "bitwise_not": "bitwise_not", "isnan": "isnan",
}  # fmt: skip
FLOAT_ONLY = frozenset(("div", "copysign", "nextafter", "reciprocal"))
INTEGER_ONLY = frozenset(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "shift_left", "shift_right"))
NOT_BOOL = frozenset(
    ("sub", "div_floor", "remainder", "fmod", "shift_left", "shift_right", "neg", "abs", "sgn", "fmax", "fmin",
     "floor", "ceil", "trunc", "round")
)  # fmt: skip
DIVISIONS = frozenset(("div_floor", "remainder", "fmod"))


def meant(op: str, d: dtype) -> bool:
    """Whether PyTorch has the operation for the dtype without promoting it first."""
    if d is bool_:
        return op not in NOT_BOOL | FLOAT_ONLY
    return op not in (INTEGER_ONLY if d.is_floating_point else FLOAT_ONLY)


def tensor(d: dtype, x: Array) -> Any:
    if d is dtypes.bfloat16:
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


def array(t: Any) -> Array:
    if t.dtype == torch.bfloat16:
        return np.asarray(t.view(torch.int16).numpy()).view(np.uint16)
    return np.asarray(t.numpy())


def check(op: str, name: str, d: dtype, *inputs: Array) -> None:
    output = bool_ if op in COMPARE or op in UNARY_TO_BOOL else d
    got = widen(output, apply(op, d, *inputs, output=output))
    wanted = widen(output, array(getattr(torch, name)(*(tensor(d, x) for x in inputs))))
    if op in ("maximum", "minimum", "fmax", "fmin"):  # which zero wins depends on PyTorch's vector path
        got, wanted = got + np.zeros(1, got.dtype), wanted + np.zeros(1, wanted.dtype)
    assert_same(got, wanted, *(widen(d, x) for x in inputs))


@pytest.mark.parametrize("d", REAL, ids=lambda d: d.name)
def test_binary(d: dtype) -> None:
    for op, name in BINARY.items():
        if not meant(op, d):
            continue
        a, c = sample(d, 2000, 20), sample(d, 2000, 21)
        if op in DIVISIONS:
            if d.is_floating_point:  # PyTorch's vector fmod gives NaN for quotients past 2^24 or so; ours is exact
                with np.errstate(all="ignore"):
                    near = np.abs(widen(d, a).astype(np.float64) / widen(d, c).astype(np.float64)) < 1e5
                a, c = a[near], c[near]
            else:  # PyTorch raises for zero, and the least integer over -1 is undefined there
                c[(c == 0) | ((c == kind(d).type(-1)) if d.is_signed else False)] = 3
        check(op, name, d, a, c)


@pytest.mark.parametrize("d", REAL, ids=lambda d: d.name)
def test_unary(d: dtype) -> None:
    for op, name in UNARY.items():
        if meant(op, d):
            check(op, name, d, sample(d, 2000, 22))


@pytest.mark.parametrize("source", REAL, ids=lambda d: d.name)
def test_casts(source: dtype) -> None:
    x = sample(source, 2000, 23)
    for target in REAL:
        got = apply("cast", source, x, output=target, attrs={"dtype": target})
        wanted = array(tensor(source, x).to(getattr(torch, target.name)))
        assert_same(widen(target, got), widen(target, wanted), widen(source, x))
