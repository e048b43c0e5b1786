"""Matrix products: the micro-kernel, which holds a tile of the product in registers while it runs through K.

A micro-kernel of `height` x `vectors` is

    void name(i64 k, ptr a, i64 a_row, i64 a_step, ptr b, i64 b_step, ptr c, i64 c_row, i64 c_column, i1 add, i64
    rows, i64 columns)

Element (i, t) of a is at a + i * a_row + t * a_step, element (t, j) of b at b + t * b_step + j, in elements of the
compute type. In packed panels (see matmul_pack.py) a_row is 1 and is left out of the address computation. For complex
elements a step holds all real parts, then all imaginary parts, of a panel. c has the memory type, rows `c_row` apart
(elements, complex ones counted whole) and columns `c_column` apart (1 unless told otherwise). `add`: add to c instead
of overwriting it. Only `rows` x `columns` of the tile are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from flambeau.compiler.emit.builder import Builder, Parameters, vector
from flambeau.compiler.emit.transpose import transpose_vectors
from flambeau.compiler.kernels.matmul_element import Element, Tile
from flambeau.compiler.tile.contract import Operands, contract

CHUNK = 16  # steps between two prefetches
STORE_PART: Final = Parameters("buffer* lanes c* c_row c_column add:i1 rows columns")


def call_least(b: Builder, stem: str, arguments: Sequence[tuple[str, str]], *ways: tuple[str, int, Sequence[int]]) -> None:
    """Call `stem`_AxB, the least function that covers what is left each way; `ways`: (what is left, the unit of sizes, sizes that there are, in descending
    order)."""

    def choose(chosen: list[int], ways: Sequence[tuple[str, int, Sequence[int]]]) -> None:
        if not ways:
            b.call("void", f"{stem}_{'x'.join(map(str, chosen))}", arguments, declare=False)
            return
        (left, unit, sizes), *others = ways
        if len(sizes) == 1:
            choose([*chosen, sizes[0]], others)
            return
        with b.if_(b.op(f"icmp sgt i64 {left}, {unit * sizes[1]}")):
            choose([*chosen, sizes[0]], others)
        with b.else_():
            choose(chosen, [(left, unit, sizes[1:]), *others])

    choose([], ways)


def micro_kernel(
    b: Builder, element: Element, tile: Tile, height: int, vectors: int, packed: bool, name: str, unit_c: bool = True,
    fetches_b: bool = False,
) -> str:  # fmt: skip
    """Text of one micro-kernel. `packed`: a and b are panels of `tile`; the strides are not read. `b` is a fresh
    builder (keeps declarations).

    `fetches_b`: it has a last parameter, i1 fetch: whether to fetch the next panel of b, if b is no packed panel.
    `unit_c`: columns of c lie next to each other; otherwise every tile is stored element by element.
    """
    width, type_ = tile.width, vector(element.compute, tile.width)
    size, parts = element.compute_bytes, element.parts
    lanes = vectors * width

    def fetch_c(index: str) -> None:
        """Four of the tile's lines of c, at every fourth of the first 32 steps: c is far away when it is large, and
        the stores at the end would wait (measured: 3 %). In a block of their own: next to the loads of a and b, LLVM
        takes a prefetch for a barrier, loads everything before the first multiply-add, and spills."""
        row = b.op(f"and i64 {index}, 15")
        line = b.gep("i8", "%c", b.mul(b.op(f"lshr i64 {index}, 4"), 64))
        line = b.gep(element.result.memory, line, b.mul(row, "%c_row"))
        for _ in range(4):
            b.prefetch(line)
            line = b.gep(element.result.memory, line, "%c_row")

    def operands(index: str) -> Iterator[Operands[tuple[str, ...], tuple[str, ...]]]:
        if packed and unit_c and parts == 1:
            low = b.op(f"and i64 {index}, {-32 | 3}")
            with b.if_(b.op(f"icmp eq i64 {low}, 0")):
                fetch_c(index)
        a_at = b.gep(element.compute, "%a", b.mul(index, tile.rows * parts if packed else "%a_step"))
        b_at = b.gep(element.compute, "%b", b.mul(index, tile.columns * parts if packed else "%b_step"))
        # A packed step of b is the panel's real parts, then its imaginary parts.
        places = [part * tile.columns + v * width for part in range(parts) for v in range(vectors)]
        right = [b.load(type_, b.gep(element.compute, b_at, place), size) for place in places]

        def left(i: int) -> tuple[str, ...]:
            rows = (i + part * tile.rows if packed else b.mul(i, "%a_row") for part in range(parts))
            return tuple(b.splat(element.compute, width, b.load(element.compute, b.gep(element.compute, a_at, row), size)) for row in rows)

        yield (left(i) for i in range(height)), [tuple(right[v::vectors]) for v in range(vectors)]

    def chunk(first: str, *accumulators: str) -> list[str]:
        """Some steps, before which the same rows of the next panel of b are fetched, unless b is packed: the hardware
        does not foresee short pieces of rows that lie far apart."""
        end = b.min("%k", b.add(first, CHUNK))
        in_place = b.op(f"and i1 %fetch, {b.op(f'icmp ne i64 %b_step, {tile.columns}')}")
        with b.if_(in_place), b.for_(first, end) as t:
            line = b.gep(element.memory, "%b", b.add(b.mul(t, "%b_step"), tile.columns))
            for at in range(0, lanes * size, 64):
                b.prefetch(b.gep("i8", line, at))
        return product(end, [(type_, value) for value in accumulators], first)

    product = partial(contract, b, add=partial(element.multiply_add_parts, b, width), read=operands, parts=parts)
    zeros = [(type_, element.zero(width))] * (height * vectors * parts)
    if fetches_b:
        results = b.loop(0, "%k", CHUNK, chunk, zeros)
    else:
        results = product("%k", zeros)
    done = b.new_label("done")
    if unit_c:
        tall = b.op(f"icmp eq i64 %rows, {height}")
        wide = b.op(f"icmp eq i64 %columns, {lanes}")
        whole, part_ = b.new_label("whole"), b.new_label("part")
        b.emit(f"br i1 {b.op(f'and i1 {tall}, {wide}')}, label %{whole}, label %{part_}")
        b.label(whole)
        _store_whole(b, element, tile, height, vectors, results)
        b.branch(done)
        b.label(part_)
    buffer = b.fresh("buffer")
    b.allocas.append(f"  {buffer} = alloca [{-(-height // width) * width * lanes * parts} x {element.compute}], align 64")
    for i in range(height):
        for v in range(vectors):
            for p in range(parts):
                at = b.gep(element.compute, buffer, (i * parts + p) * lanes + v * width)
                b.store(type_, results[(i * vectors + v) * parts + p], at, 64 if width * size == 64 else size)
    b.invoke("store_part", STORE_PART, buffer, lanes, "%c", "%c_row", "%c_column", "%add", "%rows", "%columns")
    b.branch(done)
    b.label(done)
    return b.define(name, Parameters(f"k a* a_row a_step b* b_step c* c_row c_column add:i1 rows columns{' fetch:i1' * fetches_b}"))


def _store_whole(b: Builder, element: Element, tile: Tile, height: int, vectors: int, results: list[str]) -> None:
    """Store a full tile, with or without adding to what is there."""
    width, parts, result = tile.width, element.parts, element.result
    chunk = width * parts  # lanes of one store
    type_, memory = vector(element.compute, chunk), vector(result.memory, chunk)

    def values(i: int, v: int) -> str:
        at = (i * vectors + v) * parts
        return interleave(b, element, width, results[at], results[at + 1]) if parts == 2 else results[at]

    def address(i: int, v: int) -> str:
        row = b.mul("%c_row", i * parts)
        return b.gep(result.memory, b.gep(result.memory, "%c", row), v * chunk)

    def plain() -> None:
        for i in range(height):
            for v in range(vectors):
                b.store(memory, result.narrow(b, chunk, values(i, v)), address(i, v), result.memory_bytes)

    if element.converts:  # one block of K: nothing to add to
        plain()
        return
    adding, setting, done = b.new_label("add"), b.new_label("set"), b.new_label("stored")
    b.emit(f"br i1 %add, label %{adding}, label %{setting}")
    b.label(adding)
    # All loads before the first store: where rows of c are a multiple of 4 KiB apart, a load would wait for the store
    # to the row before, whose address has the same low 12 bits (Intel optimization manual, "4-KByte aliasing").
    sums = []
    for i in range(height):
        for v in range(vectors):
            at = address(i, v)
            sums.append((element.add(b, chunk, b.load(type_, at, element.memory_bytes), values(i, v)), at))
    for value, at in sums:
        b.store(type_, value, at, element.memory_bytes)
    b.branch(done)
    b.label(setting)
    plain()
    b.branch(done)
    b.label(done)


def interleave(b: Builder, element: Element, width: int, real: str, imaginary: str) -> str:
    """(r0, i0, r1, i1, ...) of two vectors of parts."""
    if width == 1:
        type_ = vector(element.compute, 2)
        first = b.op(f"insertelement {type_} poison, {element.compute} {real}, i32 0")
        return b.op(f"insertelement {type_} {first}, {element.compute} {imaginary}, i32 1")
    order = ", ".join(f"i32 {lane}, i32 {width + lane}" for lane in range(width))
    type_ = vector(element.compute, width)
    return b.op(f"shufflevector {type_} {real}, {type_} {imaginary}, <{2 * width} x i32> <{order}>")


def store_part(b: Builder, element: Element, tile: Tile, c_unit: str, name: str = "store_part", linkage: str = "internal") -> str:
    """Text of `name(buffer, lanes, c, c_row, c_column, add, rows, columns)`: the valid part of a tile, from its
    buffer (rows of `lanes` elements, their count rounded up to the width) to c.

    `c_unit` "column": row by row under a mask. "row": blocks of width x width are transposed in registers. "none" (and
    complex elements): element by element.
    """
    width, parts, result = tile.width, element.parts, element.result

    def element_store(source: str, target: str, lanes: int, mask: str) -> None:
        type_ = vector(element.compute, lanes)
        if mask:
            value = b.masked_load(element.compute, lanes, source, mask, element.compute_bytes)
        else:
            value = b.load(type_, source, element.compute_bytes)
        put(value, target, lanes, mask)

    def put(value: str, target: str, lanes: int, mask: str) -> None:
        type_ = vector(element.compute, lanes)
        if not element.converts:
            if mask:
                old = b.masked_load(element.compute, lanes, target, mask, result.memory_bytes)
            else:
                old = b.load(type_, target, result.memory_bytes)
            value = b.op(f"select i1 %add, {type_} {element.add(b, lanes, old, value)}, {type_} {value}")
        value = result.narrow(b, lanes, value)
        if mask:
            b.masked_store(result.memory, lanes, value, target, mask, result.memory_bytes)
        else:
            b.store(vector(result.memory, lanes), value, target, result.memory_bytes)

    if c_unit == "row" and parts == 1 and width > 1:
        # Columns [j, j + width): each is a contiguous piece of c.
        with b.for_(0, "%columns", width) as j, b.for_(0, "%rows", width) as i:
            corner = b.gep(element.compute, "%buffer", b.add(b.mul(i, "%lanes"), j))
            loaded = [
                b.load(
                    vector(element.compute, width),
                    b.gep(element.compute, corner, b.mul(r, "%lanes")),
                    element.compute_bytes,
                )
                for r in range(width)
            ]
            target = b.gep(result.memory, b.gep(result.memory, "%c", b.mul(j, "%c_column")), i)
            mask, none = b.tail_mask(b.sub("%rows", i), width), f"<{width} x i1> zeroinitializer"
            left = b.sub("%columns", j)
            for column, value in enumerate(transpose_vectors(b, element.compute, loaded, small_first=True)):
                valid = b.op(f"icmp sgt i64 {left}, {column}")
                lanes = b.op(f"select i1 {valid}, <{width} x i1> {mask}, {none}")
                at = b.gep(result.memory, target, b.mul(column, "%c_column"))
                put(value, at, width, lanes)
    else:
        with b.for_(0, "%rows") as i:
            target = b.gep(result.memory, "%c", b.mul(b.mul(i, "%c_row"), parts))
            source = b.gep(element.compute, "%buffer", b.mul(b.mul(i, "%lanes"), parts))
            if c_unit == "column" and parts == 1:
                with b.for_(0, "%columns", width) as j:
                    mask = b.tail_mask(b.sub("%columns", j), width)
                    element_store(b.gep(element.compute, source, j), b.gep(result.memory, target, j), width, mask)
            else:
                with b.for_(0, "%columns") as j:
                    for p in range(parts):
                        at = b.add(j, b.mul("%lanes", p))
                        out = b.add(b.mul(b.mul(j, "%c_column"), parts), p)
                        element_store(b.gep(element.compute, source, at), b.gep(result.memory, target, out), 1, "")
    return b.define(name, STORE_PART, linkage)
