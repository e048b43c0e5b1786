"""Convolutions by the matrix unit: the weight's gradient of float32, from planes of pixels.

    dw[c, tap][o] = sum over steps of planes[c][32 places + shift(tap)] * steps[32 places][o]

Pixels that lie next to each other are what the unit sums over. A tile of x is 16 channels by 32 places of their planes
(bfloat16 parts, convolution_weight_plane_pack.py), loaded at any place, so that a tap is another place of the same planes.
The gradient of the output lies on the same places, transposed; it is zero where a place is no pixel.

    for each unit: (partial sum, group, range of input channels)
        for each block of pixels in the partial sum: some rows of an image, or some images
            pack x's planes and g's steps
            for each panel of 32 input channels, panel of 32 output channels, tap     the products of the block's places,
                                                                                      added to the sums
        the sums go to the partial sum
    then the partial sums are added in their order                                    (the kernel of convolution_weight.py)

Where the extent of a block's operands says that their parts may not do (bfloat_parts.py), the unit is computed by multiply-adds
from the images themselves. Partial sums and blocks depend on sizes only, hence so do the order of additions and that choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Function, Kernel, Scratch, Word
from flambeau.compiler.kernels.bfloat_parts import PARTS, PRODUCTS, are_safe
from flambeau.compiler.kernels.convolution_image_pack import is_flat
from flambeau.compiler.kernels.convolution_judgement import NOTES, clear_notes, judge, look_function
from flambeau.compiler.kernels.convolution_patches import Geometry
from flambeau.compiler.kernels.convolution_planes import axes, balanced, shared_zeros
from flambeau.compiler.kernels.convolution_problem import Problem, load_words, numel
from flambeau.compiler.kernels.convolution_step_products import STEP_BYTES_OF, add_halves, add_sums, micro_function
from flambeau.compiler.kernels.convolution_tile_pack import EXTENT, clear_extent, extent_in_memory
from flambeau.compiler.kernels.convolution_weight_exact import WORDS, Blocks, exact_words, load_exact_words, store_partial
from flambeau.compiler.kernels.convolution_weight_plane_pack import SHAPE, SLACK, copy_function, turn_function
from flambeau.compiler.kernels.float_halves import together
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_halves import form_of, multiply_halves
from flambeau.compiler.kernels.matmul_packed import module_of
from flambeau.compiler.kernels.matmul_parts_micro import multiply_parts
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES, STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES, configuration
from flambeau.runtime.target import Target
from flambeau.symbols import maximum, minimum

_WIDTH: Final = 16
_PLACES: Final = 32  # of a step
# Places of a block, whose products an accumulator sums: a sixth of all within these bounds. (Errors are then 0.06 to 0.9 of
# PyTorch's but for 1x1 kernels, which PyTorch computes as products: to 1.5. With 704 instead of 1088 it is 8 % slower.)
_LEAST_PLACES: Final = 160
_BLOCK_PLACES: Final = 1088
_VISIT_STEPS: Final = 4  # of halves: what all taps have of so many places stays in the first-level cache
_SUMS_BYTES: Final = 640 << 10  # of a unit's range of input channels; next to them in a second-level cache of 2 MiB:
_OPERAND_BYTES: Final = 1 << 20
_LEAST_STEPS: Final = 16  # of a block: sums come and go
_LEAST_WORK: Final = 9  # products by 32 channels for each pixel
_PARTIALS: Final = 16
_MOST_PARTIAL_BYTES: Final = 5 << 20
_OF_PARTS: Final = ("copy_parts", "turn_parts", "tiles_parts")
_OF_HALVES: Final = ("look", "copy_halves", "turn_halves", "tiles_halves")
_POINTERS: Final = ("scratch", *_OF_PARTS, *_OF_HALVES)
_NAMES: Final = (
    *_POINTERS, "x_group", "g_group", "splits", "split_panels", "o_panels", "image_places", "pitch", "image_rows", "x_channel_bytes", "x_part_bytes",
    "g_channel_bytes", "g_part_bytes", "x_at", "g_at", "steps_at", "sums_at", "extents_at", "scratch_bytes", "panel_bytes", "visit_steps", "shifts_at",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Plan:
    """Blocks of pixels and the places that they take."""

    rows: int
    images: int
    pitch: int
    image_rows: int  # from image to image, in rows of places
    x_part: int  # bytes of a channel's part
    g_part: int
    steps: int  # the most of a block


def _geometry(p: Problem) -> Geometry:
    height, width = p.x.shape[2:]
    return Geometry(p.w.shape[2], p.w.shape[3], *p.stride, -p.padding[0], -p.padding[1], *p.dilation, p.y.shape[3], height, width, p.x.strides[1], width, 1)


def _plan(p: Problem) -> _Plan:
    g = _geometry(p)
    axis_y, axis_x = axes(g)
    height, width = p.y.shape[2:]
    pitch = width + axis_x.reach - shared_zeros(axis_x, 1, width, g.source_width, 1)
    most = maximum(_LEAST_PLACES, minimum(_BLOCK_PLACES, p.batch * height * pitch // 6))
    rows = balanced(height, maximum(1, minimum(height, most // pitch)))
    image_rows = rows + axis_y.reach - shared_zeros(axis_y, 1, rows, g.source_height, ceil_div(height, rows))
    images = maximum(1, minimum(p.batch, most // (image_rows * pitch))) if rows == height else 1
    used = ((images - 1) * image_rows + rows) * pitch

    def part_bytes(places: int) -> int:
        lines = ceil_div(2 * places, 64)
        return 64 * (lines + 1 - lines % 2)  # an odd number of cache lines: a tile's rows lie in different sets

    x_part, g_part = part_bytes(used + axis_y.reach * pitch + SLACK), part_bytes(used + SLACK)
    return _Plan(rows, images, pitch, image_rows, x_part, g_part, ceil_div(used, _PLACES))


def _split_panels(p: Problem, plan: _Plan) -> int:
    """Panels of input channels of a unit: as many as stay in the cache."""
    panels = ceil_div(p.group_inputs, LANES)
    each = ceil_div(p.group_outputs, LANES) * p.w.shape[2] * p.w.shape[3] * SUMS_BYTES
    operands = maximum(1, _OPERAND_BYTES // (LANES * PARTS * plan.x_part))
    return balanced(panels, maximum(1, minimum(panels, _SUMS_BYTES // each, operands)))


def weight_planes_apply(p: Problem) -> bool:
    """True where the matrix unit is there, places and channels are filled well, a pixel is used often enough, and blocks are long.

    (Measured, 3x3, times of the multiply-adds' speed: 64 channels of 32 x 32 to 56 x 56 1.2 to 1.6, 128 of 28 x 28 1.35, 32 of
    28 x 28 1.15; 256 of 14 x 14 in batches of 8, whose steps leave the cache, 1.0; blocks of 10 steps 0.9; with a stride of 2,
    for which a plane is used by a quarter of the products, 0.9 to 1.05. 1x1 of 64 channels 1.0, and less exact than PyTorch's.)"""
    if p.dtype.name != "float32" or p.stride != (1, 1) or "bfloat16" not in p.target.matrix_dtypes or not (is_flat(p.x) and is_flat(p.y)):
        return False
    if min(p.batch, p.y.shape[2], p.y.shape[3]) == 0 or p.y.shape[3] > _BLOCK_PLACES:
        return False
    filled = [count / round_up(count, _WIDTH) for count in (p.group_inputs, p.group_outputs)]
    taps = p.w.shape[2] * p.w.shape[3]
    # What an image's size does not change comes first: a question about it makes a plan for some sizes only.
    if taps <= 1 or taps * min(p.group_inputs, p.group_outputs) < _LEAST_WORK * LANES or min(filled) < 0.74:
        return False
    plan = _plan(p)
    pixels = plan.images * plan.rows * p.y.shape[3]
    near = ceil_div(p.group_outputs, LANES) * plan.steps * STEP_BYTES <= _OPERAND_BYTES
    return near and plan.steps >= _LEAST_STEPS and pixels >= 0.7 * plan.steps * _PLACES


def plane_weight_gradient(graph: Graph, p: Problem, node: int, make_partials: Callable[[int], int]) -> tuple[list[Kernel], int]:
    """The kernel of the partial sums, and how many there are. `make_partials(count)`: the value that holds them."""
    g = _geometry(p)
    axis_y, axis_x = axes(g)
    plan = _plan(p)
    channels, outputs = p.group_inputs, p.group_outputs
    taps = g.taps
    panels, o_panels = ceil_div(channels, LANES), ceil_div(outputs, LANES)
    split_panels = _split_panels(p, plan)
    splits = ceil_div(panels, split_panels)
    blocks = ceil_div(p.batch, plan.images) * ceil_div(p.y.shape[2], plan.rows)
    bytes_each = 4 * p.groups * taps * channels * round_up(outputs, _WIDTH)
    partials = maximum(1, minimum(blocks, _PARTIALS, _MOST_PARTIAL_BYTES // bytes_each, 32 // (p.groups * splits)))
    temporary_id = make_partials(partials)

    x_channel, g_channel = PARTS * plan.x_part, PARTS * plan.g_part
    panel_bytes = plan.steps * STEP_BYTES
    g_at = round_up(split_panels * LANES * x_channel, 64)
    steps_at = g_at + _WIDTH * g_channel
    acc_at = steps_at + o_panels * panel_bytes
    sums_at = acc_at + split_panels * o_panels * taps * SUMS_BYTES
    extents_at = sums_at + 2 * SUMS_BYTES
    scratch = extents_at + 2 * NOTES
    form = form_of(p.target, p.batch * p.y.shape[2] * p.y.shape[3]).name
    of_halves: list[Word] = [look_function(), copy_function("halves"), turn_function("halves"), _micro("halves")]
    shifts = [2 * (y * plan.pitch + x) for y in axis_y.places for x in axis_x.places]
    out_height, out_width = p.y.shape[2:]
    of_x: list[Word] = [
        p.x.strides[1], g.stride_y, g.source_height, g.source_width, axis_y.before, axis_x.before, plan.pitch, axis_y.reach, x_channel, plan.x_part,
    ]  # fmt: skip
    of_g: list[Word] = [p.y.strides[1], out_width, out_height, out_width, 0, 0, plan.pitch, 0, g_channel, plan.g_part]
    own: list[Word] = [
        Scratch(scratch), copy_function("parts"), turn_function("parts"), _micro("parts"), *(of_halves if form == "halves" else [0] * 4),
        channels * p.x.strides[1], outputs * p.y.strides[1], splits, split_panels, o_panels, plan.image_rows * plan.pitch, plan.pitch, plan.image_rows,
        x_channel, plan.x_part, g_channel, plan.g_part, 0, g_at, steps_at, acc_at, extents_at, scratch, panel_bytes, _VISIT_STEPS,
        len(WORDS) + len(_NAMES) + 2 * len(SHAPE), *of_x, *of_g, *shifts,
    ]  # fmt: skip
    words = exact_words(p, temporary_id, partials, plan.images, plan.rows, out_width, own)
    key = f"convolution:weight_planes:float32:{form}"
    units = partials * p.groups * splits
    products = Kernel(
        name="convolution_weight_gradient_float32", key=key, emit=partial(_emit, form, key), words=words,
        reads=tuple(dict.fromkeys((p.x.root, p.y.root))), writes=(temporary_id,), units=units,
        bytes=(numel(p.x) + numel(p.y)) * 4 + partials * bytes_each, operations=p.operations,
        nodes=(node,), min_units_per_thread=maximum(1, 4_000_000 * units // maximum(1, p.operations)),
    )  # fmt: skip
    return [products], partials


_MICRO: Final = (("i64", "%steps"), ("ptr", "%a"), ("i64", "%a_row"), ("i64", "%a_part"), ("ptr", "%b"), ("ptr", "%sums"))


def _micro(form: str) -> Function:
    """sums[c][o] = sum over steps of planes[c][place] * steps[place][o]; a's rows lie `a_row` bytes apart, its parts `a_part`."""
    return micro_function("weight_planes", form, _MICRO, _products, "%a_row")


def _products(b: Builder, high: int, broad: int, form: str) -> None:
    """Between the products of parts the lines are fetched that the next step is the first to touch: 5 to 9 % less time."""

    def step(s: str) -> None:
        left, right = b.gep("i8", "%a", b.mul(s, 2 * _PLACES)), b.gep("i8", "%b", b.mul(s, STEP_BYTES_OF[form]))

        def load(operand: str, tile: int, part: int, number: str) -> None:
            if operand in ("a", "one"):
                at, row = b.gep("i8", left, b.add(b.mul("%a_part", part), b.mul("%a_row", _WIDTH * tile))), "%a_row"
            else:
                at, row = b.gep("i8", right, part * PART_BYTES + 1024 * tile), "64"
            b.call("void", "llvm.x86.tileloadd64", [("i8", number), ("ptr", at), ("i64", row)])

        if form == "halves":
            multiply_halves(b, broad, True, lambda number, operand, half, tile: load(operand, tile, half, str(number)))
            return
        lines = [b.add(b.mul("%a_part", part), b.mul("%a_row", row)) for part in range(PARTS) for row in range(_WIDTH * high)]
        each = len(lines) // (len(PRODUCTS) * high * broad)

        def fetch() -> None:
            for line in lines[:each]:
                at = b.gep("i8", left, b.add(line, 2 * 2 * _PLACES - 1))
                b.prefetch(at, level=1)
            del lines[:each]

        multiply_parts(b, high, broad, load, before=fetch)

    b.loop(0, "%steps", 1, step)


def _emit(form: str, key: str, target: Target) -> str:
    from flambeau.runtime.jit import symbol

    return module_of([partial(_driver, form, symbol(key))], target, [configuration()])


def _driver(form: str, name: str, b: Builder) -> str:
    own = b.gep("i64", "%args", len(WORDS))
    w = load_exact_words(b) | load_words(b, own, len(_POINTERS), _NAMES)
    of_x = b.gep("i64", own, len(_NAMES))
    of_g = b.gep("i64", of_x, len(SHAPE))
    shifts = b.gep("i64", "%args", w["shifts_at"])
    b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])
    scratch = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    planes, g_planes, g_steps, acc = (b.gep("i8", scratch, w[at]) for at in ("x_at", "g_at", "steps_at", "sums_at"))
    x_extent = b.gep("i8", scratch, w["extents_at"])
    g_extent, sums = b.gep("i8", x_extent, NOTES), b.gep("i8", x_extent, -2 * SUMS_BYTES)
    floats = f"<{_WIDTH} x float>"
    b.allocas.append("  %is_safe = alloca i8")
    o_bytes = b.mul(w["taps"], SUMS_BYTES)
    c_bytes = b.mul(w["o_panels"], o_bytes)

    def unit(u: str) -> None:
        split, rest = b.op(f"urem i64 {u}, {w['splits']}"), b.op(f"udiv i64 {u}, {w['splits']}")
        group, s = b.op(f"urem i64 {rest}, {w['groups']}"), b.op(f"udiv i64 {rest}, {w['groups']}")
        blocks = Blocks(b, w, s)
        first_channel = b.mul(b.mul(split, w["split_panels"]), LANES)
        channels = b.min(b.mul(w["split_panels"], LANES), b.sub(w["channels"], first_channel))
        from_x = b.gep("float", w["x"], b.add(b.mul(group, w["x_group"]), b.mul(first_channel, w["x_channel"])))
        from_g = b.gep("float", w["g"], b.mul(group, w["g_group"]))
        c_panels = b.op(f"udiv i64 {b.add(channels, LANES - 1)}, {LANES}")
        b.loop(0, b.mul(c_panels, c_bytes), 64, lambda at: b.store(floats, "zeroinitializer", b.gep("i8", acc, at), 64))

        def block(t: str, safe: str) -> list[str]:
            image_block, y, _ = blocks.place(t)
            first = b.mul(image_block, w["block_images"])
            images = b.min(w["block_images"], b.sub(w["images"], first))
            rows = b.min(w["block_rows"], b.sub(w["height"], y))
            places = b.mul(b.add(b.mul(b.sub(images, 1), w["image_rows"]), rows), w["pitch"])
            steps = b.op(f"udiv i64 {b.add(places, _PLACES - 1)}, {_PLACES}")

            def visit_x(function: str) -> None:
                def image(i: str) -> None:
                    b.call_address(w[function], [
                        ("ptr", of_x), ("ptr", b.gep("float", from_x, b.mul(b.add(first, i), w["x_batch"]))), ("i64", channels),
                        ("i64", y), ("i64", rows), ("ptr", b.gep("i16", planes, b.mul(i, w["image_places"]))), ("ptr", x_extent),
                    ])  # fmt: skip

                b.loop(0, images, 1, image)

            def visit_g(function: str, o: str, count: str) -> None:
                """Some output channels, from `o` on."""

                def image(i: str) -> None:
                    last = b.op(f"icmp eq i64 {i}, {b.sub(images, 1)}")
                    source = b.add(b.mul(b.add(first, i), w["g_batch"]), b.mul(o, w["g_channel"]))
                    b.call_address(w[function], [
                        ("ptr", of_g), ("ptr", b.gep("float", from_g, source)), ("i64", count),
                        ("i64", y), ("i64", b.op(f"select i1 {last}, i64 {rows}, i64 {w['image_rows']}")),
                        ("ptr", b.gep("i16", g_planes, b.mul(i, w["image_places"]))), ("ptr", g_extent),
                    ])  # fmt: skip

                b.loop(0, images, 1, image)

            def pack(form: str) -> None:
                visit_x(f"copy_{form}")

                def outputs(o: str) -> None:
                    """16 output channels: planes, then steps."""
                    visit_g(f"copy_{form}", o, b.min(_WIDTH, b.sub(w["outputs"], o)))
                    to = b.add(b.mul(b.op(f"udiv i64 {o}, {LANES}"), w["panel_bytes"]), b.mul(b.op(f"and i64 {o}, {_WIDTH}"), 1024 // _WIDTH))
                    b.call_address(w[f"turn_{form}"], [
                        ("ptr", g_planes), ("i64", w["g_channel_bytes"]), ("i64", w["g_part_bytes"]), ("i64", steps), ("ptr", b.gep("i8", g_steps, to)),
                    ])  # fmt: skip

                b.loop(0, w["outputs"], _WIDTH, outputs)

            def products(form: str, scale: str) -> None:
                visit_steps = w["visit_steps"] if form == "halves" else steps

                def input_panel(c: str) -> None:
                    tall = b.min(LANES, b.sub(channels, b.mul(c, LANES)))
                    from_c = b.gep("i8", planes, b.mul(b.mul(c, LANES), w["x_channel_bytes"]))

                    def output_panel(o: str) -> None:
                        wide = b.min(LANES, b.sub(w["outputs"], b.mul(o, LANES)))
                        from_o = b.gep("i8", g_steps, b.mul(o, w["panel_bytes"]))
                        to = b.gep("i8", acc, b.add(b.mul(c, c_bytes), b.mul(o, o_bytes)))

                        def tap(k: str, start: str) -> None:
                            left = b.gep("i8", from_c, b.add(b.load("i64", b.gep("i64", shifts, k), 8), b.mul(start, 2 * _PLACES)))
                            b.call_address(w[f"tiles_{form}"], [
                                ("i64", b.min(visit_steps, b.sub(steps, start))), ("ptr", left), ("i64", w["x_channel_bytes"]),
                                ("i64", w["x_part_bytes"]), ("ptr", b.gep("i8", from_o, b.mul(start, STEP_BYTES_OF[form]))), ("ptr", sums),
                                ("i64", tall), ("i64", wide),
                            ])  # fmt: skip
                            to_tap = b.gep("i8", to, b.mul(k, SUMS_BYTES))
                            if form == "halves":
                                add_halves(b, sums, to_tap, tall, scale)
                            else:
                                add_sums(b, sums, to_tap, tall)

                        b.loop(0, steps, visit_steps, lambda start: b.loop(0, w["taps"], 1, lambda k: tap(k, start)) and None)

                    b.loop(0, w["o_panels"], 1, output_panel)

                b.loop(0, c_panels, 1, input_panel)

            def by_parts(safe: str) -> str:
                clear_extent(b, x_extent)
                clear_extent(b, g_extent)
                pack("parts")
                here = [EXTENT.reduce(b, *extent_in_memory(b, at)) for at in (x_extent, g_extent)]
                safe = b.op(f"and i1 {safe}, {are_safe(b, *here)}")
                b.when(safe, lambda: products("parts", ""))
                return safe

            def look_at(source: str, batch: str, channels: str, stride: str, shape: str, notes: str) -> None:
                """At the rows of some images that planes of a block hold. Rows lie next to each other."""
                q = load_words(b, shape, 0, SHAPE)
                low = b.max("0", b.sub(y, q["top"]))
                high = b.min(q["source_height"], b.sub(b.add(b.add(y, rows), q["reach_y"]), q["top"]))
                start, length = b.mul(low, q["stride_y"]), b.mul(b.max("0", b.sub(high, low)), q["stride_y"])

                def image(i: str) -> None:
                    b.call_address(w["look"], [
                        ("ptr", b.gep("float", source, b.add(b.mul(b.add(first, i), batch), start))), ("i64", channels), ("i64", stride),
                        ("i64", "1"), ("i64", "0"), ("i64", length), ("i64", stride), ("ptr", notes),
                    ])  # fmt: skip

                b.loop(0, images, 1, image)

            def look_x() -> None:
                look_at(from_x, w["x_batch"], channels, w["x_channel"], of_x, x_extent)

            def look_g() -> None:
                look_at(from_g, w["g_batch"], w["outputs"], w["g_channel"], of_g, g_extent)

            if form == "parts":
                return [by_parts(safe)]
            for extent in (x_extent, g_extent):
                clear_notes(b, extent)
            look_x()
            look_g()
            pixels = b.mul(b.mul(images, rows), w["width"])  # about as many of x as of g
            known = [
                judge(b, x_extent, b.mul(pixels, channels), look_x),
                judge(b, g_extent, b.mul(pixels, w["outputs"]), look_g),
            ]  # fmt: skip
            fit, scale = together(b, *known)
            b.store("i8", b.op(f"zext i1 {safe} to i8"), "%is_safe", 1)

            def by_halves() -> None:
                pack("halves")
                products("halves", scale)

            b.when(fit, by_halves)
            b.when(b.op(f"xor i1 {fit}, true"), lambda: b.store("i8", b.op(f"zext i1 {by_parts(safe)} to i8"), "%is_safe", 1))
            return [b.op(f"trunc i8 {b.load('i8', '%is_safe', 1)} to i1")]

        (safe,) = b.loop(blocks.first, blocks.after, 1, block, [("i1", "true")])

        def finish(c: str) -> None:
            panel = b.mul(c, LANES)
            tall = b.min(LANES, b.sub(channels, panel))
            here = b.gep("i8", acc, b.mul(c, c_bytes))

            def exactly() -> None:
                b.call_address(w["exact"], [
                    ("ptr", "%args"), ("i64", s), ("i64", b.add(b.mul(group, w["channels"]), b.add(first_channel, panel))), ("i64", tall),
                    ("i64", b.mul(group, w["outputs"])), ("i64", w["outputs"]), ("ptr", here),
                ])  # fmt: skip

            b.when(b.op(f"xor i1 {safe}, true"), exactly)
            store_partial(b, w, s, group, b.add(first_channel, panel), tall, "0", w["padded"], here)

        b.loop(0, c_panels, 1, finish)

    b.loop("%begin", "%end", 1, unit)
    b.call("void", "llvm.x86.tilerelease", [])
    return b.function(KERNEL_HEADER.format(name=name), "ret i64 0")
