"""Convolutions: where the taps of an output pixel lie (`Geometry`), and the packing of patches into panels.

A convolution is a matrix product with the patches matrix P[k][p] = source[channel, y, x], k = (channel, tap row, tap
column), p = output pixel, row-major. Only panels of P ever exist: `channels * taps` rows of `pitch` lanes, made from
the image rows as they are needed ("implicit GEMM", Chetlur et al. 2014, cuDNN). One geometry covers them all:

    y = oy * step_y + base_y + ty * tap_y,   x = ox * step_x + base_x + tx * tap_x,   zero outside the source

A forward convolution has base = -padding and tap = dilation. An input gradient runs over the output's gradient with
tap < 0, once for each residue of the pixel modulo the stride (`input_gradient_phases`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from math import gcd

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernels.matmul_element import Element


@dataclass(frozen=True, slots=True)
class Geometry:
    """Words of one phase, in this order, as i64. Strides and offsets are in elements."""

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
    block: int = 0  # pixels of one unit of work
    out_offset: int = 0
    out_y: int = 0  # distance of output rows
    out_x: int = 0  # distance of output columns
    weights_offset: int = 0  # packed weights of the phase, inside a group's
    channel_block: int = 1  # channels packed at a time
    # The taps among the kernel's: row first_y + ty * skip_y.
    first_y: int = 0
    skip_y: int = 1
    first_x: int = 0
    skip_x: int = 1

    @property
    def taps(self) -> int:
        return self.taps_y * self.taps_x

    def words(self) -> list[int]:
        return list(astuple(self))


WORDS = len(fields(Geometry))
_INDEX = {f.name: i for i, f in enumerate(fields(Geometry))}


def word_of(name: str) -> int:
    """Position of a field among the words of a geometry."""
    return _INDEX[name]


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


def load_word(b: Builder, pointer: str, index: int) -> str:
    return b.load("i64", b.gep("i64", pointer, index), 8)


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


def pack_patches(b: Builder, element: Element, width: int, pitch: int, kind: str, name: str = "pack_patches") -> str:
    """Text of `name(geometry, source, p, columns, channels, panel)`.

    Writes rows k = (channel, ty, tx) of `pitch` lanes of the compute type: the patches of the output pixels
    p .. p + columns, then zeros up to a multiple of `width` lanes. `source` is the address of the first channel.
    """
    word = {name: load_word(b, "%geometry", index) for name, index in _INDEX.items() if index <= word_of("stride_x")}
    compute, memory, itemsize = element.compute, element.memory, element.memory_bytes
    end = b.add("%p", "%columns")
    padding = b.op(f"and i64 {b.sub(0, '%columns')}, {width - 1}")
    row_step = b.mul(b.mul(word["taps_y"], word["taps_x"]), pitch)
    first_row = b.sdiv("%p", word["width"])
    last_row = b.sdiv(b.sub(end, 1), word["width"])
    with b.for_(first_row, b.add(last_row, 1)) as oy:
        row_start = b.mul(oy, word["width"])
        row_end = b.add(row_start, word["width"])
        start = b.max("%p", row_start)
        stop = b.min(end, row_end)
        at = b.sub(start, "%p")
        length = b.sub(stop, start)
        last = b.op(f"icmp eq i64 {stop}, {end}")
        stored = b.add(length, b.op(f"select i1 {last}, i64 {padding}, i64 0"))
        ox = b.sub(start, row_start)
        x_first = b.add(b.mul(ox, word["step_x"]), word["base_x"])
        y_first = b.add(b.mul(oy, word["step_y"]), word["base_y"])
        with b.for_(0, word["taps_y"]) as ty:
            y = b.add(y_first, b.mul(ty, word["tap_y"]))
            inside = b.op(f"icmp ult i64 {y}, {word['source_height']}")
            row = b.gep(memory, "%source", b.mul(y, word["stride_y"]))
            reachable = b.op(f"select i1 {inside}, i64 {length}, i64 0")
            with b.for_(0, word["taps_x"]) as tx:
                x = b.add(x_first, b.mul(tx, word["tap_x"]))
                below, beyond = b.sub(0, x), b.sub(word["source_width"], x)
                if kind == UNIT:
                    low, high = below, beyond
                elif kind == PAIR:
                    low, high = (b.op(f"ashr i64 {b.add(v, 1)}, 1") for v in (below, beyond))
                else:  # ceil(v / step), with v made non-negative
                    up = b.sub(word["step_x"], 1)
                    low, high = (b.sdiv(b.add(b.max(v, 0), up), word["step_x"]) for v in (below, beyond))
                low, high = b.max(low, 0), b.min(high, reachable)
                k = b.add(b.mul(ty, word["taps_x"]), tx)
                target = b.gep(compute, b.gep(compute, "%panel", b.mul(k, pitch)), at)
                origin = b.gep(memory, row, b.mul(x, word["stride_x"]))
                distance = b.mul(word["step_x"], word["stride_x"])
                with b.for_(0, stored, width) as v:
                    read = masked_read(b, memory, width, itemsize, kind, b.sub(low, v), b.sub(high, v), distance)
                    write = bit_mask(b, width, 0, b.sub(stored, v))
                    source = b.gep(memory, origin, b.mul(v, distance))
                    to = b.gep(compute, target, v)
                    with b.for_(0, "%channels") as c:
                        value = element.widen(b, width, read(b.gep(memory, source, b.mul(c, word["stride_channel"]))))
                        address = b.gep(compute, to, b.mul(c, row_step))
                        if width == 1:
                            b.store(compute, value, address, element.compute_bytes)
                        else:
                            b.masked_store(compute, width, value, address, write, element.compute_bytes)
    return b.function(f"define internal void @{name}(ptr noalias %geometry, ptr noalias %source, i64 %p, i64 %columns, i64 %channels, ptr noalias %panel) #0")
