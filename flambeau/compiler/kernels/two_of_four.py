"""Products of few rows with weights of which two of four neighbours are zero: only the others are read, and a bit for each place.

    out[m, n] = sum over places k whose bit is set of x[m, k] * values[n, number of bits set before k]

Sixteen places of a row are eight values and sixteen bits. One instruction puts the values where the bits are (AVX-512's `vexpandps`; of 16 bits
`vpexpandw`), and a fused multiply-add with sixteen numbers of x as they lie takes zeros for the rest. So a row costs 34 bytes for 64 of float32, 18 for 32
of bfloat16, and the same arithmetic as a dense one: what memory bounds becomes faster, what arithmetic bounds does not.

Units are rows of the weights; four of x and two of the weights are multiplied at once, so that values are put in place once for all. Each output has two
sums of sixteen lanes, which are added at the end: the order depends on K only.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from flambeau import dtypes
from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.graph import TWO_OF_FOUR_BLOCK, Graph
from flambeau.compiler.kernel import Kernel, Word
from flambeau.compiler.kernels.description import describe
from flambeau.compiler.kernels.move_layout import address, reads

WIDTH: Final = TWO_OF_FOUR_BLOCK
GRAIN: Final = 64  # rows of weights in the least piece of work
THREAD_BYTES: Final = 1 << 16  # of weights that a further thread should have
_FLOATS: Final = f"<{WIDTH} x float>"
_ELEMENTS: Final = {dtypes.float32: "float", dtypes.bfloat16: "bfloat", dtypes.float16: "half"}


def make_two_of_four(graph: Graph, node_index: int) -> list[Kernel]:
    """The kernel of a `two_of_four_matmul` node."""
    node = graph.nodes[node_index]
    x, values, places = [graph.values[v] for v in node.inputs]
    out = node.outputs[0]
    (m, k), n = x.shape, values.shape[0]
    if m * n == 0:
        return []
    if any(v.strides[1] != 1 for v in (x, values, places)):
        raise RuntimeError("two_of_four_matmul: the numbers of a row, of x, values and places, must lie one after another; use .contiguous()")
    words: dict[str, Word] = {name: address(graph, v) for name, v in zip(("x", "values", "places", "out"), (*node.inputs, out), strict=True)}
    words |= {"m": m, "k": k, "n": n, "x_row": x.strides[0], "values_row": values.strides[0], "places_row": places.strides[0]}
    element = _ELEMENTS[values.dtype]
    key = f"two_of_four:{element}:{graph.target.vector_bits}"
    nbytes = values.numel * values.dtype.itemsize + places.numel
    return [
        describe(
            "two_of_four_matmul", key, partial(_multiply, element), words, reads=reads(graph, *node.inputs), writes=node.outputs, units=n, bytes=nbytes,
            operations=2 * m * n * k, nodes=(node_index,), grain=GRAIN, min_units_per_thread=max(1, THREAD_BYTES * n // max(nbytes * m, 1)),
        )
    ]  # fmt: skip


def _multiply(element: str, b: Builder, w: dict[str, str]) -> None:
    start = "0"
    for rows in (4, 1):  # of x; those that are left over one by one
        end = b.mul(b.sdiv(w["m"], rows), rows)
        with b.for_(start, end, rows) as i:
            _rows(b, element, w, rows, i)
        start = end


def _rows(b: Builder, element: str, w: dict[str, str], rows: int, row: str) -> None:
    """`rows` of x with the weights' rows [begin, end)."""
    for count in (4, 2, 1) if rows == 1 else (2, 1):
        if count == (4 if rows == 1 else 2):
            begin, end = "%begin", b.add("%begin", b.mul(b.sdiv(b.sub("%end", "%begin"), count), count))
        else:
            begin, end = end, b.add(end, b.mul(b.sdiv(b.sub("%end", end), count), count))
        with b.for_(begin, end, count) as i:
            _products(b, element, w, rows, count, row, i)


def _products(b: Builder, element: str, w: dict[str, str], rows: int, count: int, row: str, n: str) -> None:
    """`rows` of x from `row` on with `count` of the weights from n on."""
    xs = [b.gep("float", w["x"], b.mul(b.add(row, r), w["x_row"])) for r in range(rows)]
    values = [b.gep(element, w["values"], b.mul(b.add(n, i), w["values_row"])) for i in range(count)]
    places = [b.gep("i8", w["places"], b.mul(b.add(n, i), w["places_row"])) for i in range(count)]
    sums = rows * count

    def block(at: str, carried: tuple[str, ...]) -> list[str]:
        loaded = [b.load(_FLOATS, b.gep("float", x, at), 4) for x in xs]
        made = []
        for i in range(count):
            weights = _in_place(b, element, values[i], places[i], at)
            for r in range(rows):
                given = carried[i * rows + r]
                made.append(b.call(_FLOATS, f"llvm.fma.v{WIDTH}f32", [(_FLOATS, weights), (_FLOATS, loaded[r]), (_FLOATS, given)]))
        return made

    def two_blocks(at: str, *carried: str) -> list[str]:
        return block(at, carried[:sums]) + block(b.add(at, WIDTH), carried[sums:])

    whole = b.mul(b.sdiv(w["k"], 2 * WIDTH), 2 * WIDTH)
    found = b.loop(0, whole, 2 * WIDTH, two_blocks, [(_FLOATS, "zeroinitializer")] * (2 * sums))
    first = b.loop(whole, w["k"], WIDTH, lambda at, *carried: block(at, carried), [(_FLOATS, v) for v in found[:sums]])
    for i in range(count):
        for r in range(rows):
            at = i * rows + r
            both = b.op(f"fadd {_FLOATS} {first[at]}, {found[sums + at]}")
            total = b.call("float", f"llvm.vector.reduce.fadd.v{WIDTH}f32", [("float", "-0.0"), (_FLOATS, both)])
            target = b.gep("float", w["out"], b.add(b.mul(b.add(row, r), w["n"]), b.add(n, i)))
            b.store("float", total, target, 4)


def _in_place(b: Builder, element: str, values: str, places: str, at: str) -> str:
    """Sixteen weights from place `at` on, zeros among them, as float32."""
    bits = b.load("i16", b.gep("i8", places, b.sdiv(at, 8)), 1)
    mask = b.op(f"bitcast i16 {bits} to <{WIDTH} x i1>")
    here = b.gep(element, values, b.sdiv(at, 2))
    half = WIDTH // 2  # values of sixteen places: as many are loaded, which ends within the row
    few, kind = f"<{half} x float>", f"<{half} x {'i16' if element == 'bfloat' else element}>"
    found = b.load(kind, here, 2 if element != "float" else 4)
    if element == "bfloat":
        wide, sixteen = b.op(f"zext {kind} {found} to <{half} x i32>"), b.splat("i32", half, "16")
        found = b.op(f"bitcast <{half} x i32> {b.op(f'shl <{half} x i32> {wide}, {sixteen}')} to {few}")
    elif element == "half":
        found = b.op(f"fpext {kind} {found} to {few}")
    order = ", ".join(f"i32 {i if i < half else half}" for i in range(WIDTH))
    packed = b.op(f"shufflevector {few} {found}, {few} poison, <{WIDTH} x i32> <{order}>")
    return b.call(_FLOATS, f"llvm.x86.avx512.mask.expand.v{WIDTH}f32", [(_FLOATS, packed), (_FLOATS, "zeroinitializer"), (f"<{WIDTH} x i1>", mask)])
