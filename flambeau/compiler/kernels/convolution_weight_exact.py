"""Convolutions by the matrix unit: what the kernels of the weight's gradient share.

The blocks of pixels that a unit's partial sum is made of, what a tap has of one, the multiply-adds for what the unit's parts
cannot hold, from the images themselves, and how a unit's sums go to the partial sums: sums[panel of 32 output channels][tap]
of [32 input channels][32 output channels] to partial[s][group][input channel][tap][output channel].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Address, Word
from flambeau.compiler.kernels.convolution_patches import bit_mask
from flambeau.compiler.kernels.convolution_problem import Problem
from flambeau.compiler.kernels.description import Layout, layout_of, load_words, native
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES
from flambeau.compiler.tile.contract import Operands, contract
from flambeau.dtypes import float32

_WIDTH: Final = 16
_EXACT_OUTPUTS: Final = 8  # output channels that use a vector of x in multiply-adds
_TAP: Final = ("y_low", "y_high", "x_low", "x_high", "shift")  # output pixels that a tap has; the source pixel of pixel (0, 0)
EXACT: Final = Parameters("args* s channel tall output wide sums*")


def exact_words(
    p: Problem, partial_sums: int, partials: int, block_images: int, block_rows: int, block_columns: int, own: dict[str, Word],
    tables: Mapping[str, Sequence[Word]] | None = None,
) -> tuple[dict[str, Word], dict[str, Sequence[Word]]]:  # fmt: skip
    """The words of a kernel, with its `own`, and its tables, with the taps. `block_images`: of a block."""
    height, width = p.x.shape[2:]
    out_height, out_width = p.y.shape[2:]
    blocks_y, blocks_x = ceil_div(out_height, block_rows), ceil_div(out_width, block_columns)
    kernel_y, kernel_x = p.w.shape[2:]
    taps: list[Word] = []
    for ty in range(kernel_y):
        for tx in range(kernel_x):
            at_y, at_x = ty * p.dilation[0] - p.padding[0], tx * p.dilation[1] - p.padding[1]
            taps += [
                *_inside(at_y, p.stride[0], height, out_height), *_inside(at_x, p.stride[1], width, out_width), at_y * width + at_x
            ]  # fmt: skip
    words: dict[str, Word] = {
        "partial": Address(partial_sums), "x": p.x.word, "g": p.y.word, "groups": p.groups, "partials": partials,
        "blocks": ceil_div(p.batch, block_images) * blocks_y * blocks_x, "blocks_y": blocks_y, "blocks_x": blocks_x, "block_rows": block_rows,
        "block_columns": block_columns, "height": out_height, "width": out_width, "images": p.batch, "block_images": block_images,
        "channels": p.group_inputs, "outputs": p.group_outputs, "taps": kernel_y * kernel_x, "padded": round_up(p.group_outputs, _WIDTH),
        "step_y": p.stride[0], "step_x": p.stride[1], "source_width": width, "x_batch": p.x.strides[0], "x_channel": p.x.strides[1],
        "g_batch": p.y.strides[0], "g_channel": p.y.strides[1], "taps_at": 0,
    }  # fmt: skip
    words["exact"] = native("convolution:weight_exact", partial(_exact, layout_of(words)))
    words |= own
    words["taps_at"] = len(words) + sum(map(len, (tables or {}).values()))
    return words, {**(tables or {}), "all_taps": taps}


def _inside(at: int, step: int, size: int, count: int) -> tuple[int, int]:
    """[low, high): the output positions i of `count` with 0 <= at + i * step < size."""
    low = max(0, ceil_div(-at, step))
    return low, max(low, min(count, (size - 1 - at) // step + 1))


class Blocks:
    """The blocks of pixels of a partial sum, and what a tap has of one."""

    def __init__(self, b: Builder, w: dict[str, str], s: str) -> None:
        self.b, self.w = b, w
        self.first = b.sdiv(b.mul(s, w["blocks"]), w["partials"])
        self.after = b.sdiv(b.mul(b.add(s, 1), w["blocks"]), w["partials"])

    def place(self, t: str) -> tuple[str, str, str]:
        """(block of images, first row, first column) of a block."""
        b, w = self.b, self.w
        rest, at_x = b.op(f"udiv i64 {t}, {w['blocks_x']}"), b.op(f"urem i64 {t}, {w['blocks_x']}")
        return (
            b.op(f"udiv i64 {rest}, {w['blocks_y']}"), b.mul(b.op(f"urem i64 {rest}, {w['blocks_y']}"), w["block_rows"]),
            b.mul(at_x, w["block_columns"]),
        )  # fmt: skip

    def tap(self, t: str, y: str, x: str) -> tuple[str, str, str, str, str]:
        """(first row, rows, first column, columns, shift) of a block's pixels that tap `t` has."""
        b, w = self.b, self.w
        at = b.gep("i64", "%args", b.add(b.mul(t, len(_TAP)), w["taps_at"]))
        q = {name: b.load("i64", b.gep("i64", at, i), 8) for i, name in enumerate(_TAP)}
        y0 = b.max(y, q["y_low"])
        y1 = b.min(b.min(b.add(y, w["block_rows"]), w["height"]), q["y_high"])
        x0 = b.max(x, q["x_low"])
        x1 = b.min(b.min(b.add(x, w["block_columns"]), w["width"]), q["x_high"])
        return y0, b.max("0", b.sub(y1, y0)), x0, b.max("0", b.sub(x1, x0)), q["shift"]

    def source(self, y: str, x: str, shift: str) -> str:
        """The source pixel of an output pixel, counted in its image; negative only outside of `tap`'s ranges."""
        b, w = self.b, self.w
        return b.add(b.add(b.mul(b.mul(y, w["step_y"]), w["source_width"]), b.mul(x, w["step_x"])), shift)


def store_partial(b: Builder, w: dict[str, str], s: str, group: str, channel: str, tall: str, output: str, most: int | str, sums: str) -> None:
    """Store a unit's sums of input channels [channel, channel + tall) and of at most `most` output channels from `output` on."""
    floats = f"<{_WIDTH} x float>"
    first_c = b.mul(b.add(b.mul(b.add(b.mul(s, w["groups"]), group), w["channels"]), channel), w["taps"])
    with b.for_(0, tall) as i, b.for_(0, w["taps"]) as k:
        row = b.mul(b.add(first_c, b.add(b.mul(i, w["taps"]), k)), w["padded"])
        with b.for_(0, b.min(most, b.sub(w["padded"], output)), _WIDTH) as o:
            source = b.add(b.mul(b.add(b.mul(b.op(f"udiv i64 {o}, {LANES}"), w["taps"]), k), SUMS_BYTES), b.mul(i, 4 * LANES))
            source = b.add(source, b.mul(b.op(f"urem i64 {o}, {LANES}"), 4))
            target = b.gep("float", w["partial"], b.add(row, b.add(output, o)))
            b.store(floats, b.load(floats, b.gep("i8", sums, source), 64), target, 4)


def _exact(layout: Layout, name: str, b: Builder) -> str:
    """Text of `name(args, s, channel, tall, output, wide, sums)`: a unit's sums by multiply-adds. The lanes of a vector are pixels
    of a row; sums of an image are added up."""
    w = load_words(b, layout)
    blocks = Blocks(b, w, "%s")
    floats = f"<{_WIDTH} x float>"
    zeros = [(floats, "zeroinitializer")] * _EXACT_OUTPUTS
    offsets = b.strided_lanes(_WIDTH, w["step_x"])
    with b.for_(0, "%tall") as c, b.for_(0, w["taps"]) as k, b.for_(0, "%wide", _EXACT_OUTPUTS) as o:
        last = b.sub("%wide", 1)
        rows_of_g = [b.mul(b.add("%output", b.min(b.add(o, i), last)), w["g_channel"]) for i in range(_EXACT_OUTPUTS)]
        with b.fold(blocks.first, blocks.after, 1, zeros) as (t, totals):
            images, y, x = blocks.place(t)
            y0, rows, x0, columns, shift = blocks.tap(k, y, x)
            first = b.mul(images, w["block_images"])

            def image(n: str, *totals: str) -> list[str]:
                from_x = b.gep("float", w["x"], b.add(b.mul(n, w["x_batch"]), b.mul(b.add("%channel", c), w["x_channel"])))
                from_g = [b.gep("float", w["g"], b.add(b.mul(n, w["g_batch"]), r)) for r in rows_of_g]
                with b.fold(0, rows, 1, zeros) as (r, sums):
                    here = b.add(y0, r)

                    def pixels(q: str) -> Iterator[Operands[str, str]]:
                        mask = bit_mask(b, _WIDTH, 0, b.sub(columns, q))
                        at = b.add(x0, q)
                        pixel = b.gep("float", from_x, blocks.source(here, at, shift))
                        left = b.masked_gather("float", _WIDTH, pixel, offsets, mask, 4)
                        place = b.add(b.mul(here, w["width"]), at)
                        yield [left], (b.masked_load("float", _WIDTH, b.gep("float", g, place), mask, 4) for g in from_g)

                    add = partial(element_of(float32).multiply_add, b, _WIDTH)
                    sums[:] = contract(b, columns, [(floats, value) for value in sums], 0, _WIDTH, add=add, read=pixels)
                return [b.op(f"fadd {floats} {total}, {value}") for total, value in zip(totals, sums, strict=True)]

            after = b.min(w["images"], b.add(first, w["block_images"]))
            totals[:] = b.loop(first, after, 1, image, [(floats, value) for value in totals])
        for i, total in enumerate(totals):
            value = b.call("float", f"llvm.vector.reduce.fadd.v{_WIDTH}f32", [("float", "-0.0"), (floats, total)])
            at = b.add(o, i)
            line = b.add(b.mul(b.add(b.mul(b.op(f"udiv i64 {at}, {LANES}"), w["taps"]), k), SUMS_BYTES), b.mul(c, 4 * LANES))
            to = b.gep("i8", "%sums", b.add(line, b.mul(b.op(f"urem i64 {at}, {LANES}"), 4)))
            b.store("float", value, to, 4)
    return b.define(name, EXACT, "")
