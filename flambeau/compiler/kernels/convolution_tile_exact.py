"""Convolutions by ordinary multiply-adds, straight from the image: for what the matrix unit's parts cannot hold.

The lanes of a vector are pixels of an output row; a few output channels use each vector read. Nothing is packed. Sums
over 128 rows of K are added up, as in convolution_direct.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.convolution_patches import bit_mask, masked_read
from flambeau.compiler.kernels.convolution_problem import load_record
from flambeau.compiler.kernels.convolution_tile_pack import SHAPE, WIDTH, lanes_inside
from flambeau.compiler.kernels.description import Layout, load_words, native
from flambeau.compiler.kernels.matmul_element import Element, element_of
from flambeau.compiler.kernels.matmul_parts_pack import STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES
from flambeau.compiler.tile.contract import Operands, contract
from flambeau.dtypes import float32

_CHANNELS = 8  # output channels that use a vector


def exact_function(element: Element, kind: str) -> Function:
    """`exact(shape, kernel, source, out, y, x, rows, columns, channels)`: a block of one image's pixels."""
    key = f"convolution:tiles:exact:{element.name}:{kind}"
    return native(key, lambda name, b: _exact(b, element, kind, name))


def _exact(b: Builder, element: Element, kind: str, name: str) -> str:
    w = load_record(b, "%shape", SHAPE)
    memory, size, type_ = element.memory, element.itemsize, f"<{WIDTH} x {element.compute}>"
    distance = b.mul(w["deal_x"], w["stride_x"])
    zeros = [(type_, element.zero(WIDTH))] * _CHANNELS
    with b.for_(0, "%channels", _CHANNELS) as o:
        last = b.sub("%channels", 1)
        kernels = [b.gep(memory, "%kernel", b.mul(b.min(b.add(o, i), last), w["kernel_row"])) for i in range(_CHANNELS)]
        with b.for_(0, "%rows") as y:
            y_first = b.add(b.mul(b.add("%y", y), w["deal_y"]), w["base_y"])
            with b.for_(0, "%columns", WIDTH) as x:
                x_first = b.add(b.mul(b.add("%x", x), w["deal_x"]), w["base_x"])
                left = b.sub("%columns", x)
                with b.fold(0, w["channels"], w["block_channels"], zeros) as (c0, totals):
                    c1 = b.min(b.add(c0, w["block_channels"]), w["channels"])
                    with b.fold(0, w["taps_y"], 1, zeros) as (ty, sums):
                        at_y = b.add(y_first, b.mul(ty, w["tap_y"]))
                        inside = b.op(f"icmp ult i64 {at_y}, {w['source_height']}")
                        wide = b.op(f"select i1 {inside}, i64 {left}, i64 0")

                        def tap(tx: str, *sums: str) -> list[str]:
                            at_x = b.add(x_first, b.mul(tx, w["tap_x"]))
                            low, high = lanes_inside(b, kind, at_x, w["deal_x"], w["source_width"])
                            read = masked_read(b, memory, WIDTH, size, kind, low, b.min(high, wide), distance)
                            line = b.add(b.mul(at_y, w["stride_y"]), b.mul(at_x, w["stride_x"]))
                            from_source = b.gep(memory, "%source", line)
                            place = b.add(b.mul(ty, w["kernel_y"]), b.mul(tx, w["kernel_x"]))

                            def channel(c: str) -> Iterator[Operands[str, str]]:
                                value = read(b.gep(memory, from_source, b.mul(c, w["stride_channel"])))
                                value = element.widen(b, WIDTH, value)
                                at = b.add(b.mul(c, w["kernel_channel"]), place)
                                weights = (element.widen(b, 1, b.load(memory, b.gep(memory, kernel, at), size)) for kernel in kernels)
                                yield [value], (b.splat(element.compute, WIDTH, weight) for weight in weights)

                            return contract(b, c1, [(type_, s) for s in sums], c0, add=partial(element.multiply_add, b, WIDTH), read=channel)

                        sums[:] = b.loop(0, w["taps_x"], 1, tap, [(type_, s) for s in sums])
                    totals[:] = [element.add(b, WIDTH, total, s) for total, s in zip(totals, sums, strict=True)]
                mask = bit_mask(b, WIDTH, 0, left)
                to = b.gep(memory, "%out", b.add(b.mul(y, w["out_y"]), x))
                for i, total in enumerate(totals):
                    here = b.gep(memory, to, b.mul(b.add(o, i), w["out_row"]))
                    exists = b.op(f"icmp slt i64 {b.add(o, i)}, %channels")
                    lanes = b.op(f"select i1 {exists}, <{WIDTH} x i1> {mask}, <{WIDTH} x i1> zeroinitializer")
                    b.masked_store(memory, WIDTH, element.narrow(b, WIDTH, total), here, lanes, size)
    return b.function(
        f"define void @{name}(ptr noalias %shape, ptr noalias %kernel, ptr noalias %source, ptr noalias %out, i64 %y, "
        "i64 %x, i64 %rows, i64 %columns, i64 %channels) noinline #0"
    )


# -- The multiply-adds for what halves and parts do not hold ---------------------------------------------------------
_EXACT_OUTPUTS: Final = 8  # output channels that use a vector of images in multiply-adds
ENTRY: Final = 24  # bytes of a tap in a list: offset of its weights and of its pixel in bytes; of its weight in elements, and pixel


def exact_images_function(form: str, layout: Layout) -> Function:
    return native(f"convolution:images:exact:{form}", partial(_exact_images, layout))


def _exact_images(layout: Layout, name: str, b: Builder) -> str:
    """Text of `name(args, table, counts, group, image, images, output, outputs, pixels, sums)`: a panel's sums by multiply-adds. The
    lanes of a vector are images; sums of 32 channels are added up."""
    w = load_words(b, layout)
    floats = f"<{WIDTH} x float>"
    zeros = [(floats, "zeroinitializer")] * _EXACT_OUTPUTS
    offsets = b.strided_lanes(WIDTH, w["source_batch"])
    list_bytes = b.mul(b.mul(w["taps_y"], w["taps_x"]), ENTRY)
    first_channel = b.mul(b.mul("%group", w["channels"]), w["source_channel"])
    kernel = b.gep("float", w["kernel"], b.add(b.mul("%group", w["kernel_group"]), b.mul("%output", w["kernel_row"])))
    last = b.sub("%outputs", 1)
    with b.for_(0, "%pixels") as i:
        entries, count = b.gep("i8", "%table", b.mul(i, list_bytes)), b.load("i64", b.gep("i64", "%counts", i), 8)
        with b.for_(0, "%outputs", _EXACT_OUTPUTS) as o:
            kernels = [b.gep("float", kernel, b.mul(b.min(b.add(o, j), last), w["kernel_row"])) for j in range(_EXACT_OUTPUTS)]
            with b.for_(0, "%images", WIDTH) as n:
                mask = bit_mask(b, WIDTH, 0, b.sub("%images", n))
                image = b.gep("float", w["source"], b.add(b.mul(b.add("%image", n), w["source_batch"]), first_channel))
                with b.fold(0, w["channels"], LANES, zeros) as (c0, totals):
                    with b.fold(c0, b.min(b.add(c0, LANES), w["channels"]), 1, zeros) as (c, block_sums):
                        line = b.gep("float", image, b.mul(c, w["source_channel"]))
                        along = b.mul(c, w["kernel_channel"])

                        def tap(e: str) -> Iterator[Operands[str, str]]:
                            entry = b.gep("i8", entries, b.mul(e, ENTRY))
                            source = b.op(f"udiv i64 {b.load('i64', b.gep('i64', entry, 1), 8)}, {STEP_BYTES}")
                            weight_at = b.add(along, b.load("i64", b.gep("i64", entry, 2), 8))
                            value = b.masked_gather("float", WIDTH, b.gep("float", line, source), offsets, mask, 4)
                            yield [value], (b.splat("float", WIDTH, b.load("float", b.gep("float", k, weight_at), 4)) for k in kernels)

                        add = partial(element_of(float32).multiply_add, b, WIDTH)
                        block_sums[:] = contract(b, count, [(floats, value) for value in block_sums], add=add, read=tap)
                    totals[:] = [b.op(f"fadd {floats} {total}, {value}") for total, value in zip(totals, block_sums, strict=True)]
                for j, total in enumerate(totals):
                    row = b.min(b.add(o, j), last)  # the last one may be written several times
                    at = b.add(b.add(b.mul(i, SUMS_BYTES), b.mul(row, 4 * LANES)), b.mul(n, 4))
                    b.store(floats, total, b.gep("i8", "%sums", at), 64)
    return b.function(
        f"define void @{name}(ptr noalias %args, ptr noalias %table, ptr noalias %counts, i64 %group, i64 %image, i64 %images, i64 %output, "
        "i64 %outputs, i64 %pixels, ptr noalias %sums) noinline #0"
    )
