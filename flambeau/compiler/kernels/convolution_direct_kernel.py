"""Convolutions straight from padded planes: the kernel (see convolution_direct.py for the algorithm and its blocks)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters, vector
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernels.convolution_patches import bit_mask
from flambeau.compiler.kernels.convolution_planes import (
    COPY_PLANES,
    PHASE,
    copy_planes,
    fetch_planes,
    tap_rows,
    write_table,
)
from flambeau.compiler.kernels.convolution_problem import call_epilogue, decode_unit, load_record
from flambeau.compiler.kernels.description import Writer
from flambeau.compiler.kernels.matmul_element import Element, Tile
from flambeau.compiler.kernels.matmul_micro import call_least
from flambeau.compiler.tile.contract import Operands, contract

_STORE_SUMS: Final = Parameters("sums* out* out_row out_y out_x lines length valid")


@dataclass(frozen=True, slots=True)
class Facts:
    """`direct`: the pixels of a block are neighbours in the output; else `unit_out`: those of a row are.

    `in_place`: pixels are read from the source, no planes are made.
    """

    element: Element
    tile: Tile
    vector_bits: int
    kind: str
    direct: bool
    unit_out: bool
    phases: int
    in_place: bool

    def key(self) -> str:
        store = "direct" if self.direct else "rows" if self.unit_out else "strided"
        read = ":in_place" if self.in_place else ""
        return f"{self.element.name}:{self.tile.key}:{self.vector_bits}:{self.kind}:{store}:{self.phases}{read}"


def helpers(facts: Facts) -> list[Writer]:
    # Half a tile too: 7 pixels are the rows of many last stages.
    heights = tuple(sorted({*range(2, facts.tile.rows + 1, 2), facts.tile.rows // 2}, reverse=True))
    writers: list[Writer] = [partial(_micro_kernel, facts, height, vectors) for height in heights for vectors in range(facts.tile.vectors, 0, -1)]
    writers.append(partial(_pixels, facts.tile, heights))
    if not facts.in_place:
        writers.append(lambda b: copy_planes(b, facts.element, facts.tile.width, facts.kind))
    return [*writers, partial(_store_sums, facts)]


_MICRO: Final = Parameters("k table* pixels* weights* sums* add:i1 count")
_PIXELS: Final = _MICRO + "vectors"


def _micro_kernel(facts: Facts, height: int, vectors: int, b: Builder) -> str:
    """sums[i][lane] (+)= sum over k of pixels[table[k] + i] * weights[k][lane]; `count`: height or height - 1."""
    element, tile = facts.element, facts.tile
    compute, size, width = element.compute, element.compute_bytes, tile.width
    type_ = vector(compute, width)

    def step(k: str) -> Iterator[Operands[str, str]]:
        at = b.gep(compute, "%pixels", b.load("i64", b.gep("i64", "%table", k), 8))
        if facts.in_place:  # the last pixel of the next tile: from the second level to the first
            following_tile = b.gep(compute, at, height + tile.rows - 1)
            b.prefetch(following_tile, level=1)
        row = b.gep(compute, "%weights", b.mul(k, tile.columns))
        right = [b.load(type_, b.gep(compute, row, v * width), size) for v in range(vectors)]
        yield (b.splat(compute, width, b.load(compute, b.gep(compute, at, i), size)) for i in range(height)), right

    results = contract(b, "%k", [(type_, element.zero(width))] * (height * vectors), add=partial(element.multiply_add, b, width), read=step)

    def store(i: int, adding: bool) -> None:
        for v in range(vectors):
            at = b.gep(compute, "%sums", i * tile.columns + v * width)
            value = results[i * vectors + v]
            if adding:
                value = element.add(b, width, b.load(type_, at, size), value)
            b.store(type_, value, at, size)

    def store_all(adding: bool) -> None:
        for i in range(height - 1):
            store(i, adding)
        with b.if_(b.op(f"icmp eq i64 %count, {height}")):
            store(height - 1, adding)

    adding, setting, done = b.new_label("add"), b.new_label("set"), b.new_label("done")
    b.emit(f"br i1 %add, label %{adding}, label %{setting}")
    b.label(adding)
    store_all(True)
    b.branch(done)
    b.label(setting)
    store_all(False)
    b.branch(done)
    b.label(done)
    return b.define(f"pixels_{height}x{vectors}", _MICRO)


def _pixels(tile: Tile, heights: tuple[int, ...], b: Builder) -> str:
    """Text of `pixels(..., vectors)`: the micro-kernel for `count` pixels."""
    call_least(b, "pixels", _MICRO.arguments, ("%count", 1, heights), ("%vectors", 1, range(tile.vectors, 0, -1)))
    return b.define("pixels", _PIXELS)


def _store_sums(facts: Facts, b: Builder) -> str:
    """Text of `store_sums(sums, out, out_row, out_y, out_x, lines, length, valid)`: [pixel][lane] sums to out's
    channels.

    `lines` lines of `length` pixels each; `valid` lanes. Squares of pixels by lanes are transposed in registers.
    """
    element, width, columns = facts.element, facts.tile.width, facts.tile.columns
    compute, size, memory = element.compute, element.compute_bytes, element.memory
    type_ = vector(compute, width)
    b.allocas.append(f"  %square = alloca [{width * width} x {compute}], align 64")
    unit = facts.direct or facts.unit_out
    with b.for_(0, "%lines") as y:
        to_line = b.gep(memory, "%out", b.mul(y, "%out_y"))
        from_line = b.mul(y, "%length")
        with b.for_(0, "%length", width) as x:
            left = b.sub("%length", x)
            mask = bit_mask(b, width, 0, left)
            source = b.gep(compute, "%sums", b.mul(b.add(from_line, x), columns))
            target = b.gep(memory, to_line, b.mul(x, "%out_x"))
            with b.for_(0, "%valid", width) as lane:
                rows = [b.load(type_, b.gep(compute, source, b.add(lane, i * columns)), size) for i in range(width)]
                channels = transpose_vectors(b, compute, rows)
                here = b.gep(memory, target, b.mul(lane, "%out_row"))
                count = b.sub("%valid", lane)

                def store(i: int | str, value: str) -> None:
                    to = b.gep(memory, here, b.mul(i, "%out_row"))
                    b.masked_store(memory, width, element.narrow(b, width, value), to, mask, element.memory_bytes)

                def some_channels() -> None:
                    for i, value in enumerate(channels):
                        b.store(type_, value, b.gep(compute, "%square", i * width), size)
                    with b.for_(0, b.min(count, width)) as channel:
                        row = b.gep(compute, "%square", b.mul(channel, width))
                        if unit and width > 1:
                            store(channel, b.load(type_, row, size))
                        else:
                            with b.for_(0, b.min(left, width)) as q:
                                value = element.narrow(b, 1, b.load(compute, b.gep(compute, row, q), size))
                                at = b.add(b.mul(channel, "%out_row"), b.mul(q, "%out_x"))
                                b.store(memory, value, b.gep(memory, here, at), element.memory_bytes)

                if not unit or width == 1:
                    some_channels()
                else:
                    with b.if_(b.op(f"icmp sge i64 {count}, {width}")):
                        for i, value in enumerate(channels):
                            store(i, value)
                    with b.else_():
                        some_channels()
    return b.define("store_sums", _STORE_SUMS)


def body(facts: Facts, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    element, tile = facts.element, facts.tile
    memory, compute = element.memory, element.compute
    planes = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    sums, table = b.gep("i8", planes, w["sums_at"]), b.gep("i8", planes, w["table_at"])

    def source_of(n0: str, g: str) -> str:
        return b.gep(memory, w["source"], b.add(b.mul(n0, w["source_batch"]), b.mul(g, w["source_group"])))

    with b.for_("%begin", "%end") as u:
        split, bx, by, g, n0 = decode_unit(b, w, u)
        # What the unit after this one will copy is fetched meanwhile; the last unit fetches its own once more.
        _, next_bx, next_by, next_g, next_n0 = decode_unit(b, w, b.min(b.add(u, 1), b.sub("%end", 1)))
        images = b.min(w["images"], b.sub(w["batch"], n0))
        o_low = b.mul(split, w["split_rows"])
        o_high = b.min(w["rows"], b.add(o_low, w["split_rows"]))
        y0, x0 = b.mul(by, w["block_rows"]), b.mul(bx, w["block_columns"])
        source = source_of(n0, g)
        out = b.gep(memory, w["out"], b.add(b.mul(n0, w["out_batch"]), b.mul(g, w["out_group"])))
        weights = b.gep(compute, w["weights"], b.mul(g, w["weights_group"]))
        with b.for_(0, w["phases"]) as f:
            at = b.gep("i64", w["table"], b.mul(f, len(PHASE)))
            q = load_record(b, at, PHASE)
            rows = b.sub(b.min(b.add(y0, w["block_rows"]), q["height"]), y0)
            columns = b.sub(b.min(b.add(x0, w["block_columns"]), q["width"]), x0)
            any_pixels = b.op(f"and i1 {b.op(f'icmp sgt i64 {rows}, 0')}, {b.op(f'icmp sgt i64 {columns}, 0')}")
            with b.if_(any_pixels):
                # A phase without taps has one pass over no channels, which stores zeros.
                taps = b.mul(q["taps_y"], q["taps_x"])
                any_taps = b.op(f"icmp sgt i64 {taps}, 0")
                channels = b.op(f"select i1 {any_taps}, i64 {w['channels']}, i64 0")
                image_planes = w["source_batch"] if facts.in_place else b.mul(w["channels"], q["plane"])
                pixels_at = b.gep(memory, source, x0) if facts.in_place else planes
                area = b.mul(rows, columns)
                if not facts.in_place:
                    with b.for_(0, images) as i:
                        image = b.gep(memory, source, b.mul(i, w["source_batch"]))
                        b.invoke("copy_planes", COPY_PLANES, at, image, b.gep(compute, planes, b.mul(i, image_planes)), channels, y0, x0, rows)
                # A unit's share of fetching the next one's channels, in steps of a channel of all its pixels.
                fetch_step = b.mul(b.op(f"udiv i64 {b.add(b.sub(o_high, o_low), tile.columns - 1)}, {tile.columns}"), area)
                next_y, next_x = b.mul(next_by, w["block_rows"]), b.mul(next_bx, w["block_columns"])
                weights_f = b.gep(compute, weights, q["weights_offset"])
                panel_k = b.mul(w["channels"], taps)
                with b.for_(o_low, o_high, tile.columns) as o:
                    lanes = b.min(tile.columns, b.sub(o_high, o))
                    vectors = b.op(f"udiv i64 {b.add(lanes, tile.width - 1)}, {tile.width}")
                    weights_o = b.gep(compute, weights_f, b.mul(o, panel_k))
                    with b.for_(0, b.max(channels, 1), q["channel_block"]) as c:
                        count = b.min(q["channel_block"], b.sub(channels, c))
                        row_k = b.mul(count, q["taps_x"])
                        write_table(b, "%args", q, table, count, by_rows=True)
                        add = b.op(f"icmp sgt i64 {c}, 0")
                        weights_c = b.gep(compute, weights_o, b.mul(b.mul(c, taps), tile.columns))
                        planes_c = b.gep(compute, pixels_at, b.mul(c, q["plane"]))
                        panels_done = b.op(f"udiv i64 {b.sub(o, o_low)}, {tile.columns}")
                        fetch_at = b.mul(b.add(b.mul(panels_done, channels), c), area)

                        def fetch(i: str, first: str, pixels: str) -> None:
                            """Fetch the channels of the next unit's image that are the share of some pixels of this one.

                            Fetched all at once, they would fill the queue of the memory, and the multiply-adds wait.
                            """
                            low = b.op(f"udiv i64 {b.add(fetch_at, b.mul(first, count))}, {fetch_step}")
                            high = b.op(f"udiv i64 {b.add(fetch_at, b.mul(b.add(first, pixels), count))}, {fetch_step}")
                            image = b.gep(memory, source_of(next_n0, next_g), b.mul(i, w["source_batch"]))
                            fetch_planes(b, element, q, image, next_y, next_x, low, high)

                        with b.for_(0, images) as i:
                            line0 = b.gep(compute, planes_c, b.mul(i, image_planes))
                            sums0 = b.gep(compute, sums, b.mul(b.mul(i, area), tile.columns))
                            with b.for_(0, rows) as y:
                                if facts.kind != "gather" and not facts.in_place:
                                    fetch(i, b.mul(y, columns), columns)
                                low, high = tap_rows(b, q, b.add(y0, y))
                                k0, k = b.mul(low, row_k), b.mul(b.sub(high, low), row_k)
                                table_y = b.gep("i64", table, k0)
                                weights_y = b.gep(compute, weights_c, b.mul(k0, tile.columns))
                                line = b.gep(compute, line0, b.mul(y, q["pitch"]))
                                sums_y = b.gep(compute, sums0, b.mul(b.mul(y, columns), tile.columns))
                                with b.for_(0, columns, w["tile_pixels"]) as x:
                                    wide = b.min(w["tile_pixels"], b.sub(columns, x))
                                    if facts.in_place:
                                        fetch(i, x, wide)
                                    b.invoke("pixels", _PIXELS, k, table_y, b.gep(compute, line, x), weights_y,
                                             b.gep(compute, sums_y, b.mul(x, tile.columns)), add, wide, vectors)  # fmt: skip
                    start = b.add(b.mul(y0, q["out_y"]), b.mul(x0, q["out_x"]))
                    to = b.gep(memory, out, b.add(b.add(q["out_offset"], start), b.mul(o, w["out_row"])))
                    lines, length = ("1", area) if facts.direct else (rows, columns)
                    with b.for_(0, images) as i:
                        b.invoke("store_sums", _STORE_SUMS, b.gep(compute, sums, b.mul(b.mul(i, area), tile.columns)),
                                 b.gep(memory, to, b.mul(i, w["out_batch"])), w["out_row"], q["out_y"], q["out_x"], lines, length, lanes)  # fmt: skip
        if has_epilogue:
            # Whole rows, or a piece of one: either way neighbours in the output.
            y_low, x_low = b.mul(y0, w["scale_y"]), b.mul(x0, w["scale_x"])
            y_high = b.min(b.add(y_low, b.mul(w["block_rows"], w["scale_y"])), w["out_height"])
            x_high = b.min(b.add(x_low, b.mul(w["block_columns"], w["scale_x"])), w["out_width"])
            row = b.mul(g, w["rows"])
            first = b.add(b.mul(y_low, w["out_width"]), x_low)
            after = b.add(b.mul(b.sub(y_high, 1), w["out_width"]), x_high)

            call_epilogue(b, n0, images, (b.add(row, o_low), b.add(row, o_high)), (first, after))
