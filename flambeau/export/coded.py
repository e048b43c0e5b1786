"""Products with weights of 8 and 4 bits in a program: the operators that `ops.coded.coded_linear` is exported as, found again in a graph.

A program has ATen's operators only, so that everybody can read it: the codes become a float weight, which is multiplied. Who runs it here calls
`coded_linear` in their place, which reads the codes as they lie.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from flambeau import dtypes
from flambeau.composed.coded import CODED_BLOCK, coded_linear, is_group
from flambeau.export.shapes import layout_of
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node
from flambeau.tensor import Tensor


class Product(NamedTuple):
    """The arguments of `coded_linear`; tensors are nodes."""

    input: Node
    codes: Node
    scales: Node
    zeros: Node
    bits: int
    group: int
    bias: Any


def products(graph: Graph) -> tuple[dict[Node, Product], set[Node]]:
    """(the products by the node whose value they are, the nodes that nothing needs any more)."""
    found: dict[Node, Product] = {}
    inside: set[Node] = set()
    for node in graph.nodes:
        if _is(node, "linear"):
            steps: list[Node] = []
            product = _product(node, steps)
            if product is not None:
                found[node] = product
                inside.update(steps)
    needed = {n for node in graph.nodes if node not in inside and node not in found for n in node.all_input_nodes}
    dead: set[Node] = set()
    for node in reversed(list(graph.nodes)):
        if node in inside and node not in needed and all(user in dead or user in found for user in node.users):
            dead.add(node)
    return found, dead


def _product(linear: Node, steps: list[Node]) -> Product | None:
    """What a linear node multiplies, if its weight is made of codes as `coded_linear` is exported; the nodes on the way in `steps`."""
    input, weight, *rest = linear.args
    flat = _step(weight, "view", steps)
    scaled = flat and _step(flat.args[0], "mul", steps)
    moved = scaled and _step(scaled.args[0], "sub", steps)
    scale, zero = scaled and _step(scaled.args[1], "unsqueeze", steps), moved and _step(moved.args[1], "unsqueeze", steps)
    floats = moved and _step(moved.args[0], "to", steps)
    grouped = floats and _step(floats.args[0], "view", steps)
    if not (flat and floats and grouped and scale and zero) or scale.args[1:] != (-1,) or zero.args[1:] != (-1,) or floats.args[1:] != (dtypes.float32,):
        return None
    codes, bits = grouped.args[0], 8
    pairs = _step(codes, "stack", steps)
    if pairs:
        codes, bits = _pairs(pairs, grouped.args[1][-1], steps), 4
    made = Product(input, codes, scale.args[0], zero.args[0], bits, grouped.args[1][-1], rest[0] if rest else linear.kwargs.get("bias"))
    return made if _fits(made) else None


def _pairs(stack: Node, group: int, steps: list[Node]) -> Any:
    """The bytes whose halves are put together; None if they are others."""
    parts = stack.args[0]
    if stack.args[1:] != (2,) or not isinstance(parts, (list, tuple)) or len(parts) != 2:
        return None
    low, high = _step(parts[0], "bitwise_and", steps), _step(parts[1], "bitwise_right_shift", steps)
    halves = low and _step(low.args[0], "view", steps)
    if not (high and halves) or low.args[1:] != (15,) or high.args != (halves, 4) or halves.args[1][-1] != min(group, CODED_BLOCK) // 2:
        return None
    return halves.args[0]


def _fits(p: Product) -> bool:
    """Whether these are codes, scales and zero points that `coded_linear` takes."""
    values = [n.meta.get("val") if isinstance(n, Node) else None for n in (p.codes, p.scales, p.zeros, p.input)]
    tensors = [layout_of(v) for v in values if isinstance(v, Tensor)]
    if len(tensors) != len(values) or not isinstance(p.group, int) or not is_group(p.group):
        return False
    codes, scales, zeros, input = tensors
    if codes.ndim != 2 or not all(isinstance(n, int) for n in codes.shape):
        return False
    shape = (codes.shape[0], codes.shape[1] * 8 // p.bits // p.group)
    floats = all(m.dtype is dtypes.float32 for m in (scales, zeros, input))
    return floats and codes.dtype is dtypes.uint8 and tuple(scales.shape) == tuple(zeros.shape) == shape and codes.shape[1] * 8 // p.bits == shape[1] * p.group


def _step(x: Any, name: str, steps: list[Node]) -> Any:
    """The node, if it is a call of this operator of aten; else None."""
    if not _is(x, name):
        return None
    steps.append(x)
    return x


def _is(x: Any, name: str) -> bool:
    return isinstance(x, Node) and x.op == "call_function" and str(x.target).startswith(f"aten.{name}.") and not x.kwargs.keys() - {"bias"}


__all__ = ["Product", "coded_linear", "products"]
