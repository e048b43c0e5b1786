"""Matrix products: many small ones, whose columns fit some vectors.

    c[i] (m x n) = a[i] (m x k) @ b[i] (k x n),  for each batch item i

A unit is one batch item. Rows of b are read where they lie, as vectors of columns; elements of a are broadcast. `height` rows of c stay in
registers while they run through k, one multiply-add a term in the order of k, as in the micro-kernel (matmul_micro.py); where `height` does
not divide m, the last rows start earlier and some are computed twice. There are no blocks and nothing is packed: what such products cost in the blocked
kernel are its loops (measured, one thread, Granite Rapids, ns an item: 4 x 4 x 4 41, 8 x 8 x 8 58, 16 x 16 x 16 117, of which multiply-adds 3, 12, 47).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernels.matmul_blocking import longest_k_block
from flambeau.compiler.kernels.matmul_element import Element, Facts, batch_addresses
from flambeau.compiler.tile.contract import Operands, contract
from flambeau.runtime.target import Target
from flambeau.symbols import roughly_over

LEAST_ITEMS = 16  # batch items: fewer are spread over threads by the blocked product
MOST_ROWS = 64
MOST_VECTORS = 4
ITEM_OPERATIONS = 2048  # what an item costs besides its operations, in operations: about 10 ns
_MOST_HEIGHT = {1: 8, 2: 8, 3: 8, 4: 6}  # rows at once, by vectors: accumulators, a row of b and a broadcast in 32 registers
_MOST_HEIGHT_OF_16 = {1: 8, 2: 4, 3: 3, 4: 2}  # in 16 registers


# Words of products that the body has no use for: an item is so short that they would show.
UNREAD = frozenset(("b_column", "c_column", "rows_per_batch", "splits", "k_total"))


def is_small(element: Element, facts: Facts, m: int, n: int, k: int, batches: int, host: Target) -> bool:
    """Whether products of these sizes are done here. K is one block of the blocked product: the bits are the same."""
    return (
        element.parts == 1 and not element.converts and facts.b_unit == "lane" and facts.c_unit == "column" and roughly_over(batches, LEAST_ITEMS - 1)
        and 0 < k <= longest_k_block(element, host) and not roughly_over(m, MOST_ROWS) and n <= MOST_VECTORS * facts.tile.width
    )  # fmt: skip


def height_of(m: int, vectors: int, registers: int) -> int:
    """Rows at once: of the heights that the registers hold, the one with the fewest rows in all; of these the largest."""
    most = (_MOST_HEIGHT if registers >= 32 else _MOST_HEIGHT_OF_16)[vectors]
    return min(range(1, min(m, most) + 1), key=lambda height: (-(-m // height) * (height + 1), -height))


def small_body(facts: Facts, vectors: int, height: int, b: Builder, w: dict[str, str]) -> None:
    """The body for rows of c of `vectors` vectors, the last one masked, `height` at a time."""
    element, width = facts.element, facts.tile.width
    memory, size = element.memory, element.memory_bytes
    mask = b.tail_mask(b.sub(w["n"], (vectors - 1) * width), width)
    type_ = vector(element.compute, width)
    last = b.sub(w["m"], height)

    def row_of(pointer: str) -> list[str]:
        found = [b.load(vector(memory, width), b.gep(memory, pointer, v * width), size) for v in range(vectors - 1)]
        return [*found, b.masked_load(memory, width, b.gep(memory, pointer, (vectors - 1) * width), mask, size)]

    with b.for_("%begin", "%end") as batch:
        a, bb, c = batch_addresses(b, facts, w, batch)
        with b.for_(0, w["m"], height) as start:
            first = b.min(start, last)
            lefts = [b.gep(memory, a, b.mul(b.add(first, i), w["a_row"])) for i in range(height)]

            def term(k: str) -> Iterator[Operands[str, str]]:
                right = row_of(b.gep(memory, bb, b.mul(k, w["b_row"])))
                column = b.mul(k, w["a_column"])
                yield (b.splat(element.compute, width, b.load(memory, b.gep(memory, left, column), size)) for left in lefts), right

            sums = contract(b, w["k"], [(type_, element.zero(width))] * (height * vectors), add=partial(element.multiply_add, b, width), read=term)
            for i in range(height):
                to = b.gep(memory, c, b.mul(b.add(first, i), w["c_row"]))
                for v in range(vectors - 1):
                    b.store(type_, sums[i * vectors + v], b.gep(memory, to, v * width), size)
                b.masked_store(memory, width, sums[i * vectors + vectors - 1], b.gep(memory, to, (vectors - 1) * width), mask, size)
