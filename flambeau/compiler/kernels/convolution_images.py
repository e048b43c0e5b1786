"""Convolutions of small images in large batches by the matrix unit: forward and input gradient of float32, any stride.

    out[o][image] of a pixel = sum over its taps and blocks of 32 channels of weights[tap][o] * source[pixel of the tap][image]

32 images lie side by side (convolution_image_pack.py), so that every place that is computed is a pixel, and the taps that a pixel
has, and where they read, are a list: products with padding, or with what a stride skips, are not made. Weights are packed as
for convolution_tiles.py.

    for each unit: (block of 32 images, group, block of 16 output pixels, some panels of 32 output channels)
        list the taps of each pixel
        for each block of channels, panel, pixel      the products, added to the pixel's sums of 32 channels x 32 images
        transpose and store the sums; the epilogue

Where the extents of the images and of a panel's weights say that their parts may not do (bfloat_parts.py), the panel is computed
by multiply-adds, from the images themselves. The order of additions and that choice depend on sizes and values only.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Address, Function, Kernel, Scratch, Word
from flambeau.compiler.kernels.bfloat_parts import are_safe
from flambeau.compiler.kernels.convolution_image_exact import ENTRY, EXACT, exact_images_function
from flambeau.compiler.kernels.convolution_image_pack import (
    Partner,
    Steps,
    halves_do,
    is_flat,
    lay_out_steps,
    look_kernels,
    operand_verdict,
    pack_kernel,
    packed_bytes,
    whole_note,
)  # fmt: skip  # fmt: skip
from flambeau.compiler.kernels.convolution_patches import bit_mask
from flambeau.compiler.kernels.convolution_problem import Problem, call_epilogue, numel, temporary
from flambeau.compiler.kernels.convolution_step_products import STEP_BYTES_OF, add_halves, add_sums, micro_function, multiply_step
from flambeau.compiler.kernels.convolution_tile_pack import HEADER, WIDTH
from flambeau.compiler.kernels.convolution_tile_weights import PANEL, pack_tile_weights, panel_function, panel_words
from flambeau.compiler.kernels.description import Epilogue, add_reader, describe
from flambeau.compiler.kernels.float_halves import together
from flambeau.compiler.kernels.matmul_blocking import ceil_div, round_up
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.compiler.kernels.matmul_halves import form_of
from flambeau.compiler.kernels.matmul_parts_pack import STEP_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES, configuration
from flambeau.dtypes import uint8
from flambeau.symbols import maximum

_PIXELS: Final = 16  # of a unit: a cache line of each image's channel
_PANELS: Final = 2  # of a unit: the images' steps come from far only once for them
_BLOCK_STEPS: Final = (9, 24)  # of one accumulator, a sixth of all within these bounds: as in convolution_tiles.py
_HALVES_STEPS: Final = 9  # of halves, of a pixel: some operands are still in the first-level cache for the next (18: 8 % slower, 5: as fast)
_MOST_PIXELS: Final = 256  # of an image without strides: planes (convolution_tiles.py) have few zeros in larger ones
_MOST_BYTES: Final = 8 << 20  # of the images' steps, packed: more would come from far memory
_STORE: Final = Parameters("sums* out* out_batch out_row pixels channels images")


def images_apply(p: Problem, gradient: bool) -> bool:
    """True where the matrix unit is there, its 32 images by 32 x 32 channels are filled well, and the images are small."""
    if p.dtype.name != "float32" or "bfloat16" not in p.target.matrix_dtypes or not (is_flat(p.x) and is_flat(p.y)):
        return False
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    filled = [p.batch / round_up(max(p.batch, 1), LANES), rows / round_up(rows, WIDTH), channels / round_up(channels, LANES)]
    size = packed_bytes(p.batch, channels, source.shape[2] * source.shape[3]) * p.groups
    taps, pixels = p.w.shape[2] * p.w.shape[3], out.shape[2] * out.shape[3]
    strided = gradient and max(p.stride) > 1
    # Packing takes as long as the products of two taps with 32 x 32 channels.
    work = taps * rows / LANES / (p.stride[0] * p.stride[1] if gradient else 1)
    # (Measured, times of the time by planes: 128 channels of 16 x 16 1.13 to 1.25, 64 channels 1.0 to 1.2, 256 channels of 14 x 14,
    # whose steps take 10 MB, 0.9 to 1.15.)
    return min(filled) >= 0.74 and taps > 1 and work >= 4 and size <= _MOST_BYTES and (strided or pixels <= _MOST_PIXELS)


def make_image_convolution(
    graph: Graph, p: Problem, gradient: bool, node_index: int, epilogue: Epilogue | None
) -> list[Kernel]:  # fmt: skip
    """Kernels of `convolution`, or with `gradient` of `convolution_input_gradient`."""
    element = element_of(p.dtype)
    source, out = (p.y, p.x) if gradient else (p.x, p.y)
    rows, channels = (p.group_inputs, p.group_outputs) if gradient else (p.group_outputs, p.group_inputs)
    taps = p.w.shape[2] * p.w.shape[3]
    form = form_of(p.target, channels * taps).name
    steps = lay_out_steps(graph, source, p.groups, (p.batch, source.strides[0]), (channels, source.strides[1]), channels * source.strides[1], form, node_index)
    panels = ceil_div(rows, LANES)
    panel_bytes = steps.blocks * taps * STEP_BYTES
    panels_at = p.groups * panels * HEADER
    packed = temporary(graph, panels_at + p.groups * panels * panel_bytes, uint8)
    weights = Partner("weights", packed, 0, panels, 0)
    packing = [
        *look_kernels(steps), pack_tile_weights(p, gradient, element, packed, panel_bytes, node_index, form),
        *([weights_again(p, gradient, steps, weights, panel_bytes)] if form == "halves" else []), pack_kernel(steps, False, True, weights),
    ]  # fmt: skip
    longest, of_pixel = max(_BLOCK_STEPS[0], min(_BLOCK_STEPS[1], ceil_div(steps.blocks * taps, 6))), taps
    if form == "halves":
        longest, of_pixel = _HALVES_STEPS, ceil_div(taps, p.stride[0] * p.stride[1] if gradient else 1)
    block_channels = ceil_div(steps.blocks, ceil_div(steps.blocks, max(1, longest // of_pixel)))
    pixels = out.shape[2] * out.shape[3]
    pixel_blocks, splits = ceil_div(pixels, _PIXELS), ceil_div(panels, _PANELS)
    sums_at = _PANELS * _PIXELS * SUMS_BYTES
    table_at = sums_at + 2 * SUMS_BYTES
    scratch = table_at + round_up(_PIXELS * (8 + taps * ENTRY), 64)
    # The source row of tap t of row y is (y * up + base + t * tap) / down, if that is whole.
    axes = [
        (1, padding, -dilation, stride) if gradient else (stride, -padding, dilation, 1)
        for stride, padding, dilation in zip(p.stride, p.padding, p.dilation, strict=True)
    ]
    (up_y, base_y, tap_y, down_y), (up_x, base_x, tap_x, down_x) = axes
    out_stride, in_stride, kernel_y, kernel_x = p.w.strides
    row, channel = (in_stride, out_stride) if gradient else (out_stride, in_stride)
    words: dict[str, Word] = {
        "steps": Address(steps.value), "weights": Address(packed), "source": source.word, "kernel": p.w.word, "out": out.word,
        "scratch": Scratch(scratch), **{f"tiles_{name}": _micro(name) for name in dict.fromkeys(("parts", form))}, "groups": p.groups,
        "panels": panels, "splits": splits, "pixel_blocks": pixel_blocks, "pixels": pixels, "width": out.shape[3], "batch": p.batch,
        "image_blocks": steps.panels, "channel_blocks": steps.blocks, "block_channels": block_channels, "panel_steps": steps.steps,
        "chunks": steps.chunks, "notes_at": steps.notes_at, "elements": steps.elements, "panel_bytes": panel_bytes, "panels_at": panels_at,
        "rows": rows, "channels": channels, "taps_y": p.w.shape[2], "taps_x": p.w.shape[3], "source_height": source.shape[2],
        "source_width": source.shape[3], "up_y": up_y, "up_x": up_x, "base_y": base_y, "base_x": base_x, "tap_y": tap_y, "tap_x": tap_x,
        "down_y": down_y, "down_x": down_x, "source_batch": source.strides[0], "source_channel": source.strides[1], "out_batch": out.strides[0],
        "out_row": out.strides[1], "kernel_group": p.group_outputs * out_stride, "kernel_row": row, "kernel_channel": channel, "kernel_y": kernel_y,
        "kernel_x": kernel_x, "scratch_bytes": scratch, "sums_at": sums_at, "table_at": table_at,
    }  # fmt: skip
    add_reader(words, "exact", partial(exact_images_function, form))
    units = steps.panels * p.groups * pixel_blocks * splits
    name = "convolution_input_gradient" if gradient else "convolution"
    return [
        *packing,
        describe(
            f"{name}_float32", f"convolution:images:float32:{form}", partial(_body, form, epilogue is not None), words, helpers=[_store],
            constants=[configuration()], epilogue=epilogue, reads=tuple(dict.fromkeys((steps.value, packed, source.root, p.w.root))), writes=(out.root,),
            units=units,
            bytes=numel(source) * 6 + numel(p.w) * 6 + numel(out) * 4, operations=p.operations, nodes=(node_index,),
            min_units_per_thread=maximum(1, 4_000_000 * units // maximum(1, p.operations)),
        ),
    ]  # fmt: skip


_MICRO: Final = Parameters("entries:ptr count blocks a:ptr a_block b:ptr b_block sums:ptr")
_CALLED: Final = _MICRO + "tall wide"


def _micro(form: str) -> Function:
    """sums[o][image] = sum over blocks of channels and the entries of a list of a step of weights times a step of images."""
    return micro_function("images", form, _MICRO, _products)


def _products(b: Builder, high: int, broad: int, form: str) -> None:
    with b.for_(0, "%blocks") as block:
        a_block, b_block = b.gep("i8", "%a", b.mul(block, "%a_block")), b.gep("i8", "%b", b.mul(block, "%b_block"))
        with b.for_(0, "%count") as e:
            entry = b.gep("i8", "%entries", b.mul(e, ENTRY))
            at = [b.load("i64", b.gep("i64", entry, i), 8) for i in range(2)]
            multiply_step(b, b.gep("i8", a_block, at[0]), b.gep("i8", b_block, at[1]), high, broad, form)


def _store(b: Builder) -> str:
    """Text of `store(sums, out, out_batch, out_row, pixels, channels, images)`: sums[pixel][channel][image] to images' pixels."""
    floats = f"<{WIDTH} x float>"
    mask = bit_mask(b, WIDTH, 0, "%pixels")
    with b.for_(0, "%channels") as o:
        line = b.gep("float", "%out", b.mul(o, "%out_row"))
        with b.for_(0, "%images", WIDTH) as n:
            at = b.add(b.mul(o, 4 * LANES), b.mul(n, 4))
            rows = [b.load(floats, b.gep("i8", "%sums", b.add(at, i * SUMS_BYTES)), 64) for i in range(_PIXELS)]
            for i, row in enumerate(transpose_vectors(b, "float", rows)):
                image = b.add(n, i)
                exists = b.op(f"icmp slt i64 {image}, %images")
                lanes = b.op(f"select i1 {exists}, <{WIDTH} x i1> {mask}, <{WIDTH} x i1> zeroinitializer")
                b.masked_store("float", WIDTH, row, b.gep("float", line, b.mul(image, "%out_batch")), lanes, 4)
    return b.define("store", _STORE)


def _body(form: str, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])
    acc = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    sums, counts = b.gep("i8", acc, w["sums_at"]), b.gep("i8", acc, w["table_at"])
    table = b.gep("i8", counts, 8 * _PIXELS)
    taps = b.mul(w["taps_y"], w["taps_x"])
    list_bytes = b.mul(taps, ENTRY)
    floats = f"<{WIDTH} x float>"

    def list_taps(p0: str, count: str, step_bytes: str) -> None:
        """The taps of `count` pixels from `p0` on."""
        with b.for_(0, count) as i:
            p = b.add(p0, i)
            start = [b.add(b.mul(b.op(f"{which} i64 {p}, {w['width']}"), w[f"up_{axis}"]), w[f"base_{axis}"]) for which, axis in (("udiv", "y"), ("urem", "x"))]
            entries = b.gep("i8", table, b.mul(i, list_bytes))

            def place(axis: str, first: str, t: str) -> tuple[str, str]:
                """(source position, whether there is one) of tap `t` along an axis."""
                size = w["source_height" if axis == "y" else "source_width"]
                at, down = b.add(first, b.mul(t, w[f"tap_{axis}"])), w[f"down_{axis}"]
                whole = b.op(f"icmp eq i64 {b.srem(at, down)}, 0")
                position = b.sdiv(at, down)
                inside = b.op(f"and i1 {b.op(f'icmp sge i64 {at}, 0')}, {b.op(f'icmp slt i64 {position}, {size}')}")
                return position, b.op(f"and i1 {whole}, {inside}")

            def row(ty: str, found: str) -> list[str]:
                y, has_y = place("y", start[0], ty)
                with b.fold(0, w["taps_x"], 1, [("i64", found)]) as (tx, values):
                    (found,) = values
                    x, has_x = place("x", start[1], tx)
                    entry = b.gep("i8", entries, b.mul(found, ENTRY))  # one more than there are may be written
                    source = b.add(b.mul(y, w["source_width"]), x)
                    weight = b.add(b.mul(ty, w["kernel_y"]), b.mul(tx, w["kernel_x"]))
                    has = b.op(f"and i1 {has_y}, {has_x}")
                    with b.if_(has):
                        step = b.add(b.mul(ty, w["taps_x"]), tx)
                        for at, value in enumerate((b.mul(step, step_bytes), b.mul(source, step_bytes), weight)):
                            b.store("i64", value, b.gep("i64", entry, at), 8)
                    values[:] = [b.add(found, b.op(f"zext i1 {has} to i64"))]
                return values

            found = b.loop(0, w["taps_y"], 1, row, [("i64", "0")])[0]
            b.store("i64", found, b.gep("i64", counts, i), 8)

    with b.for_("%begin", "%end") as u:
        digits = []
        for digit in ("splits", "pixel_blocks", "groups"):
            digits.append(b.op(f"urem i64 {u}, {w[digit]}"))
            u = b.op(f"udiv i64 {u}, {w[digit]}")
        split, pixel_block, group = digits
        images = u
        p0, n0, first_panel = b.mul(pixel_block, _PIXELS), b.mul(images, LANES), b.mul(split, _PANELS)
        pixels, wide = b.min(_PIXELS, b.sub(w["pixels"], p0)), b.min(LANES, b.sub(w["batch"], n0))
        panels = b.min(_PANELS, b.sub(w["panels"], first_panel))
        first_block = b.mul(b.add(b.mul(group, w["image_blocks"]), images), w["channel_blocks"])
        low, high, *_ = whole_note(b, w["steps"], w["notes_at"], b.mul(first_block, w["chunks"]), b.mul(w["channel_blocks"], w["chunks"]))
        fit, own = "false", ("0", "0")
        if form == "halves":
            notes = b.mul(b.mul(w["image_blocks"], w["channel_blocks"]), w["chunks"])
            own = operand_verdict(b, w["steps"], w["notes_at"], notes, w["elements"], group)
            partner = {"partner": w["weights"], "partner_at": "0", "partner_count": w["panels"]}
            fit, _ = halves_do(b, own, "weights", partner, group)
        step_bytes = b.op(f"select i1 {fit}, i64 {STEP_BYTES_OF['halves']}, i64 {STEP_BYTES_OF['parts']}")
        list_taps(p0, pixels, step_bytes)
        first_number = b.add(b.mul(group, w["panels"]), first_panel)
        with b.for_(0, b.mul(panels, _PIXELS * SUMS_BYTES), 64) as at:
            b.store(floats, "zeroinitializer", b.gep("i8", acc, at), 64)
        start = b.add(b.mul(n0, w["out_batch"]), p0)

        def header_of(panel: str) -> list[str]:
            header = b.gep("i8", w["weights"], b.mul(b.add(first_number, panel), HEADER))
            return [b.load("i32", b.gep("i32", header, i), 4) for i in range(4)]

        def is_exact(panel: str) -> str:
            """i1: whether neither halves nor parts do."""
            least, most, *_ = header_of(panel)
            return b.op(f"xor i1 {b.op(f'or i1 {fit}, ' + are_safe(b, (low, high), (least, most)))}, true")

        def some_channels(c: str, form: str) -> None:
            step_bytes = STEP_BYTES_OF[form]
            blocks = b.min(w["block_channels"], b.sub(w["channel_blocks"], c))
            right = b.gep("i8", w["steps"], b.mul(b.mul(b.add(first_block, c), w["panel_steps"]), step_bytes))
            with b.for_(0, panels) as panel:

                def products() -> None:
                    tall = b.min(LANES, b.sub(w["rows"], b.mul(b.add(first_panel, panel), LANES)))
                    weights = b.add(b.mul(b.add(first_number, panel), w["panel_bytes"]), b.mul(b.mul(c, taps), step_bytes))
                    left = b.gep("i8", w["weights"], b.add(w["panels_at"], weights))

                    _, scale = together(b, own, (header_of(panel)[2], header_of(panel)[3])) if form == "halves" else ("", "")
                    with b.for_(0, pixels) as i:
                        to = b.gep("i8", acc, b.mul(b.add(b.mul(panel, _PIXELS), i), SUMS_BYTES))
                        b.invoke(w[f"tiles_{form}"], _CALLED, b.gep("i8", table, b.mul(i, list_bytes)), b.load("i64", b.gep("i64", counts, i), 8), blocks,
                                 left, b.mul(taps, step_bytes), right, b.mul(w["panel_steps"], step_bytes), sums, tall, wide)  # fmt: skip
                        if form == "halves":
                            add_halves(b, sums, to, tall, scale)
                        else:
                            add_sums(b, sums, to, tall)

                if form == "halves":
                    products()
                else:
                    with b.if_(b.op(f"xor i1 {is_exact(panel)}, true")):
                        products()

        def by_tiles(form: str) -> None:
            with b.for_(0, w["channel_blocks"], w["block_channels"]) as c:
                some_channels(c, form)

        if form == "halves":
            with b.if_(fit):
                by_tiles("halves")
        with b.if_(b.op(f"xor i1 {fit}, true")):
            by_tiles("parts")
        with b.for_(0, panels) as panel:
            o = b.mul(b.add(first_panel, panel), LANES)
            tall = b.min(LANES, b.sub(w["rows"], o))
            row = b.add(b.mul(group, w["rows"]), o)
            exact = is_exact(panel)
            here = b.gep("i8", acc, b.mul(panel, _PIXELS * SUMS_BYTES))
            with b.if_(exact):
                b.invoke(w["exact"], EXACT, "%args", table, counts, group, n0, wide, o, tall, pixels, here)
            b.invoke("store", _STORE, here, b.gep("float", w["out"], b.add(start, b.mul(row, w["out_row"]))), w["out_batch"], w["out_row"], pixels, tall, wide)
        if has_epilogue:
            low = b.mul(first_panel, LANES)
            high = b.min(w["rows"], b.add(low, _PANELS * LANES))
            row = b.mul(group, w["rows"])
            call_epilogue(b, n0, wide, (b.add(row, low), b.add(row, high)), (p0, b.add(p0, pixels)))
    b.call("void", "llvm.x86.tilerelease", [])


# -- The kernel that packs the weights again, for the notes of the images --------------------------------------------
def weights_again(p: Problem, gradient: bool, steps: Steps, weights: Partner, panel_bytes: int) -> Kernel:
    """The kernel that packs the weights as bfloat16 parts where halves do not do."""
    of_panel, scratch = panel_words(p, gradient, "parts")
    units = p.groups * weights.count
    words: dict[str, Word] = {
        "steps": Address(steps.value), **weights.words(), "scratch": Scratch(scratch), "pack": panel_function(element_of(p.dtype), "parts"),
        "notes_at": steps.notes_at, "notes": steps.notes, "elements": steps.elements, "panel_bytes": panel_bytes, "panels_at": units * HEADER,
        "scratch_bytes": scratch,
    }  # fmt: skip
    return describe(
        "convolution_weights_again_float32", "convolution:images:weights", _again, words, {"panel": of_panel}, reads=(steps.value, weights.value, p.w.root),
        writes=(weights.value,), units=units, bytes=0, nodes=(steps.node,), min_units_per_thread=maximum(1, 16384 * units // maximum(1, numel(p.w))),
    )  # fmt: skip


def _again(b: Builder, w: dict[str, str]) -> None:
    with b.for_("%begin", "%end") as u:
        group = b.op(f"udiv i64 {u}, {w['partner_count']}")
        own = operand_verdict(b, w["steps"], w["notes_at"], w["notes"], w["elements"], group)
        fit, _ = halves_do(b, own, "weights", w, group)
        with b.if_(b.op(f"xor i1 {fit}, true")):
            b.invoke(w["pack"], PANEL, w["panel"], u, b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"])),
                     b.gep("i8", w["partner"], b.add(w["panels_at"], b.mul(u, w["panel_bytes"]))), b.gep("i8", w["partner"], b.mul(u, HEADER)))  # fmt: skip
