"""Inputs for the emitters' tests, and the arithmetic of their checks: edge cases, units in the last place."""

from __future__ import annotations

from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.dtypes import dtype

Array = np.ndarray[Any, Any]
EDGES = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5)


def kind(d: dtype) -> np.dtype[Any]:
    """The NumPy type whose bytes are those of `d` (bfloat16: its bits)."""
    return np.dtype(d.numpy_name or "uint16")


def to_bfloat16(x: Array) -> Array:
    """float32 -> bfloat16 bits, to nearest even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(x), 0x7FC0, rounded).astype(np.uint16)


def from_bfloat16(bits: Array) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def widen(d: dtype, x: Array) -> Array:
    """Stored values as an array that NumPy can compute with (bfloat16 as float32)."""
    return from_bfloat16(x) if d is dtypes.bfloat16 else x


def rounded(d: dtype, x: Array) -> Array:
    """Computed values as `d` stores them."""
    if d is dtypes.bfloat16:
        return to_bfloat16(x)
    with np.errstate(over="ignore"):
        return x.astype(kind(d))


def quiet(x: Array) -> Array:
    """NaN patterns made the usual quiet one: which payload survives is nobody's promise."""
    return np.where(np.isnan(x), np.array(np.nan, x.dtype), x)


def sample(d: dtype, count: int, seed: int) -> Array:
    """`count` stored values of `d`: edge cases, everyday sizes and, of the wide types, any bit pattern."""
    random = np.random.default_rng(seed)
    if d is dtypes.bool_:
        return random.integers(0, 2, count).astype(np.bool_)
    if d.is_complex:
        parts = sample(d.to_real(), 2 * count, seed)
        return np.where(np.isfinite(parts) & (abs(parts) < 1e6), parts, 1.0).astype(parts.dtype).view(kind(d))
    if not d.is_floating_point:
        info = np.iinfo(kind(d))
        wide = random.integers(info.min, info.max, count, dtype=kind(d), endpoint=True)
        near = random.integers(-9 if info.min else 0, 9, count).astype(kind(d))
        values = np.where(random.random(count) < 0.5, wide, near)
        values[:5] = info.min, info.max, 0, 1, info.max - 1
        return values
    bits = np.dtype(f"uint{8 * d.itemsize}")
    near = rounded(d, (random.standard_normal(count) * 4).astype(np.float64 if d.itemsize == 8 else np.float32))
    any_bits = random.integers(0, np.iinfo(bits).max, count, dtype=bits, endpoint=True).view(near.dtype)
    any_bits = rounded(d, quiet(widen(d, any_bits)))
    values = np.where(random.random(count) < 0.3, any_bits, near)
    values[: len(EDGES)] = rounded(d, np.array(EDGES))
    return values


def same(got: Array, wanted: Array) -> Any:
    """Equal bit for bit, any NaN equal to any other."""
    if np.iscomplexobj(got):
        return same(got.real, wanted.real) & same(got.imag, wanted.imag)
    if got.dtype.kind != "f":
        return got == wanted
    return ((got == wanted) & (np.signbit(got) == np.signbit(wanted))) | (np.isnan(got) & np.isnan(wanted))


def assert_same(got: Array, wanted: Array, *inputs: Array) -> None:
    """Fails with the first input that differs."""
    assert got.dtype == wanted.dtype, f"{got.dtype} is not {wanted.dtype}"
    bad = np.flatnonzero(~same(got, wanted))
    assert not len(bad), f"{len(bad)} of {len(got)} differ, first at {[x[bad[0]] for x in inputs]}: got {got[bad[0]]!r}, wanted {wanted[bad[0]]!r}"


def ulps(got: Array, wanted: Array) -> Array:
    """Error in units in the last place of `wanted` (of a wider type), as `got`'s type has them.

    Overflow to infinity counts as right where rounding `wanted` overflows too; NaN must meet NaN.
    """
    info = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        wide = wanted.astype(np.longdouble)
        size = np.maximum(np.abs(wide), np.longdouble(info.smallest_normal))
        unit = np.ldexp(np.longdouble(1), np.frexp(size)[1] - 1 - info.nmant)
        error = np.abs(got.astype(np.longdouble) - wide) / unit
        as_type = wide.astype(got.dtype)
        error = np.where((got == as_type) & np.isinf(got), 0, error)
        error = np.where(np.isnan(got) & np.isnan(wide), 0, error)
        return np.where(np.isnan(error), np.inf, error).astype(np.float64)
