"""Convolutions: where the taps of an output pixel lie (`Geometry`), and how vectors of source pixels are read.

A convolution is a matrix product with the patches matrix P[k][p] = source[channel, y, x], k = (channel, tap row, tap
column), p = output pixel, row-major, which never exists as a whole ("implicit GEMM", Chetlur et al. 2014, cuDNN). One geometry covers all:

    y = oy * step_y + base_y + ty * tap_y,   x = ox * step_x + base_x + tx * tap_x,   zero outside the source

A forward convolution has base = -padding and tap = dilation. An input gradient runs over the output's gradient with
tap < 0, once for each residue of the pixel modulo the stride (`input_gradient_phases`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernels.convolution_problem import Problem


@dataclass(frozen=True, slots=True)
class Geometry:
    """One phase. Strides and offsets are in elements."""

    taps_y: int
    taps_x: int
    step_y: int
    step_x: int
    base_y: int
    base_x: int
    tap_y: int
    tap_x: int
    width: int  # output pixels a row
    source_height: int
    source_width: int
    stride_channel: int
    stride_y: int
    stride_x: int
    pixels: int = 0  # output pixels of the phase
    out_offset: int = 0
    out_y: int = 0  # distance of output rows
    out_x: int = 0  # distance of output columns
    # The taps among the kernel's: row first_y + ty * skip_y.
    first_y: int = 0
    skip_y: int = 1
    first_x: int = 0
    skip_x: int = 1

    @property
    def taps(self) -> int:
        return self.taps_y * self.taps_x


@dataclass(frozen=True, slots=True)
class PhaseAxis:
    """One residue of an input gradient along one axis: every `stride`-th pixel and the taps that reach it."""

    pixels: int
    taps: int
    base: int
    tap: int
    first: int
    skip: int


def input_gradient_phases(size: int, kernel: int, stride: int, padding: int, dilation: int) -> list[PhaseAxis]:
    """The phases of an input gradient along one axis of `size` pixels.

    Pixel i = r + stride * t gets g[(i + padding - k * dilation) / stride] for the taps k where that divides. Those are
    k = first + skip * j, with skip = stride / gcd(stride, dilation); their source is t + base + j * tap.
    """
    skip = stride // gcd(stride, dilation)
    phases = []
    for r in range(stride):
        pixels = -(-(size - r) // stride) if size > r else 0
        first = next((k for k in range(min(skip, kernel)) if (r + padding - k * dilation) % stride == 0), None)
        if first is None:
            phases.append(PhaseAxis(pixels, 0, 0, 0, 0, 1))
        else:
            base = (r + padding - first * dilation) // stride
            phases.append(PhaseAxis(pixels, -(-(kernel - first) // skip), base, -(skip * dilation // stride), first, skip))
    return phases


def phases(p: Problem, gradient: bool) -> list[Geometry]:
    """The phases of the problem without their blocking. Source: x, or y's gradient."""
    (sy, sx), (py, px), (dy, dx) = p.stride, p.padding, p.dilation
    kernel = p.w.shape[2:]
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    _, _, height, width = source.shape
    _, channel, row, column = source.strides
    if width == 1:
        column = 1  # a dim of one element may have any stride: take the one that reads fastest
    _, _, out_height, out_width = out.shape
    _, _, out_y, out_x = out.strides
    if not gradient:
        return [
            Geometry(
                kernel[0], kernel[1], sy, sx, -py, -px, dy, dx, out_width, height, width, channel, row, column,
                pixels=out_height * out_width, out_y=out_y, out_x=out_x,
            )
        ]  # fmt: skip
    phases = []
    for ry, ay in enumerate(input_gradient_phases(out_height, kernel[0], sy, py, dy)):
        for rx, ax in enumerate(input_gradient_phases(out_width, kernel[1], sx, px, dx)):
            phases.append(
                Geometry(
                    ay.taps, ax.taps, 1, 1, ay.base, ax.base, ay.tap, ax.tap, ax.pixels, height, width, channel, row,
                    column,
                    pixels=ay.pixels * ax.pixels, out_offset=ry * out_y + rx * out_x, out_y=sy * out_y,
                    out_x=sx * out_x,
                    first_y=ay.first, skip_y=ay.skip, first_x=ax.first, skip_x=ax.skip,
                )
            )  # fmt: skip
    return phases


def bit_mask(b: Builder, width: int, low: str | int, high: str | int) -> str:
    """<width x i1> with lanes low <= i < high set; low and high may be any i64."""

    def below(limit: str | int) -> str:
        clamped = b.max(b.min(limit, width), 0)
        return b.sub(b.op(f"shl i64 1, {clamped}"), 1)

    bits = below(high)
    if str(low) != "0":
        bits = b.op(f"and i64 {bits}, {b.op(f'xor i64 {below(low)}, -1')}")
    if width == 1:
        return b.op(f"trunc i64 {bits} to i1")
    return b.op(f"bitcast i{width} {b.op(f'trunc i64 {bits} to i{width}')} to <{width} x i1>")


# How a vector of source elements is read: neighbours, every second one, or a gather.
UNIT, PAIR, GATHER = "unit", "pair", "gather"


def read_kind(step_x: int, stride_x: int) -> str:
    """The kind of read for output pixels `step_x` source columns apart."""
    if stride_x == 1 and step_x in (1, 2):
        return UNIT if step_x == 1 else PAIR
    return GATHER


def masked_read(
    b: Builder, element: str, width: int, itemsize: int, kind: str, low: str, high: str, distance: str
) -> Callable[[str], str]:  # fmt: skip
    """A function of an address that reads the lanes low <= i < high of elements `distance` apart, others zero.

    The masks are made here, once; the function returned is called for each channel, with the address of lane 0.
    """
    type_ = vector(element, width)
    if kind == PAIR and width > 1:
        # Elements 2i; the last element read is 2 * high - 2, never beyond the row.
        start, stop = b.mul(low, 2), b.sub(b.mul(high, 2), 1)
        first = bit_mask(b, width, start, stop)
        second = bit_mask(b, width, b.sub(start, width), b.sub(stop, width))
        even = ", ".join(f"i32 {2 * i}" for i in range(width))

        def read_pair(at: str) -> str:
            x = b.masked_load(element, width, at, first, itemsize)
            y = b.masked_load(element, width, b.gep(element, at, width), second, itemsize)
            return b.op(f"shufflevector {type_} {x}, {type_} {y}, <{width} x i32> <{even}>")

        return read_pair
    mask = bit_mask(b, width, low, high)
    if kind == UNIT and width > 1:
        return lambda at: b.masked_load(element, width, at, mask, itemsize)
    if width == 1:
        return lambda at: _masked_scalar(b, element, at, mask, itemsize)
    offsets = b.strided_lanes(width, distance)
    return lambda at: b.masked_gather(element, width, at, offsets, mask, itemsize)


def _masked_scalar(b: Builder, element: str, at: str, mask: str, itemsize: int) -> str:
    """A load under an i1: reads a zero of the stack where it is clear."""
    zero = b.fresh("zero")
    b.allocas.append(f"  {zero} = alloca {element}, align {itemsize}")
    b.allocas.append(f"  store {element} {'0.0' if element in ('float', 'double', 'half') else '0'}, ptr {zero}, align {itemsize}")
    return b.load(element, b.op(f"select i1 {mask}, ptr {at}, ptr {zero}"), itemsize)


def store_lanes(
    b: Builder, type_: str, itemsize: int, width: int, unit: bool, value: str, row: str, x: str, left: str, stride: str
) -> None:  # fmt: skip
    """Store the first `left` lanes of a vector in a row, at column x."""
    if unit and width > 1:
        b.masked_store(type_, width, value, b.gep(type_, row, x), bit_mask(b, width, 0, left), itemsize)
        return
    for lane in range(width):
        scalar = value if width == 1 else b.op(f"extractelement {vector(type_, width)} {value}, i32 {lane}")
        at = b.gep(type_, row, b.mul(b.add(x, lane), stride))
        with b.if_(b.op(f"icmp sgt i64 {left}, {lane}")):
            b.store(type_, scalar, at, itemsize)
