"""Complex primitives against NumPy in complex128 (complex64) and in long double pairs (complex128)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.dtypes import dtype
from tests.emit.native import WIDTHS, apply
from tests.emit.samples import kind

Array = np.ndarray[Any, Any]
COMPLEX = (dtypes.complex64, dtypes.complex128)
UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative, "sgn": lambda z: np.where(z == 0, 0, z / np.where(z == 0, 1, np.abs(z))), "sqrt": np.sqrt,
    "rsqrt": lambda z: 1 / np.sqrt(z), "reciprocal": lambda z: 1 / z, "exp": np.exp, "exp2": np.exp2,
    "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p, "sin": np.sin,
    "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh,
    "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)), "conj_physical": np.conj,
}  # fmt: skip
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
}  # fmt: skip


def points(d: dtype, seed: int, count: int = 3000, spread: bool = True) -> Array:
    random = np.random.default_rng(seed)
    z = random.standard_normal(count) * 2 + 2j * random.standard_normal(count)
    if spread:
        z[: count // 4] *= np.exp(random.uniform(-3, 2, count // 4))
    return z.astype(kind(d))


def error(got: Array, wanted: Array, d: dtype) -> float:
    """The largest distance over |wanted|, in units of the type's epsilon."""
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.clongdouble) - wanted) / np.maximum(np.abs(wanted), np.finfo(kind(d)).tiny)
    return float(apart.max() / np.finfo(kind(d)).eps)


@pytest.mark.parametrize("d", COMPLEX, ids=lambda d: d.name)
@pytest.mark.parametrize("op", sorted(UNARY))
def test_unary(op: str, d: dtype) -> None:
    z = points(d, 1)
    if op == "sigmoid":  # 1 + e^-z cancels near its poles at odd multiples of i pi
        z = z[abs(z.imag) < 2]
    if op == "exp2":  # of e^(i y log 2) the error is that of y log 2, which is rounded
        z = z[abs(z.imag) < 4]
    got = apply(op, d, z, width=8)
    assert error(got, UNARY[op](z.astype(np.clongdouble)), d) < 5
    for width in WIDTHS:
        assert apply(op, d, z[:99], width=width).tobytes() == got[:99].tobytes()


@pytest.mark.parametrize("d", COMPLEX, ids=lambda d: d.name)
@pytest.mark.parametrize("op", sorted(BINARY))
def test_binary(op: str, d: dtype) -> None:
    a, c = points(d, 2, spread=op != "pow"), points(d, 3, spread=op != "pow")
    wanted = BINARY[op](a.astype(np.clongdouble), c.astype(np.clongdouble))
    bound = 30 if op == "pow" else 3  # of pow: the error of c log a, times |c log a|
    assert error(apply(op, d, a, c, width=8), wanted, d) < bound


@pytest.mark.parametrize("d", COMPLEX, ids=lambda d: d.name)
def test_parts_and_comparisons(d: dtype) -> None:
    a, c = points(d, 4), points(d, 5)
    c[::2] = a[::2]
    c[1] = complex(a[1].real, 0)
    real = d.to_real()
    assert (apply("real_part", d, a, output=real) == a.real).all()
    assert (apply("imag_part", d, a, output=real) == a.imag).all()
    assert np.allclose(apply("abs", d, a, output=real), np.abs(a), rtol=2 * np.finfo(kind(d)).eps, atol=0)
    assert (apply("eq", d, a, c) == (a == c)).all()
    assert (apply("ne", d, a, c) == (a != c)).all()
    a[3] = complex(1, np.nan)
    assert (apply("isnan", d, a) == np.isnan(a)).all()


@pytest.mark.parametrize("d", COMPLEX, ids=lambda d: d.name)
def test_large_numbers_neither_overflow_nor_underflow_early(d: dtype) -> None:
    big = float(np.finfo(kind(d)).max) / 4
    a = np.array([complex(big, big), complex(1 / big, 1 / big)], kind(d))
    assert np.isfinite(apply("abs", d, a, output=d.to_real())).all()
    assert np.allclose(apply("div", d, a, a), 1)
    assert np.isfinite(apply("log", d, a)).all()
    assert np.allclose(apply("sqrt", d, a) ** 2, a, atol=0)


def test_branch_cuts_follow_the_sign_of_zero() -> None:
    z = np.array([complex(-4, 0.0), complex(-4, -0.0)])
    assert apply("sqrt", dtypes.complex128, z).tolist() == [2j, -2j]
    assert np.allclose(apply("log", dtypes.complex128, z).imag, [np.pi, -np.pi])


def test_ordering_is_refused() -> None:
    with pytest.raises(TypeError, match="lt: no meaning for dtype complex64"):
        apply("lt", dtypes.complex64, points(dtypes.complex64, 6), points(dtypes.complex64, 7))
