"""Convolutions by the matrix unit: the weight's gradient of float32, from steps of one pixel of 32 images each.

    dw[c, tap][o] = sum over images and pixels of x[image][c][source(p, tap)] * g[image][o][p]

The images of a step are what the unit sums over (convolution_image_pack.py), so that a tap is x's step of another pixel, and
products with padding are not made at all.

    for each unit: (partial sum, group, some panels of 32 output channels, panel of 32 input channels)
        for each block of pixels in the partial sum: whole rows, or a piece of one
            for each panel of output channels, each tap       the products of all the block's pixels that the tap has,
                                                              added to the sums of the panel and the tap
        the sums go to the partial sum
    then the partial sums are added in their order             (the kernel of convolution_weight.py)

Where the extents of a unit's operands say that their parts may not do (bfloat_parts.py), the unit is computed by multiply-adds
from the images themselves. Partial sums and blocks depend on sizes only, hence so do the order of additions and that choice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import KERNEL_HEADER, Builder
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Function, Kernel, Scratch, Word
from flambeau.compiler.kernels.bfloat_parts import are_safe
from flambeau.compiler.kernels.convolution_image_pack import is_flat, pack_steps, packed_bytes, whole_extent
from flambeau.compiler.kernels.convolution_patches import bit_mask
from flambeau.compiler.kernels.convolution_problem import Problem, load_words, numel
from flambeau.compiler.kernels.convolution_step_products import add_sums, choose_tiles, clear_tiles, multiply_step, store_tiles
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_packed import module_of
from flambeau.compiler.kernels.matmul_parts_pack import STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES, configuration

_WIDTH: Final = 16
_BLOCK_PIXELS: Final = 16  # of one accumulator: six additions for each. (Of 32 errors are larger, of 8 it is up to 8 % slower.)
_UNITS: Final = 32  # partial sums are made until there are so many units (the same number on every machine)
_OUTPUT_PANELS: Final = 2  # of a unit: x's steps come from far only once for them
_MOST_BYTES: Final = 96 << 20  # of the steps of an operand
_NEAR_BYTES: Final = 1 << 20  # steps that stay in a second-level cache
_EXACT_OUTPUTS: Final = 8  # output channels that use a vector of x in multiply-adds
_TAP: Final = ("y_low", "y_high", "x_low", "x_high", "shift")  # output pixels that a tap has; the source step of pixel (0, 0)
_POINTERS: Final = ("partial", "x_steps", "g_steps", "x", "g", "scratch", "tiles", "exact")
_NAMES: Final = (
    *_POINTERS, "groups", "partials", "c_panels", "o_panels", "o_blocks", "blocks", "blocks_y", "blocks_x", "block_rows",
    "block_columns", "height", "width", "images", "image_blocks", "x_panel_steps", "g_panel_steps", "x_chunks", "g_chunks",
    "x_extents_at", "g_extents_at", "channels", "outputs", "taps", "padded", "step_y", "step_x", "source_width", "x_batch",
    "x_channel", "g_batch", "g_channel", "scratch_bytes", "sums_at",
)  # fmt: skip


def weight_tiles_apply(p: Problem) -> bool:
    """True where the matrix unit is there, and its 32 images by 32 x 32 channels are filled well."""
    from flambeau.runtime import tiles

    if p.dtype.name != "float32" or "bfloat16" not in tiles.dtypes() or not (is_flat(p.x) and is_flat(p.y)):
        return False
    filled = [p.batch / round_up(max(p.batch, 1), LANES)]
    filled += [count / round_up(count, _WIDTH) for count in (p.group_inputs, p.group_outputs)]
    pixels = p.y.shape[2] * p.y.shape[3]
    sizes = [packed_bytes(lanes, p.batch, o.shape[2] * o.shape[3]) * p.groups for lanes, o in ((p.group_inputs, p.x), (p.group_outputs, p.y))]
    # Products for each packed element. (Measured, times of the multiply-adds' time: 18 with 12 MiB of steps 0.7, 36 with 6 MiB
    # 1.1 to 1.4, 72 with 3 MiB 1.5, 144 with 1.5 MiB 1.8: the steps of a large image come from far memory.)
    work = p.w.shape[2] * p.w.shape[3] * min(p.group_inputs, p.group_outputs) / LANES
    return min(filled) >= 0.74 and pixels > 0 and (work >= 30 or (work >= 8 and max(sizes) <= _NEAR_BYTES)) and max(sizes) <= _MOST_BYTES


def tile_weight_gradient(graph: Graph, p: Problem, node: int, make_partials: Callable[[int], int]) -> tuple[list[Kernel], int]:
    """The kernels of the partial sums, and how many there are. `make_partials(count)`: the value that holds them."""
    groups, channels, outputs = p.groups, p.group_inputs, p.group_outputs
    out_height, out_width = p.y.shape[2:]
    height, width = p.x.shape[2:]
    kernel_y, kernel_x = p.w.shape[2:]
    taps = kernel_y * kernel_x
    x, x_kernel = pack_steps(
        graph, p.x, groups, (channels, p.x.strides[1]), (p.batch, p.x.strides[0]), channels * p.x.strides[1], True, node
    )
    g, g_kernel = pack_steps(
        graph, p.y, groups, (outputs, p.y.strides[1]), (p.batch, p.y.strides[0]), outputs * p.y.strides[1], False, node
    )
    block_columns = ceil_div(out_width, ceil_div(out_width, 2 * _BLOCK_PIXELS))
    block_rows = max(1, min(out_height, _BLOCK_PIXELS // out_width))
    blocks_y, blocks_x = ceil_div(out_height, block_rows), ceil_div(out_width, block_columns)
    blocks = x.blocks * blocks_y * blocks_x
    o_blocks = ceil_div(g.panels, _OUTPUT_PANELS)
    tiles_of_units = groups * x.panels * o_blocks
    partials = max(1, min(blocks, ceil_div(_UNITS, tiles_of_units)))
    sums_at = _OUTPUT_PANELS * taps * SUMS_BYTES
    scratch = sums_at + SUMS_BYTES
    temporary_id = make_partials(partials)
    table: list[Word] = []
    for ty in range(kernel_y):
        for tx in range(kernel_x):
            at_y, at_x = ty * p.dilation[0] - p.padding[0], tx * p.dilation[1] - p.padding[1]
            table += [
                *_inside(at_y, p.stride[0], height, out_height), *_inside(at_x, p.stride[1], width, out_width), at_y * width + at_x
            ]  # fmt: skip
    words: list[Word] = [
        Address(temporary_id), Address(x.value), Address(g.value), p.x.word, p.y.word, Scratch(scratch), _tiles_function(), _exact_function(),
        groups, partials, x.panels, g.panels, o_blocks, blocks, blocks_y, blocks_x, block_rows, block_columns, out_height, out_width,
        p.batch, x.blocks, x.steps, g.steps, x.chunks, g.chunks, x.extents_at, g.extents_at, channels, outputs, taps,
        round_up(outputs, _WIDTH), p.stride[0], p.stride[1], width, p.x.strides[0], p.x.strides[1], p.y.strides[0], p.y.strides[1], scratch,
        sums_at, *table,
    ]  # fmt: skip
    key = "convolution:weight_tiles:float32"
    units = partials * tiles_of_units
    products = Kernel(
        name="convolution_weight_gradient_float32", key=key, emit=partial(_emit, key), words=words,
        reads=tuple(dict.fromkeys((x.value, g.value, p.x.root, p.y.root))), writes=(temporary_id,), units=units,
        bytes=(numel(p.x) + numel(p.y)) * 6 + partials * groups * taps * channels * outputs * 4, operations=p.operations,
        nodes=(node,), min_units_per_thread=max(1, 4_000_000 * units // max(1, p.operations)),
    )  # fmt: skip
    return [x_kernel, g_kernel, products], partials


def _inside(at: int, step: int, size: int, count: int) -> tuple[int, int]:
    """[low, high): the output positions i of `count` with 0 <= at + i * step < size."""
    low = max(0, ceil_div(-at, step))
    return low, max(low, min(count, (size - 1 - at) // step + 1))


def _tiles_function() -> Function:
    key = "convolution:weight_tiles:tiles"
    return Function(key, partial(_tiles_module, key))


def _tiles_module(key: str) -> str:
    from flambeau.runtime.jit import symbol

    variants = [(r, c) for r in (1, 2) for c in (1, 2)]
    return module_of([*[partial(_micro, r, c) for r, c in variants], partial(choose_tiles, symbol(key), _MICRO)], 512)


_MICRO: Final = (
    ("i64", "%rows"), ("i64", "%columns"), ("ptr", "%a"), ("i64", "%a_row"), ("i64", "%a_step"), ("ptr", "%b"), ("i64", "%b_row"),
    ("ptr", "%sums"),
)  # fmt: skip


def _micro(high: int, broad: int, b: Builder) -> str:
    """sums[c][o] = sum over rows and columns of steps; a's lie `a_row` and `a_step` bytes apart, b's columns next to each other."""
    def row(y: str) -> None:
        a_row, b_row = b.gep("i8", "%a", b.mul(y, "%a_row")), b.gep("i8", "%b", b.mul(y, "%b_row"))
        b.loop(0, "%columns", 1, lambda x: multiply_step(
            b, b.gep("i8", a_row, b.mul(x, "%a_step")), b.gep("i8", b_row, b.mul(x, STEP_BYTES)), high, broad
        ))  # fmt: skip

    clear_tiles(b, high, broad)
    b.loop(0, "%rows", 1, row)
    store_tiles(b, "%sums", high, broad)
    text = ", ".join(f"{type_} {value}" for type_, value in _MICRO)
    return b.function(f"define internal void @tiles_{high}x{broad}({text}) noinline #0")


def _emit(key: str) -> str:
    from flambeau.runtime.jit import symbol

    return module_of([partial(_driver, symbol(key))], 512, [configuration()])


class _Blocks:
    """What driver and multiply-adds share: the blocks of pixels of a partial sum, and what a tap has of one."""

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
        at = b.gep("i64", "%args", b.add(b.mul(t, len(_TAP)), len(_NAMES)))
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


def _driver(name: str, b: Builder) -> str:
    w = load_words(b, "%args", len(_POINTERS), _NAMES)
    b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])
    acc = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    sums = b.gep("i8", acc, w["sums_at"])
    floats = f"<{_WIDTH} x float>"

    def unit(u: str) -> None:
        rest, panel = b.op(f"udiv i64 {u}, {w['c_panels']}"), b.op(f"urem i64 {u}, {w['c_panels']}")
        o_block, rest = b.op(f"urem i64 {rest}, {w['o_blocks']}"), b.op(f"udiv i64 {rest}, {w['o_blocks']}")
        group, s = b.op(f"urem i64 {rest}, {w['groups']}"), b.op(f"udiv i64 {rest}, {w['groups']}")
        blocks = _Blocks(b, w, s)
        first_o = b.mul(o_block, _OUTPUT_PANELS)
        o_count = b.min(_OUTPUT_PANELS, b.sub(w["o_panels"], first_o))
        left = b.mul(b.add(b.mul(group, w["c_panels"]), panel), w["image_blocks"])
        right = b.mul(b.add(b.mul(group, w["o_panels"]), first_o), w["image_blocks"])
        extents = [
            whole_extent(b, w[f"{which}_steps"], w[f"{which}_extents_at"], b.mul(first, chunks), b.mul(count, chunks))
            for which, first, chunks, count in (
                ("x", left, w["x_chunks"], w["image_blocks"]), ("g", right, w["g_chunks"], b.mul(o_count, w["image_blocks"])),
            )
        ]  # fmt: skip
        safe = are_safe(b, extents[0], extents[1])
        tall = b.min(LANES, b.sub(w["channels"], b.mul(panel, LANES)))
        used = b.mul(b.mul(o_count, w["taps"]), SUMS_BYTES)
        b.loop(0, used, 64, lambda at: b.store(floats, "zeroinitializer", b.gep("i8", acc, at), 64))

        def by_tiles() -> None:
            def block(t: str) -> None:
                images, y, x = blocks.place(t)
                x_base = b.mul(b.add(left, images), w["x_panel_steps"])

                def output_panel(o: str) -> None:
                    g_base = b.mul(b.add(b.add(right, b.mul(o, w["image_blocks"])), images), w["g_panel_steps"])
                    wide = b.min(LANES, b.sub(w["outputs"], b.mul(b.add(first_o, o), LANES)))

                    def tap(k: str) -> None:
                        y0, rows, x0, columns, shift = blocks.tap(k, y, x)
                        to = b.gep("i8", acc, b.mul(b.add(b.mul(o, w["taps"]), k), SUMS_BYTES))

                        def products() -> None:
                            a = b.mul(b.add(x_base, blocks.source(y0, x0, shift)), STEP_BYTES)
                            bb = b.mul(b.add(b.add(g_base, b.mul(y0, w["width"])), x0), STEP_BYTES)
                            b.call_address(w["tiles"], [
                                ("i64", rows), ("i64", columns), ("ptr", b.gep("i8", w["x_steps"], a)),
                                ("i64", b.mul(b.mul(w["step_y"], w["source_width"]), STEP_BYTES)), ("i64", b.mul(w["step_x"], STEP_BYTES)),
                                ("ptr", b.gep("i8", w["g_steps"], bb)), ("i64", b.mul(w["width"], STEP_BYTES)), ("ptr", sums),
                                ("i64", tall), ("i64", wide),
                            ])  # fmt: skip
                            add_sums(b, sums, to, tall)

                        b.when(b.op(f"icmp sgt i64 {b.mul(rows, columns)}, 0"), products)

                    b.loop(0, w["taps"], 1, tap)

                b.loop(0, o_count, 1, output_panel)

            b.loop(blocks.first, blocks.after, 1, block)

        def exactly() -> None:
            b.call_address(w["exact"], [
                ("ptr", "%args"), ("i64", s), ("i64", b.add(b.mul(group, w["channels"]), b.mul(panel, LANES))), ("i64", tall),
                ("i64", b.add(b.mul(group, w["outputs"]), b.mul(first_o, LANES))),
                ("i64", b.min(_OUTPUT_PANELS * LANES, b.sub(w["outputs"], b.mul(first_o, LANES)))), ("ptr", acc),
            ])  # fmt: skip

        b.when(safe, by_tiles)
        b.when(b.op(f"xor i1 {safe}, true"), exactly)

        # partial[s][group][c][tap][o]
        first_c = b.mul(b.add(b.mul(b.add(b.mul(s, w["groups"]), group), w["channels"]), b.mul(panel, LANES)), w["taps"])

        def channel(i: str) -> None:
            def tap(k: str) -> None:
                row = b.mul(b.add(first_c, b.add(b.mul(i, w["taps"]), k)), w["padded"])

                def vector_of_outputs(o: str) -> None:
                    source = b.add(b.mul(b.add(b.mul(b.op(f"udiv i64 {o}, {LANES}"), w["taps"]), k), SUMS_BYTES), b.mul(i, 4 * LANES))
                    source = b.add(source, b.mul(b.op(f"urem i64 {o}, {LANES}"), 4))
                    target = b.gep("float", w["partial"], b.add(row, b.add(b.mul(first_o, LANES), o)))
                    b.store(floats, b.load(floats, b.gep("i8", acc, source), 64), target, 4)

                b.loop(0, b.min(_OUTPUT_PANELS * LANES, b.sub(w["padded"], b.mul(first_o, LANES))), _WIDTH, vector_of_outputs)

            b.loop(0, w["taps"], 1, tap)

        b.loop(0, tall, 1, channel)

    b.loop("%begin", "%end", 1, unit)
    b.call("void", "llvm.x86.tilerelease", [])
    return b.function(KERNEL_HEADER.format(name=name), "ret i64 0")


def _exact_function() -> Function:
    key = "convolution:weight_tiles:exact"
    return Function(key, partial(_exact_module, key))


def _exact_module(key: str) -> str:
    from flambeau.runtime.jit import symbol

    return module_of([partial(_exact, symbol(key))], 512)


def _exact(name: str, b: Builder) -> str:
    """Text of `name(args, s, channel, tall, output, wide, sums)`: a unit's sums by multiply-adds. The lanes of a vector are pixels
    of a row; sums of an image are added up."""
    w = load_words(b, "%args", len(_POINTERS), _NAMES)
    blocks = _Blocks(b, w, "%s")
    floats = f"<{_WIDTH} x float>"
    zeros = [(floats, "zeroinitializer")] * _EXACT_OUTPUTS
    order = "<" + ", ".join(f"i64 {i}" for i in range(_WIDTH)) + ">"
    offsets = b.op(f"mul <{_WIDTH} x i64> {order}, {b.splat('i64', _WIDTH, w['step_x'])}")
    gather = f"llvm.masked.gather.v{_WIDTH}f32.v{_WIDTH}p0"
    b.declarations.add(f"declare {floats} @{gather}(<{_WIDTH} x ptr>, i32, <{_WIDTH} x i1>, {floats})")

    def channel(c: str) -> None:
        def tap(k: str) -> None:
            def outputs(o: str) -> None:
                last = b.sub("%wide", 1)
                rows_of_g = [b.mul(b.add("%output", b.min(b.add(o, i), last)), w["g_channel"]) for i in range(_EXACT_OUTPUTS)]

                def block(t: str, *totals: str) -> list[str]:
                    images, y, x = blocks.place(t)
                    y0, rows, x0, columns, shift = blocks.tap(k, y, x)
                    first = b.mul(images, LANES)

                    def image(n: str, *totals: str) -> list[str]:
                        from_x = b.gep("float", w["x"], b.add(b.mul(n, w["x_batch"]), b.mul(b.add("%channel", c), w["x_channel"])))
                        from_g = [b.gep("float", w["g"], b.add(b.mul(n, w["g_batch"]), r)) for r in rows_of_g]

                        def row(r: str, *sums: str) -> list[str]:
                            here = b.add(y0, r)

                            def pixels(q: str, *sums: str) -> list[str]:
                                mask = bit_mask(b, _WIDTH, 0, b.sub(columns, q))
                                at = b.add(x0, q)
                                lanes = b.op(
                                    f"getelementptr float, ptr {b.gep('float', from_x, blocks.source(here, at, shift))}, <{_WIDTH} x i64> {offsets}"
                                )
                                arguments = [
                                    (f"<{_WIDTH} x ptr>", lanes), ("i32", "4"), (f"<{_WIDTH} x i1>", mask), (floats, "zeroinitializer")
                                ]  # fmt: skip
                                left = b.call(floats, gather, arguments, declare=False)
                                place = b.add(b.mul(here, w["width"]), at)
                                following = []
                                for g, total in zip(from_g, sums, strict=True):
                                    right = b.masked_load("float", _WIDTH, b.gep("float", g, place), mask, 4)
                                    following.append(b.call(floats, f"llvm.fma.v{_WIDTH}f32", [(floats, left), (floats, right), (floats, total)]))
                                return following

                            return b.loop(0, columns, _WIDTH, pixels, [(floats, value) for value in sums])

                        sums = b.loop(0, rows, 1, row, zeros)
                        return [b.op(f"fadd {floats} {total}, {value}") for total, value in zip(totals, sums, strict=True)]

                    after = b.min(w["images"], b.add(first, LANES))
                    return b.loop(first, after, 1, image, [(floats, value) for value in totals])

                totals = b.loop(blocks.first, blocks.after, 1, block, zeros)
                for i, total in enumerate(totals):
                    value = b.call("float", f"llvm.vector.reduce.fadd.v{_WIDTH}f32", [("float", "-0.0"), (floats, total)])
                    at = b.add(o, i)
                    line = b.add(b.mul(b.add(b.mul(b.op(f"udiv i64 {at}, {LANES}"), w["taps"]), k), SUMS_BYTES), b.mul(c, 4 * LANES))
                    to = b.gep("i8", "%sums", b.add(line, b.mul(b.op(f"urem i64 {at}, {LANES}"), 4)))
                    b.store("float", value, to, 4)

            b.loop(0, "%wide", _EXACT_OUTPUTS, outputs)

        b.loop(0, w["taps"], 1, tap)

    b.loop(0, "%tall", 1, channel)
    return b.function(
        f"define void @{name}(ptr noalias %args, i64 %s, i64 %channel, i64 %tall, i64 %output, i64 %wide, ptr noalias %sums) noinline #0"
    )
