"""The three bfloat16 parts of a float32, and the extents of blocks, against NumPy."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from flambeau.compiler.emit.builder import Builder, module, vector
from flambeau.compiler.kernels import bfloat_parts
from flambeau.runtime import jit
from flambeau.runtime.target import Target

COUNT = 4096


def values() -> np.ndarray:
    """Random bits of every exponent that can be split, both signs; ties; zeros; the ends of the extent."""
    rng = np.random.default_rng(0)
    exponents = rng.integers(bfloat_parts.LEAST, bfloat_parts.MOST + 1, COUNT).astype(np.uint32)
    bits = (rng.integers(0, 2, COUNT).astype(np.uint32) << 31) | (exponents << 23) | rng.integers(0, 1 << 23, COUNT).astype(np.uint32)
    bits[:512] &= ~np.uint32(0x7FFF)
    bits[:512] |= 0x8000  # halfway between two bfloat16
    bits[512:1024] = (bits[512:1024] & 0xFFFF0000) | 0x7FFF  # the longest rests
    bits[1024:1026] = 0, 0x80000000
    bits[1026:1028] = bfloat_parts.LEAST << 23, (bfloat_parts.MOST << 23) | 0x7FFFFF
    return bits.view(np.float32)


def widened(words: np.ndarray) -> np.ndarray:
    return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def call(name: str, write: object, outputs: list[np.ndarray], x: np.ndarray) -> None:
    """Run `write(b, i)` for every lane group of x."""
    b = Builder(Target.host())
    write(b)  # type: ignore[operator]
    text = b.function(f"define i64 @{jit.symbol(name)}(ptr %x, ptr %out0, ptr %out1, ptr %out2) #0", "ret i64 0")
    pointers = [a.ctypes.data for a in (x, *outputs, *[outputs[0]] * (3 - len(outputs)))]
    ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_void_p] * 4)(jit.function(name, lambda: module([text], b.declarations, b.target)))(*pointers)


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_parts_add_up_exactly(lanes: int) -> None:
    x = values()
    outputs = [np.zeros(COUNT, np.uint16) for _ in range(3)]

    def write(b: Builder) -> None:
        with b.for_(0, COUNT, lanes) as i:
            parts = bfloat_parts.split(b, lanes, b.load(vector("float", lanes), b.gep("float", "%x", i), 4))
            for at, part in enumerate(parts):
                b.store(vector("i16", lanes), part, b.gep("i16", f"%out{at}", i), 2)

    call(f"test:bfloat_parts:split:{lanes}", write, outputs, x)
    hi, mid, lo = (widened(part) for part in outputs)
    np.testing.assert_array_equal(hi + mid + lo, x.astype(np.float64))  # exact in float64
    assert (np.abs(mid) <= np.abs(hi) * 2.0**-8).all() and (np.abs(lo) <= np.abs(hi) * 2.0**-16).all()


def test_pairs_are_the_parts_of_both() -> None:
    x = values()
    outputs = [np.zeros(COUNT // 2, np.uint32) for _ in range(3)]

    def write(b: Builder) -> None:
        with b.for_(0, COUNT // 2, 16) as i:
            first, second = (b.load("<16 x float>", b.gep("float", "%x", b.add(i, at)), 4) for at in (0, COUNT // 2))
            for at, part in enumerate(bfloat_parts.split_pairs(b, 16, first, second)):
                b.store("<16 x i32>", part, b.gep("i32", f"%out{at}", i), 4)

    call("test:bfloat_parts:pairs", write, outputs, x)
    low = sum(widened(part & 0xFFFF) for part in outputs)
    high = sum(widened(part >> 16) for part in outputs)
    np.testing.assert_array_equal(np.concatenate([low, high]), x.astype(np.float64))


def test_unsafe_lanes() -> None:
    x = values()
    x[:8] = np.inf, -np.inf, np.nan, 1e-42, -1e-30, 1e38, 2.0**-48, np.nextafter(np.float32(2.0**55), np.float32(0))
    out = np.zeros(COUNT, np.uint8)

    def write(b: Builder) -> None:
        with b.for_(0, COUNT, 16) as i:
            mask = bfloat_parts.unsafe(b, 16, b.load("<16 x float>", b.gep("float", "%x", i), 4))
            b.store("<16 x i8>", b.op(f"zext <16 x i1> {mask} to <16 x i8>"), b.gep("i8", "%out0", i), 1)

    call("test:bfloat_parts:unsafe", write, [out], x)
    size = np.abs(x)
    np.testing.assert_array_equal(out.astype(bool), ~((size == 0) | ((size >= 2.0**-48) & (size < 2.0**55))))


@pytest.mark.parametrize(
    ("left", "right", "safe"),
    [
        ([1.0], [1.0], True), ([0.0], [0.0], True), ([0.0], [1e-30], True), ([1e-20, 3.0], [1e-8], True),
        ([1e-20], [1e-20], False), ([1e30], [1e-20], True), ([1e20], [1e20], False), ([np.inf], [0.0], False),
        ([np.nan], [1.0], False), ([1e-40, 1.0], [1.0], False), ([1e-40], [0.0], False), ([-3e38], [0.0], False),
        ([1.0, -1e-31], [1.0], False), ([-1e-20], [-1e25, 1e25], True),
    ],
    ids=str,
)  # fmt: skip
def test_which_blocks_are_safe(left: list[float], right: list[float], safe: bool) -> None:
    x = np.zeros(64, np.float32)
    x[3 : 3 + len(left)] = left
    x[37 : 37 + len(right)] = right
    out = np.zeros(1, np.uint8)

    def write(b: Builder) -> None:
        extent = bfloat_parts.Extent(16)
        found = []
        for first in (0, 32):

            def some(i: str, *seen: str) -> list[str]:
                return extent.include(b, b.load("<16 x float>", b.gep("float", "%x", i), 4), *seen)

            found.append(extent.reduce(b, *b.loop(first, first + 32, 16, some, extent.start())))
        b.store("i8", b.op(f"zext i1 {bfloat_parts.are_safe(b, found[0], found[1])} to i8"), "%out0", 1)

    call("test:bfloat_parts:safe", write, [out], x)
    assert bool(out[0]) == safe
