"""Convolutions: the sums of products of the weight's gradient (see convolution_weight.py for the algorithm and its blocks)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters, vector
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernels.convolution_patches import GATHER, bit_mask, masked_read
from flambeau.compiler.kernels.convolution_planes import (
    COPY_PLANES,
    PHASE,
    copy_planes,
    fetch_lines,
    fetch_planes,
    write_table,
)
from flambeau.compiler.kernels.convolution_problem import load_record
from flambeau.compiler.kernels.description import Writer
from flambeau.compiler.kernels.matmul_dots import Dot
from flambeau.compiler.kernels.matmul_element import Element, Tile
from flambeau.compiler.kernels.matmul_micro import call_least
from flambeau.compiler.tile.contract import Operands, contract

CHUNK = 112  # pixels: 64 channels of g are 28 KiB of float32, and share a first-level cache of 48 KiB with the planes
_MICRO: Final = Parameters("table* plane* image_step images pitch rows columns gradient* sums* sums_row add:i1 count")
_TAPS: Final = _MICRO + "vectors"
_COPY_GRADIENT: Final = Parameters("source* row_pixels row_stride column_stride channel_stride p pixels channels copied*")
_TRANSPOSE_CHUNK: Final = Parameters("source* step transposed* panel_step outputs lines length")


@dataclass(frozen=True, slots=True)
class Facts:
    """`element` in memory; `sums`: what is accumulated; kinds: how rows of g and of x are read.

    `flat`: the pixels of g lie next to each other and need no conversion, so that they are transposed where they lie. `dot`: an instruction that
    multiplies two neighbouring pixels of 16 bits at once: planes hold the elements as they are, and a vector of g pairs of pixels.
    """

    element: Element
    sums: Element
    tile: Tile
    vector_bits: int
    g_kind: str
    x_kind: str
    flat: bool
    dot: Dot | None

    def key(self) -> str:
        how = f"{'flat' if self.flat else 'copied'}{':dots' * (self.dot is not None)}"
        return f"{self.element.name}:{self.tile.key}:{self.vector_bits}:{self.g_kind}:{self.x_kind}:{how}"

    @property
    def held(self) -> Element:
        """How elements come from memory into planes and copies."""
        return self.element if self.dot is None else Element("bits", "i16", "i16", 2, 2)


def helpers(facts: Facts) -> list[Writer]:
    tile = facts.tile
    heights = (tile.rows, tile.rows // 2)
    writers: list[Writer] = [partial(_micro_kernel, facts, height, vectors) for height in heights for vectors in range(tile.vectors, 0, -1)]
    writers += [partial(_taps, tile), lambda b: copy_planes(b, facts.held, tile.width, facts.x_kind)]
    if not facts.flat:
        writers.append(lambda b: _copy_gradient(b, facts))
    return [*writers, lambda b: _transpose_chunk(b, facts)]


def _pairs(b: Builder, facts: Facts, pixels: str) -> str:
    """How many vectors of g a row of pixels takes."""
    return pixels if facts.dot is None else b.op(f"lshr i64 {b.add(pixels, 1)}, 1")


def _micro_kernel(facts: Facts, height: int, vectors: int, b: Builder) -> str:
    """sums[i][lane] (+)= sum over images n and pixels (y, x) of plane[n][table[i] + y * pitch + x] * gradient[n, y, x][lane].

    Only the sums of the first `count` taps are stored; the table has an entry for each of `height`.
    """
    element, tile, dot, held = facts.sums, facts.tile, facts.dot, facts.held.compute
    compute, size, width = element.compute, element.compute_bytes, tile.width
    type_ = vector(compute, width)
    starts = [b.gep(held, "%plane", b.load("i64", b.gep("i64", "%table", i), 8)) for i in range(height)]
    pairs = _pairs(b, facts, "%columns")
    add = partial(element.multiply_add, b, width) if dot is None else partial(dot.add, b)
    with b.fold(0, "%images", 1, [(type_, element.zero(width))] * (height * vectors)) as (n, results):
        first_line, first_row = b.mul(n, "%image_step"), b.mul(n, "%rows")

        def row(y: str, *outer: str) -> list[str]:
            line = b.add(first_line, b.mul(y, "%pitch"))
            gradient = b.gep(compute, "%gradient", b.mul(b.mul(b.add(first_row, y), pairs), tile.columns))

            def pixels(x: str, count: int) -> Iterator[Operands[str, str]]:
                """`count` pixels from x on, which are a vector of g."""
                at = b.gep(compute, gradient, b.mul(x, tile.columns))
                right = [b.load(type_ if dot is None else f"<{width} x i32>", b.gep(compute, at, v * width), size) for v in range(vectors)]
                places = (b.gep(held, start, b.add(line, b.mul(x, 1 if dot is None else 2))) for start in starts)
                if dot is None:
                    yield (b.splat(compute, width, b.load(compute, place, size)) for place in places), right
                elif count == 2:
                    yield (b.splat("i32", width, b.load("i32", place, 2)) for place in places), right
                else:  # what lies behind the last pixel may be anything
                    yield (b.splat("i32", width, b.op(f"zext i16 {b.load('i16', place, 2)} to i32")) for place in places), right

            start = [(type_, value) for value in outer]
            if dot is None:
                return contract(b, "%columns", start, add=add, read=partial(pixels, count=1))
            whole = b.op("lshr i64 %columns, 1")
            sums = contract(b, whole, start, add=add, read=partial(pixels, count=2))
            return contract(b, pairs, [(type_, value) for value in sums], whole, add=add, read=partial(pixels, count=1))

        results[:] = b.loop(0, "%rows", 1, row, [(type_, value) for value in results])
    done = b.new_label("done")
    for i in range(height):
        line = b.gep(compute, "%sums", b.mul(i, "%sums_row"))
        for v in range(vectors):
            at, value = b.gep(compute, line, v * width), results[i * vectors + v]
            # Nothing is read from sums that have not been set yet: they may hold anything.
            old = b.load(type_, at, size)
            total = b.op(f"select i1 %add, {type_} {element.add(b, width, old, value)}, {type_} {value}")
            b.store(type_, total, at, size)
        if i + 1 < height:
            following = b.new_label("tap")
            b.emit(f"br i1 {b.op(f'icmp sgt i64 %count, {i + 1}')}, label %{following}, label %{done}")
            b.label(following)
    b.branch(done)
    b.label(done)
    return b.define(f"taps_{height}x{vectors}", _MICRO)


def _taps(tile: Tile, b: Builder) -> str:
    """Text of `taps(..., vectors)`: the micro-kernel for `count` taps."""
    call_least(b, "taps", _MICRO.arguments, ("%count", 1, (tile.rows, tile.rows // 2)), ("%vectors", 1, range(tile.vectors, 0, -1)))
    return b.define("taps", _TAPS)


def body(facts: Facts, b: Builder, w: dict[str, str]) -> None:
    memory, compute, held, tile = facts.element.memory, facts.sums.compute, facts.held.compute, facts.tile
    q = load_record(b, w["phase"], PHASE)
    planes = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    copied, transposed, table = (b.gep("i8", planes, w[name]) for name in ("copied_at", "transposed_at", "table_at"))
    kernel = b.mul(q["taps_y"], q["taps_x"])
    k_total = b.mul(w["channels"], kernel)
    write_table(b, "%args", q, table, w["split_channels"], by_rows=False)
    entries = b.mul(w["split_channels"], kernel)
    # A last tile that is not full runs over the last tap several times.
    last = b.load("i64", b.gep("i64", table, b.sub(entries, 1)), 8)
    for row in range(tile.rows):
        b.store("i64", last, b.gep("i64", table, b.add(entries, row)), 8)
    with b.for_("%begin", "%end") as u:
        rest, split = b.op(f"udiv i64 {u}, {w['splits']}"), b.op(f"urem i64 {u}, {w['splits']}")
        s, g = b.op(f"udiv i64 {rest}, {w['groups']}"), b.op(f"urem i64 {rest}, {w['groups']}")
        c = b.mul(split, w["split_channels"])
        count = b.min(w["split_channels"], b.sub(w["channels"], c))
        taps = b.mul(count, kernel)
        first = b.sdiv(b.mul(s, w["blocks"]), w["partials"])
        after = b.sdiv(b.mul(b.add(s, 1), w["blocks"]), w["partials"])
        # Units of one group and partial sum lie next to each other: [partial][group][k][output channel].
        sums = b.gep(compute, w["partial"], b.mul(b.add(b.mul(rest, k_total), b.mul(c, kernel)), w["padded"]))
        x_channel = b.mul(b.add(b.mul(g, w["channels"]), c), w["x_channel"])
        g_channel = b.mul(b.mul(g, w["outputs"]), w["g_channel"])

        def decode(at: str) -> tuple[str, str, str]:
            """(first image, first row, first column) of a block."""
            rest, bx = b.op(f"udiv i64 {at}, {w['blocks_x']}"), b.op(f"urem i64 {at}, {w['blocks_x']}")
            n, by = b.op(f"udiv i64 {rest}, {w['blocks_y']}"), b.op(f"urem i64 {rest}, {w['blocks_y']}")
            return b.mul(n, w["images"]), b.mul(by, w["block_rows"]), b.mul(bx, w["block_columns"])

        with b.for_(first, after) as at:
            n, y0, x0 = decode(at)
            next_n, next_y0, next_x0 = decode(b.min(b.add(at, 1), b.sub(after, 1)))
            next_x = b.gep(memory, w["x"], b.add(b.mul(next_n, w["x_batch"]), x_channel))
            rows = b.min(w["block_rows"], b.sub(q["height"], y0))
            columns = b.min(w["block_columns"], b.sub(q["width"], x0))
            started = b.op(f"icmp sgt i64 {at}, {first}")
            images = b.min(w["images"], b.sub(w["batch"], n))
            image_planes = b.mul(count, q["plane"])
            x = b.gep(memory, w["x"], b.add(b.mul(n, w["x_batch"]), x_channel))
            with b.for_(0, images) as i:
                b.invoke("copy_planes", COPY_PLANES, w["phase"], b.gep(memory, x, b.mul(i, w["x_batch"])), b.gep(held, planes, b.mul(i, image_planes)), count,
                         y0, x0, rows)  # fmt: skip
            gradient = b.gep(memory, w["g"], b.add(b.mul(n, w["g_batch"]), g_channel))
            with b.for_(0, rows, w["chunk_rows"]) as y:
                tall = b.min(w["chunk_rows"], b.sub(rows, y))
                if facts.x_kind != GATHER:
                    low = b.op(f"udiv i64 {b.mul(y, count)}, {rows}")
                    high = b.op(f"udiv i64 {b.mul(b.add(y, tall), count)}, {rows}")
                    with b.for_(0, images) as j:
                        fetch_planes(b, facts.element, q, b.gep(memory, next_x, b.mul(j, w["x_batch"])), next_y0, next_x0, low, high)
                with b.for_(0, columns, w["chunk_columns"]) as x:
                    wide = b.min(w["chunk_columns"], b.sub(columns, x))
                    # Neither several rows of a piece nor pieces of several rows: the pixels are consecutive.
                    p = b.add(b.mul(b.add(y0, y), q["width"]), b.add(x0, x))
                    pixels = b.mul(tall, wide)
                    earlier = b.op(f"icmp sgt i64 {b.add(x, y)}, 0")
                    add = b.op(f"or i1 {started}, {earlier}")
                    # Each image is written with whole vectors of pixels: what one writes too much, the next overwrites.
                    count_of_image = b.mul(tall, _pairs(b, facts, wide))
                    whole = b.op(f"and i64 {b.add(count_of_image, tile.width - 1)}, {-tile.width}")
                    panel_step = b.add(b.mul(b.sub(images, 1), count_of_image), whole)
                    # Pairs do not cross the ends of rows: an odd row is a line of its own.
                    odd = "false" if facts.dot is None else b.op(f"trunc i64 {wide} to i1")
                    lines, length = (b.op(f"select i1 {odd}, i64 {x}, i64 {y}") for x, y in ((tall, "1"), (wide, pixels)))
                    with b.for_(0, images) as i:
                        here = b.gep(memory, gradient, b.mul(i, w["g_batch"]))
                        source, step = b.gep(memory, here, p), w["g_channel"]
                        if not facts.flat:
                            b.invoke("copy_gradient", _COPY_GRADIENT, here, w["g_width"], w["g_y"], w["g_x"], w["g_channel"], p, pixels, w["outputs"], copied)
                            source, step = copied, str(CHUNK)
                        to = b.gep(compute, transposed, b.mul(b.mul(i, count_of_image), tile.columns))
                        b.invoke("transpose_chunk", _TRANSPOSE_CHUNK, source, step, to, panel_step, w["outputs"], lines, length)
                    plane = b.gep(held, planes, b.add(b.mul(y, q["pitch"]), x))

                    following = b.add(p, pixels)
                    in_image = b.op(f"icmp slt i64 {following}, {b.mul(q['height'], q['width'])}")
                    next_block = b.mul(images, w["g_batch"])
                    next_g = b.gep(memory, gradient, b.op(f"select i1 {in_image}, i64 {following}, i64 {next_block}"))

                    def fetch(r: str) -> None:
                        """Fetch the channels of the next chunk of g that are this tile's share."""
                        low = b.op(f"udiv i64 {b.mul(r, w['outputs'])}, {taps}")
                        high = b.op(f"udiv i64 {b.mul(b.min(b.add(r, tile.rows), taps), w['outputs'])}, {taps}")
                        with b.for_(0, images) as i:
                            start = b.gep(memory, next_g, b.mul(i, w["g_batch"]))
                            with b.for_(low, high) as o:
                                fetch_lines(b, facts.element, b.gep(memory, start, b.mul(o, w["g_channel"])), pixels)

                    with b.for_(0, w["padded"], tile.columns) as o:
                        lanes = b.min(tile.columns, b.sub(w["padded"], o))
                        gradient_o = b.gep(compute, transposed, b.mul(o, panel_step))
                        is_first = b.op(f"icmp eq i64 {o}, 0")
                        with b.for_(0, taps, tile.rows) as r:
                            if facts.flat:
                                with b.if_(is_first):
                                    fetch(r)
                            b.invoke("taps", _TAPS, b.gep("i64", table, r), plane, image_planes, images, q["pitch"], tall, wide, gradient_o,
                                     b.gep(compute, sums, b.add(b.mul(r, w["padded"]), o)), w["padded"], add, b.min(tile.rows, b.sub(taps, r)),
                                     b.op(f"udiv i64 {lanes}, {tile.width}"))  # fmt: skip


def _copy_gradient(b: Builder, facts: Facts) -> str:
    """Text of `copy_gradient(source, row_pixels, row_stride, column_stride, channel_stride, p, pixels, channels, copied)`: pixels p to p + pixels of each
    channel, `CHUNK` apart."""
    element, width = facts.held, facts.tile.width
    end = b.add("%p", "%pixels")
    with b.for_(b.sdiv("%p", "%row_pixels"), b.sdiv(b.add(end, b.sub("%row_pixels", 1)), "%row_pixels")) as y:
        row = b.mul(y, "%row_pixels")
        first = b.max("%p", row)
        length = b.sub(b.min(end, b.add(row, "%row_pixels")), first)
        line = b.gep(element.memory, "%source", b.add(b.mul(y, "%row_stride"), b.mul(b.sub(first, row), "%column_stride")))
        with b.for_(0, length, width) as x:
            read = masked_read(b, element.memory, width, element.memory_bytes, facts.g_kind, "0", b.sub(length, x), "%column_stride")
            mask = bit_mask(b, width, 0, b.sub(length, x))
            source = b.gep(element.memory, line, b.mul(x, "%column_stride"))
            target = b.gep(element.compute, "%copied", b.add(b.sub(first, "%p"), x))
            with b.for_(0, "%channels") as c:
                value = element.widen(b, width, read(b.gep(element.memory, source, b.mul(c, "%channel_stride"))))
                to = b.gep(element.compute, target, b.mul(c, CHUNK))
                if width == 1:
                    b.store(element.compute, value, to, element.compute_bytes)
                else:
                    b.masked_store(element.compute, width, value, to, mask, element.compute_bytes)
    return b.define("copy_gradient", _COPY_GRADIENT, attributes="#0")


def _transpose_chunk(b: Builder, facts: Facts) -> str:
    """Text of `transpose_chunk(source, step, transposed, panel_step, outputs, lines, length)`: rows o, `step` apart, to panels [p][columns].

    Panels are `panel_step` vectors apart; those of a line of pixels are written up to a multiple of the width, and the next line overwrites them.
    Lanes beyond the last output repeat it.
    """
    tile, size = facts.tile, facts.sums.compute_bytes
    width, held, terms = tile.width, facts.held, 1 if facts.dot is None else 2
    compute = facts.sums.compute if facts.dot is None else "i32"
    last = b.sub("%outputs", 1)
    with b.for_(0, "%outputs", width) as o, b.for_(0, "%lines") as line:
        panel = b.mul(b.sdiv(o, tile.columns), tile.columns)
        first = b.add(b.sub(o, panel), b.mul(b.mul(line, _pairs(b, facts, "%length")), tile.columns))
        target = b.gep(compute, "%transposed", b.add(b.mul(panel, "%panel_step"), first))
        lines = [b.gep(held.compute, "%source", b.add(b.mul(b.min(b.add(o, i), last), "%step"), b.mul(line, "%length"))) for i in range(width)]
        with b.for_(0, "%length", width * terms) as p:
            if width == 1:
                rows = [b.load(compute, b.gep(held.compute, lines[0], p), size)]
            else:
                mask = b.tail_mask(b.sub("%length", p), width * terms)
                rows = [b.masked_load(held.compute, width * terms, b.gep(held.compute, at, p), mask, held.compute_bytes) for at in lines]
                if terms == 2:
                    rows = [b.op(f"bitcast <{width * terms} x {held.compute}> {row} to <{width} x i32>") for row in rows]
            to = b.gep(compute, target, b.mul(b.op(f"udiv i64 {p}, {terms}"), tile.columns))
            for i, row in enumerate(transpose_vectors(b, compute, rows)):
                b.store(vector(compute, width), row, b.gep(compute, to, i * tile.columns), size)
    return b.define("transpose_chunk", _TRANSPOSE_CHUNK)
