"""Convolutions by the processor's matrix unit (AMX): forward and input gradient of bfloat16 and of float32.

    result[o][p] = sum over steps of weights[step][o][32 channels] * planes[32 channels][p + shift(step)]

A tile register of pixels is loaded at any pixel of the planes: 16 pairs of channels, 16 neighbouring pixels. So each
tap of each pixel comes from the same planes, and nothing is packed for a tap. What neighbours are is the planes' matter:
the pixels of a row, then the zeros that rows share, then the next row, the next image; results in between are dropped.

    for each unit: (images, group, block of output rows or columns, range of output channels)
        pack the block's source (convolution_tile_pack.py)
        for each panel of 32 output channels
            for each 32 places of the planes: the products, into [channel][place] sums; all of K at once
            store the places that are pixels
        the epilogue, on the unit's channels and pixels

A float32 is the sum of three bfloat16; bfloat_parts.py says which products of them are made, and when they are right.
Where the extents of a unit's pixels and of a panel's weights say that they may not be, the panel's results are computed
by convolution_tile_exact.py, from the image itself.

The order of additions into a pixel depends on sizes only, and which way is taken on the unit's values only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Kernel, Scratch, Word
from flambeau.compiler.kernels.bfloat_parts import are_safe
from flambeau.compiler.kernels.convolution_patches import Geometry, bit_mask, read_kind
from flambeau.compiler.kernels.convolution_planes import axes, balanced, shared_zeros
from flambeau.compiler.kernels.convolution_problem import Problem, call_epilogue, load_words, numel, temporary
from flambeau.compiler.kernels.convolution_tile_exact import exact_function
from flambeau.compiler.kernels.convolution_tile_pack import (
    DEEP,
    EXTENT,
    HEADER,
    ROWS,
    SHAPE,
    SLACK,
    TILE_BYTES,
    WIDTH,
    clear_extent,
    copy_function,
    extent_in_memory,
    parts_of,
)
from flambeau.compiler.kernels.convolution_tile_products import products_function
from flambeau.compiler.kernels.convolution_tile_weights import pack_tile_weights
from flambeau.compiler.kernels.matmul_blocking import ceil_div, machine, round_up
from flambeau.compiler.kernels.matmul_element import Element, element_of
from flambeau.compiler.kernels.matmul_facts import Epilogue
from flambeau.compiler.kernels.matmul_packed import module_of
from flambeau.compiler.kernels.matmul_tiles import ROUNDS_BY, configuration
from flambeau.dtypes import BY_NAME

MOST_TERMS = 1 << 15  # of a sum whose overflow `are_safe` excludes
PLACES = 32  # places of a pass: two tiles
# Steps of float32 whose products one accumulator sums: six additions for each. A sixth of all, within these bounds: errors
# are then 0.6 to 0.9 of PyTorch's, for normal and for positive numbers (18 steps of 18: 1.5 for positive ones). To store
# tiles costs as much as one or two steps (measured; the addition costs nothing).
_BLOCK_STEPS = (9, 24)
_KEPT_BYTES = 1 << 20  # panels that stay in a second-level cache of 2 MiB; next to them:
_PLANES_BYTES = 1 << 19  # of one unit, twice as much where panels do not stay
_BLOCK_PIXELS = 1024  # of one unit: 128 KiB of sums
_BLOCK_COLUMNS = 448  # longer rows are cut
_UNITS = 32  # blocks get smaller until there are as many
_UNITS_PER_THREAD = 4  # ... and channels are split until there are as many; each split packs the planes again
_FUNCTIONS = ("copy", "products", "exact")
_POINTERS = ("source", "weights", "kernel", "out", "scratch", *_FUNCTIONS)
_NAMES = (
    *_POINTERS, "batch", "images", "groups", "blocks_y", "blocks_x", "splits", "split_rows", "rows", "panels",
    "panel_bytes", "panels_at", "steps", "block_steps", "source_batch", "source_group", "kernel_group", "out_batch", "out_group",
    "scratch_bytes", "sums_at", "sums_bytes", "table_at", "block_rows", "block_columns", "image_places",
    "out_height", "out_width", "taps", "shifts_at", "fetched_lines",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facts:
    """What the text depends on besides the epilogue."""

    element: Element

    @property
    def parts(self) -> int:
        return parts_of(self.element)


def tiles_apply(p: Problem, gradient: bool, phases: list[Geometry]) -> bool:
    """True where the matrix unit is there and faster (measured), and the output has rows of neighbours."""
    from flambeau.runtime import tiles

    if p.dtype.name not in ("float32", "bfloat16") or "bfloat16" not in tiles.dtypes() or len(phases) > 1:
        return False
    g = phases[0]
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    out = p.x if gradient else p.y
    unit = out.shape[3] == 1 or out.strides[3] == 1
    if not unit or g.taps == 0 or channels * g.taps > MOST_TERMS or rows <= WIDTH // 2 or 4 * channels < 3 * round_up(channels, DEEP):
        return False
    if p.dtype.name == "bfloat16":
        return g.taps > 1 or out.shape[3] >= WIDTH // 2
    # A 1x1 kernel reads its pixels where they lie, without the matrix unit; what it skips with a stride is not read here.
    return _blocking(p, gradient, g).filled >= 0.7 and (g.taps >= 4 or (g.step_x > 1 and out.shape[3] >= WIDTH // 2))


@dataclass(frozen=True, slots=True)
class Blocking:
    """The blocks of units, in output pixels, and the planes they need, in places."""

    columns: int
    rows: int
    images: int
    pitch: int  # from row to row of planes
    image_rows: int  # from image to image
    blocks_x: int
    blocks_y: int

    @property
    def used(self) -> int:
        """Places from the first pixel of a unit to its last."""
        return ((self.images - 1) * self.image_rows + self.rows - 1) * self.pitch + self.columns

    @property
    def filled(self) -> float:
        """The part of what is computed that are pixels."""
        return self.images * self.rows * self.columns / round_up(self.used, WIDTH)


def _even(batch: int, most: int) -> int:
    """Images of a unit: at most so many, and as many that the units are even in number (two threads), if there are."""
    return next((n for n in range(most, most // 2, -1) if ceil_div(batch, n) % 2 == 0), balanced(batch, most))


def _blocking(p: Problem, gradient: bool, g: Geometry) -> Blocking:
    parts = parts_of(element_of(p.dtype))
    out, channels = (p.x, p.group_outputs) if gradient else (p.y, p.group_inputs)
    height, width = out.shape[2:]
    axis_y, axis_x = axes(g)
    deal = g.step_y * g.step_x
    rows_of_product = p.group_inputs if gradient else p.group_outputs
    weights = 2 * parts * round_up(rows_of_product, ROWS) * round_up(channels, DEEP) * g.taps
    planes = _PLANES_BYTES if weights <= _KEPT_BYTES else 2 * _PLANES_BYTES
    places = max(1, planes // (2 * parts * round_up(channels, DEEP) * deal))  # of a sub-plane
    columns = width
    if width > _BLOCK_COLUMNS // 2:
        fitting = max(2 * PLACES, min(_BLOCK_COLUMNS, places // (1 + axis_y.reach) - axis_x.reach))
        columns = min(width, round_up(balanced(width, fitting), PLACES))
    blocks_x = ceil_div(width, columns)
    pitch = columns + axis_x.reach - shared_zeros(axis_x, deal, columns, g.source_width, blocks_x)
    rows = 1
    if blocks_x == 1:
        fitting = min(places // pitch - axis_y.reach, _BLOCK_PIXELS // width)
        wanted = max(ceil_div(4 * PLACES, width), height * p.batch * p.groups // _UNITS)
        rows = balanced(height, max(1, min(height, fitting, wanted)))
    blocks_y = ceil_div(height, rows)
    image_rows = rows + axis_y.reach - shared_zeros(axis_y, deal, rows, g.source_height, blocks_y)
    images = 1
    if blocks_y * blocks_x == 1:
        fitting = min(places // (image_rows * pitch), _BLOCK_PIXELS // (rows * columns))
        images = _even(p.batch, max(1, min(fitting, p.batch)))
    return Blocking(columns, rows, images, pitch, image_rows, blocks_x, blocks_y)


def make_tile_convolution(
    graph: Graph, p: Problem, gradient: bool, g: Geometry, node_index: int, epilogue: Epilogue | None
) -> list[Kernel]:  # fmt: skip
    """Kernels of `convolution`, or with `gradient` of `convolution_input_gradient`, of one phase."""
    host = machine()
    element = element_of(p.dtype)
    facts = Facts(element)
    kind = read_kind(g.step_x, g.stride_x)
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    height, width = out.shape[2:]
    pairs = round_up(channels, DEEP) // 2
    axis_y, axis_x = axes(g)
    deal = g.step_y * g.step_x

    block = _blocking(p, gradient, g)
    images, pitch = block.images, block.pitch
    blocks = ceil_div(p.batch, images) * p.groups * block.blocks_y * block.blocks_x
    panels = ceil_div(rows, ROWS)
    split_panels = ceil_div(panels, max(1, min(panels, _UNITS_PER_THREAD * host.threads // blocks)))
    splits = ceil_div(panels, split_panels)

    image_places = block.image_rows * pitch
    sub_pixels = ((images - 1) * block.image_rows + block.rows + axis_y.reach) * pitch + SLACK
    lines = ceil_div(deal * sub_pixels, 16)
    part_bytes = 64 * (lines + 1 - lines % 2)  # an odd number of cache lines: a tile's rows lie in different sets
    pair_bytes = facts.parts * part_bytes
    shifts = [
        ((y % g.step_y) * g.step_x + x % g.step_x) * sub_pixels + y // g.step_y * pitch + x // g.step_x
        for y in axis_y.places
        for x in axis_x.places
    ]
    steps = pairs * 2 // DEEP * g.taps
    block_steps = steps if facts.parts == 1 else balanced(steps, max(_BLOCK_STEPS[0], min(_BLOCK_STEPS[1], ceil_div(steps, 6))))
    panel_bytes = steps * facts.parts * 2 * TILE_BYTES
    most = round_up(block.used, PLACES)
    sums_bytes = 4 * most + 64
    # The last tile of the last pairs reads past its plane.
    planes_bytes = round_up(pairs * pair_bytes + 4 * (most + max(shifts)) + 64, 64)
    table_at = planes_bytes + (1 if block_steps == steps else 2) * ROWS * sums_bytes
    range_at = table_at + round_up(8 * steps, 64)
    scratch = range_at + 128
    # Shares of a step of the next panel, where the panels of a unit do not stay in the cache.
    stays = panels * panel_bytes <= _KEPT_BYTES
    fetched_lines = 0 if stays else ceil_div(32 * facts.parts, ceil_div(block.used, PLACES))
    packed = temporary(graph, p.groups * panels * (HEADER + panel_bytes), BY_NAME["uint8"])

    out_stride, in_stride, kernel_y, kernel_x = p.w.strides
    row, channel = (in_stride, out_stride) if gradient else (out_stride, in_stride)
    functions = [
        copy_function(element, kind), products_function(facts.parts), exact_function(element, kind)
    ]  # fmt: skip
    first_word = len(_NAMES) + len(SHAPE)
    words: list[Word] = [
        source.word, Address(packed), p.w.word, out.word, Scratch(scratch), *functions, p.batch, images, p.groups, block.blocks_y,
        block.blocks_x, splits, split_panels * ROWS, rows, panels, panel_bytes, p.groups * panels * HEADER, steps, block_steps,
        source.strides[0], channels * source.strides[1], p.group_outputs * out_stride, out.strides[0], rows * out.strides[1],
        scratch, planes_bytes, sums_bytes, table_at, block.rows, block.columns, image_places,
        height, width, g.taps, first_word + (0 if epilogue is None else len(epilogue.words)), fetched_lines,
    ]  # fmt: skip
    shape = {
        "channels": channels, "pairs": pairs, "pair_bytes": pair_bytes, "part_bytes": part_bytes, "top": axis_y.before,
        "left": axis_x.before, "deal_y": g.step_y, "deal_x": g.step_x, "sub_pixels": sub_pixels, "image_pixels": image_places,
        "reach_y": axis_y.reach, "pitch": pitch, "source_height": g.source_height, "source_width": g.source_width,
        "stride_channel": g.stride_channel, "stride_y": g.stride_y, "stride_x": g.stride_x, "taps_y": g.taps_y,
        "taps_x": g.taps_x, "base_y": g.base_y, "base_x": g.base_x, "tap_y": g.tap_y, "tap_x": g.tap_x, "kernel_row": row,
        "kernel_channel": channel, "kernel_y": kernel_y, "kernel_x": kernel_x, "out_row": out.strides[1], "out_y": g.out_y,
        "block_channels": balanced(channels, max(1, 128 // g.taps)),
    }  # fmt: skip
    words += [shape[name] for name in SHAPE]
    key = f"convolution:tiles:{element.name}"
    if epilogue is not None:
        words += epilogue.words
        key += f":{epilogue.key}"
    words += shifts
    units = blocks * splits
    name = "convolution_input_gradient" if gradient else "convolution"
    return [
        pack_tile_weights(p, gradient, element, packed, panel_bytes, node_index),
        Kernel(
            name=f"{name}_{element.name}", key=key, emit=partial(_emit, facts, epilogue, first_word, key), words=words,
            reads=(source.root, packed, p.w.root), writes=(out.root,), units=units,
            bytes=(numel(p.x) + numel(p.w) + numel(p.y)) * p.dtype.itemsize, operations=p.operations,
            nodes=(node_index,),
            min_units_per_thread=max(1, 4_000_000 * units // max(1, p.operations)),  # about 15 microseconds
        ),
    ]  # fmt: skip


def _emit(facts: Facts, epilogue: Epilogue | None, first_word: int, key: str) -> str:
    from flambeau.runtime.jit import symbol

    others = [configuration()]
    declarations: list[str] = []
    if epilogue is not None:
        others.append(epilogue.emit("epilogue", first_word))
        declarations = epilogue.declarations()
    writers: list[Callable[[Builder], str]] = [
        partial(_store_sums, facts.element), partial(_driver, facts, epilogue is not None, symbol(key)),
    ]  # fmt: skip
    return module_of(writers, 512, others, declarations)


def _store_sums(element: Element, b: Builder) -> str:
    """Text of `store_sums(sums, others, several, sums_bytes, pitch, out, out_row, out_y, rows, columns, channels)`: an image's pixels."""
    parts = parts_of(element)
    if element.name == "bfloat16":
        element = Element("bfloat16", "i16", "float", 2, 4, rounds_by=ROUNDS_BY["bfloat16"])
    memory = element.memory

    def channel(o: str) -> None:
        sums = b.gep("i8", "%sums", b.mul(o, "%sums_bytes"))
        out = b.gep(memory, "%out", b.mul(o, "%out_row"))

        others = b.gep("i8", "%others", b.mul(o, "%sums_bytes"))

        def row(y: str) -> None:
            from_row, from_other = (b.gep("float", at, b.mul(y, "%pitch")) for at in (sums, others))
            to_row = b.gep(memory, out, b.mul(y, "%out_y"))

            def put(x: str, whole: bool) -> None:
                floats = f"<{WIDTH} x float>"
                value = b.load(floats, b.gep("float", from_row, x), 4)
                if parts > 1:
                    mask = b.splat("i1", WIDTH, "%several")
                    more = b.masked_load("float", WIDTH, b.gep("float", from_other, x), mask, 4)
                    value = b.op(f"fadd {floats} {value}, {more}")
                value = element.narrow(b, WIDTH, value)
                to = b.gep(memory, to_row, x)
                if whole:
                    b.store(f"<{WIDTH} x {memory}>", value, to, element.itemsize)
                else:
                    b.masked_store(memory, WIDTH, value, to, bit_mask(b, WIDTH, 0, b.sub("%columns", x)), element.itemsize)

            whole = b.op(f"and i64 %columns, {-WIDTH}")
            b.loop(0, whole, WIDTH, lambda x: put(x, True))
            b.when(b.op(f"icmp slt i64 {whole}, %columns"), lambda: put(whole, False))

        b.loop(0, "%rows", 1, row)

    b.loop(0, "%channels", 1, channel)
    return b.function(
        "define internal void @store_sums(ptr noalias %sums, ptr noalias %others, i1 %several, i64 %sums_bytes, i64 %pitch, ptr noalias %out, i64 %out_row, "
        "i64 %out_y, i64 %rows, i64 %columns, i64 %channels) noinline #0"
    )


def _driver(facts: Facts, has_epilogue: bool, symbol: str, b: Builder) -> str:
    memory = facts.element.memory
    w = load_words(b, "%args", len(_POINTERS), _NAMES)
    shape = b.gep("i64", "%args", len(_NAMES))
    q = load_words(b, shape, 0, SHAPE)
    shifts = b.gep("i64", "%args", w["shifts_at"])
    planes = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    sums, table = b.gep("i8", planes, w["sums_at"]), b.gep("i8", planes, w["table_at"])
    others = b.gep("i8", sums, b.mul(w["sums_bytes"], ROWS))
    several = b.op(f"icmp slt i64 {w['block_steps']}, {w['steps']}")
    extent = b.gep("i8", planes, b.sub(w["scratch_bytes"], 128))
    b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])

    def write_table(s: str) -> None:
        block, tap = b.op(f"udiv i64 {s}, {w['taps']}"), b.op(f"urem i64 {s}, {w['taps']}")
        shift = b.mul(b.load("i64", b.gep("i64", shifts, tap), 8), 4)
        b.store("i64", b.add(b.mul(b.mul(block, DEEP // 2), q["pair_bytes"]), shift), b.gep("i64", table, s), 8)

    b.loop(0, w["steps"], 1, write_table)

    def decode(u: str) -> tuple[str, str, str, str, str]:
        """(range of channels, block column, block row, group, first image) of a unit."""
        digits = []
        for name in ("splits", "blocks_x", "blocks_y", "groups"):
            digits.append(b.op(f"urem i64 {u}, {w[name]}"))
            u = b.op(f"udiv i64 {u}, {w[name]}")
        part, bx, by, g = digits
        return part, bx, by, g, b.mul(u, w["images"])

    def panel_at(number: str) -> str:
        return b.gep("i8", w["weights"], b.add(w["panels_at"], b.mul(number, w["panel_bytes"])))

    def unit(u: str) -> None:
        part, bx, by, g, n0 = decode(u)
        next_part, _, _, next_g, _ = decode(b.min(b.add(u, 1), b.sub("%end", 1)))
        images = b.min(w["images"], b.sub(w["batch"], n0))
        o_low = b.mul(part, w["split_rows"])
        o_high = b.min(w["rows"], b.add(o_low, w["split_rows"]))
        y0, x0 = b.mul(by, w["block_rows"]), b.mul(bx, w["block_columns"])
        rows = b.sub(b.min(b.add(y0, w["block_rows"]), w["out_height"]), y0)
        columns = b.sub(b.min(b.add(x0, w["block_columns"]), w["out_width"]), x0)
        source = b.gep(memory, w["source"], b.add(b.mul(n0, w["source_batch"]), b.mul(g, w["source_group"])))
        start = b.add(b.mul(y0, q["out_y"]), x0)
        out = b.gep(memory, w["out"], b.add(b.add(b.mul(n0, w["out_batch"]), b.mul(g, w["out_group"])), start))
        kernel = b.gep(memory, w["kernel"], b.mul(g, w["kernel_group"]))
        first_panel = b.mul(g, w["panels"])
        clear_extent(b, extent)

        def image_source(i: str) -> str:
            return b.gep(memory, source, b.mul(i, w["source_batch"]))

        def copy(i: str) -> None:
            b.call_address(w["copy"], [
                ("ptr", shape), ("ptr", image_source(i)), ("ptr", b.gep("i32", planes, b.mul(i, w["image_places"]))),
                ("ptr", extent), ("i64", y0), ("i64", x0), ("i64", rows),
            ])  # fmt: skip

        b.loop(0, images, 1, copy)
        pixels = EXTENT.reduce(b, *extent_in_memory(b, extent))
        used = b.add(b.add(b.mul(b.sub(images, 1), w["image_places"]), b.mul(b.sub(rows, 1), q["pitch"])), columns)
        next_panel = b.add(b.mul(next_g, w["panels"]), b.op(f"udiv i64 {b.mul(next_part, w['split_rows'])}, {ROWS}"))

        def panel(o: str) -> None:
            lanes = b.min(ROWS, b.sub(o_high, o))
            number = b.add(first_panel, b.op(f"udiv i64 {o}, {ROWS}"))
            out_o = b.gep(memory, out, b.mul(o, q["out_row"]))

            def by_tiles() -> None:
                more = b.op(f"icmp slt i64 {b.add(o, ROWS)}, {o_high}")
                fetched = panel_at(b.op(f"select i1 {more}, i64 {b.add(number, 1)}, i64 {next_panel}"))
                tall = b.op(f"select i1 {b.op(f'icmp sgt i64 {lanes}, 16')}, i64 2, i64 0")

                def places(at: str) -> None:
                    ordinal = b.op(f"udiv i64 {at}, {PLACES}")
                    fetched_part = b.gep("i8", fetched, b.mul(b.mul(ordinal, w["fetched_lines"]), b.mul(w["steps"], 64)))
                    broad = b.op(f"zext i1 {b.op(f'icmp sgt i64 {b.sub(used, at)}, 16')} to i64")
                    b.call_address(w["products"], [
                        ("i64", w["steps"]), ("i64", w["block_steps"]), ("ptr", panel_at(number)), ("ptr", b.gep("i32", planes, at)),
                        ("ptr", table), ("ptr", b.gep("float", sums, at)), ("ptr", b.gep("float", others, at)),
                        ("i64", w["sums_bytes"]), ("i64", q["pair_bytes"]), ("i64", q["part_bytes"]),
                        ("ptr", fetched_part), ("i64", w["fetched_lines"]), ("i64", b.add(tall, broad)),
                    ])  # fmt: skip

                b.loop(0, used, PLACES, places)

                def store(i: str) -> None:
                    b.call("void", "store_sums", [
                        ("ptr", b.gep("float", sums, b.mul(i, w["image_places"]))),
                        ("ptr", b.gep("float", others, b.mul(i, w["image_places"]))), ("i1", several), ("i64", w["sums_bytes"]),
                        ("i64", q["pitch"]), ("ptr", b.gep(memory, out_o, b.mul(i, w["out_batch"]))), ("i64", q["out_row"]),
                        ("i64", q["out_y"]), ("i64", rows), ("i64", columns), ("i64", lanes),
                    ], declare=False)  # fmt: skip

                b.loop(0, images, 1, store)

            def exactly(i: str) -> None:
                b.call_address(w["exact"], [
                    ("ptr", shape), ("ptr", b.gep(memory, kernel, b.mul(o, q["kernel_row"]))), ("ptr", image_source(i)),
                    ("ptr", b.gep(memory, out_o, b.mul(i, w["out_batch"]))), ("i64", y0), ("i64", x0), ("i64", rows),
                    ("i64", columns), ("i64", lanes),
                ])  # fmt: skip

            def all_exactly() -> None:
                b.loop(0, images, 1, exactly)

            if facts.parts == 1:
                by_tiles()
                return
            header = b.gep("i8", w["weights"], b.mul(number, HEADER))
            low, high = (b.load("i32", b.gep("i32", header, i), 4) for i in range(2))
            safe = are_safe(b, pixels, (low, high))
            b.when(safe, by_tiles)
            b.when(b.op(f"xor i1 {safe}, true"), all_exactly)

        b.loop(o_low, o_high, ROWS, panel)
        if has_epilogue:
            # Whole rows, or a piece of one: either way neighbours in the output.
            row = b.mul(g, w["rows"])
            first = b.add(b.mul(y0, w["out_width"]), x0)
            after = b.add(b.add(b.mul(b.add(y0, b.sub(rows, 1)), w["out_width"]), x0), columns)

            call_epilogue(b, n0, images, (b.add(row, o_low), b.add(row, o_high)), (first, after))

    b.loop("%begin", "%end", 1, unit)
    b.call("void", "llvm.x86.tilerelease", [])
    return b.function(KERNEL_HEADER.format(name=symbol), "ret i64 0")
