"""The two float16 halves of a float32, and which blocks may be multiplied by them, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernels import float_halves
from flambeau.compiler.kernels.bfloat_parts import Extent
from flambeau.runtime import target
from tests.kernels.test_bfloat_parts import call

COUNT = 4096
pytestmark = pytest.mark.skipif(target.vector_bits() < 512, reason="vectors of 16 float32 are wanted")


@pytest.mark.parametrize("scale", [1.0, 2.0**-10, 2.0**7])
def test_halves_hold_22_bits_and_a_sign(scale: float) -> None:
    rng = np.random.default_rng(0)
    exponents = rng.integers(float_halves.TOP - float_halves.RANGE, float_halves.TOP + 1, COUNT)
    x = (np.exp2(exponents) * rng.uniform(1, 2, COUNT) * rng.choice([-1, 1], COUNT) / scale).astype(np.float32)
    x[:16] = np.arange(16) * 100 / scale  # short: no lo
    x[16], x[17] = (2.0 ** (float_halves.TOP + 1) - 2.0**-9) / scale, 2.0 ** (float_halves.TOP - float_halves.RANGE) / scale  # the ends
    outputs = [np.zeros(COUNT, np.float16) for _ in range(2)]

    def write(b: Builder) -> None:
        with b.for_(0, COUNT, 16) as i:
            value = b.load("<16 x float>", b.gep("float", "%x", i), 4)
            for at, half in enumerate(float_halves.split_halves(b, 16, value, b.splat("float", 16, str(scale)))):
                b.store("<16 x half>", half, b.gep("half", f"%out{at}", i), 2)

    call(f"test:float_halves:split:{scale}", write, outputs, x)
    hi, lo = (half.astype(np.float64) for half in outputs)
    exact = x.astype(np.float64) * scale
    off = np.abs(hi + lo * 2.0**-float_halves.LOW_BITS - exact)
    assert (off <= 2.0**-23 * np.abs(exact)).all() and np.isfinite(lo).all()
    assert 0.65 < np.mean(off == 0) < 0.85  # the last bit of a quarter is lost
    np.testing.assert_array_equal(lo[:16], 0)


ONES, TENTHS = [1.0] * 32, [0.1, -0.3] * 16


@pytest.mark.parametrize(
    ("left", "right", "fit"),
    [
        (TENTHS, TENTHS, True), (ONES, ONES, True), (ONES, TENTHS, False), ([0.0], TENTHS, True), ([0.0], ONES, True),
        ([0.1], TENTHS, False),  # sparse
        ([1.0], ONES, True), ([1.0], TENTHS, False),  # one-hot
        ([1e-8, *TENTHS[1:]], TENTHS, True), ([1e-11, *TENTHS[1:]], TENTHS, False), ([2.0**-40, *ONES[1:]], ONES, False),
        ([np.inf, *TENTHS[1:]], TENTHS, False), ([np.nan, *TENTHS[1:]], TENTHS, False), ([1e-40, *TENTHS[1:]], TENTHS, False),
        ([x * 1e-28 for x in TENTHS], [x * 1e28 for x in TENTHS], True), ([x * 1e-19 for x in TENTHS], [x * 1e-19 for x in TENTHS], False),
        ([x * 1e22 for x in TENTHS], [x * 1e22 for x in TENTHS], False), ([3.4e38] * 32, TENTHS, False),
    ],
)  # fmt: skip
def test_which_blocks_go_together(left: list[float], right: list[float], fit: bool) -> None:
    """As a panel's packing and a product's driver decide; the scale taken back is exact."""
    x = np.zeros(64, np.float32)
    x[: len(left)], x[32 : 32 + len(right)] = left, right
    outputs = [np.zeros(1, np.uint8), np.zeros(1, np.float32)]

    def write(b: Builder) -> None:
        extent, blocks = Extent(16), []
        for first in (0, 32):

            def some(i: str, *seen: str) -> list[str]:
                return extent.include(b, b.load("<16 x float>", b.gep("float", "%x", i), 4), *seen)

            low, high = extent.reduce(b, *b.loop(first, first + 32, 16, some, extent.start()))
            exponent = float_halves.scale_exponent(b, high)
            scale = b.splat("float", 16, float_halves.power(b, exponent))

            def count(i: str, nonzero: str, bits: str, scale: str = scale) -> list[str]:
                value = b.load("<16 x float>", b.gep("float", "%x", i), 4)
                there = b.op(f"zext <16 x i1> {b.op(f'fcmp une <16 x float> {value}, zeroinitializer')} to <16 x i32>")
                sum_ = b.call("i32", "llvm.vector.reduce.add.v16i32", [("<16 x i32>", there)])
                _, lo = float_halves.split_halves(b, 16, value, scale)
                set_ = b.call("i16", "llvm.vector.reduce.or.v16i16", [("<16 x i16>", b.op(f"bitcast <16 x half> {lo} to <16 x i16>"))])
                return [b.op(f"add i32 {nonzero}, {sum_}"), b.op(f"or i32 {bits}, {b.op(f'zext i16 {set_} to i32')}")]

            nonzero, bits = b.loop(first, first + 32, 16, count, [("i32", "0"), ("i32", "0")])
            short = b.op(f"icmp eq i32 {bits}, 0")
            blocks.append((exponent, float_halves.kind(b, low, high, nonzero, "32", short)))
        fits, back = float_halves.together(b, blocks[0], blocks[1])
        b.store("i8", b.op(f"zext i1 {fits} to i8"), "%out0", 1)
        b.store("float", back, "%out1", 4)

    call("test:float_halves:together", write, outputs, x)
    assert bool(outputs[0][0]) == fit
    assert np.frexp(outputs[1][0])[0] == 0.5 and outputs[1][0] >= np.finfo(np.float32).smallest_normal
