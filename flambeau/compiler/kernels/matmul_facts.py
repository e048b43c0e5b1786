"""Matrix products: what all their kernels share: the facts that a text depends on, words, batch items, the epilogue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernel import Word
from flambeau.compiler.kernels.matmul_element import Element, Tile
from flambeau.runtime.target import Target

# Words that are addresses; from "tile" on, of functions.
POINTERS = frozenset((
    "a", "b", "c", "packed", "scratch", "tile", "pack_a", "pack_b", "parts_a", "parts_b", "parts_tiles", "parts_store",
    "halves_a", "halves_b", "halves_tiles", "halves_otherwise",
))  # fmt: skip


class Epilogue(Protocol):
    """Pointwise nodes applied to finished rectangles of the product (compiler/lower)."""

    key: str
    words: list[Word]

    def emit(self, name: str, first_word: int, target: Target) -> str:
        """Text of `void @name(ptr %args, i64 %batch, i64 %row0, i64 %row1, i64 %col0, i64 %col1)`."""
        ...

    def declarations(self, target: Target) -> list[str]:
        """What the text needs declared."""
        ...


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that the generated text of a product depends on, besides the epilogue."""

    element: Element
    tile: Tile
    vector_bits: int
    a_unit: str  # which stride is 1: "lane" (rows of a, columns of b), "k" or "none"
    b_unit: str
    c_unit: str  # which stride of c is 1: "column" (columns are next to each other), "row" or "none"
    batch_dims: int
    exchanged: bool  # computed as b.T @ a.T, into c.T
    direct: bool = False  # micro-kernels may read operands where they lie, with run-time strides (a few per cent slower)
    prepacked: bool = False  # b is in panels already (matmul_prepacked.py)

    @property
    def fetches_b(self) -> bool:
        """Whether micro-kernels that read b where it lies fetch its next panel. (Measured, pieces of 192 bytes of rows of
        4 KiB: 10 to 50 % faster; not worth it for longer pieces.)"""
        return self.direct and self.tile.vectors in (3, 4)

    def key(self) -> str:
        return (
            f"{self.element.key}:{self.tile.key}:a={self.a_unit}:b={self.b_unit}"
            f":c={self.c_unit}:batch={self.batch_dims}{':exchanged' * self.exchanged}{':direct' * self.direct}{':prepacked' * self.prepacked}"
        )


def batch_names(facts: Facts) -> list[str]:
    """Names of the words of the batch dims, outermost first."""
    names = []
    for d in range(facts.batch_dims):
        names += [f"size{d}", f"a_batch{d}", f"b_batch{d}", f"c_batch{d}"]
    return names


def load_words(b: Builder, names: list[str]) -> dict[str, str]:
    """Load every word."""
    return {name: b.load("ptr" if name in POINTERS else "i64", b.gep("i64", "%args", at), 8) for at, name in enumerate(names)}


def batch_addresses(b: Builder, facts: Facts, w: dict[str, str], batch: str) -> tuple[str, str, str]:
    """Addresses of a, b and c of a batch item (row-major number `batch` over the batch dims)."""
    offsets = {"a": "0", "b": "0", "c": "0"}
    rest = batch
    for d in reversed(range(facts.batch_dims)):
        index = rest
        if d:
            index = b.op(f"urem i64 {rest}, {w[f'size{d}']}")
            rest = b.op(f"udiv i64 {rest}, {w[f'size{d}']}")
        for operand in offsets:
            offsets[operand] = b.add(offsets[operand], b.mul(index, w[f"{operand}_batch{d}"]))
    parts, memory = facts.element.parts, {"c": facts.element.result.memory}
    a, bb, c = (b.gep(memory.get(operand, facts.element.memory), w[operand], b.mul(offset, parts)) for operand, offset in offsets.items())
    return a, bb, c


def k_of_batch(b: Builder, w: dict[str, str], batch: str) -> str:
    """K of a batch item. Where K is cut into parts (see matmul_split.py), they are the innermost batch dim."""
    part = b.op(f"urem i64 {batch}, {w['splits']}")
    return b.min(w["k"], b.sub(w["k_total"], b.mul(part, w["k"])))


def call_epilogue(
    b: Builder, facts: Facts, w: dict[str, str], batch: str, rows: tuple[str, str], columns: tuple[str, str]
) -> None:  # fmt: skip
    """Call the epilogue on a rectangle of c. Its rows (its columns, if the operands are exchanged) may run through
    several batch items that were merged into one dim."""
    merged_range, other, size = (columns, rows, w["n"]) if facts.exchanged else (rows, columns, w["m"])
    per = w["rows_per_batch"]
    merged = b.op(f"udiv i64 {size}, {per}")
    first = b.op(f"udiv i64 {merged_range[0]}, {per}")
    last = b.op(f"udiv i64 {b.sub(merged_range[1], 1)}, {per}")

    def item(index: str) -> None:
        start = b.mul(index, per)
        low = b.max("0", b.sub(merged_range[0], start))
        high = b.min(per, b.sub(merged_range[1], start))
        values = ["%args", b.add(b.mul(batch, merged), index), low, high, *other]
        b.call("void", "epilogue", list(zip(["ptr", *["i64"] * 5], values, strict=True)), declare=False)

    b.loop(first, b.add(last, 1), 1, item)
