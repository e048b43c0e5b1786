"""Convolutions by the matrix unit: the packing of pixels (see convolution_tiles.py for what they are used for).

    planes[pair of channels][part][sub-plane][image][row][column] of two 16-bit floats, one of each channel

A float32 has three bfloat16 parts or two float16 halves, a bfloat16 is its own. Channels beyond the last are zeros. A stride deals rows and columns to
sub-planes by their residue. Rows share the zeros between them where padding on both sides allows, and so do images.

With parts, the extent of an image block's elements is noted in the scratch (bfloat_parts.py). Halves have a scale, so a block is
looked at before (convolution_judgement.py). The weights: convolution_tile_weights.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import PARTS, Extent, split_pairs
from flambeau.compiler.kernels.convolution_judgement import look, put_notes, read_notes, scale_of, threshold
from flambeau.compiler.kernels.convolution_patches import UNIT, masked_read
from flambeau.compiler.kernels.convolution_problem import load_record
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.float_halves import halves_pairs
from flambeau.compiler.kernels.matmul_element import Element

ROWS = 32  # output channels of a panel
DEEP = 32  # channels of a step
TILE_BYTES = 1024
WIDTH = 16  # lanes of a vector of 512 bits, pixels of a tile
SLACK = 2 * WIDTH  # pixels behind a sub-plane that whole vectors may overwrite
HEADER = 64  # bytes a panel of weights, before all panels: its extent as two i32; of halves, exponent of scale and kind
COUNTS = {"plain": 1, "dots": 1, "parts": PARTS, "halves": 2}  # of 16-bit floats of an element, by form

# What the packing of pixels and the exact loop know of the images. Strides in elements.
SHAPE = (
    "channels", "pairs", "pair_bytes", "part_bytes", "top", "left", "deal_y", "deal_x", "sub_pixels", "image_pixels",
    "reach_y", "pitch", "source_height", "source_width", "stride_channel", "stride_y", "stride_x",
    "taps_y", "taps_x", "base_y", "base_x", "tap_y", "tap_x",
    "kernel_row", "kernel_channel", "kernel_y", "kernel_x", "out_row", "out_y", "block_channels",
)  # fmt: skip

_INTS, _SHORTS = f"<{WIDTH} x i32>", f"<{WIDTH} x i16>"
COPY: Final = Parameters("shape* source* planes* extent* y x rows")


def parts_of(element: Element) -> int:
    """bfloat16 numbers that an element is the sum of."""
    return PARTS if element.name == "float32" else 1


EXTENT = Extent(WIDTH)


def extent_in_memory(b: Builder, at: str) -> list[str]:
    """The extent that lies in 128 bytes of memory."""
    return [b.load(EXTENT.type, b.gep("i8", at, 64 * i), 64) for i in range(2)]


def put_extent(b: Builder, at: str, values: list[str]) -> None:
    for i, value in enumerate(values):
        b.store(EXTENT.type, value, b.gep("i8", at, 64 * i), 64)


def clear_extent(b: Builder, at: str) -> None:
    put_extent(b, at, [value for _, value in EXTENT.start()])


def lanes_inside(b: Builder, kind: str, start: str, step: str, size: str) -> tuple[str, str]:
    """The lanes low <= i < high for which start + i * step lies in [0, size); high may be below low."""
    low, high = b.sub(0, start), b.sub(size, start)
    if kind != UNIT:
        low, high = (b.op(f"udiv i64 {b.add(b.max(v, 0), b.sub(step, 1))}, {step}") for v in (low, high))
    return b.max(low, 0), high


# How what is carried along comes from memory and goes there, by form.
Carried = tuple[Callable[[Builder, str], list[str]], Callable[[Builder, str, list[str]], None]]
CARRIED: dict[str, Carried] = {"parts": (extent_in_memory, put_extent), "look": (read_notes, put_notes)}
NOTHING_CARRIED: Carried = (lambda b, at: [], lambda b, at, values: None)


def form_of_bits(element: Element) -> str:
    """The form that holds an element exactly."""
    return "plain" if element.name == "bfloat16" else "parts"


def copy_function(element: Element, kind: str, form: str) -> Function:
    """The packing of one image's block: `copy(shape, source, planes, extent, y, x, rows)`. `form`: of COUNTS, or "look": nothing is
    packed. `extent`: that of parts, notes of "look" and "halves"."""
    key = f"convolution:tiles:planes:{element.name}:{kind}:{form}"
    return native(key, lambda name, b: _copy(b, element, kind, form, name))


def _copy(b: Builder, element: Element, kind: str, form: str, name: str) -> str:
    """Rows are written in ascending order with whole vectors: what one writes beyond its end, the next overwrites."""
    w = load_record(b, "%shape", SHAPE)
    memory, size = element.memory, element.itemsize
    count = COUNTS.get(form, 0)
    scale = scale_of(b, "%extent") if form == "halves" else ""
    least = threshold(b, "%extent") if form == "look" else ""
    start_of, put = CARRIED.get(form, NOTHING_CARRIED)
    last = b.add("%rows", w["reach_y"])
    distance = b.mul(w["deal_x"], w["stride_x"])
    with b.for_(0, w["pairs"]) as j:
        planes = b.gep("i8", "%planes", b.mul(j, w["pair_bytes"]))
        channels = [b.mul(j, 2), b.add(b.mul(j, 2), 1)]
        there = [b.op(f"icmp slt i64 {c}, {w['channels']}") for c in channels]
        images = [b.gep(memory, "%source", b.mul(c, w["stride_channel"])) for c in channels]
        both = there[1]
        with b.for_(0, w["deal_y"]) as ry, b.for_(0, w["deal_x"]) as rx:
            number = b.add(b.mul(ry, w["deal_x"]), rx)
            plane = b.gep("i32", planes, b.mul(number, w["sub_pixels"]))
            start = b.add(b.sub(b.mul("%x", w["deal_x"]), w["left"]), rx)
            low, high = lanes_inside(b, kind, start, w["deal_x"], w["source_width"])
            first_whole = b.min(b.op(f"and i64 {b.add(low, WIDTH - 1)}, {-WIDTH}"), w["pitch"])
            with b.for_(0, last) as r:
                y = b.add(b.sub(b.mul(b.add("%y", r), w["deal_y"]), w["top"]), ry)
                inside = b.op(f"icmp ult i64 {y}, {w['source_height']}")
                reachable = b.op(f"select i1 {inside}, i64 {b.min(high, w['pitch'])}, i64 0")
                line = b.add(b.mul(y, w["stride_y"]), b.mul(start, w["stride_x"]))
                target = b.gep("i32", plane, b.mul(r, w["pitch"]))

                def visit(q: str, values: list[str], extremes: list[str]) -> list[str]:
                    at = b.gep("i32", target, q)
                    if form == "look":
                        for value in values:
                            extremes = look(b, value, extremes, least)
                        return extremes
                    if form == "parts":
                        together = list(split_pairs(b, WIDTH, *values))
                    elif form == "halves":
                        pairs = halves_pairs(b, WIDTH, values[0], values[1], scale)
                        together = [b.op(f"bitcast <{2 * WIDTH} x half> {pair} to {_INTS}") for pair in pairs]
                    else:
                        first, second = (b.op(f"zext {_SHORTS} {value} to {_INTS}") for value in values)
                        sixteen = "<" + ", ".join(["i32 16"] * WIDTH) + ">"
                        together = [b.op(f"or {_INTS} {first}, {b.op(f'shl {_INTS} {second}, {sixteen}')}")]
                    for part, bits in enumerate(together):
                        b.store(_INTS, bits, b.gep("i8", at, b.mul(w["part_bytes"], part)), 4)
                    for value in values if form == "parts" else ():
                        extremes = EXTENT.include(b, value, *extremes)
                    return extremes

                def chunk(q: str, *extremes: str) -> list[str]:
                    values = []
                    for image, exists in zip(images, there, strict=True):
                        end = b.op(f"select i1 {exists}, i64 {b.sub(reachable, q)}, i64 0")
                        read = masked_read(b, memory, WIDTH, size, kind, b.sub(low, q), end, distance)
                        values.append(read(b.gep(memory, b.gep(memory, image, line), b.mul(q, distance))))
                    return visit(q, values, list(extremes))

                def whole_chunk(q: str, *extremes: str) -> list[str]:
                    type_ = f"<{WIDTH} x {memory}>"
                    values = [b.load(type_, b.gep(memory, b.gep(memory, i, line), q), size) for i in images]
                    return visit(q, values, list(extremes))

                def loop(start: str, stop: str, body: Callable[..., list[str]], carried: list[str]) -> list[str]:
                    types = [(EXTENT.type, value) for value in carried]
                    return b.loop(start, stop, WIDTH, body, types)

                extremes = start_of(b, "%extent")
                if kind == UNIT:  # masks are for the ends only
                    until = b.op(f"select i1 {both}, i64 {reachable}, i64 0")
                    whole = b.max(b.op(f"and i64 {until}, {-WIDTH}"), first_whole)
                    extremes = loop("0", first_whole, chunk, extremes)
                    extremes = loop(first_whole, whole, whole_chunk, extremes)
                    extremes = loop(whole, w["pitch"], chunk, extremes)
                else:
                    extremes = loop("0", w["pitch"], chunk, extremes)
                put(b, "%extent", extremes)
            # The zeros after the last row that it shares with a row that is not there.
            end = b.gep("i32", plane, b.mul(last, w["pitch"]))
            for part in range(count):
                b.store(_INTS, "zeroinitializer", b.gep("i8", end, b.mul(w["part_bytes"], part)), 4)
    return b.define(name, COPY, "")
