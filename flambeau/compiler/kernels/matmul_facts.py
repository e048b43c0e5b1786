"""Matrix products: what all their kernels share: the facts that a text depends on, batch items, the epilogue."""

from __future__ import annotations

from dataclasses import dataclass

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.kernels.matmul_element import Element, Tile


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
    with b.for_(first, b.add(last, 1)) as index:
        start = b.mul(index, per)
        low = b.max("0", b.sub(merged_range[0], start))
        high = b.min(per, b.sub(merged_range[1], start))
        values = ["%args", b.add(b.mul(batch, merged), index), low, high, *other]
        b.call("void", "epilogue", list(zip(["ptr", *["i64"] * 5], values, strict=True)), declare=False)
