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

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Function, Kernel, Scratch, Word
from flambeau.compiler.kernels.bfloat_parts import are_safe
from flambeau.compiler.kernels.convolution_image_pack import (
    is_flat,
    lay_out_steps,
    look_kernels,
    operand_verdict,
    pack_kernel,
    packed_bytes,
    whole_note,
)  # fmt: skip
from flambeau.compiler.kernels.convolution_problem import Problem, numel
from flambeau.compiler.kernels.convolution_step_products import STEP_BYTES_OF, add_halves, add_sums, micro_function, multiply_step
from flambeau.compiler.kernels.convolution_weight_exact import EXACT, Blocks, exact_words, store_partial
from flambeau.compiler.kernels.description import describe
from flambeau.compiler.kernels.float_halves import together
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_halves import form_of
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES, configuration
from flambeau.symbols import maximum

_WIDTH: Final = 16
# Of one accumulator: six additions for each. (Of 32 errors are larger, of 8 it is up to 8 % slower.) Of halves two: so few stay in
# the first-level cache for all taps of a row.
_BLOCK_PIXELS: Final = {"parts": 16, "halves": 4}
_UNITS: Final = 32  # partial sums are made until there are so many units (the same number on every machine)
_OUTPUT_PANELS: Final = 2  # of a unit: x's steps come from far only once for them
_MOST_BYTES: Final = 96 << 20  # of the steps of an operand
_NEAR_BYTES: Final = 1 << 20  # steps that stay in a second-level cache


def weight_tiles_apply(p: Problem) -> bool:
    """True where the matrix unit is there, and its 32 images by 32 x 32 channels are filled well."""
    if p.dtype.name != "float32" or "bfloat16" not in p.target.matrix_dtypes or not (is_flat(p.x) and is_flat(p.y)):
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
    kernel_y, kernel_x = p.w.shape[2:]
    taps = kernel_y * kernel_x
    form = form_of(p.target, p.batch * out_height * out_width).name
    x, g = (
        lay_out_steps(graph, o, groups, (count, o.strides[1]), (p.batch, o.strides[0]), count * o.strides[1], form, node)
        for o, count in ((p.x, channels), (p.y, outputs))
    )
    packing = [*look_kernels(x), *look_kernels(g), pack_kernel(x, True, False, g.partner), pack_kernel(g, False, False, x.partner)]
    block_pixels = _BLOCK_PIXELS[form]
    block_columns = ceil_div(out_width, ceil_div(out_width, 2 * block_pixels))
    block_rows = max(1, min(out_height, block_pixels // out_width))
    blocks_y, blocks_x = ceil_div(out_height, block_rows), ceil_div(out_width, block_columns)
    blocks = x.blocks * blocks_y * blocks_x
    o_blocks = ceil_div(g.panels, _OUTPUT_PANELS)
    tiles_of_units = groups * x.panels * o_blocks
    partials = max(1, min(blocks, ceil_div(_UNITS, tiles_of_units)))
    sums_at = _OUTPUT_PANELS * taps * SUMS_BYTES
    scratch = sums_at + 2 * SUMS_BYTES
    temporary_id = make_partials(partials)
    own: dict[str, Word] = {
        "x_steps": Address(x.value), "g_steps": Address(g.value), "scratch": Scratch(scratch),
        **{f"tiles_{name}": _micro(name) for name in dict.fromkeys(("parts", form))}, "c_panels": x.panels, "o_panels": g.panels, "o_blocks": o_blocks,
        "image_blocks": x.blocks, "x_panel_steps": x.steps, "g_panel_steps": g.steps, "x_chunks": x.chunks, "g_chunks": g.chunks,
        "x_notes_at": x.notes_at, "g_notes_at": g.notes_at, "x_elements": x.elements, "g_elements": g.elements, "scratch_bytes": scratch,
        "sums_at": sums_at,
    }  # fmt: skip
    words, tables = exact_words(p, temporary_id, partials, LANES, block_rows, block_columns, own)
    units = partials * tiles_of_units
    products = describe(
        "convolution_weight_gradient_float32", f"convolution:weight_tiles:float32:{form}", partial(_body, form), words, tables,
        constants=[configuration()], reads=tuple(dict.fromkeys((x.value, g.value, p.x.root, p.y.root))), writes=(temporary_id,), units=units,
        bytes=(numel(p.x) + numel(p.y)) * 6 + partials * groups * taps * channels * outputs * 4, operations=p.operations,
        nodes=(node,), min_units_per_thread=maximum(1, 4_000_000 * units // maximum(1, p.operations)),
    )  # fmt: skip
    return [*packing, products], partials


_MICRO: Final = Parameters("rows columns a:ptr a_row a_step b:ptr b_row sums:ptr")
_CALLED: Final = _MICRO + "tall wide"


def _micro(form: str) -> Function:
    """sums[c][o] = sum over rows and columns of steps; a's lie `a_row` and `a_step` bytes apart, b's columns next to each other."""

    def body(b: Builder, high: int, broad: int, form: str) -> None:
        with b.for_(0, "%rows") as y:
            a_row, b_row = b.gep("i8", "%a", b.mul(y, "%a_row")), b.gep("i8", "%b", b.mul(y, "%b_row"))
            with b.for_(0, "%columns") as x:
                multiply_step(b, b.gep("i8", a_row, b.mul(x, "%a_step")), b.gep("i8", b_row, b.mul(x, STEP_BYTES_OF[form])), high, broad, form)

    return micro_function("weight_tiles", form, _MICRO, body)


def _body(form: str, b: Builder, w: dict[str, str]) -> None:
    b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])
    acc = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    sums = b.gep("i8", acc, w["sums_at"])
    floats = f"<{_WIDTH} x float>"
    with b.for_("%begin", "%end") as u:
        rest, panel = b.op(f"udiv i64 {u}, {w['c_panels']}"), b.op(f"urem i64 {u}, {w['c_panels']}")
        o_block, rest = b.op(f"urem i64 {rest}, {w['o_blocks']}"), b.op(f"udiv i64 {rest}, {w['o_blocks']}")
        group, s = b.op(f"urem i64 {rest}, {w['groups']}"), b.op(f"udiv i64 {rest}, {w['groups']}")
        blocks = Blocks(b, w, s)
        first_o = b.mul(o_block, _OUTPUT_PANELS)
        o_count = b.min(_OUTPUT_PANELS, b.sub(w["o_panels"], first_o))
        left = b.mul(b.add(b.mul(group, w["c_panels"]), panel), w["image_blocks"])
        right = b.mul(b.add(b.mul(group, w["o_panels"]), first_o), w["image_blocks"])
        extents = []
        for which, first, count in (("x", left, w["image_blocks"]), ("g", right, b.mul(o_count, w["image_blocks"]))):
            chunks = w[f"{which}_chunks"]
            low, high, *_ = whole_note(b, w[f"{which}_steps"], w[f"{which}_notes_at"], b.mul(first, chunks), b.mul(count, chunks))
            extents.append((low, high))
        exact = b.op(f"xor i1 {are_safe(b, extents[0], extents[1])}, true")
        fit, scale = "false", "1.0"
        if form == "halves":
            known = [
                operand_verdict(b, w[f"{which}_steps"], w[f"{which}_notes_at"], b.mul(b.mul(panels, w["image_blocks"]), w[f"{which}_chunks"]),
                                w[f"{which}_elements"], group)
                for which, panels in (("x", w["c_panels"]), ("g", w["o_panels"]))
            ]  # fmt: skip
            fit, scale = together(b, *known)
            exact = b.op(f"and i1 {exact}, {b.op(f'xor i1 {fit}, true')}")
        tall = b.min(LANES, b.sub(w["channels"], b.mul(panel, LANES)))
        used = b.mul(b.mul(o_count, w["taps"]), SUMS_BYTES)
        with b.for_(0, used, 64) as at:
            b.store(floats, "zeroinitializer", b.gep("i8", acc, at), 64)

        def by_tiles(form: str) -> None:
            step_bytes = STEP_BYTES_OF[form]
            with b.for_(blocks.first, blocks.after) as t:
                images, y, x = blocks.place(t)
                x_base = b.mul(b.add(left, images), w["x_panel_steps"])
                with b.for_(0, o_count) as o:
                    g_base = b.mul(b.add(b.add(right, b.mul(o, w["image_blocks"])), images), w["g_panel_steps"])
                    wide = b.min(LANES, b.sub(w["outputs"], b.mul(b.add(first_o, o), LANES)))
                    with b.for_(0, w["taps"]) as k:
                        y0, rows, x0, columns, shift = blocks.tap(k, y, x)
                        to = b.gep("i8", acc, b.mul(b.add(b.mul(o, w["taps"]), k), SUMS_BYTES))
                        with b.if_(b.op(f"icmp sgt i64 {b.mul(rows, columns)}, 0")):
                            a = b.mul(b.add(x_base, blocks.source(y0, x0, shift)), step_bytes)
                            bb = b.mul(b.add(b.add(g_base, b.mul(y0, w["width"])), x0), step_bytes)
                            b.invoke(w[f"tiles_{form}"], _CALLED, rows, columns, b.gep("i8", w["x_steps"], a),
                                     b.mul(b.mul(w["step_y"], w["source_width"]), step_bytes), b.mul(w["step_x"], step_bytes), b.gep("i8", w["g_steps"], bb),
                                     b.mul(w["width"], step_bytes), sums, tall, wide)  # fmt: skip
                            if form == "halves":
                                add_halves(b, sums, to, tall, scale)
                            else:
                                add_sums(b, sums, to, tall)

        if form == "halves":
            with b.if_(fit):
                by_tiles("halves")
        with b.if_(b.op(f"xor i1 {b.op(f'or i1 {fit}, {exact}')}, true")):
            by_tiles("parts")
        with b.if_(exact):
            b.invoke(w["exact"], EXACT, "%args", s, b.add(b.mul(group, w["channels"]), b.mul(panel, LANES)), tall,
                     b.add(b.mul(group, w["outputs"]), b.mul(first_o, LANES)), b.min(_OUTPUT_PANELS * LANES, b.sub(w["outputs"], b.mul(first_o, LANES))),
                     acc)  # fmt: skip
        store_partial(b, w, s, group, b.mul(panel, LANES), tall, b.mul(first_o, LANES), _OUTPUT_PANELS * LANES, acc)
    b.call("void", "llvm.x86.tilerelease", [])
