"""Convolutions with images side by side: multiply-adds, straight from the images, for what the matrix unit's halves and parts do not hold."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.convolution_patches import bit_mask
from flambeau.compiler.kernels.convolution_tile_pack import WIDTH
from flambeau.compiler.kernels.description import Layout, load_words, native
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.compiler.kernels.matmul_parts_pack import STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES
from flambeau.compiler.tile.contract import Operands, contract
from flambeau.dtypes import float32

_EXACT_OUTPUTS: Final = 8  # output channels that use a vector of images in multiply-adds
ENTRY: Final = 24  # bytes of a tap in a list: offset of its weights and of its pixel in bytes; of its weight in elements, and pixel
EXACT: Final = Parameters("args* table* counts* group image images output outputs pixels sums*")


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
    return b.define(name, EXACT, "")
