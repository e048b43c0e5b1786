"""The kernel of the weight's gradient from planes of pixels: its words, its products, its loops (what they do: convolution_weight_planes.py)."""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import PARTS, PRODUCTS, are_safe, split_in_order
from flambeau.compiler.kernels.convolution_judgement import LOOK, NOTES, clear_notes, judge, scale_of
from flambeau.compiler.kernels.convolution_patches import UNIT, bit_mask
from flambeau.compiler.kernels.convolution_problem import load_record
from flambeau.compiler.kernels.convolution_step_products import STEP_BYTES_OF, add_halves, add_sums, micro_function
from flambeau.compiler.kernels.convolution_tile_pack import CARRIED, COUNTS, EXTENT, NOTHING_CARRIED, clear_extent, extent_in_memory, lanes_inside
from flambeau.compiler.kernels.convolution_weight_exact import EXACT, Blocks, store_partial
from flambeau.compiler.kernels.description import native
from flambeau.compiler.kernels.float_halves import halves_in_order, together
from flambeau.compiler.kernels.matmul_halves import multiply_halves
from flambeau.compiler.kernels.matmul_parts_pack import PART_BYTES
from flambeau.compiler.kernels.matmul_tile_pack import LANES
from flambeau.compiler.kernels.matmul_tiles import SUMS_BYTES
from flambeau.compiler.kernels.matrix_unit import multiply_parts

WIDTH: Final = 16
PLACES: Final = 32  # of a step
_MICRO: Final = Parameters("steps a:ptr a_row a_part b:ptr sums:ptr")
_CALLED: Final = _MICRO + "tall wide"
_COPY: Final = Parameters("shape* source* channels y rows planes* extent*")
_TURN: Final = Parameters("planes* channel_bytes part_bytes steps out*")


def micro(form: str) -> Function:
    """sums[c][o] = sum over steps of planes[c][place] * steps[place][o]; a's rows lie `a_row` bytes apart, its parts `a_part`."""
    return micro_function("weight_planes", form, _MICRO, _products, "%a_row")


def _products(b: Builder, high: int, broad: int, form: str) -> None:
    """Between the products of parts the lines are fetched that the next step is the first to touch: 5 to 9 % less time."""
    with b.for_(0, "%steps") as s:
        left, right = b.gep("i8", "%a", b.mul(s, 2 * PLACES)), b.gep("i8", "%b", b.mul(s, STEP_BYTES_OF[form]))

        def load(operand: str, tile: int, part: int, number: str) -> None:
            if operand in ("a", "one"):
                at, row = b.gep("i8", left, b.add(b.mul("%a_part", part), b.mul("%a_row", WIDTH * tile))), "%a_row"
            else:
                at, row = b.gep("i8", right, part * PART_BYTES + 1024 * tile), "64"
            b.call("void", "llvm.x86.tileloadd64", [("i8", number), ("ptr", at), ("i64", row)])

        if form == "halves":
            multiply_halves(b, broad, True, lambda number, operand, half, tile: load(operand, tile, half, str(number)))
        else:
            lines = [b.add(b.mul("%a_part", part), b.mul("%a_row", row)) for part in range(PARTS) for row in range(WIDTH * high)]
            each = len(lines) // (len(PRODUCTS) * high * broad)

            def fetch() -> None:
                for line in lines[:each]:
                    at = b.gep("i8", left, b.add(line, 2 * 2 * PLACES - 1))
                    b.prefetch(at, level=1)
                del lines[:each]

            multiply_parts(b, high, broad, load, before=fetch)


def body(form: str, b: Builder, w: dict[str, str]) -> None:
    of_x, of_g, shifts = w["of_x"], w["of_g"], w["shifts"]
    b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])
    scratch = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    planes, g_planes, g_steps, acc = (b.gep("i8", scratch, w[at]) for at in ("x_at", "g_at", "steps_at", "sums_at"))
    x_extent = b.gep("i8", scratch, w["extents_at"])
    g_extent, sums = b.gep("i8", x_extent, NOTES), b.gep("i8", x_extent, -2 * SUMS_BYTES)
    floats = f"<{WIDTH} x float>"
    b.allocas.append("  %is_safe = alloca i8")
    o_bytes = b.mul(w["taps"], SUMS_BYTES)
    c_bytes = b.mul(w["o_panels"], o_bytes)
    with b.for_("%begin", "%end") as u:
        split, rest = b.op(f"urem i64 {u}, {w['splits']}"), b.op(f"udiv i64 {u}, {w['splits']}")
        group, s = b.op(f"urem i64 {rest}, {w['groups']}"), b.op(f"udiv i64 {rest}, {w['groups']}")
        blocks = Blocks(b, w, s)
        first_channel = b.mul(b.mul(split, w["split_panels"]), LANES)
        channels = b.min(b.mul(w["split_panels"], LANES), b.sub(w["channels"], first_channel))
        from_x = b.gep("float", w["x"], b.add(b.mul(group, w["x_group"]), b.mul(first_channel, w["x_channel"])))
        from_g = b.gep("float", w["g"], b.mul(group, w["g_group"]))
        c_panels = b.op(f"udiv i64 {b.add(channels, LANES - 1)}, {LANES}")
        with b.for_(0, b.mul(c_panels, c_bytes), 64) as at:
            b.store(floats, "zeroinitializer", b.gep("i8", acc, at), 64)

        def block(t: str, safe: str) -> list[str]:
            image_block, y, _ = blocks.place(t)
            first = b.mul(image_block, w["block_images"])
            images = b.min(w["block_images"], b.sub(w["images"], first))
            rows = b.min(w["block_rows"], b.sub(w["height"], y))
            places = b.mul(b.add(b.mul(b.sub(images, 1), w["image_rows"]), rows), w["pitch"])
            steps = b.op(f"udiv i64 {b.add(places, PLACES - 1)}, {PLACES}")

            def visit_x(function: str) -> None:
                with b.for_(0, images) as i:
                    b.invoke(w[function], _COPY, of_x, b.gep("float", from_x, b.mul(b.add(first, i), w["x_batch"])), channels, y, rows,
                             b.gep("i16", planes, b.mul(i, w["image_places"])), x_extent)  # fmt: skip

            def visit_g(function: str, o: str, count: str) -> None:
                """Some output channels, from `o` on."""
                with b.for_(0, images) as i:
                    last = b.op(f"icmp eq i64 {i}, {b.sub(images, 1)}")
                    source = b.add(b.mul(b.add(first, i), w["g_batch"]), b.mul(o, w["g_channel"]))
                    b.invoke(w[function], _COPY, of_g, b.gep("float", from_g, source), count, y, b.op(f"select i1 {last}, i64 {rows}, i64 {w['image_rows']}"),
                             b.gep("i16", g_planes, b.mul(i, w["image_places"])), g_extent)  # fmt: skip

            def pack(form: str) -> None:
                visit_x(f"copy_{form}")
                with b.for_(0, w["outputs"], WIDTH) as o:
                    # 16 output channels: planes, then steps.
                    visit_g(f"copy_{form}", o, b.min(WIDTH, b.sub(w["outputs"], o)))
                    to = b.add(b.mul(b.op(f"udiv i64 {o}, {LANES}"), w["panel_bytes"]), b.mul(b.op(f"and i64 {o}, {WIDTH}"), 1024 // WIDTH))
                    b.invoke(w[f"turn_{form}"], _TURN, g_planes, w["g_channel_bytes"], w["g_part_bytes"], steps, b.gep("i8", g_steps, to))

            def products(form: str, scale: str) -> None:
                visit_steps = w["visit_steps"] if form == "halves" else steps
                with b.for_(0, c_panels) as c:
                    tall = b.min(LANES, b.sub(channels, b.mul(c, LANES)))
                    from_c = b.gep("i8", planes, b.mul(b.mul(c, LANES), w["x_channel_bytes"]))
                    with b.for_(0, w["o_panels"]) as o:
                        wide = b.min(LANES, b.sub(w["outputs"], b.mul(o, LANES)))
                        from_o = b.gep("i8", g_steps, b.mul(o, w["panel_bytes"]))
                        to = b.gep("i8", acc, b.add(b.mul(c, c_bytes), b.mul(o, o_bytes)))
                        with b.for_(0, steps, visit_steps) as start, b.for_(0, w["taps"]) as k:
                            left = b.gep("i8", from_c, b.add(b.load("i64", b.gep("i64", shifts, k), 8), b.mul(start, 2 * PLACES)))
                            b.invoke(w[f"tiles_{form}"], _CALLED, b.min(visit_steps, b.sub(steps, start)), left, w["x_channel_bytes"], w["x_part_bytes"],
                                     b.gep("i8", from_o, b.mul(start, STEP_BYTES_OF[form])), sums, tall, wide)  # fmt: skip
                            to_tap = b.gep("i8", to, b.mul(k, SUMS_BYTES))
                            if form == "halves":
                                add_halves(b, sums, to_tap, tall, scale)
                            else:
                                add_sums(b, sums, to_tap, tall)

            def by_parts(safe: str) -> str:
                clear_extent(b, x_extent)
                clear_extent(b, g_extent)
                pack("parts")
                here = [EXTENT.reduce(b, *extent_in_memory(b, at)) for at in (x_extent, g_extent)]
                safe = b.op(f"and i1 {safe}, {are_safe(b, *here)}")
                with b.if_(safe):
                    products("parts", "")
                return safe

            def look_at(source: str, batch: str, channels: str, stride: str, shape: str, notes: str) -> None:
                """At the rows of some images that planes of a block hold. Rows lie next to each other."""
                q = load_record(b, shape, SHAPE)
                low = b.max("0", b.sub(y, q["top"]))
                high = b.min(q["source_height"], b.sub(b.add(b.add(y, rows), q["reach_y"]), q["top"]))
                start, length = b.mul(low, q["stride_y"]), b.mul(b.max("0", b.sub(high, low)), q["stride_y"])
                with b.for_(0, images) as i:
                    b.invoke(w["look"], LOOK, b.gep("float", source, b.add(b.mul(b.add(first, i), batch), start)), channels, stride, "1", "0", length, stride,
                             notes)  # fmt: skip

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
            with b.if_(fit):
                pack("halves")
                products("halves", scale)
            with b.if_(b.op(f"xor i1 {fit}, true")):
                b.store("i8", b.op(f"zext i1 {by_parts(safe)} to i8"), "%is_safe", 1)
            return [b.op(f"trunc i8 {b.load('i8', '%is_safe', 1)} to i1")]

        (safe,) = b.loop(blocks.first, blocks.after, 1, block, [("i1", "true")])
        with b.for_(0, c_panels) as c:
            panel = b.mul(c, LANES)
            tall = b.min(LANES, b.sub(channels, panel))
            here = b.gep("i8", acc, b.mul(c, c_bytes))
            with b.if_(b.op(f"xor i1 {safe}, true")):
                b.invoke(w["exact"], EXACT, "%args", s, b.add(b.mul(group, w["channels"]), b.add(first_channel, panel)), tall, b.mul(group, w["outputs"]),
                         w["outputs"], here)  # fmt: skip
            store_partial(b, w, s, group, b.add(first_channel, panel), tall, "0", w["padded"], here)
    b.call("void", "llvm.x86.tilerelease", [])


# -- The packing of pixels for the weight's gradient -----------------------------------------------------------------
#     planes[channel][part][image][row][column] of 16 bits: the three bfloat16 parts of float32, or two float16 halves
#
# What is no pixel is zero, and so are the channels up to a multiple of 16. Of the gradient, 16 channels at a time are then turned into the unit's second
# operand:
#
#     steps[32 places][part][two tiles of 16 channels][16 pairs of places][16 channels] of two of these


SLACK: Final = 64  # places behind a plane that are set to zero: tiles reach up to 47 beyond the last row
SHAPE: Final = (
    "stride_channel", "stride_y", "source_height", "source_width", "top", "left", "pitch", "reach_y", "channel_bytes", "part_bytes",
)  # fmt: skip
_WIDTH: Final = 16
_CHUNK: Final = 2 * _WIDTH  # places that are written at a time
_FLOATS, _INTS, _SHORTS = f"<{_WIDTH} x float>", f"<{_WIDTH} x i32>", f"<{_CHUNK} x i16>"
_AHEAD: Final = 2  # channels from the one that is copied to the one whose pixels are fetched


def copy_function(form: str) -> Function:
    """`copy(shape, source, channels, y, rows, planes, extent)`: an image's block of `rows` rows, and those that taps reach beyond.
    `form`: "parts", or "halves", for which `extent` has the scale (convolution_judgement.py)."""
    key = f"convolution:weight_planes:copy:{form}"
    return native(key, partial(_copy, form))


def _copy(form: str, name: str, b: Builder) -> str:
    """Rows are written in ascending order with whole vectors: what one writes beyond its end, the next overwrites."""
    w = load_record(b, "%shape", SHAPE)
    start_of, put = CARRIED.get(form, NOTHING_CARRIED)
    scale = scale_of(b, "%extent") if form == "halves" else ""
    rows = b.add("%rows", w["reach_y"])
    padded = b.op(f"and i64 {b.add('%channels', _WIDTH - 1)}, {-_WIDTH}")
    fetched = b.mul(w["stride_channel"], _AHEAD)
    start = b.sub(0, w["left"])
    low, high = lanes_inside(b, UNIT, start, "1", w["source_width"])
    low = b.min(low, w["pitch"])
    high = b.max(low, b.min(high, w["pitch"]))

    def store(at: str, values: tuple[str, ...]) -> None:
        for part, value in enumerate(values):
            b.store(f"<{_CHUNK} x half>" if form == "halves" else _SHORTS, value, b.gep("i8", at, b.mul(w["part_bytes"], part)), 2)

    def zeros(plane: str, low: str | int, high: str) -> None:
        """Zeros from place `low` on, to `high` and up to 31 more."""
        with b.for_(low, high, _CHUNK) as q:
            store(b.gep("i16", plane, q), ("zeroinitializer",) * COUNTS[form])

    with b.for_(0, padded) as j:
        exists = b.op(f"icmp slt i64 {j}, %channels")
        plane = b.gep("i8", "%planes", b.mul(j, w["channel_bytes"]))
        image = b.gep("float", "%source", b.add(b.mul(j, w["stride_channel"]), b.add(start, low)))
        with b.for_(0, rows) as r:
            y = b.sub(b.add("%y", r), w["top"])
            inside = b.op(f"and i1 {exists}, {b.op(f'icmp ult i64 {y}, ' + w['source_height'])}")
            end = b.op(f"select i1 {inside}, i64 {high}, i64 {low}")
            source = b.gep("float", image, b.mul(y, w["stride_y"]))
            target = b.gep("i16", plane, b.mul(r, w["pitch"]))
            count = b.sub(end, low)
            to = b.gep("i16", target, low)

            def chunk(q: str, extremes: list[str], masked: bool) -> list[str]:
                values = []
                for half in range(2):
                    at = b.add(q, half * _WIDTH)
                    here = b.gep("float", source, at)
                    if masked:
                        values.append(b.masked_load("float", _WIDTH, here, bit_mask(b, _WIDTH, 0, b.sub(count, at)), 4))
                    else:
                        values.append(b.load(_FLOATS, here, 4))
                        b.prefetch(b.gep("float", here, fetched))
                    if form == "parts":
                        extremes = EXTENT.include(b, values[-1], *extremes)
                if form == "halves":
                    store(b.gep("i16", to, q), halves_in_order(b, _WIDTH, values[0], values[1], scale))
                else:
                    store(b.gep("i16", to, q), split_in_order(b, _WIDTH, *values))
                return extremes

            zeros(target, 0, low)
            whole = b.op(f"and i64 {count}, {-_CHUNK}")
            seen = [(EXTENT.type, value) for value in start_of(b, "%extent")]
            found = b.loop(0, whole, _CHUNK, lambda q, *now: chunk(q, list(now), False), seen)
            seen = [(EXTENT.type, value) for value in found]
            put(b, "%extent", b.loop(whole, count, _CHUNK, lambda q, *now: chunk(q, list(now), True), seen))
            zeros(target, end, w["pitch"])
        # What tiles read beyond the last row.
        after = b.mul(rows, w["pitch"])
        zeros(plane, after, b.add(after, SLACK))
    return b.define(name, _COPY, "")


def turn_function(form: str) -> Function:
    """`turn(planes, channel_bytes, part_bytes, steps, out)`: the tiles of 16 channels."""
    key = f"convolution:weight_planes:turn:{form}"
    return native(key, partial(_turn, form))


def _turn(form: str, name: str, b: Builder) -> str:
    with b.for_(0, "%steps") as s:
        for part in range(COUNTS[form]):
            here = b.gep("i8", "%planes", b.add(b.mul("%part_bytes", part), b.mul(s, 64)))
            rows = [b.load(_INTS, b.gep("i8", here, b.mul("%channel_bytes", i)), 64) for i in range(_WIDTH)]
            to = b.gep("i8", "%out", b.add(b.mul(s, COUNTS[form] * PART_BYTES), PART_BYTES * part))
            for i, value in enumerate(transpose_vectors(b, "i32", rows)):
                b.store(_INTS, value, b.gep("i8", to, 64 * i), 64)
    return b.define(name, _TURN, "")
