"""Sums of gradients: what several uses of one value contribute to its gradient, put together when all of them are known.

Whole gradients are added as they come. Gradients of slices wait, and become one concatenation (with zeros where nobody
looked) instead of zeros, a write and an addition for each slice. Products by one matrix in many places of one call (a recurrent
layer's weight, one use a time step) wait, and become one product of the concatenated factors.

Each element is the sum of what was given to it, in the order in which it was given. So the bits do not depend on where a trace ends: what waits across
calls (slices) is added as if it had not, and what is put together otherwise (products) belongs to one call.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flambeau.compiler.graph import Node, Value

if TYPE_CHECKING:
    from flambeau.autograd.differentiate import Index
    from flambeau.tensor import Tensor

# From so many products with one matrix on, and up to so many rows each, their factors are concatenated: below, the copies
# cost more than they save.
FEWEST_PRODUCTS = 4
MOST_ROWS = 512

Piece = tuple[int, int, int, Any]  # start, length, call, gradient


class Layer:
    """Gradients of slices along one dim that do not meet."""

    __slots__ = ("dim", "pieces")

    def __init__(self, dim: int, piece: Piece) -> None:
        self.dim = dim
        self.pieces = [piece]

    def meets(self, dim: int, start: int, length: int) -> bool:
        """Whether a slice would share an element with one of them."""
        if dim != self.dim:
            return True
        i = bisect_right(self.pieces, start, key=_start)
        before, after = self.pieces[i - 1] if i else None, self.pieces[i] if i < len(self.pieces) else None
        return (before is not None and before[0] + before[1] > start) or (after is not None and after[0] < start + length)


def _start(piece: Piece) -> int:
    return piece[0]


class Gradients:
    """The gradients that are known so far, by slot. `pop` and `settle` give their sums.

    `index`: of the nodes (differentiate.py); its `calls` are the first slots of the calls that they belong to, in order. `same`: slots that are one value with
    an earlier slot, which gets their gradients.
    """

    def __init__(self, known: dict[int, Tensor], index: Index, value: Any, same: Mapping[int, int]) -> None:
        self.known = known
        self.value = value
        self.index = index
        self.same = same
        self.calls = index.calls
        self.call = len(self.calls)
        self.layers: dict[int, list[Layer]] = {}
        self.factors: dict[int, list[tuple[Tensor, Tensor]]] = {}

    def __contains__(self, slot: int) -> bool:
        return slot in self.known or slot in self.layers or slot in self.factors

    def _call_of(self, node: Node) -> int:
        return bisect_right(self.calls, node.outputs[0])

    def enter(self, node: Node) -> None:
        """The pass has come to this node: of the calls after its own nothing waits but slices."""
        if self.call and node.outputs[0] < self.calls[self.call - 1]:
            self.call = self._call_of(node)
            for slot in list(self.factors):
                self.settle(slot)

    def add(self, slot: int, gradient: Tensor) -> None:
        """A gradient of the whole value."""
        slot = self.same.get(slot, slot)
        if slot in self.layers:
            self._settle_slices(slot)
        before = self.known.get(slot)
        self.known[slot] = gradient if before is None else before + gradient

    def add_slice(self, node: Node, gradient: Tensor) -> bool:
        """The gradient of a slice or a selected index, if its place is known now."""
        if len(node.inputs) != 1 or node.op not in ("slice", "select"):
            return False
        slot, attrs = self.same.get(node.inputs[0], node.inputs[0]), dict(node.attrs)
        dim = attrs["dim"]
        if node.op == "select":
            start, length, gradient = attrs["index"], 1, gradient.unsqueeze(dim)
        elif attrs["step"] == 1:
            start, length = attrs["start"], attrs["length"]
        else:
            return False
        if not length:
            self.add(slot, zeros(self.value(slot)))
            return True
        layers = self.layers.setdefault(slot, [])
        last = max([i for i, layer in enumerate(layers) if layer.meets(dim, start, length)], default=-1)
        piece = (start, length, self._call_of(node), gradient)
        if last + 1 < len(layers):
            insort(layers[last + 1].pieces, piece, key=_start)
        else:
            layers.append(Layer(dim, piece))
        return True

    def takes_product(self, node: Node) -> bool:
        """Whether the gradient of the product's second factor shall wait for those of other products by it."""
        a = self.value(node.inputs[0])
        return self.index.products[self._call_of(node), node.inputs[1]] >= FEWEST_PRODUCTS and len(a.shape) == 2 and a.shape[0] <= MOST_ROWS

    def add_product(self, slot: int, a: Tensor, gradient: Tensor) -> None:
        """The gradient a^T @ gradient."""
        self.factors.setdefault(self.same.get(slot, slot), []).append((a, gradient))

    def pop(self, slot: int) -> Tensor | None:
        """The sum of a slot's gradients, or None if it has none."""
        self.settle(slot)
        return self.known.pop(slot, None)

    def settle_all(self) -> None:
        """Leave nothing waiting."""
        for slot in (*self.layers, *self.factors):
            self.settle(slot)

    def settle(self, slot: int) -> None:
        """Put what waits for this slot together."""
        from flambeau.ops import primitives as prim

        if slot in self.layers:
            self._settle_slices(slot)
        factors = self.factors.pop(slot, None)
        if factors is not None:
            a, g = factors[0]
            if len(factors) > 1:
                # The last step's gradient came first: in the order of time, as the input's gradient has them, too.
                a, g = (prim.concatenate(*parts, dim=0) for parts in zip(*reversed(factors), strict=True))
            a = a.transpose(0, 1)
            self.add(slot, prim.matmul(a.conj() if a._meta.dtype.is_complex else a, g))

    def _settle_slices(self, slot: int) -> None:
        layers = self.layers.pop(slot)
        # To add the gradients of several calls is to add zeros elsewhere, which makes 0.0 of -0.0: so it is where no addition is left.
        alone = slot not in self.known and len(layers) == 1 and len({call for _, _, call, _ in layers[0].pieces}) > 1
        for layer in layers:
            self.add(slot, _concatenation(self.value(slot), layer, alone))


def _concatenation(value: Value, layer: Layer, add_zero: bool) -> Any:
    """The pieces of a layer side by side, zeros between them."""
    from flambeau.ops import primitives as prim

    dim = layer.dim
    size = value.shape[dim]
    parts = []
    end = 0
    for start, length, _, gradient in layer.pieces:
        if start > end:
            parts.append(zeros(value, (*value.shape[:dim], start - end, *value.shape[dim + 1 :])))
        parts.append(gradient + 0 if add_zero else gradient)
        end = start + length
    if size > end:
        parts.append(zeros(value, (*value.shape[:dim], size - end, *value.shape[dim + 1 :])))
    return parts[0] if len(parts) == 1 else prim.concatenate(*parts, dim=dim)


def zeros(value: Value, shape: tuple[int, ...] | None = None) -> Any:
    """Zeros of this value's dtype, and of its shape unless another is given."""
    from flambeau.ops import primitives as prim
    from flambeau.ops.primitive import constant

    return prim.expand(constant(0, value.dtype), shape=value.shape if shape is None else shape)
