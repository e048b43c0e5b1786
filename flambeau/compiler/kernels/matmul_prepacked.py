"""Matrix products that share an operand: it is packed once, by a kernel of its own, for all of them.

The steps of a recurrent network multiply a few rows each by one weight. Packing it takes longer than such a product on the
matrix unit, so that without this they would be done by multiply-adds. `Prepacked` finds the operands in a graph;
`pack_kernel` packs one into a value that only kernels know, which lies in the arena until the last product has read it.

    panels of the first block of K (kc), of the second, ...       as matmul_parts_pack.py and matmul_tile_pack.py make them
    the panels' extents, in the same order                        (float32 by parts only)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from flambeau.compiler.emit.builder import Builder
from flambeau.compiler.graph import Graph, Node, Value
from flambeau.compiler.kernel import Address, Kernel, Word
from flambeau.compiler.kernels.description import describe
from flambeau.compiler.kernels.matmul_blocking import ceil_div
from flambeau.compiler.kernels.matmul_driver import PACK, PACK_PARTS
from flambeau.compiler.kernels.matmul_element import Facts, element_of, register_tile
from flambeau.compiler.kernels.matmul_halves import form_of
from flambeau.compiler.kernels.matmul_parts import parts_k_block, parts_pay
from flambeau.compiler.kernels.matmul_parts_pack import STEP as PARTS_STEP
from flambeau.compiler.kernels.matmul_tile_pack import LANES, STEP_BYTES, tile_pack_function
from flambeau.compiler.kernels.matmul_tiles import tile_k_block
from flambeau.dtypes import uint8
from flambeau.symbols import maximum

if TYPE_CHECKING:
    from flambeau.compiler.kernels.matmul import Operand

# Packing costs about as much as two products of 32 rows save: so many products, or two and more with so many rows in all.
FEWEST_USES: Final = 4
_FEWEST_ROWS: Final = 128
# Rows of a product: fewer leave half of a tile empty, of more the packing is a small part.
ROWS: Final = range(16, 513)
_FEWEST_ELEMENTS: Final = 64 * 64
_FEWEST_K: Final = 24
_Key = tuple[int, int, tuple[tuple[int, int], ...], int, int, int, int]  # root, offset, dynamic, k, n, their strides


@dataclass(slots=True)
class Panels:
    """An operand's panels. `value`: the graph's, of bytes; `extents`: their offset in it."""

    value: int
    count: int  # of a block of K
    extents: int


class Prepacked:
    """The operands of a graph's products that several products share, and their panels."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._units = graph.target.matrix_dtypes
        self._panels: dict[_Key, Panels] = {}
        self._operands: dict[int, tuple[_Key, bool]] = {}  # node: its shared operand, and whether it is the left one
        operands = {i: [(key, left) for left in (False, True) if (key := self._key(node.inputs, left)) is not None] for i, node in self._products()}
        products = Counter([key for keys in operands.values() for key, _ in keys])
        uses: Counter[_Key] = Counter()
        rows: Counter[_Key] = Counter()
        # Sizes are asked for where something is shared only: each question narrows the sizes that a plan over symbols serves.
        found = {i: [(key, left) for key, left in keys if products[key] > 1 and self._helped(i, key, left)] for i, keys in operands.items()}
        for index, keys in found.items():
            for key, left in keys:
                uses[key] += 1
                rows[key] += self._rows(index, key, left)
        for index, keys in found.items():
            best = max(keys, key=lambda known: uses[known[0]], default=None)
            if best is not None and (uses[best[0]] >= FEWEST_USES or (uses[best[0]] > 1 and rows[best[0]] >= _FEWEST_ROWS)):
                self._operands[index] = best

    def _products(self) -> list[tuple[int, Node]]:
        return [(i, node) for i, node in enumerate(self._graph.nodes) if node.op == "matmul"] if self._units else []

    def _rows(self, node: int, key: _Key, left: bool) -> int:
        """The rows of a product, where its shared operand is the right one."""
        other = self._graph.values[self._graph.nodes[node].inputs[1 if left else 0]]
        return other.numel // key[3] if key[3] else 0

    def _helped(self, node: int, key: _Key, left: bool) -> bool:
        """Whether a product gains by panels of its operand, and has the same bits with and without them: it is computed in the same form, and halves
        the same way round. (Whether others share an operand depends on what is planned together, and bits must not.)"""
        _, _, _, k, n, _, _ = key
        rows = self._rows(node, key, left)
        if not (ROWS.start <= rows < ROWS.stop and k >= _FEWEST_K and k * n >= _FEWEST_ELEMENTS):
            return False
        from flambeau.compiler.kernels.matmul import normalise

        values, inputs = self._graph.values, self._graph.nodes[node].inputs
        if values[inputs[0]].dtype.name != "float32":
            return True
        output = self._graph.nodes[node].outputs[0]
        return parts_pay(rows, n, k) and (form_of(self._graph.target, k).is_exact or normalise(self._graph, inputs[0], inputs[1], output).exchanged is left)

    def _key(self, inputs: tuple[int, ...], left: bool) -> _Key | None:
        """What the panels of an operand depend on; None if it is of a kind that has none."""
        values = self._graph.values
        shared, other = (values[inputs[0]], values[inputs[1]]) if left else (values[inputs[1]], values[inputs[0]])
        name = shared.dtype.name
        if name not in self._units and not (name == "float32" and "bfloat16" in self._units):
            return None
        if (left and len(other.shape) > 2) or any(size > 1 and stride for size, stride in zip(shared.shape[:-2], shared.strides[:-2], strict=True)):
            return None
        k, n = (shared.shape[-1], shared.shape[-2]) if left else shared.shape[-2:]
        strides = shared.strides[-2:]
        along_k, along_n = (strides[1], strides[0]) if left else strides
        return self._graph.root(inputs[0 if left else 1]), shared.offset, shared.dynamic, k, n, along_k, along_n

    def is_left(self, node: int) -> bool | None:
        """Whether the shared operand of a product is its left one; None if there is none."""
        known = self._operands.get(node)
        return None if known is None else known[1]

    def panels(self, node: int, operand: Operand) -> tuple[Panels, list[Kernel]]:
        """The panels of a product's right operand, in normal form, and, for the first one to ask, the kernel that packs them."""
        key, _ = self._operands[node]
        if key in self._panels:
            return self._panels[key], []
        _, _, _, k, n, along_k, along_n = key
        panels, kernel = pack_kernel(self._graph, node, operand, k, n, along_k, along_n)
        self._panels[key] = panels
        return panels, [kernel]


def pack_kernel(graph: Graph, node: int, operand: Operand, k: int, n: int, along_k: int, along_n: int) -> tuple[Panels, Kernel]:
    """The kernel that packs a k x n operand. A unit is a panel."""
    from flambeau.compiler.kernels.matmul import unit_stride

    element = element_of(graph.values[operand.root].dtype)
    host = graph.target
    unit = unit_stride(along_n, along_k, n, k)
    facts = Facts(element, register_tile(element, host.vector_bits, host.registers), host.vector_bits, "any", unit, "any", 2, False)
    form = form_of(host, k) if element.name == "float32" else None
    step, step_bytes = (64 // element.itemsize, STEP_BYTES) if form is None else (PARTS_STEP, form.step_bytes)
    kc = tile_k_block(element, k) if form is None else parts_k_block(k)
    count = ceil_div(n, LANES)
    extents = count * ceil_div(k, step) * step_bytes
    slot_bytes = 0 if form is None else form.slot_bytes
    size = extents + count * ceil_div(k, kc) * slot_bytes
    value = graph.add_value(Value((size,), uint8, (1,)))
    words: dict[str, Word] = {
        "b": operand.word, "packed": Address(value), "b_row": along_k, "b_column": along_n, "n": n, "k": k, "kc": kc,
        "panels": count, "extents": extents, "pack_b": tile_pack_function(facts, "b") if form is None else form.pack(facts, "b"),
    }  # fmt: skip
    key = f"matmul:prepack:{f'tiles:{element.itemsize}' if form is None else form.name}:{facts.vector_bits}"
    kernel = describe(
        f"matmul_pack_{element.name}", key, partial(_body, facts, step, step_bytes, slot_bytes), words, reads=(operand.root,), writes=(value,), units=count,
        bytes=k * n * element.itemsize + size, nodes=(node,), min_units_per_thread=maximum(1, (256 << 10) // (LANES * k * element.itemsize)),
    )  # fmt: skip
    return Panels(value, count, extents), kernel


def _body(facts: Facts, step: int, step_bytes: int, slot_bytes: int, b: Builder, w: dict[str, str]) -> None:
    memory = facts.element.memory
    first = b.mul("%begin", LANES)
    columns = b.sub(b.min(w["n"], b.mul("%end", LANES)), first)
    source = b.gep(memory, w["b"], b.mul(first, w["b_column"]))
    with b.for_(0, w["k"], w["kc"]) as k0:
        k = b.min(w["kc"], b.sub(w["k"], k0))
        steps = b.op(f"udiv i64 {b.add(k, step - 1)}, {step}")
        panels_before = b.mul(b.op(f"udiv i64 {k0}, {step}"), w["panels"])
        at = b.mul(b.add(panels_before, b.mul("%begin", steps)), step_bytes)
        values = [b.gep(memory, source, b.mul(k0, w["b_row"])), w["b_column"], w["b_row"], columns, k, b.gep("i8", w["packed"], at)]
        if slot_bytes:
            number = b.add(b.mul(b.op(f"udiv i64 {k0}, {w['kc']}"), w["panels"]), "%begin")
            values.append(b.gep("i8", w["packed"], b.add(w["extents"], b.mul(number, slot_bytes))))
        b.invoke(w["pack_b"], PACK_PARTS if slot_bytes else PACK, *values)


__all__ = ["FEWEST_USES", "ROWS", "Panels", "Prepacked", "pack_kernel"]
