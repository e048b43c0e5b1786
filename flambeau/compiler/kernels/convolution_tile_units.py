"""Convolutions by the matrix unit: the work on a unit of images, rows and channels (see convolution_tiles.py).

With halves, a unit's pixels are looked at before they are packed. The panels of weights that halves do not do for, all of them where
they do not do for the pixels, are left to `otherwise`: it packs the pixels again, as bfloat16 parts, and these panels too.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters
from flambeau.compiler.kernel import Function
from flambeau.compiler.kernels.bfloat_parts import are_safe
from flambeau.compiler.kernels.convolution_few import PIXELS
from flambeau.compiler.kernels.convolution_judgement import LOOK, clear_notes, judge
from flambeau.compiler.kernels.convolution_patches import bit_mask
from flambeau.compiler.kernels.convolution_problem import call_epilogue, decode_unit, load_record
from flambeau.compiler.kernels.convolution_tile_pack import (
    COPY,
    DEEP,
    EXTENT,
    HEADER,
    ROWS,
    SHAPE,
    TILE_BYTES,
    WIDTH,
    clear_extent,
    extent_in_memory,
)  # fmt: skip
from flambeau.compiler.kernels.convolution_tile_products import MULTIPLY, MULTIPLY_HALVES
from flambeau.compiler.kernels.convolution_tile_weights import PANEL
from flambeau.compiler.kernels.description import Layout, load_words, native
from flambeau.compiler.kernels.float_halves import together
from flambeau.compiler.kernels.matmul_element import Element
from flambeau.compiler.kernels.matmul_tiles import ROUNDS_BY

PLACES: Final = 32  # places of a pass: two tiles
_STORE_SUMS: Final = Parameters("sums* others* several:i1 scale:float sums_bytes pitch out* out_row out_y rows columns channels")
_OTHERWISE: Final = Parameters("args:ptr worker u exponent:i32 kind:i32")


def units_body(element: Element, form: str, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    """The kernel's body."""
    Units(b, element, form, w, has_epilogue).kernel()


def otherwise_function(element: Element, layout: Layout) -> Function:
    """`otherwise(args, worker, u, exponent, kind)`: the panels of a unit that halves do not do for."""
    key = f"convolution:tiles:otherwise:{element.name}"
    return native(
        key, lambda name, b: Units(b, element, "otherwise", load_words(b, layout), False).otherwise(name), partial(store_sums, element, "parts")
    )  # fmt: skip


def store_sums(element: Element, form: str, b: Builder) -> str:
    """Text of `store_sums(sums, others, several, scale, sums_bytes, pitch, out, out_row, out_y, rows, columns, channels)`: an image's pixels."""
    if element.name == "bfloat16":
        element = Element("bfloat16", "i16", "float", 2, 4, rounds_by=ROUNDS_BY["bfloat16"])
    memory = element.memory
    with b.for_(0, "%channels") as o:
        sums = b.gep("i8", "%sums", b.mul(o, "%sums_bytes"))
        out = b.gep(memory, "%out", b.mul(o, "%out_row"))

        others = b.gep("i8", "%others", b.mul(o, "%sums_bytes"))
        with b.for_(0, "%rows") as y:
            from_row, from_other = (b.gep("float", at, b.mul(y, "%pitch")) for at in (sums, others))
            to_row = b.gep(memory, out, b.mul(y, "%out_y"))

            def put(x: str, whole: bool) -> None:
                floats = f"<{WIDTH} x float>"
                value = b.load(floats, b.gep("float", from_row, x), 4)
                if form == "halves":
                    value = b.op(f"fmul {floats} {value}, {b.splat('float', WIDTH, '%scale')}")
                if form == "parts":
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
            with b.for_(0, whole, WIDTH) as x:
                put(x, True)
            with b.if_(b.op(f"icmp slt i64 {whole}, %columns")):
                put(whole, False)
    return b.define("store_sums", _STORE_SUMS)


class Units:
    """The text of a kernel, or of `otherwise`."""

    def __init__(self, b: Builder, element: Element, form: str, w: dict[str, str], has_epilogue: bool) -> None:
        self.b, self.element, self.form, self.has_epilogue = b, element, form, has_epilogue
        self.memory = element.memory
        self.w, self.shape = w, w["shape"]
        self.q = load_record(b, self.shape, SHAPE)
        self.planes = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
        self.sums, self.table = b.gep("i8", self.planes, w["sums_at"]), b.gep("i8", self.planes, w["table_at"])
        self.others = b.gep("i8", self.sums, b.mul(w["sums_bytes"], ROWS))
        self.notes = b.gep("i8", self.planes, w["notes_at"])
        parts = form == "otherwise"
        self.block_steps = w["parts_block_steps" if parts else "block_steps"]
        self.several = b.op(f"icmp slt i64 {self.block_steps}, {w['steps']}")
        self.copy, self.products = (w[name + "_parts" * parts] for name in ("copy", "products"))

    # -- the kernel and its other half ------------------------------------------------------------------------------
    def kernel(self) -> None:
        b, w, q = self.b, self.w, self.q
        shifts = b.gep("i64", "%args", w["shifts_at"])
        if self.form != "dots":
            b.call("void", "llvm.x86.ldtilecfg", [("ptr", "@tile_configuration")])
        with b.for_(0, w["steps"]) as s:
            block, tap = b.op(f"udiv i64 {s}, {w['taps']}"), b.op(f"urem i64 {s}, {w['taps']}")
            shift = b.mul(b.load("i64", b.gep("i64", shifts, tap), 8), 4)
            b.store("i64", b.add(b.mul(b.mul(block, DEEP // 2), q["pair_bytes"]), shift), b.gep("i64", self.table, s), 8)
        with b.for_("%begin", "%end") as u:
            self.take(u)
            if self.form == "halves":
                self.by_halves(u)
            else:
                self.by_itself()
            if self.has_epilogue:
                self.finish()
        if self.form != "dots":
            b.call("void", "llvm.x86.tilerelease", [])

    def otherwise(self, name: str) -> str:
        b, w = self.b, self.w
        self.take("%u")
        pixels = self.pack_parts()
        packed = b.gep("i8", self.planes, w["panel_at"])
        with b.for_(self.o_low, self.o_high, ROWS) as o:
            number, _ = self.panel(o)
            fits, _ = self.together("%exponent", "%kind", number)
            with b.if_(b.op(f"xor i1 {fits}, true")):
                words = b.gep("i64", "%args", w["weights_at"])
                header = b.gep("i8", packed, -HEADER)
                copied = b.gep("i8", self.planes, w["copied_at"])
                b.invoke(w["pack_panel"], PANEL, words, number, copied, packed, header)
                self.choose(pixels, header, packed, packed, o)
        return b.define(name, _OTHERWISE, "")

    def by_itself(self) -> None:
        """A unit by parts, or of bfloat16."""
        b = self.b
        pixels = self.pack_parts()
        with b.for_(self.o_low, self.o_high, ROWS) as o:
            number, following = self.panel(o)
            if self.form in ("plain", "dots"):
                self.by_tiles(o, self.panel_at(number), following)
            else:
                self.choose(pixels, b.gep("i8", self.w["weights"], b.mul(number, HEADER)), self.panel_at(number), following, o)

    def by_halves(self, u: str) -> None:
        b, w, q = self.b, self.w, self.q

        def inside(at: str, length: str, deal: str, before: str, size: str) -> tuple[str, str]:
            """(first, count) of what a block needs of the source, along an axis."""
            low, high = (b.sub(b.mul(position, deal), before) for position in (at, b.add(at, length)))
            low = b.max(low, "0")
            return low, b.max("0", b.sub(b.min(high, size), low))

        first_row, rows = inside(self.y0, b.add(self.rows, q["reach_y"]), q["deal_y"], q["top"], q["source_height"])
        first_column, columns = inside(self.x0, q["pitch"], q["deal_x"], q["left"], q["source_width"])
        first = b.add(b.mul(first_row, q["stride_y"]), first_column)
        dense = b.op(f"icmp eq i64 {columns}, {q['stride_y']}")
        length = b.op(f"select i1 {dense}, i64 {b.mul(rows, columns)}, i64 {columns}")
        by_rows = b.op(f"icmp eq i64 {q['stride_x']}, 1")

        def look() -> None:
            with b.if_(by_rows), b.for_(0, self.images) as i:
                b.invoke(w["look"], LOOK, b.gep(self.memory, self.image_source(i), first), q["channels"], q["stride_channel"],
                         b.op(f"select i1 {dense}, i64 1, i64 {rows}"), q["stride_y"], length, q["stride_channel"], self.notes)  # fmt: skip
            with b.if_(b.op(f"xor i1 {by_rows}, true")):
                self.each_image(w["look"], self.notes)

        clear_notes(b, self.notes)
        look()
        elements = b.mul(b.mul(b.mul(rows, columns), self.images), q["channels"])
        exponent, kind = judge(b, self.notes, elements, look)
        with b.if_(b.op(f"icmp ne i32 {kind}, 0")):
            self.each_image(self.copy, self.notes)

        def panel(o: str, all_fit: str) -> list[str]:
            number, following = self.panel(o)
            fits, scale = self.together(exponent, kind, number)
            with b.if_(fits):
                self.by_tiles(o, self.panel_at(number), following, scale)
            return [b.op(f"and i1 {all_fit}, {fits}")]

        (all_fit,) = b.loop(self.o_low, self.o_high, ROWS, panel, [("i1", "true")])
        with b.if_(b.op(f"xor i1 {all_fit}, true")):
            b.invoke(w["otherwise"], _OTHERWISE, "%args", "%worker", u, exponent, kind)

    # -- a unit -----------------------------------------------------------------------------------------------------
    def take(self, u: str) -> None:
        """What unit `u` is."""
        b, w, memory = self.b, self.w, self.memory
        part, bx, by, g, n0 = decode_unit(self.b, self.w, u)
        self.next_part, _, _, self.next_g, _ = ("0",) * 5 if self.form == "otherwise" else decode_unit(self.b, self.w, b.min(b.add(u, 1), b.sub("%end", 1)))
        self.g, self.n0 = g, n0
        self.images = b.min(w["images"], b.sub(w["batch"], n0))
        self.o_low = b.mul(part, w["split_rows"])
        self.o_high = b.min(w["rows"], b.add(self.o_low, w["split_rows"]))
        self.y0, self.x0 = b.mul(by, w["block_rows"]), b.mul(bx, w["block_columns"])
        self.rows = b.sub(b.min(b.add(self.y0, w["block_rows"]), w["out_height"]), self.y0)
        self.columns = b.sub(b.min(b.add(self.x0, w["block_columns"]), w["out_width"]), self.x0)
        self.source = b.gep(memory, w["source"], b.add(b.mul(n0, w["source_batch"]), b.mul(g, w["source_group"])))
        start = b.add(b.mul(self.y0, self.q["out_y"]), self.x0)
        self.out = b.gep(memory, w["out"], b.add(b.add(b.mul(n0, w["out_batch"]), b.mul(g, w["out_group"])), start))
        self.kernel_of_group = b.gep(memory, w["kernel"], b.mul(g, w["kernel_group"]))
        self.first_panel = b.mul(g, w["panels"])
        pitched = b.mul(b.sub(self.rows, 1), self.q["pitch"])
        self.used = b.add(b.add(b.mul(b.sub(self.images, 1), w["image_places"]), pitched), self.columns)

    def image_source(self, i: str) -> str:
        return self.b.gep(self.memory, self.source, self.b.mul(i, self.w["source_batch"]))

    def each_image(self, function: str, seen: str) -> None:
        """Look at the block's source of each image, or pack it."""
        b = self.b
        with b.for_(0, self.images) as i:
            b.invoke(function, COPY, self.shape, self.image_source(i), b.gep("i32", self.planes, b.mul(i, self.w["image_places"])), seen, self.y0, self.x0,
                     self.rows)  # fmt: skip

    def pack_parts(self) -> tuple[str, str]:
        """Pack the block's source; its extent."""
        clear_extent(self.b, self.notes)
        self.each_image(self.copy, self.notes)
        return EXTENT.reduce(self.b, *extent_in_memory(self.b, self.notes))

    def finish(self) -> None:
        """The epilogue: whole rows, or a piece of one: either way neighbours in the output."""
        b, w = self.b, self.w
        row = b.mul(self.g, w["rows"])
        first = b.add(b.mul(self.y0, w["out_width"]), self.x0)
        after = b.add(b.add(b.mul(b.add(self.y0, b.sub(self.rows, 1)), w["out_width"]), self.x0), self.columns)
        call_epilogue(b, self.n0, self.images, (b.add(row, self.o_low), b.add(row, self.o_high)), (first, after))

    # -- a panel of weights -----------------------------------------------------------------------------------------
    def panel_at(self, number: str) -> str:
        return self.b.gep("i8", self.w["weights"], self.b.add(self.w["panels_at"], self.b.mul(number, self.w["panel_bytes"])))

    def panel(self, o: str) -> tuple[str, str]:
        """The number of the panel of output channels from `o` on, and the address of the panel that follows."""
        b, w = self.b, self.w
        number = b.add(self.first_panel, b.op(f"udiv i64 {o}, {ROWS}"))
        more = b.op(f"icmp slt i64 {b.add(o, ROWS)}, {self.o_high}")
        next_panel = b.add(b.mul(self.next_g, w["panels"]), b.op(f"udiv i64 {b.mul(self.next_part, w['split_rows'])}, {ROWS}"))
        return number, self.panel_at(b.op(f"select i1 {more}, i64 {b.add(number, 1)}, i64 {next_panel}"))

    def together(self, exponent: str, kind: str, number: str) -> tuple[str, str]:
        """float_halves.together of the pixels and a panel."""
        b = self.b
        header = b.gep("i8", self.w["weights"], b.mul(number, HEADER))
        known = [b.load("i32", b.gep("i32", header, at), 4) for at in (2, 3)]
        return together(b, (exponent, kind), (known[0], known[1]))

    def choose(self, pixels: tuple[str, str], header: str, panel: str, following: str, o: str) -> None:
        """A panel by parts, or where these may not do by multiply-adds."""
        b, w, q = self.b, self.w, self.q
        low, high = (b.load("i32", b.gep("i32", header, i), 4) for i in range(2))
        safe = are_safe(b, pixels, (low, high))
        with b.if_(safe):
            self.by_tiles(o, panel, following)
        with b.if_(b.op(f"xor i1 {safe}, true")), b.for_(0, self.images) as i:
            b.invoke(w["exact"], PIXELS, self.shape, b.gep(self.memory, self.kernel_of_group, b.mul(o, q["kernel_row"])), self.image_source(i),
                     b.gep(self.memory, self.out_of(o), b.mul(i, w["out_batch"])), self.y0, self.x0, self.rows, self.columns, self.lanes(o))  # fmt: skip

    def lanes(self, o: str) -> str:
        return self.b.min(ROWS, self.b.sub(self.o_high, o))

    def out_of(self, o: str) -> str:
        return self.b.gep(self.memory, self.out, self.b.mul(o, self.q["out_row"]))

    def by_tiles(self, o: str, panel: str, following: str, scale: str = "1.0") -> None:
        """The products of a panel, stored."""
        b, w, q, sums, others = self.b, self.w, self.q, self.sums, self.others
        lanes = self.lanes(o)
        tall = b.op(f"select i1 {b.op(f'icmp sgt i64 {lanes}, 16')}, i64 2, i64 0")
        fetched_lines = "0" if self.form == "otherwise" else w["fetched_lines"]

        def halves(at: str, fetched: str, broad: str) -> None:
            """Some steps, whose weights stay in the first-level cache for all places."""
            start = self.start
            b.invoke(self.products, MULTIPLY_HALVES, b.min(self.block_steps, b.sub(w["steps"], start)), b.gep("i8", panel, b.mul(start, 4 * TILE_BYTES)),
                     b.gep("i32", self.planes, at), b.gep("i64", self.table, start), b.gep("float", sums, at), b.op(f"icmp sgt i64 {start}, 0"),
                     w["sums_bytes"], q["pair_bytes"], q["part_bytes"], b.gep("i8", fetched, b.mul(start, b.mul(fetched_lines, 64))), fetched_lines,
                     b.add(tall, broad))  # fmt: skip

        def visit(start: str) -> None:
            self.start = start
            with b.for_(0, self.used, PLACES) as at:
                ordinal = b.op(f"udiv i64 {at}, {PLACES}")
                fetched_part = b.gep("i8", following, b.mul(b.mul(ordinal, fetched_lines), b.mul(w["steps"], 64)))
                broad = b.op(f"zext i1 {b.op(f'icmp sgt i64 {b.sub(self.used, at)}, 16')} to i64")
                if self.form == "halves":
                    halves(at, fetched_part, broad)
                else:
                    b.invoke(self.products, MULTIPLY, w["steps"], self.block_steps, panel, b.gep("i32", self.planes, at), self.table,
                             b.gep("float", sums, at), b.gep("float", others, at), w["sums_bytes"], q["pair_bytes"], q["part_bytes"], fetched_part,
                             fetched_lines, b.add(tall, broad))  # fmt: skip

        if self.form == "halves":
            with b.for_(0, w["steps"], self.block_steps) as start:
                visit(start)
        else:
            visit("0")
        with b.for_(0, self.images) as i:
            b.invoke("store_sums", _STORE_SUMS, b.gep("float", sums, b.mul(i, w["image_places"])), b.gep("float", others, b.mul(i, w["image_places"])),
                     self.several, scale, w["sums_bytes"], q["pitch"], b.gep(self.memory, self.out_of(o), b.mul(i, w["out_batch"])), q["out_row"], q["out_y"],
                     self.rows, self.columns, lanes)  # fmt: skip
