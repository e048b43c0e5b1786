"""Products with coded weights: the codes are read as they lie, by few rows once, so that memory is the limit; by many as often as the second cache has them.
Where there is a matrix unit, it multiplies many rows (coded_matmul_tiles.py).

    out[m, n] = sum over blocks b of scale[n, b] * (sum over k in b of x[m, k] * (code[n, k] - zero[n, b]))

With dot instructions for bytes (AVX512-VNNI's `vpdpbusd`) the inner sum is one of integers. Each block of x is written as a scale times integers of 16 bits,
whose high and low bytes are multiplied by the codes apart; both sums are exact, and x keeps 15 bits below the greatest of its block. The products
cost an instruction for 64 codes, two with both bytes; unpacking nibbles three for 128, once for INPUTS rows of x. Elsewhere codes are widened to float32 and
multiplied by x itself.

Units are rows of the weights. A block's part is added to `lanes` sums, which are added pairwise at the end; the order depends on K and the block only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

from flambeau import dtypes
from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.graph import CODED_BLOCK, Graph
from flambeau.compiler.kernel import Kernel, Scratch, Word
from flambeau.compiler.kernels.coded_matmul_tiles import FEWEST_ROWS, LANES, STEP, area_bytes, multiply_by_tiles
from flambeau.compiler.kernels.description import describe
from flambeau.compiler.kernels.matmul_blocking import round_up
from flambeau.compiler.kernels.matmul_element import element_of
from flambeau.compiler.kernels.matmul_tiles import configuration
from flambeau.compiler.kernels.matrix_vector import horizontal_sum
from flambeau.compiler.kernels.move_layout import address, reads
from flambeau.runtime.target import Target
from flambeau.runtime.untracked import record

ROWS: Final = 4  # rows of weights at once: a block of x is loaded once for all
INPUTS: Final = 2  # rows of x at once, where there are so many: codes are unpacked once for all
CACHED: Final = 1 << 19  # bytes of codes that stay in a core's second cache while many rows of x pass by
GRAIN: Final = 64  # rows of weights in the least piece of work
THREAD_BYTES: Final = 1 << 16  # of codes that a further thread should have
_GREATEST: Final = 32512.0  # the greatest integer of x: its high byte, rounded to nearest, fits 8 bits


@record
@dataclass(frozen=True, slots=True)
class Facts:
    """What the code depends on: bits of a code, codes of a block, whether there are dot instructions for bytes, and which blocks have a scale:

    each its own ("blocks"), all of a row the same ("rows"), or some ("groups").
    """

    bits: int
    block: int
    dots: bool
    scales: str

    @property
    def key(self) -> str:
        """For the kernel's key."""
        return f"{self.bits}:{self.block}:{'dots' if self.dots else 'floats'}:{self.scales}"


def make_coded_matmul(graph: Graph, node_index: int) -> list[Kernel]:
    """The kernel of a `coded_matmul` node."""
    node = graph.nodes[node_index]
    x, codes, scales, zeros = node.inputs
    out = node.outputs[0]
    (m, k), n = graph.values[x].shape, graph.values[codes].shape[0]
    if m * n == 0:
        return []
    bits, group = node.attr("code_bits"), node.attr("group")
    block = min(group, CODED_BLOCK)
    dense = all(graph.values[v].strides[1] == 1 for v in (scales, zeros))
    kind = "blocks" if group == block and dense else "rows" if group == k else "groups"
    facts = Facts(bits, block, "int8" in graph.target.dots, kind)
    # For each worker and each of INPUTS rows of x: its high bytes, the low ones (together, in floats: x itself), of each block a scale and a sum, and a product
    # of scales for each row of the weights.
    area = round_up(4 * k + (8 + 4 * ROWS) * (k // block), 64)
    scratch = Scratch(INPUTS * area)
    words: dict[str, Word] = {name: address(graph, v) for name, v in zip(("x", "codes", "scales", "zeros", "out"), (*node.inputs, out), strict=True)}
    strides = {"x_row": graph.values[x].strides[0]}
    for name, value in (("codes", codes), ("scales", scales), ("zeros", zeros)):
        v = graph.values[value]
        strides |= {f"{name}_row": v.strides[0], f"{name}_column": v.strides[1]}
    if strides.pop("codes_column") != 1 or graph.values[x].strides[1] != 1:
        raise RuntimeError("coded_matmul: the numbers of a row, of x and of the codes, must lie one after another; use .contiguous()")
    words |= {"scratch": scratch, "area": area, "m": m, "k": k, "n": n, "per_group": group // block, **strides}
    key, write, constants = f"coded_matmul:{facts.key}:{graph.target.vector_bits}", partial(_multiply, facts), []
    if has_tiles(graph.target, group, n) and m >= FEWEST_ROWS:
        area = round_up(area_bytes(k, block, bits), 64)
        words |= {"scratch": Scratch(area), "area": area}
        key, write, constants = f"{key}:tiles", partial(_multiply_by_tiles, facts), [configuration()]
    nbytes = graph.values[codes].numel
    return [
        describe(
            "coded_matmul", key, write, words, constants=constants, reads=reads(graph, *node.inputs), writes=node.outputs, units=n,
            bytes=nbytes + 8 * graph.values[scales].numel, operations=2 * m * n * k, nodes=(node_index,), grain=GRAIN,
            min_units_per_thread=max(1, THREAD_BYTES * n // max(nbytes * m, 1)),
        )
    ]  # fmt: skip


def has_tiles(target: Target, group: int, n: int) -> bool:
    """Whether the matrix unit multiplies many rows by n rows of codes in groups of this size."""
    return "int8" in target.dots and "int8" in target.matrix_dtypes and min(group, CODED_BLOCK) % STEP == 0 and n % LANES == 0


def _multiply_by_tiles(facts: Facts, b: Builder, w: dict[str, str]) -> None:
    multiply_by_tiles(facts.bits, facts.block, partial(_prepare, b, facts), b, w)


def _multiply(facts: Facts, b: Builder, w: dict[str, str]) -> None:
    w["blocks"] = b.sdiv(w["k"], facts.block)
    xs = [_area(b, w, b.add(b.mul("%worker", INPUTS), i)) for i in range(INPUTS)]
    together = b.mul(b.sdiv(w["m"], INPUTS), INPUTS)
    # Of many rows of x: as many of the weights as stay in the second cache while all of x passes by.
    some = b.mul(b.max(b.sdiv(b.sdiv(CACHED, w["codes_row"]), ROWS), 1), ROWS)
    few, all_ = b.op(f"icmp sle i64 {w['m']}, {INPUTS}"), b.max(b.sub("%end", "%begin"), 1)
    piece = b.op(f"select i1 {few}, i64 {all_}, i64 {some}")
    with b.for_("%begin", "%end", piece) as first:
        last = b.min(b.add(first, piece), "%end")
        with b.for_(0, together, INPUTS) as row:
            _rows(b, facts, w, xs, row, first, last)
        with b.for_(together, w["m"]) as row:
            _rows(b, facts, w, xs[:1], row, first, last)


def _area(b: Builder, w: dict[str, str], number: str) -> dict[str, str]:
    """The words, with the places of one row of x in the thread's memory."""
    area = b.gep("i8", w["scratch"], b.mul(number, w["area"]))
    made = {**w, "high": area, "low": b.gep("i8", area, w["k"]), "factors": b.gep("i8", area, b.mul(w["k"], 4))}
    made["sums"] = b.gep("float", made["factors"], w["blocks"])
    made["products"] = b.gep("float", made["sums"], w["blocks"])
    return made


def _rows(b: Builder, facts: Facts, w: dict[str, str], xs: list[dict[str, str]], row: str, begin: str, end: str) -> None:
    """Rows of x, from `row` on, with the weights' rows [begin, end)."""
    outs = []
    for i, x in enumerate(xs):
        source = b.gep("float", w["x"], b.mul(b.add(row, i), w["x_row"]))
        with b.for_(0, w["blocks"]) as block:
            _prepare(b, facts, x, source, block)
        outs.append(b.gep("float", w["out"], b.mul(b.add(row, i), w["n"])))
    whole = b.add(begin, b.mul(b.sdiv(b.sub(end, begin), ROWS), ROWS))
    with b.for_(begin, whole, ROWS) as n:
        _weights(b, facts, xs, outs, n, ROWS)
    with b.for_(whole, end) as n:
        _weights(b, facts, xs, outs, n, 1)


def _prepare(b: Builder, facts: Facts, w: dict[str, str], source: str, block: str) -> None:
    """A block of x in the thread's memory: as bytes with a scale and the integers' sum, or as floats with a scale of one and the sum."""
    start = b.mul(block, facts.block)
    width = min(b.target.lanes, 16)
    floats, integers = f"<{width} x float>", f"<{width} x i32>"
    places = range(0, facts.block, width)
    at = [b.gep("float", source, b.add(start, i)) for i in places]
    loaded = [b.load(floats, pointer, 4) for pointer in at]
    factor, total = b.gep("float", w["factors"], block), b.gep("float", w["sums"], block)
    if not facts.dots:
        together = loaded[0]
        for value in loaded[1:]:
            together = b.op(f"fadd {floats} {together}, {value}")
        for i, value in zip(places, loaded, strict=True):
            b.store(floats, value, b.gep("float", w["high"], b.add(start, i)), 4)
        b.store("float", "1.0", factor, 4)
        b.store("float", b.call("float", f"llvm.vector.reduce.fadd.v{width}f32", [("float", "-0.0"), (floats, together)]), total, 4)
        return
    sizes = [b.call(floats, f"llvm.fabs.v{width}f32", [(floats, value)]) for value in loaded]
    most = sizes[0]
    for size in sizes[1:]:  # NaN stays: the block's part is NaN then
        most = b.call(floats, f"llvm.maximum.v{width}f32", [(floats, most), (floats, size)])
    greatest = b.call("float", f"llvm.vector.reduce.fmaximum.v{width}f32", [(floats, most)])
    scale = b.op(f"fdiv float {greatest}, {_GREATEST}")
    empty = b.op(f"fcmp oeq float {scale}, 0.0")
    inverse = b.splat("float", width, b.op(f"fdiv float 1.0, {b.op(f'select i1 {empty}, float 1.0, float {scale}')}"))
    eight, middle = b.splat("i32", width, "8"), b.splat("i32", width, "128")
    sum_ = "zeroinitializer"
    for i, value in zip(places, loaded, strict=True):
        scaled = b.call(floats, f"llvm.rint.v{width}f32", [(floats, b.op(f"fmul {floats} {value}, {inverse}"))])
        # Infinities and NaN become any number: the scale is infinite or NaN, and so is the block's part.
        number = b.op(f"freeze {integers} {b.op(f'fptosi {floats} {scaled} to {integers}')}")
        high = b.op(f"ashr {integers} {b.op(f'add {integers} {number}, {middle}')}, {eight}")
        low = b.op(f"sub {integers} {number}, {b.op(f'shl {integers} {high}, {eight}')}")
        for name, part in (("high", high), ("low", low)):
            b.store(f"<{width} x i8>", b.op(f"trunc {integers} {part} to <{width} x i8>"), b.gep("i8", w[name], b.add(start, i)), 1)
        sum_ = b.op(f"add {integers} {sum_}, {number}")
    b.store("float", scale, factor, 4)
    whole = b.call("i32", f"llvm.vector.reduce.add.v{width}i32", [(integers, sum_)])
    b.store("float", b.op(f"sitofp i32 {whole} to float"), total, 4)


def _weights(b: Builder, facts: Facts, xs: list[dict[str, str]], outs: list[str], n: str, rows: int) -> None:
    """`rows` of the weights from n on with the prepared rows of x."""
    w = xs[0]
    numbers = [b.add(n, r) for r in range(rows)]
    codes = [b.gep("i8", w["codes"], b.mul(i, w["codes_row"])) for i in numbers]
    scales = [b.gep("float", w["scales"], b.mul(i, w["scales_row"])) for i in numbers]
    zeros = [b.gep("float", w["zeros"], b.mul(i, w["zeros_row"])) for i in numbers]
    width = 16 if facts.dots and facts.bits * facts.block >= 512 else facts.bits * facts.block // 32 if facts.dots else b.target.lanes
    sums_type = f"<{width} x float>"
    pairs = [(x, r) for x in xs for r in range(rows)]
    products = [b.gep("float", x["products"], b.mul(w["blocks"], r)) for x, r in pairs]
    offsets = ["0.0"] * len(pairs)
    if facts.scales == "blocks":
        offsets = [_products(b, x, scales[r], zeros[r], place) for (x, r), place in zip(pairs, products, strict=True)]
    start = [(sums_type, "zeroinitializer")] * len(pairs) + [("float", offset) for offset in offsets]
    with b.fold(0, w["blocks"], 1, start) as (number, found):
        sums, offsets = list(found[: len(pairs)]), list(found[len(pairs) :])
        parts = _dots(b, facts, xs, codes, number, width) if facts.dots else _floats(b, facts, xs, codes, number, width)
        group = b.op(f"sdiv i64 {number}, {w['per_group']}") if facts.scales == "groups" else "0"
        for i, (x, r) in enumerate(pairs):
            if facts.scales == "blocks":
                together = b.load("float", b.gep("float", products[i], number), 4)
            else:
                together = b.load("float", b.gep("float", x["factors"], number), 4)
                offset = b.load("float", b.gep("float", x["sums"], number), 4)
                if facts.scales == "groups":
                    scale = b.load("float", b.gep("float", scales[r], b.mul(group, w["scales_column"])), 4)
                    zero = b.load("float", b.gep("float", zeros[r], b.mul(group, w["zeros_column"])), 4)
                    together = b.op(f"fmul float {scale}, {together}")
                    offset = b.op(f"fmul float {zero}, {offset}")
                offsets[i] = b.multiply_add("float", 1, together, offset, offsets[i])
            of_all = b.splat("float", width, together)
            sums[i] = b.multiply_add("float", width, parts[i], of_all, sums[i])
        found[:] = [*sums, *offsets]
    for i, (_, r) in enumerate(pairs):
        value = horizontal_sum(b, element_of(dtypes.float32), width, found[i])
        offset = found[len(pairs) + i]
        if facts.scales == "rows":
            offset = b.op(f"fmul float {b.load('float', zeros[r], 4)}, {offset}")
        value = b.op(f"fsub float {value}, {offset}")
        if facts.scales == "rows":
            value = b.op(f"fmul float {value}, {b.load('float', scales[r], 4)}")
        b.store("float", value, b.gep("float", outs[i // rows], numbers[r]), 4)


def _products(b: Builder, w: dict[str, str], scales: str, zeros: str, products: str) -> str:
    """A row's scales times those of x, in the thread's memory; returns what its zero points take away."""
    width = min(b.target.lanes, 16)
    floats = f"<{width} x float>"

    def step(i: str, mask: str, carried: str) -> str:
        def at(pointer: str) -> str:
            here = b.gep("float", pointer, i)
            return b.masked_load("float", width, here, mask, 4) if mask else b.load(floats, here, 4)

        together = b.op(f"fmul {floats} {at(scales)}, {at(w['factors'])}")
        if mask:
            b.masked_store("float", width, together, b.gep("float", products, i), mask, 4)
        else:
            b.store(floats, together, b.gep("float", products, i), 4)
        offset = b.op(f"fmul {floats} {at(zeros)}, {at(w['sums'])}")
        return b.multiply_add("float", width, together, offset, carried)

    whole = b.mul(b.sdiv(w["blocks"], width), width)
    (total,) = b.loop(0, whole, width, lambda i, carried: [step(i, "", carried)], [(floats, "zeroinitializer")])
    (total,) = b.loop(whole, w["blocks"], width, lambda i, c: [step(i, b.tail_mask(b.sub(w["blocks"], i), width), c)], [(floats, total)])
    return b.call("float", f"llvm.vector.reduce.fadd.v{width}f32", [("float", "-0.0"), (floats, total)])


def _dots(b: Builder, facts: Facts, xs: list[dict[str, str]], codes: list[str], number: str, width: int) -> list[str]:
    """For each row of x and each of the weights, `width` sums of products of codes with the integers of x, as floats."""
    count = 4 * width  # bytes of a vector
    octets, sums = f"<{count} x i8>", f"<{width} x i32>"
    name = f"llvm.x86.avx512.vpdpbusd.{32 * width}"
    start = b.mul(number, facts.block)
    pieces = facts.block // count
    unpacked = []
    for row in codes:
        at = b.gep("i8", row, b.mul(number, facts.block * facts.bits // 8))
        loaded = [b.load(octets, b.gep("i8", at, p * count), 1) for p in range(facts.block * facts.bits // 8 // count)]
        if facts.bits == 4:
            fifteen = b.splat("i8", count, "15")
            nibbles = []
            words = f"<{count // 2} x i16>"
            for half in (0, 1):
                for v in loaded:
                    if half:
                        moved = b.op(f"lshr {words} {b.op(f'bitcast {octets} {v} to {words}')}, {b.splat('i16', count // 2, '4')}")
                        v = b.op(f"bitcast {words} {moved} to {octets}")
                    nibbles.append(b.op(f"and {octets} {v}, {fifteen}"))
            loaded = nibbles
        unpacked.append(loaded)
    found = []
    for w in xs:
        given = {part: [b.load(octets, b.gep("i8", w[part], b.add(start, p * count)), 1) for p in range(pieces)] for part in ("high", "low")}
        for loaded in unpacked:
            total = "zeroinitializer"
            for part in ("high", "low"):
                if part == "low":
                    total = b.op(f"shl {sums} {total}, {b.splat('i32', width, '8')}")
                for v, x in zip(loaded, given[part], strict=True):
                    total = b.call(sums, name, [(sums, total), (octets, v), (octets, x)])
            found.append(b.op(f"sitofp {sums} {total} to <{width} x float>"))
    return found


def _floats(b: Builder, facts: Facts, xs: list[dict[str, str]], codes: list[str], number: str, width: int) -> list[str]:
    """For each row of x and each of the weights, `width` sums of products of codes with x, in float32."""
    octets, floats = f"<{width} x i8>", f"<{width} x float>"
    start = b.mul(number, facts.block)
    half = facts.block // 2
    sums = [["zeroinitializer"] * len(codes) for _ in xs]
    for i, row in enumerate(codes):
        at = b.gep("i8", row, b.mul(number, facts.block * facts.bits // 8))
        for first in range(0, facts.block, width):
            loaded = b.load(octets, b.gep("i8", at, first % half if facts.bits == 4 else first), 1)
            if facts.bits == 4:
                if first >= half:
                    loaded = b.op(f"lshr {octets} {loaded}, {b.splat('i8', width, '4')}")
                else:
                    loaded = b.op(f"and {octets} {loaded}, {b.splat('i8', width, '15')}")
            weight = b.op(f"uitofp {octets} {loaded} to {floats}")
            for w, totals in zip(xs, sums, strict=True):
                x = b.load(floats, b.gep("float", w["high"], b.add(start, first)), 4)
                totals[i] = b.multiply_add("float", width, weight, x, totals[i])
    return [total for totals in sums for total in totals]
