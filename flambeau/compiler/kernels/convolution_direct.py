"""Convolutions straight from padded planes: forward and input gradient, where there are channels enough for the lanes.

    result[p][o] = sum over k of plane[place(p) + shift(k)] * weights[k][o]          k = (channel, tap row, tap column)

The lanes of a vector are output channels; up to 14 neighbouring pixels of an output row are scalars that the
multiply-adds broadcast from memory. So no patch is ever formed and no vector has an edge (the idea of Georganas et al.
2018, "Anatomy of high-performance deep learning convolutions on SIMD architectures", but with images left in NCHW):

    for each unit: (images, group, block of output rows or columns, range of output channels)
        for each phase (one, or the residues of a strided input gradient)
            copy the block's source, zero-padded, one plane a channel: a stride deals its rows and columns to
            sub-planes by their residue, so that the pixels of a tap always lie next to each other
            (a 1x1 kernel reads its pixels where they lie, fetched while the unit before is computed)
            for each panel of output channels (`columns` lanes), for each block of K
                for each row, each tile of pixels: the micro-kernel, into [pixel][lane] sums
            transpose the sums into the output
        the epilogue, on the unit's channels and pixels

The order of additions into a pixel depends on the block of K only, which depends on sizes only. All sizes are words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, replace
from functools import partial

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder, vector
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.convolution_patches import Geometry, bit_mask, read_kind
from flambeau.compiler.kernels.convolution_planes import (
    PHASE,
    Phase,
    axes,
    balanced,
    copy_planes,
    fetch_planes,
    plane_elements,
    shifts,
    tap_rows,
    write_table,
)
from flambeau.compiler.kernels.convolution_problem import COMPUTE_DTYPE, Problem, call_epilogue, decode_unit, load_words, numel, temporary
from flambeau.compiler.kernels.convolution_transpose import transpose_vectors
from flambeau.compiler.kernels.convolution_weights import pack_weights
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import Element, Tile, element_of
from flambeau.compiler.kernels.matmul_facts import Epilogue
from flambeau.compiler.kernels.matmul_packed import module_of
from flambeau.compiler.tile.contract import Operands, contract
from flambeau.dtypes import BY_NAME
from flambeau.runtime.target import Target
from flambeau.symbols import Sym, maximum, minimum, roughly_over

# Rows of weights used together, whose products one accumulator sums: 128 give sums a little more exact than oneDNN's
# (root mean square error against float64: 0.73 to 0.95 of PyTorch's; 320 rows: 1.4), at the same speed.
_BLOCK_K = 128
# In place every channel is another page: 64 of them stay in a first-level TLB of 96 entries, and 2 lines of each in a
# first-level cache, whatever their distance.
_BLOCK_K_IN_PLACE = 64
_PLANES_BYTES = 768 << 10  # of one unit: with its sums, half of a second-level cache of 2 MiB
_BLOCK_PIXELS = 1024  # of one unit: 128 KiB of float32 sums for a panel of 32 channels
_BLOCK_COLUMNS = 448  # longer rows are cut
_FEW_PIXELS = 256  # of one unit: 18 tiles for each block of the weights
_UNITS = 32  # blocks get smaller until there are as many
_UNITS_PER_THREAD = 4  # ... and channels are split until there are as many; each split copies the planes again
_POINTERS = ("source", "weights", "out", "scratch")
_NAMES = (
    *_POINTERS, "batch", "images", "groups", "blocks_y", "blocks_x", "splits", "split_rows", "phases", "rows",
    "channels", "source_batch",
    "source_group", "weights_group", "out_batch", "out_group", "out_row", "scratch_bytes", "sums_at", "table_at",
    "block_rows", "block_columns", "tile_pixels", "scale_y", "scale_x", "out_height", "out_width",
)  # fmt: skip


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
        t = self.tile
        store = "direct" if self.direct else "rows" if self.unit_out else "strided"
        read = ":in_place" if self.in_place else ""
        return f"{self.element.name}:{t.rows}x{t.vectors}x{t.width}:{self.vector_bits}:{self.kind}:{store}:{self.phases}{read}"


def direct_tile(element: Element, vector_bits: int, registers: int, short_rows: bool = False) -> Tile:
    """14 pixels by 2 vectors of channels (28 accumulators of 32 registers), 6 by 2 of 16 registers, 4 by 2 of fewer.

    `short_rows`: 4 by 4 of 32 registers: rows of 4 pixels have too few sums with 2 vectors.
    """
    width = max(1, vector_bits // (8 * element.compute_bytes))
    if short_rows and registers >= 32:
        return Tile(4, 4, width)
    return Tile(14 if registers >= 32 else 6 if registers >= 16 else 4, 2, width)


def lanes_are_filled(p: Problem, gradient: bool) -> bool:
    """True where output channels fill more than half a vector; fewer are better served as rows of a product."""
    element = element_of(p.dtype)
    host = p.target
    return (p.group_inputs if gradient else p.group_outputs) > direct_tile(
        element, host.vector_bits, host.registers
    ).width // 2


def make_direct_convolution(
    graph: Graph, p: Problem, gradient: bool, phases: list[Geometry], node_index: int, epilogue: Epilogue | None
) -> list[Kernel]:  # fmt: skip
    """Kernels of `convolution`, or with `gradient` of `convolution_input_gradient`; `phases` lack their blocking."""
    host = p.target
    element = element_of(p.dtype)
    size = element.compute_bytes
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    out_height, out_width = out.shape[2:]
    scale_y, scale_x = p.stride if len(phases) > 1 else (1, 1)
    height, width = ceil_div(out_height, scale_y), ceil_div(out_width, scale_x)  # of the largest phase
    tile = direct_tile(element, host.vector_bits, host.registers)
    if width <= 4 and rows > tile.columns:
        tile = direct_tile(element, host.vector_bits, host.registers, short_rows=True)
    out_x = 1 if out_width == 1 else out.strides[3]
    direct = len(phases) == 1 and out_x == 1 and (out.strides[2] == out_width or out_height == 1)
    first = phases[0]
    facts = Facts(
        element,
        tile,
        host.vector_bits,
        read_kind(first.step_x, first.stride_x),
        direct,
        out_x * scale_x == 1,
        len(phases),
        _reads_in_place(element, phases, source.strides[1], out_height, out_width),
    )

    sides = [axes(g) for g in phases]
    reach_y, reach_x = max(y.reach for y, _ in sides), max(x.reach for _, x in sides)
    # A unit is a block of whole rows, or a piece of one row; the smaller, the more planes it copies twice.
    deal = first.step_y * first.step_x
    places = max(1, _PLANES_BYTES // (channels * deal * size))  # of a sub-plane
    columns = width
    if len(phases) == 1 and width > _BLOCK_COLUMNS // 2:
        fitting = max(4 * tile.rows, min(_BLOCK_COLUMNS, places // (1 + reach_y) - reach_x))
        columns = balanced(width, fitting)
        if facts.in_place:
            columns = round_up(columns, tile.rows)
    block_rows = 1
    if columns == width:
        fitting = minimum(places // (width + reach_x) - reach_y, _BLOCK_PIXELS // width)
        wanted = maximum(ceil_div(8 * tile.rows, width), height * p.batch * p.groups // _UNITS)
        block_rows = balanced(height, maximum(1, minimum(height, fitting, wanted)))
    blocks_y, blocks_x = ceil_div(height, block_rows), ceil_div(width, columns)
    # Several small images share a unit, so that the weights come from afar less often.
    area = block_rows * columns
    images = 1
    if blocks_y * blocks_x == 1:
        fitting = min(
            places // ((block_rows + reach_y) * (columns + reach_x)), _BLOCK_PIXELS // area, ceil_div(_FEW_PIXELS, area)
        )
        images = balanced(p.batch, max(1, min(fitting, p.batch * p.groups // 4)))
    blocks = ceil_div(p.batch, images) * p.groups * blocks_y * blocks_x
    panels = ceil_div(rows, tile.columns)
    split_panels = ceil_div(panels, maximum(1, minimum(panels, _UNITS_PER_THREAD * host.workers // blocks)))
    splits = ceil_div(panels, split_panels)
    # Even heights, as equal as can be: 26 pixels are 14 + 12, 24 are 12 + 12.
    # Of sizes that are symbols the height is one for all.
    if columns.__class__ is Sym and roughly_over(columns, tile.rows - 1):
        tile_pixels = tile.rows
    else:
        tile_pixels = columns if columns == tile.rows // 2 else min(tile.rows, round_up(balanced(columns, tile.rows), 2))

    sub_rows = block_rows + reach_y
    first_word = len(_NAMES) + len(phases) * len(PHASE)
    first_shift = first_word + (0 if epilogue is None else len(epilogue.words))
    block_k = _BLOCK_K_IN_PLACE if facts.in_place else _BLOCK_K
    all_shifts: list[int] = []
    blocked: list[Phase] = []
    bare: list[Geometry] = []
    weights_offset = 0
    pitch = columns + reach_x
    plane = first.stride_channel if facts.in_place else plane_elements(deal, sub_rows, pitch)
    for g, (y, x) in zip(phases, sides, strict=True):
        blocked.append(
            Phase(
                g.taps_y, g.taps_x, g.base_y, g.tap_y, first_shift + len(all_shifts),
                y.before, x.before, g.step_y, g.step_x, reach_y, sub_rows,
                pitch, plane,
                g.source_height, g.source_width, g.stride_channel, g.stride_y, g.stride_x, g.pixels // max(1, g.width),
                g.width,
                g.out_offset, g.out_y, g.out_x, weights_offset, balanced(channels, max(1, block_k // max(1, g.taps))),
            )
        )  # fmt: skip
        bare.append(replace(g, weights_offset=weights_offset, channel_block=blocked[-1].channel_block))
        weights_offset += panels * tile.columns * channels * g.taps
        all_shifts += shifts(g, y, x, sub_rows, pitch)
    packed = temporary(graph, max(1, weights_offset * p.groups), BY_NAME[COMPUTE_DTYPE[element.compute]])
    slack = (tile.rows + 2 * tile.width) * size
    planes_bytes = 0 if facts.in_place else round_up(images * channels * plane * size + slack, 64)
    sums_bytes = round_up((images * area + tile.rows + tile.width) * tile.columns * size, 64)
    table_bytes = round_up(max(q.channel_block * q.taps_y * q.taps_x for q in blocked) * 8, 64)
    scratch = planes_bytes + sums_bytes + table_bytes
    words: list[Word] = [
        source.word, Address(packed), out.word, Scratch(scratch), p.batch, images, p.groups, blocks_y, blocks_x, splits,
        split_panels * tile.columns, len(phases), rows, channels, source.strides[0], channels * source.strides[1],
        weights_offset, out.strides[0], rows * out.strides[1], out.strides[1], scratch, planes_bytes,
        planes_bytes + sums_bytes, block_rows, columns, tile_pixels, scale_y, scale_x, out_height, out_width,
    ]  # fmt: skip
    for q in blocked:
        words += astuple(q)
    key = f"convolution:direct:{facts.key()}"
    if epilogue is not None:
        words += epilogue.words
        key += f":{epilogue.key}"
    words += all_shifts
    units = blocks * splits
    name = "convolution_input_gradient" if gradient else "convolution"
    return [
        pack_weights(p, gradient, element, tile.columns, bare, packed, weights_offset, node_index, by_rows=True),
        Kernel(
            name=f"{name}_{element.name}", key=key, emit=partial(_emit, facts, epilogue, first_word, key), words=words,
            reads=(source.root, packed), writes=(out.root,), units=units,
            bytes=(numel(p.x) + numel(p.w) + numel(p.y)) * p.dtype.itemsize, operations=p.operations,
            nodes=(node_index,),
            min_units_per_thread=maximum(1, 2_000_000 * units // maximum(1, p.operations)),  # about 20 microseconds
        ),
    ]  # fmt: skip


def _reads_in_place(element: Element, phases: list[Geometry], channel: int, out_height: int, out_width: int) -> bool:
    """True for 1x1 kernels with stride 1, whose pixels are one row (convolution_problem.py) of an even number.

    Tiles of pixels have an even height: an odd row would be read one element beyond its end.
    """
    g = phases[0]
    one = len(phases) == 1 and g.taps == 1 and (g.step_x, g.base_y, g.base_x) == (1, 0, 0)
    row = out_height == 1 and g.source_height == 1 and g.source_width == out_width and g.stride_x == 1
    return one and row and out_width % 2 == 0 and channel >= out_width and not element.converts


def _emit(facts: Facts, epilogue: Epilogue | None, first_word: int, key: str, target: Target) -> str:
    from flambeau.runtime.jit import symbol

    # Half a tile too: 7 pixels are the rows of many last stages.
    heights = tuple(sorted({*range(2, facts.tile.rows + 1, 2), facts.tile.rows // 2}, reverse=True))
    writers: list[Callable[[Builder], str]] = [
        partial(_micro_kernel, facts, height, vectors) for height in heights for vectors in range(facts.tile.vectors, 0, -1)
    ]  # fmt: skip
    writers.append(partial(_pixels, facts.tile, heights))
    if not facts.in_place:
        writers.append(lambda b: copy_planes(b, facts.element, facts.tile.width, facts.kind))
    writers += [partial(_store_sums, facts), partial(_driver, facts, epilogue is not None, symbol(key))]
    return module_of(writers, target, (), epilogue, first_word)


_MICRO = "i64 %k, ptr noalias %table, ptr noalias %pixels, ptr noalias %weights, ptr noalias %sums, i1 %add, i64 %count"
_MICRO_TYPES = ("i64", "ptr", "ptr", "ptr", "ptr", "i1", "i64")


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
        b.when(b.op(f"icmp eq i64 %count, {height}"), partial(store, height - 1, adding))

    adding, setting, done = b.new_label("add"), b.new_label("set"), b.new_label("done")
    b.emit(f"br i1 %add, label %{adding}, label %{setting}")
    b.label(adding)
    store_all(True)
    b.branch(done)
    b.label(setting)
    store_all(False)
    b.branch(done)
    b.label(done)
    return b.function(f"define internal void @pixels_{height}x{vectors}({_MICRO}) noinline #0")


def _pixels(tile: Tile, heights: tuple[int, ...], b: Builder) -> str:
    """Text of `pixels(..., vectors)`: the micro-kernel for `count` pixels."""
    arguments = list(zip(_MICRO_TYPES, (part.split()[-1] for part in _MICRO.split(", ")), strict=True))
    done, other = b.new_label("done"), b.new_label("other")
    even = b.op(f"and i64 {b.add('%count', 1)}, -2")
    half = tile.rows // 2
    pair = b.op(f"select i1 {b.op(f'icmp eq i64 %count, {half}')}, i64 {half}, i64 {even}")
    for vectors in range(tile.vectors, 0, -1):
        labels = [(height, b.new_label("height")) for height in heights]
        narrower = b.new_label("vectors")
        wide = b.new_label("wide")
        b.emit(f"br i1 {b.op(f'icmp eq i64 %vectors, {vectors}')}, label %{wide}, label %{narrower}")
        b.label(wide)
        cases = " ".join(f"i64 {height}, label %{label}" for height, label in labels)
        b.emit(f"switch i64 {pair}, label %{other} [{cases}]")
        for height, label in labels:
            b.label(label)
            b.call("void", f"pixels_{height}x{vectors}", arguments, declare=False)
            b.branch(done)
        b.label(narrower)
    b.branch(other)
    b.label(other)
    b.emit("unreachable")
    b.label(done)
    return b.function(f"define internal void @pixels({_MICRO}, i64 %vectors) noinline #0")


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

    def line(y: str) -> None:
        to_line = b.gep(memory, "%out", b.mul(y, "%out_y"))
        from_line = b.mul(y, "%length")

        def pixels(x: str) -> None:
            left = b.sub("%length", x)
            mask = bit_mask(b, width, 0, left)
            source = b.gep(compute, "%sums", b.mul(b.add(from_line, x), columns))
            target = b.gep(memory, to_line, b.mul(x, "%out_x"))

            def lanes(lane: str) -> None:
                rows = [b.load(type_, b.gep(compute, source, b.add(lane, i * columns)), size) for i in range(width)]
                channels = transpose_vectors(b, compute, width, rows)
                here = b.gep(memory, target, b.mul(lane, "%out_row"))
                count = b.sub("%valid", lane)

                def store(i: int | str, value: str) -> None:
                    to = b.gep(memory, here, b.mul(i, "%out_row"))
                    b.masked_store(memory, width, element.narrow(b, width, value), to, mask, element.memory_bytes)

                def all_channels() -> None:
                    for i, value in enumerate(channels):
                        store(i, value)

                def some_channels() -> None:
                    for i, value in enumerate(channels):
                        b.store(type_, value, b.gep(compute, "%square", i * width), size)

                    def one(i: str) -> None:
                        row = b.gep(compute, "%square", b.mul(i, width))
                        if unit and width > 1:
                            store(i, b.load(type_, row, size))
                            return

                        def pixel(q: str) -> None:
                            value = element.narrow(b, 1, b.load(compute, b.gep(compute, row, q), size))
                            at = b.add(b.mul(i, "%out_row"), b.mul(q, "%out_x"))
                            b.store(memory, value, b.gep(memory, here, at), element.memory_bytes)

                        b.loop(0, b.min(left, width), 1, pixel)

                    b.loop(0, b.min(count, width), 1, one)

                if not unit or width == 1:
                    some_channels()
                    return
                whole, part, done = b.new_label("whole"), b.new_label("part"), b.new_label("done")
                b.emit(f"br i1 {b.op(f'icmp sge i64 {count}, {width}')}, label %{whole}, label %{part}")
                b.label(whole)
                all_channels()
                b.branch(done)
                b.label(part)
                some_channels()
                b.branch(done)
                b.label(done)

            b.loop(0, "%valid", width, lanes)

        b.loop(0, "%length", width, pixels)

    b.loop(0, "%lines", 1, line)
    return b.function(
        "define internal void @store_sums(ptr noalias %sums, ptr noalias %out, i64 %out_row, i64 %out_y, i64 %out_x, "
        "i64 %lines, i64 %length, i64 %valid) noinline #0"
    )


def _driver(facts: Facts, has_epilogue: bool, symbol: str, b: Builder) -> str:
    element, tile = facts.element, facts.tile
    memory, compute = element.memory, element.compute
    w = load_words(b, "%args", len(_POINTERS), _NAMES)
    planes = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    sums, table = b.gep("i8", planes, w["sums_at"]), b.gep("i8", planes, w["table_at"])

    def source_of(n0: str, g: str) -> str:
        return b.gep(memory, w["source"], b.add(b.mul(n0, w["source_batch"]), b.mul(g, w["source_group"])))

    def unit(u: str) -> None:
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

        def phase(f: str) -> None:
            at = b.gep("i64", "%args", b.add(len(_NAMES), b.mul(f, len(PHASE))))
            q = load_words(b, at, 0, PHASE)
            rows = b.sub(b.min(b.add(y0, w["block_rows"]), q["height"]), y0)
            columns = b.sub(b.min(b.add(x0, w["block_columns"]), q["width"]), x0)
            any_pixels = b.op(f"and i1 {b.op(f'icmp sgt i64 {rows}, 0')}, {b.op(f'icmp sgt i64 {columns}, 0')}")

            def body() -> None:
                # A phase without taps has one pass over no channels, which stores zeros.
                taps = b.mul(q["taps_y"], q["taps_x"])
                any_taps = b.op(f"icmp sgt i64 {taps}, 0")
                channels = b.op(f"select i1 {any_taps}, i64 {w['channels']}, i64 0")
                image_planes = w["source_batch"] if facts.in_place else b.mul(w["channels"], q["plane"])
                pixels_at = b.gep(memory, source, x0) if facts.in_place else planes
                area = b.mul(rows, columns)

                def copy(i: str) -> None:
                    image = b.gep(memory, source, b.mul(i, w["source_batch"]))
                    b.call("void", "copy_planes", [
                        ("ptr", at), ("ptr", image), ("ptr", b.gep(compute, planes, b.mul(i, image_planes))),
                        ("i64", channels), ("i64", y0), ("i64", x0), ("i64", rows),
                    ], declare=False)  # fmt: skip

                if not facts.in_place:
                    b.loop(0, images, 1, copy)
                # A unit's share of fetching the next one's channels, in steps of a channel of all its pixels.
                fetch_step = b.mul(b.op(f"udiv i64 {b.add(b.sub(o_high, o_low), tile.columns - 1)}, {tile.columns}"), area)
                next_y, next_x = b.mul(next_by, w["block_rows"]), b.mul(next_bx, w["block_columns"])
                weights_f = b.gep(compute, weights, q["weights_offset"])
                panel_k = b.mul(w["channels"], taps)

                def panel(o: str) -> None:
                    lanes = b.min(tile.columns, b.sub(o_high, o))
                    vectors = b.op(f"udiv i64 {b.add(lanes, tile.width - 1)}, {tile.width}")
                    weights_o = b.gep(compute, weights_f, b.mul(o, panel_k))

                    def channel_block(c: str) -> None:
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

                        def row(i: str, y: str, line0: str, sums0: str) -> None:
                            if facts.kind != "gather" and not facts.in_place:
                                fetch(i, b.mul(y, columns), columns)
                            low, high = tap_rows(b, q, b.add(y0, y))
                            k0, k = b.mul(low, row_k), b.mul(b.sub(high, low), row_k)
                            table_y = b.gep("i64", table, k0)
                            weights_y = b.gep(compute, weights_c, b.mul(k0, tile.columns))
                            line = b.gep(compute, line0, b.mul(y, q["pitch"]))
                            sums_y = b.gep(compute, sums0, b.mul(b.mul(y, columns), tile.columns))

                            def pixels(x: str) -> None:
                                wide = b.min(w["tile_pixels"], b.sub(columns, x))
                                if facts.in_place:
                                    fetch(i, x, wide)
                                b.call("void", "pixels", [
                                    ("i64", k), ("ptr", table_y), ("ptr", b.gep(compute, line, x)), ("ptr", weights_y),
                                    ("ptr", b.gep(compute, sums_y, b.mul(x, tile.columns))), ("i1", add),
                                    ("i64", wide), ("i64", vectors),
                                ], declare=False)  # fmt: skip

                            b.loop(0, columns, w["tile_pixels"], pixels)

                        def image(i: str) -> None:
                            line0 = b.gep(compute, planes_c, b.mul(i, image_planes))
                            sums0 = b.gep(compute, sums, b.mul(b.mul(i, area), tile.columns))
                            b.loop(0, rows, 1, lambda y: row(i, y, line0, sums0))

                        b.loop(0, images, 1, image)

                    b.loop(0, b.max(channels, 1), q["channel_block"], channel_block)
                    start = b.add(b.mul(y0, q["out_y"]), b.mul(x0, q["out_x"]))
                    to = b.gep(memory, out, b.add(b.add(q["out_offset"], start), b.mul(o, w["out_row"])))
                    lines, length = ("1", area) if facts.direct else (rows, columns)

                    def store(i: str) -> None:
                        b.call("void", "store_sums", [
                            ("ptr", b.gep(compute, sums, b.mul(b.mul(i, area), tile.columns))),
                            ("ptr", b.gep(memory, to, b.mul(i, w["out_batch"]))), ("i64", w["out_row"]),
                            ("i64", q["out_y"]),
                            ("i64", q["out_x"]), ("i64", lines), ("i64", length), ("i64", lanes),
                        ], declare=False)  # fmt: skip

                    b.loop(0, images, 1, store)

                b.loop(o_low, o_high, tile.columns, panel)

            b.when(any_pixels, body)

        b.loop(0, w["phases"], 1, phase)
        if has_epilogue:
            # Whole rows, or a piece of one: either way neighbours in the output.
            y_low, x_low = b.mul(y0, w["scale_y"]), b.mul(x0, w["scale_x"])
            y_high = b.min(b.add(y_low, b.mul(w["block_rows"], w["scale_y"])), w["out_height"])
            x_high = b.min(b.add(x_low, b.mul(w["block_columns"], w["scale_x"])), w["out_width"])
            row = b.mul(g, w["rows"])
            first = b.add(b.mul(y_low, w["out_width"]), x_low)
            after = b.add(b.mul(b.sub(y_high, 1), w["out_width"]), x_high)

            call_epilogue(b, n0, images, (b.add(row, o_low), b.add(row, o_high)), (first, after))

    b.loop("%begin", "%end", 1, unit)
    return b.function(KERNEL_HEADER.format(name=symbol), "ret i64 0")
