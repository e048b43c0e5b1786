"""Sums of gradients: what several uses of one value contribute to its gradient, put together when all of them are known.

Whole gradients are added as they come. Gradients of slices wait, and become one concatenation (with zeros where nobody
looked) instead of zeros, a write and an addition for each slice. Products by one matrix in many places (a recurrent layer's
weight, one use a time step) wait, and become one product of the concatenated factors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.compiler.graph import Node, Value

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

# From so many products with one matrix on, and up to so many rows each, their factors are concatenated: below, the copies
# cost more than they save.
FEWEST_PRODUCTS = 4
MOST_ROWS = 512

Piece = tuple[int, int, int, Any]  # dim, start, length, gradient


class Gradients:
    """The gradients that are known so far, by slot. `pop` and `settle` give their sums."""

    def __init__(self, known: dict[int, Tensor], nodes: Sequence[Node], value: Any) -> None:
        self.known = known
        self.value = value
        self.pieces: dict[int, list[Piece]] = {}
        self.factors: dict[int, list[tuple[Tensor, Tensor]]] = {}
        self.products = Counter([node.inputs[1] for node in nodes if node.op == "matmul"])

    def __contains__(self, slot: int) -> bool:
        return slot in self.known or slot in self.pieces or slot in self.factors

    def add(self, slot: int, gradient: Tensor) -> None:
        """A gradient of the whole value."""
        before = self.known.get(slot)
        self.known[slot] = gradient if before is None else before + gradient

    def add_slice(self, node: Node, gradient: Tensor) -> bool:
        """The gradient of a slice or a selected index, if its place is known now."""
        if len(node.inputs) != 1 or node.op not in ("slice", "select"):
            return False
        attrs = dict(node.attrs)
        dim = attrs["dim"]
        if node.op == "select":
            piece = (dim, attrs["index"], 1, gradient.unsqueeze(dim))
        elif attrs["step"] == 1:
            piece = (dim, attrs["start"], attrs["length"], gradient)
        else:
            return False
        if piece[2]:
            self.pieces.setdefault(node.inputs[0], []).append(piece)
        else:
            self.add(node.inputs[0], zeros(self.value(node.inputs[0])))
        return True

    def takes_product(self, node: Node) -> bool:
        """Whether the gradient of the product's second factor shall wait for those of other products by it."""
        a = self.value(node.inputs[0])
        return self.products[node.inputs[1]] >= FEWEST_PRODUCTS and len(a.shape) == 2 and a.shape[0] <= MOST_ROWS

    def add_product(self, slot: int, a: Tensor, gradient: Tensor) -> None:
        """The gradient a^T @ gradient."""
        self.factors.setdefault(slot, []).append((a, gradient))

    def pop(self, slot: int) -> Tensor | None:
        """The sum of a slot's gradients, or None if it has none."""
        self.settle(slot)
        return self.known.pop(slot, None)

    def settle_all(self) -> None:
        """Leave nothing waiting."""
        for slot in (*self.pieces, *self.factors):
            self.settle(slot)

    def settle(self, slot: int) -> None:
        """Put what waits for this slot together."""
        from flambeau.ops import primitives as prim

        factors = self.factors.pop(slot, None)
        if factors is not None:
            a, g = factors[0]
            if len(factors) > 1:
                # The last step's gradient came first: in the order of time, as the input's gradient has them, too.
                a, g = (prim.concatenate(*parts, dim=0) for parts in zip(*reversed(factors), strict=True))
            a = a.transpose(0, 1)
            self.add(slot, prim.matmul(a.conj() if a._meta.dtype.is_complex else a, g))
        pieces = self.pieces.pop(slot, None)
        if pieces is not None:
            for layer in _layers(pieces):
                self.add(slot, _concatenation(self.value(slot), layer))


def _layers(pieces: list[Piece]) -> list[list[Piece]]:
    """The pieces in few layers: those of a layer lie along one dim and do not meet; pieces at one place are added."""
    at: dict[tuple[int, int, int], Any] = {}
    for dim, start, length, gradient in pieces:
        before = at.get((dim, start, length))
        at[dim, start, length] = gradient if before is None else before + gradient
    layers: list[list[Piece]] = []
    for dim, start, length in sorted(at):
        piece = (dim, start, length, at[dim, start, length])
        for layer in layers:
            last = layer[-1]
            if last[0] == dim and last[1] + last[2] <= start:
                layer.append(piece)
                break
        else:
            layers.append([piece])
    return layers


def _concatenation(value: Value, layer: list[Piece]) -> Any:
    """The pieces of a layer side by side, zeros between them."""
    from flambeau.ops import primitives as prim

    dim = layer[0][0]
    size = value.shape[dim]
    parts = []
    end = 0
    for _, start, length, gradient in layer:
        if start > end:
            parts.append(zeros(value, (*value.shape[:dim], start - end, *value.shape[dim + 1 :])))
        parts.append(gradient)
        end = start + length
    if size > end:
        parts.append(zeros(value, (*value.shape[:dim], size - end, *value.shape[dim + 1 :])))
    return parts[0] if len(parts) == 1 else prim.concatenate(*parts, dim=dim)


def zeros(value: Value, shape: tuple[int, ...] | None = None) -> Any:
    """Zeros of this value's dtype, and of its shape unless another is given."""
    from flambeau.ops import primitives as prim
    from flambeau.ops.primitive import constant

    return prim.expand(constant(0, value.dtype), shape=value.shape if shape is None else shape)
