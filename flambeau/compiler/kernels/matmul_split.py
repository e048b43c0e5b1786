"""Matrix products with few outputs and a long K: K is cut into parts, whose products are added in their order.

Without it such a product has too few tiles for the threads. The number of parts depends on sizes only, so the result
does not depend on the number of threads. The first kernel is any of the others, with the parts as its innermost batch
dim and a temporary (parts, m, n) as its result; the second one, below, adds the parts up and runs the epilogue.
"""

from __future__ import annotations

from flambeau.compiler.emit.builder import Builder, vector
from flambeau.compiler.kernels.matmul_element import Element, Facts, call_epilogue
from flambeau.symbols import maximum, minimum

MOST_PARTS = 16
_TILES = 32  # tiles that are enough for the threads of a machine of some size ...
_TILE = 448  # ... of this many outputs: AVX-512's 14 x 32 (the same everywhere, so that results differ less)
_MOST_OUTPUTS = 1 << 18  # more outputs never cut K: an extra pass over them would cost more than 1 % of the product
READ_BY_SUM = frozenset("a c m n splits c_row c_column rows_per_batch".split())  # words of products; "a": the temporary
_CHUNK = 64  # rows between two calls of the epilogue


def count_parts(element: Element, m: int, n: int, k: int, batches: int, by_vectors: bool) -> int | None:
    """Into how many parts K is cut, or None for a product in one kernel. A part keeps enough work: 2048 steps, or 32768 for a few vectors
    times a matrix (bound by memory).

    For many rows, K alone says whether there are two kernels (of one part, perhaps), so that another batch needs no others.
    """
    if element.converts or element.parts == 2 or batches > 1:
        return None
    if by_vectors:
        if k < 2 * 32768:
            return None
        parts = minimum(MOST_PARTS, _TILES // -(-n // 8), k // 32768)
        return parts if parts > 1 else None
    if k < 4096 or m * n > _MOST_OUTPUTS:
        return None
    return maximum(1, minimum(MOST_PARTS, _TILES // -(-m * n // _TILE), k // 2048))


def sum_body(facts: Facts, has_epilogue: bool, b: Builder, w: dict[str, str]) -> None:
    """The body: c = the sum of the parts, from the first to the last. A unit is a row."""
    element, width = facts.element, facts.tile.width
    type_, size = vector(element.compute, width), element.compute_bytes
    elements = b.mul(w["m"], w["n"])
    with b.for_("%begin", "%end", _CHUNK) as first:
        end = b.min("%end", b.add(first, _CHUNK))
        with b.for_(first, end) as i:
            source = b.gep(element.compute, w["a"], b.mul(i, w["n"]))
            target = b.gep(element.memory, w["c"], b.mul(i, w["c_row"]))
            if facts.c_unit == "column" and width > 1:
                with b.for_(0, w["n"], width) as j:
                    mask = b.tail_mask(b.sub(w["n"], j), width)
                    start = b.masked_load(element.compute, width, b.gep(element.compute, source, j), mask, size)

                    def part(p: str, total: str) -> list[str]:
                        at = b.gep(element.compute, source, b.add(b.mul(p, elements), j))
                        return [element.add(b, width, total, b.masked_load(element.compute, width, at, mask, size))]

                    total = b.loop(1, w["splits"], 1, part, [(type_, start)])[0]
                    b.masked_store(element.memory, width, total, b.gep(element.memory, target, j), mask, size)
            else:
                with b.for_(0, w["n"]) as j:
                    at = b.gep(element.compute, source, j)

                    def part(p: str, total: str) -> list[str]:
                        value = b.load(element.compute, b.gep(element.compute, at, b.mul(p, elements)), size)
                        return [element.add(b, 1, total, value)]

                    total = b.loop(1, w["splits"], 1, part, [(element.compute, b.load(element.compute, at, size))])[0]
                    b.store(element.memory, total, b.gep(element.memory, target, b.mul(j, w["c_column"])), size)
        if has_epilogue:
            call_epilogue(b, facts, w, "0", (first, end), ("0", w["n"]))
