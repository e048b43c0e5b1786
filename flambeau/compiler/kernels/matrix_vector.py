"""Products of a vector, or of a few rows, with a matrix: bound by memory, so nothing is packed.

    c (m x n) = a (m x k) @ b (k x n),  m small; matrix-vector products come here with the operands exchanged.

Two kernels, by the direction in which b lies in memory:
- `dot_body` (b's rows of k are contiguous, as a linear layer's weight): each output is a dot product. Lane l of an
  accumulator holds the terms k with k mod width = l, added up in blocks; the lanes are added pairwise at the end. Where the
  target has a dot instruction for the element, a lane holds its groups of neighbours of k (matmul_dots.py).
- `sweep_body` (b's columns are contiguous, m = 1): runs of k rows of b are swept through, four at a time, and added
  to a line of accumulators that stays in the first-level cache. Every BLOCK rows they are added to a second line, so
  that rounding errors grow with the square root of the number of blocks, not of rows.

Both orders of additions depend on k only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernels.matmul_dots import DOTS, Dot
from flambeau.compiler.kernels.matmul_element import Element, Facts, batch_addresses, call_epilogue, k_of_batch
from flambeau.compiler.tile.contract import rank_one
from flambeau.runtime.target import Target
from flambeau.symbols import roughly_over

BLOCK = 256  # terms that are added up before their sum is added to the total: as in the blocked product's blocks of K
DOT_ROWS = 4  # rows of a up to which dot products beat the blocked product ...
# ... and where one instruction does them, since a product by panels packs all of b (measured on Zen 4: as fast at 32 rows, at 24 up to 1.3 times).
INSTRUCTION_ROWS = 24
LEAST_TERMS, LEAST_ELEMENTS = 256, 1 << 17  # of k, and of the matrix, from which it pays
LINE = 2048  # columns of a line of accumulators: two lines of float32 are a third of a first-level cache
DOT_CHUNK = 512  # columns between two calls of the epilogue
UNIT_VECTORS = 4  # columns of a unit of `sweep`, in vectors
_ROWS_AT_ONCE = 4  # rows of b that `sweep` reads together: one load and store of the accumulators for four


def instruction_of(name: str, target: Target, n: int, k: int) -> Dot | None:
    """The dot instruction that multiplies a few rows of this dtype with k x n, if the target has one: of signed operands. Short ones do not pay what
    is done for a dot product besides (measured on Zen 4)."""
    dot = DOTS.get(name) if name in target.dots else None
    return None if dot is None or dot.shifted or k < LEAST_TERMS or n * k < LEAST_ELEMENTS else dot


def most_rows(name: str, target: Target, n: int, k: int) -> int:
    """The rows of a up to which the kernels here are chosen for a matrix of k x n. A matrix unit is faster from 5 on."""
    return DOT_ROWS if name in target.matrix_dtypes or instruction_of(name, target, n, k) is None else INSTRUCTION_ROWS


def by_eights(m: int) -> bool:
    """Whether more than 4 rows are taken eight at a time, not six: 7 and 8, 13 to 16, 19 and more."""
    return roughly_over(m, 18) or (roughly_over(m, 12) and not roughly_over(m, 16)) or (roughly_over(m, 6) and not roughly_over(m, 8))


def dot_shape(m: int, n: int, instruction: bool = False) -> tuple[int, int, int]:
    """(rows of a at once, columns at once, accumulators each): 8 to 24 in all hide the latency of a multiply-add. By a dot instruction as many columns
    as there are registers for, since memory is read faster at more places."""
    if instruction and n >= 4 and m > 1:  # one accumulator in all of these: the choice among them changes no bits
        if roughly_over(m, 4):
            return (8, 2, 1) if by_eights(m) else (6, 4, 1)
        if n >= 8:
            return (4, 6, 1) if roughly_over(m, 2) else (2, 8, 1)
    if n < 4:
        return (1, 1, 8) if m == 1 else (4, 1, 2)
    return (1, 8, 2) if m == 1 else (4, 4, 1)


def packs_a(dot: Dot | None, height: int) -> bool:
    """Whether rows of a are copied side by side first: where they lie, as many as a cache's set has ways would displace each other, if they are a power of
    two apart."""
    return dot is not None and height > 1


def dot_scratch(shape: tuple[int, int, int], dot: Dot | None, m: int, k: int, itemsize: int) -> int:
    """Bytes of a worker's copy of a."""
    return -(-m // shape[0]) * shape[0] * (-(-k // 32) * 32) * itemsize if packs_a(dot, shape[0]) else 0


def split_units(b: Builder, w: dict[str, str], body: Callable[[str, str, str], None]) -> None:
    """`body(batch, first unit, end unit)` for each batch item that [begin, end) touches."""
    per = w["units_per_batch"]
    last = b.op(f"udiv i64 {b.add('%end', b.sub(per, 1))}, {per}")
    with b.for_(b.op(f"udiv i64 %begin, {per}"), last) as batch:
        start = b.mul(batch, per)
        body(batch, b.max("0", b.sub("%begin", start)), b.min(per, b.sub("%end", start)))


def dot_body(facts: Facts, has_epilogue: bool, shape: tuple[int, int, int], dot: Dot | None, b: Builder, w: dict[str, str]) -> None:
    """The body for dot products of rows of a with columns of b, `shape` (see `dot_shape`) at a time, by the instruction `dot`."""
    element, result, width = facts.element, facts.element.result, facts.tile.width
    memory = element.memory
    height, columns, vectors = shape
    type_ = vector(element.compute, width)
    terms = width if dot is None else width * element.compute_bytes // element.memory_bytes  # of k, in a vector

    def lanes(pointer: str, mask: str) -> str:
        if mask:
            value = b.masked_load(memory, terms, pointer, mask, element.memory_bytes)
        else:
            value = b.load(vector(memory, terms), pointer, element.memory_bytes)
        return element.widen(b, width, value) if dot is None else b.op(f"bitcast {vector(memory, terms)} {value} to <16 x i32>")

    panel = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"])) if packs_a(dot, height) else ""

    def panel_at(row: str, k: str) -> str:
        """Where rows row .. row + height - 1 of a are packed, from k on: `terms` of each after the other."""
        whole = b.op(f"and i64 {b.add(w['k'], terms - 1)}, {-terms}")
        return b.gep(memory, panel, b.add(b.mul(row, whole), b.mul(k, height)))

    def pack(a: str) -> None:
        with b.for_(0, w["m"], height) as row:
            for i in range(height):
                source = b.gep(memory, a, b.mul(b.min(b.add(row, i), b.sub(w["m"], 1)), w["a_row"]))

                def put(k: str, mask: str, source: str = source, i: int = i) -> None:
                    b.store("<16 x i32>", lanes(b.gep(memory, source, k), mask), b.gep(memory, panel_at(row, k), i * terms), 64)

                whole = b.mul(b.sdiv(w["k"], terms), terms)
                with b.for_(0, whole, terms) as k:
                    put(k, "")
                with b.for_(whole, w["k"], terms) as j:
                    put(j, b.tail_mask(b.sub(w["k"], j), terms))

    def group(a: str, bb: str, c: str, row: str, column: str) -> None:
        """`height` x `columns` outputs from (row, column) on; rows and columns past the end repeat the last one."""
        last_row, last_column = b.sub(w["m"], 1), b.sub(w["n"], 1)
        rows_at = [b.gep(memory, a, b.mul(b.min(b.add(row, i), last_row), w["a_row"])) for i in range(height)]
        columns_at = [b.gep(memory, bb, b.mul(b.min(b.add(column, j), last_column), w["b_column"])) for j in range(columns)]

        def add(right: str, left: str, sum_: str) -> str:
            return element.multiply_add(b, width, left, right, sum_) if dot is None else dot.add(b, left, right, sum_)

        def steps(k: str, accumulators: Sequence[str], count: int, mask: str) -> list[str]:
            """`count` vectors of k, each into an accumulator of its own for each output."""
            following = list(accumulators)
            for v in range(count):
                if panel:
                    left = [b.load("<16 x i32>", b.gep(memory, panel_at(row, k), (v * height + i) * terms), 64) for i in range(height)]
                else:
                    left = [lanes(b.gep(memory, b.gep(memory, at, k), v * terms), mask) for at in rows_at]
                if dot is not None and not mask:  # the same place of the columns to come: the processor does not foresee where they begin
                    for at in columns_at:
                        b.prefetch(b.gep(memory, b.gep(memory, at, b.add(k, b.mul(w["b_column"], columns))), v * terms))
                right = (lanes(b.gep(memory, b.gep(memory, at, k), v * terms), mask) for at in columns_at)
                mine = [(i * columns + j) * vectors + v for j in range(columns) for i in range(height)]
                found = rank_one(add, right, left, [following[index] for index in mine])
                for index, value in zip(mine, found, strict=True):
                    following[index] = value
            return following

        stride = terms * vectors
        whole = b.mul(b.sdiv(w["k"], stride), stride)
        zeros = [(type_, element.zero(width))] * (height * columns * vectors)

        def block(k0: str, *totals: str) -> list[str]:
            # Each lane adds BLOCK terms before it adds to the total: see `sweep_body`.
            sums = b.loop(
                k0, b.min(whole, b.add(k0, BLOCK * stride)), stride,
                lambda k, *accumulators: steps(k, accumulators, vectors, ""), zeros,
            )  # fmt: skip
            return [element.add(b, width, total, value) for total, value in zip(totals, sums, strict=True)]

        sums = b.loop(0, whole, BLOCK * stride, block, zeros)
        with b.fold(whole, w["k"], terms, [(type_, value) for value in sums]) as (k, sums):
            mask = b.tail_mask(b.sub(w["k"], k), terms)
            sums[:] = steps(k, sums, 1, mask)
        totals = []
        for first in range(0, len(sums), vectors):
            total, *others = sums[first : first + vectors]
            for other in others:
                total = element.add(b, width, total, other)
            totals.append(total)
        found = horizontal_sums(b, element, result, width, totals) if dot is not None else [horizontal_sum(b, element, width, total) for total in totals]
        for at_output, scalar in enumerate(found):
            if dot is None:
                scalar = result.narrow(b, 1, scalar)
            at_row, at_column = b.min(b.add(row, at_output // columns), last_row), b.min(b.add(column, at_output % columns), last_column)
            at = b.add(b.mul(at_row, w["c_row"]), b.mul(at_column, w["c_column"]))
            b.store(result.memory, scalar, b.gep(result.memory, c, at), result.memory_bytes)

    def item(batch: str, first: str, end: str) -> None:
        a, bb, c = batch_addresses(b, facts, w, batch)
        w["k"] = k_of_batch(b, w, batch)  # from here on
        stop = b.min(w["n"], b.mul(end, columns))
        if panel:
            pack(a)
        with b.for_(b.mul(first, columns), stop, DOT_CHUNK) as start:
            chunk_end = b.min(stop, b.add(start, DOT_CHUNK))
            with b.for_(start, chunk_end, columns) as column, b.for_(0, w["m"], height) as row:
                group(a, bb, c, row, column)
            if has_epilogue:
                call_epilogue(b, facts, w, batch, ("0", w["m"]), (start, chunk_end))

    split_units(b, w, item)


def over_line(b: Builder, width: int, count: str, body: Callable[[str, str], None]) -> None:
    """`body(j, mask)` for each vector of a line of `count` columns: whole ones, then the masked one."""
    whole = b.mul(b.sdiv(count, width), width)
    with b.for_(0, whole, width) as j:
        body(j, "")
    with b.if_(b.op(f"icmp slt i64 {whole}, {count}")):
        body(whole, b.tail_mask(b.sub(count, whole), width))


def sweep_body(facts: Facts, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    """The body for one row times a matrix whose columns lie next to each other."""
    element, result, width = facts.element, facts.element.result, facts.tile.width
    memory, compute, size = element.memory, element.compute, element.compute_bytes
    type_ = vector(compute, width)
    total = b.gep("i8", w["scratch"], b.mul("%worker", w["scratch_bytes"]))
    line = b.gep(compute, total, LINE)
    unit = UNIT_VECTORS * width

    def item(batch: str, first: str, end: str) -> None:
        a, bb, c = batch_addresses(b, facts, w, batch)
        w["k"] = k_of_batch(b, w, batch)  # from here on
        stop = b.min(w["n"], b.mul(end, unit))
        with b.for_(b.mul(first, unit), stop, LINE) as j0:
            count = b.min(LINE, b.sub(stop, j0))
            clear(total, count)

            def sweep(k: str, rows: int) -> None:
                factors, sources = [], []
                for r in range(rows):
                    scalar = b.load(memory, b.gep(memory, a, b.mul(b.add(k, r), w["a_column"])), element.memory_bytes)
                    factors.append(b.splat(compute, width, element.widen(b, 1, scalar)))
                    sources.append(b.gep(memory, bb, b.add(b.mul(b.add(k, r), w["b_row"]), j0)))

                def at_vector(j: str, mask: str) -> None:
                    at = b.gep(compute, line, j)
                    value = b.load(type_, at, size)
                    for factor, source in zip(factors, sources, strict=True):
                        pointer = b.gep(memory, source, j)
                        if mask:
                            right = b.masked_load(memory, width, pointer, mask, element.memory_bytes)
                        else:
                            right = b.load(vector(memory, width), pointer, element.memory_bytes)
                        value = element.multiply_add(b, width, factor, element.widen(b, width, right), value)
                    b.store(type_, value, at, size)

                over_line(b, width, count, at_vector)

            with b.for_(0, w["k"], BLOCK) as k0:
                clear(line, count)
                k1 = b.min(w["k"], b.add(k0, BLOCK))
                whole = b.add(k0, b.mul(b.sdiv(b.sub(k1, k0), _ROWS_AT_ONCE), _ROWS_AT_ONCE))
                with b.for_(k0, whole, _ROWS_AT_ONCE) as k:
                    sweep(k, _ROWS_AT_ONCE)
                with b.for_(whole, k1) as k:
                    sweep(k, 1)

                def add(j: str, mask: str) -> None:
                    del mask  # the lines are whole vectors
                    at = b.gep(compute, total, j)
                    value = element.add(b, width, b.load(type_, at, size), b.load(type_, b.gep(compute, line, j), size))
                    b.store(type_, value, at, size)

                over_line(b, width, count, add)
            store(c, j0, count)
            if has_epilogue:
                call_epilogue(b, facts, w, batch, ("0", "1"), (j0, b.add(j0, count)))

    def clear(at: str, count: str) -> None:
        over_line(b, width, count, lambda j, mask: b.store(type_, element.zero(width), b.gep(compute, at, j), size))

    def store(c: str, j0: str, count: str) -> None:
        if facts.c_unit == "column":

            def put(j: str, mask: str) -> None:
                value = result.narrow(b, width, b.load(type_, b.gep(compute, total, j), size))
                at = b.gep(result.memory, c, b.add(j0, j))
                if mask:
                    b.masked_store(result.memory, width, value, at, mask, result.memory_bytes)
                else:
                    b.store(vector(result.memory, width), value, at, result.memory_bytes)

            over_line(b, width, count, put)
            return
        with b.for_(0, count) as j:
            value = result.narrow(b, 1, b.load(compute, b.gep(compute, total, j), size))
            b.store(result.memory, value, b.gep(result.memory, c, b.mul(b.add(j0, j), w["c_column"])), result.memory_bytes)

    split_units(b, w, item)


def horizontal_sum(b: Builder, element: Element, width: int, value: str) -> str:
    """The lanes of a vector, added pairwise: lane i with lane i + width / 2, and so on."""
    while width > 1:
        half = width // 2
        type_ = vector(element.compute, width)
        parts = []
        for start in (0, half):
            order = ", ".join(f"i32 {start + lane}" for lane in range(half))
            if half == 1:
                parts.append(b.op(f"extractelement {type_} {value}, i32 {start}"))
            else:
                parts.append(b.op(f"shufflevector {type_} {value}, {type_} poison, <{half} x i32> <{order}>"))
        value = element.add(b, half, parts[0], parts[1])
        width = half
    return value


def horizontal_sums(b: Builder, element: Element, result: Element, width: int, values: list[str]) -> list[str]:
    """`horizontal_sum` of each of the vectors, the same bits, and narrowed: two vectors are halved by one addition, and `width` sums narrowed at once."""
    found = []
    for first in range(0, len(values), width):
        group = values[first : first + width]
        count, lanes = len(group), width
        group += [group[-1]] * (-count % width)
        type_ = vector(element.compute, width)
        while lanes > 1:
            half = lanes // 2
            # Each vector holds sums of width / lanes outputs, `lanes` lanes each; two become one.
            orders = [
                ", ".join(f"i32 {v * width + at + start + lane}" for v in (0, 1) for at in range(0, width, lanes) for lane in range(half))
                for start in (0, half)
            ]
            halves = [
                [b.op(f"shufflevector {type_} {x}, {type_} {y}, <{width} x i32> <{order}>") for order in orders]
                for x, y in zip(group[::2], group[1::2], strict=True)
            ]  # fmt: skip
            group = [element.add(b, width, low, high) for low, high in halves]
            lanes = half
        narrow = result.narrow(b, width, group[0])
        found += [b.op(f"extractelement {vector(result.memory, width)} {narrow}, i32 {at}") for at in range(count)]
    return found
