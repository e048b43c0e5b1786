"""Casts, and the ways between memory and registers: contiguous, masked, indexed, interleaved; reductions of lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.compiler.emit import scalar
from flambeau.compiler.emit.builder import Builder
from flambeau.dtypes import ALL, bool_, dtype
from tests.emit.native import WIDTHS, address, apply, launch, pointwise
from tests.emit.samples import assert_same, from_bfloat16, kind, rounded, sample, widen

Array = np.ndarray[Any, Any]


def _int32_of(x: Array) -> Array:
    """C truncation to int32; out of range and NaN give the least one (cvttps2dq)."""
    wide = x.astype(np.float64)
    inside = (np.trunc(wide) >= -(2**31)) & (np.trunc(wide) < 2**31)
    return np.where(inside, np.where(inside, wide, 0).astype(np.int64), -(2**31)).astype(np.int32)


def _int64_of(x: Array) -> Array:
    wide = x.astype(np.float64)
    inside = (wide >= -(2.0**63)) & (wide < 2.0**63)
    return np.where(inside, np.where(inside, wide, 0).astype(np.int64), np.int64(-(2**63)))


def cast(source: dtype, target: dtype, stored: Array) -> Any:
    """What the cast must give, from NumPy: complex drops its imaginary part, narrow types go by way of float32."""
    x = widen(source, stored)
    with np.errstate(all="ignore"):
        if target is bool_:
            return x != 0
        if source.is_complex and not target.is_complex:
            return cast(source.to_real(), target, np.ascontiguousarray(x.real))
        if target.is_complex:
            return x.astype(kind(target))
        if target.is_floating_point:
            single = x if target.itemsize > 2 else x.astype(np.float32)
            return rounded(target, single)
        if source.is_floating_point:
            wide = target.itemsize == 8 or (source is dtypes.float64 and target is dtypes.uint8)
            return (_int64_of(x) if wide else _int32_of(x)).astype(kind(target))
        return x.astype(kind(target))


@pytest.mark.parametrize("source", ALL, ids=lambda d: d.name)
def test_casts(source: dtype) -> None:
    x = sample(source, 1500, 1)
    if source.is_floating_point:
        bounds = [2.0**31, 2.0**31 - 64, -(2.0**31), -(2.0**31) - 0.5, 2.0**63, -(2.0**63), 255.5, -0.5, 3e9, 1e12 + 77]
        x[20 : 20 + len(bounds)] = rounded(source, np.array(bounds))
    for target in ALL:
        got = apply("cast", source, x, output=target, attrs={"dtype": target})
        assert_same(widen(target, got), widen(target, cast(source, target, x)), x)


@pytest.mark.parametrize("d", ALL, ids=lambda d: d.name)
def test_masked_steps_read_and_write_only_their_lanes(d: dtype) -> None:
    for width in WIDTHS[1:]:
        for count in (1, width - 1, width + 3):
            x = sample(d, 40, 2)
            target = sample(d, 40, 3)
            before = target.copy()

            def write(b: Builder, width: int = width) -> None:
                source, out = address(b, 0), address(b, 1)
                with b.for_(0, "%end", width) as i:
                    mask = b.tail_mask(b.sub("%end", i), width)
                    element = f"[{d.itemsize} x i8]"
                    value = scalar.load(b, d, b.gep(element, source, i), width, mask)
                    scalar.store(b, d, value, b.gep(element, out, i), width, mask)

            launch(write, [x, target], count)
            assert_same(widen(d, target[:count]), widen(d, x[:count]), x[:count])
            assert target[count:].tobytes() == before[count:].tobytes()


@pytest.mark.parametrize("d", ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("masked", (False, True))
def test_gather_and_scatter(d: dtype, masked: bool) -> None:
    """out[to[i]] = x[at[i]]; under a mask the other lanes hold zero and touch nothing."""
    width, count = 8, 64
    random = np.random.default_rng(4)
    x = sample(d, 100, 5)
    at, to = random.integers(0, 100, count), random.permutation(count)
    keep = random.integers(0, 2, count).astype(np.bool_) if masked else np.ones(count, np.bool_)
    out = np.zeros(count, kind(d))
    held = np.full(count, 1, kind(d))
    at[~keep] = -(10**9)  # reading there would fault

    def write(b: Builder) -> None:
        source, indices, targets, mask, scattered, contiguous = (address(b, i) for i in range(6))
        with b.for_(0, "%end", width) as i:
            index = b.load(f"<{width} x i64>", b.gep("i64", indices, i), 8)
            target = b.load(f"<{width} x i64>", b.gep("i64", targets, i), 8)
            bits = scalar.load(b, bool_, b.gep("i8", mask, i), width) if masked else None
            assert bits is None or isinstance(bits, str)
            value = scalar.gather(b, d, source, index, width, bits)
            scalar.scatter(b, d, value, scattered, target, width, bits)
            scalar.store(b, d, value, b.gep(f"[{d.itemsize} x i8]", contiguous, i), width)

    launch(write, [x, at, to, keep, out, held], count)
    wanted = np.zeros(count, kind(d))
    wanted[to[keep]] = x[at[keep]]
    assert_same(widen(d, out), widen(d, wanted), to)
    read = np.where(keep, x[np.where(keep, at, 0)], np.zeros(1, kind(d)))
    assert_same(widen(d, held), widen(d, read), at)


def test_any_byte_but_zero_is_true() -> None:
    stored = np.array([0, 1, 2, 128, 255, 0], np.uint8).view(np.bool_)
    got = pointwise(lambda b, values, w: values[0], [bool_], bool_, 4, [stored])
    assert got.view(np.uint8).tolist() == [0, 1, 1, 1, 1, 0]


@pytest.mark.parametrize("d", ALL, ids=lambda d: d.name)
def test_constants_and_broadcast(d: dtype) -> None:
    for number in (0, 1, 3, 0.1 if d.is_floating_point else 7):
        for width in WIDTHS:

            def body(b: Builder, values: list[scalar.Value], w: int, number: complex = number) -> scalar.Value:
                return scalar.broadcast(b, d, scalar.constant(b, d, number, 1), w)

            got = pointwise(body, [d], d, width, [sample(d, 20, 6)])
            wanted = rounded(d, np.full(20, number, np.float32 if d.itemsize == 2 and d.is_floating_point else None))
            assert_same(widen(d, got), widen(d, wanted))


def test_where_selects_every_dtype() -> None:
    keep = sample(bool_, 50, 7)
    for d in ALL:
        x, y = sample(d, 50, 8), sample(d, 50, 9)

        def body(b: Builder, values: list[scalar.Value], w: int, d: dtype = d) -> scalar.Value:
            return scalar.apply(b, "where", d, values, w)

        got = pointwise(body, [bool_, d, d], d, 4, [keep, x, y])
        assert_same(widen(d, got), widen(d, np.where(keep, x, y)), keep)


@pytest.mark.parametrize("d", ALL, ids=lambda d: d.name)
@pytest.mark.parametrize("op", ("sum", "prod", "amax", "amin"))
def test_reductions_of_lanes(op: str, d: dtype) -> None:
    """Sixteen lanes and the identity, halved four times: the same tree in NumPy gives the same bits."""
    if d.is_complex and op in ("amax", "amin"):
        pytest.skip("complex numbers have no order")
    width = 16
    x = sample(d, width + 20, 10)[20:]
    out = np.zeros(1, kind(d))

    def write(b: Builder) -> None:
        value = scalar.load(b, d, address(b, 0), width)
        identity = scalar.broadcast(b, d, scalar.reduce_identity(op, d), width)
        value = scalar.reduce_combine(b, op, d, value, identity, width)
        total = scalar.horizontal(b, op, d, value, width)
        scalar.store(b, d, scalar.round_to(b, d, total, 1), address(b, 1), 1)

    launch(write, [x, out], 1)
    rule = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}[op]
    values = widen(d, x).astype(np.float32) if d.itemsize == 2 and d.is_floating_point else x
    if d.is_complex and op == "prod":  # NumPy's complex product may fuse
        assert np.allclose(out[0], np.prod(values), rtol=1e-5)
        return
    with np.errstate(all="ignore"):
        while len(values) > 1:
            values = rule(values[: len(values) // 2], values[len(values) // 2 :])
    assert_same(widen(d, out), widen(d, rounded(d, values)), x[:1])


def test_amax_keeps_nan() -> None:
    x = np.array([1, np.nan, 3, 4], np.float32)
    for width in (2, 4):
        out = np.zeros(1, np.float32)

        def write(b: Builder, width: int = width) -> None:
            value = scalar.load(b, dtypes.float32, address(b, 0), width)
            scalar.store(b, dtypes.float32, scalar.horizontal(b, "amax", dtypes.float32, value, width), address(b, 1), 1)

        launch(write, [x, out], 1)
        assert np.isnan(out[0])


def test_bfloat16_keeps_subnormals() -> None:
    """x86's own conversion would flush them."""
    x = np.array([2.0**-130, -(2.0**-133), 3 * 2.0**-133], np.float32)
    got = apply("cast", dtypes.float32, x, output=dtypes.bfloat16, attrs={"dtype": dtypes.bfloat16})
    assert from_bfloat16(got).tolist() == x.tolist()
