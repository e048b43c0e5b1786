"""Cheap values that are wanted again long after they were made are computed again, instead of written and read back.

The forward pass of a network makes pointwise values that the backward pass asks for: a standardised row, the parts of a GELU.
Between the two stand matrix products, so that they are never one kernel, and each such value costs a whole array written and
read. Where several of them follow from one array that is in memory anyway, only that array is kept. (Chen, Xu, Zhang and
Guestrin 2016, "Training deep nets with sublinear memory cost", for the idea; here it saves traffic, and every value has the
same bits.) The nodes that compute again are listed in `Graph.late`: `fuse` keeps them away from the kernel that was first.

Levels: a value's level is the number of nodes that are neither pointwise nor views nor reductions on the longest way to it.
A consumer is late for a value if its level is higher: something stands between them that is not fused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from flambeau.compiler import graph as g
from flambeau.compiler.graph import Graph, Node
from flambeau.symbols import roughly_less, roughly_over

# Operations of a computation that is done again, in units of an addition: an array that is written and read back takes some
# 16 cycles a vector from the second-level cache or beyond, an exponential 9 (measured, AVX-512). This is for elements of 4
# bytes: a mask of bytes is rather stored than made again.
MOST_COST: Final = 48
_COST: Final = dict.fromkeys(("exp", "exp_weight", "exp2", "erf", "sigmoid", "tanh", "log", "sin", "cos"), 12) | {
    "sqrt": 6, "rsqrt": 8, "div": 6, "random_uniform": 200,
}  # fmt: skip
_DEARER: Final = 24  # what is left of the functions
_CHEAP: Final = g.COMPARE | frozenset("neg abs sgn floor ceil trunc round add sub mul maximum minimum where cast constant iota".split())
LEAST_ELEMENTS: Final = 1 << 14  # smaller arrays stay in the caches
SMALL: Final = 8  # an array of an eighth of the elements (a row's statistics, a bias) is no array to speak of


def levels(graph: Graph) -> dict[int, int]:
    """The level of every value that a node makes (see above)."""
    level: dict[int, int] = {}
    for node in graph.nodes:
        inputs = max([level.get(i, 0) for i in node.inputs], default=0)
        plain = node.op in g.VIEWS or node.op in g.POINTWISE or node.op in g.REDUCE or node.op in g.REDUCE_PAIR
        for o in node.outputs:
            level[o] = inputs if plain else inputs + 1
    return level


def recompute(graph: Graph) -> Graph:
    """The graph in which late consumers compute cheap values again."""
    values = graph.values
    if not any(roughly_over(v.numel, LEAST_ELEMENTS - 1) for v in values):
        return graph
    return _Pass(graph).run()


class _Pass:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values = graph.values
        self.producer = {o: node for node in graph.nodes for o in node.outputs}
        self.level = levels(graph)
        self.readers: dict[int, list[Node]] = {}  # root -> nodes that read it, directly or through views
        for node in graph.nodes:
            if node.op not in g.VIEWS:
                for root in {graph.root(i) for i in node.inputs}:
                    self.readers.setdefault(root, []).append(node)
        wanted = {graph.root(i) for i in graph.outputs} | {i for _, i in graph.updates}
        self.stored = {o for o, node in self.producer.items() if node.op not in g.POINTWISE and node.op not in g.VIEWS} | wanted
        for root, readers in self.readers.items():
            if root not in self.producer or any(not self._fuses(node) for node in readers):
                self.stored.add(root)
        self.stored |= {rounded for node in graph.nodes if node.op == "matmul" for rounded in self._rounded(node)}

    def _rounded(self, product: Node) -> list[int]:
        """What becomes of a product that is had in a wider dtype (graph.WIDER), once it is rounded: that is kept, not the sum of twice its size."""
        value = product.outputs[0]
        size = self.values[product.inputs[0]].dtype.itemsize
        while self.values[value].dtype.itemsize > size:
            readers = self.readers.get(value, ())
            if len(readers) != 1 or readers[0].op not in g.POINTWISE:
                return []
            value = readers[0].outputs[0]
        return [value] if value != product.outputs[0] else []

    @staticmethod
    def _fuses(node: Node) -> bool:
        if node.op in g.POINTWISE:
            return node.op not in ("take", "searchsorted")
        return node.op in g.REDUCE or node.op in g.REDUCE_PAIR

    def run(self) -> Graph:
        chosen = self._choose()
        return self._rewrite(chosen) if chosen else self.graph

    # -- which values -----------------------------------------------------------------------------------------------
    def _late(self, root: int) -> list[Node]:
        """Readers of a value that something stands between."""
        level = self.level[root]
        return [node for node in self.readers.get(root, ()) if max(self.level[o] for o in node.outputs) > level]

    def _choose(self) -> set[int]:
        by_array: dict[int, list[int]] = {}
        chosen: set[int] = set()
        for node in self.graph.nodes:
            root = node.outputs[0]
            if node.op not in g.POINTWISE or root in self.stored or not roughly_over(self.values[root].numel, LEAST_ELEMENTS - 1):
                continue
            if not self._late(root):
                continue
            cost, arrays = self._cone(root, {})
            if 4 * cost > MOST_COST * self.values[root].dtype.itemsize or len(arrays) > 1:
                self.stored.add(root)  # as it is; what follows from it may be computed again
            elif not arrays:
                chosen.add(root)
            else:
                by_array.setdefault(arrays.pop(), []).append(root)
        for array, roots in by_array.items():
            maker = self.producer.get(array)
            # A product's result that only a fused kernel reads is written over by that kernel: keeping it costs an array too.
            kept = maker is None or maker.op in g.POINTWISE or array in self.graph.outputs or bool(self._late(array))
            kept = kept or any(not self._fuses(reader) for reader in self.readers[array])
            if kept or roughly_less(self._nbytes(array), self._nbytes(*roots)):
                chosen.update(roots)
        return chosen

    def _nbytes(self, *roots: int) -> int:
        return sum([self.values[root].numel * self.values[root].dtype.itemsize for root in roots])

    def _cone(self, value: int, seen: dict[int, None]) -> tuple[int, set[int]]:
        """(cost, large arrays) of computing a value from what is stored."""
        root = self.graph.root(value)
        if root in seen:
            return 0, set()
        seen[root] = None
        node = self.producer.get(root)
        if node is None or root in self.stored:
            return 0, {root} if roughly_over(self.values[root].numel * SMALL, LEAST_ELEMENTS) and self.values[value].numel else set()
        cost, arrays = _cost(node), set()
        for i in node.inputs:
            more, found = self._cone(i, seen)
            cost += more
            arrays |= {r for r in found if not roughly_less(self.values[r].numel * SMALL, self.values[root].numel)}
            if cost > 2 * MOST_COST:  # too much for elements of 8 bytes
                break
        return cost, arrays

    # -- the new graph ----------------------------------------------------------------------------------------------
    def _rewrite(self, chosen: set[int]) -> Graph:
        graph = self.graph
        values = list(graph.values)
        nodes: list[Node] = []
        late: set[int] = set()
        made: dict[tuple[int, int, bool], int] = {}

        def again(value: int, level: int, columns: bool) -> int:
            """The value, computed again for consumers at `level`."""
            root = graph.root(value)
            node = self.producer.get(value)
            if root in self.stored or root not in self.producer or not values[root].shape or node is None:
                return value
            known = made.get((value, level, columns))
            if known is None:
                inputs = tuple([again(i, level, columns) for i in node.inputs])
                copy = values[value]
                if copy.base is not None:
                    copy = replace(copy, base=values[inputs[0]].base if values[inputs[0]].base is not None else inputs[0])
                known = made[value, level, columns] = len(values)
                values.append(copy)
                if node.op not in g.VIEWS:
                    late.add(len(nodes))
                nodes.append(Node(node.op, inputs, (known,), node.attrs))
            return known

        for node in graph.nodes:
            if node.op not in g.VIEWS:
                level = max(self.level[o] for o in node.outputs)
                wanted = [graph.root(i) in chosen and level > self.level[graph.root(i)] for i in node.inputs]
                if any(wanted):
                    columns = self._sums_columns(node)
                    inputs = zip(node.inputs, wanted, strict=True)
                    node = replace(node, inputs=tuple([again(i, level, columns) if w else i for i, w in inputs]))
            nodes.append(node)
        return _without_dead(replace(graph, values=values, nodes=nodes), late)

    def _sums_columns(self, node: Node) -> bool:
        """Whether a consumer is only there to be summed over other dims than the last: it will be in another kernel than
        consumers whose rows are reduced."""
        readers = [r for o in node.outputs for r in self.readers.get(o, ())]
        return bool(readers) and all(r.op in g.REDUCE and len(self.values[r.inputs[0]].shape) - 1 not in r.attr("dims") for r in readers)


def _cost(node: Node) -> int:
    if node.op in _CHEAP:
        return 1
    return _COST.get(node.op, _DEARER)


def _without_dead(graph: Graph, late: set[int]) -> Graph:
    """Drop nodes whose results nobody uses, and number the late ones anew."""
    from flambeau.compiler.simplify import dead_code

    marked = {graph.nodes[i].outputs[0] for i in late}
    graph = dead_code(graph)
    return replace(graph, late=frozenset(i for i, node in enumerate(graph.nodes) if node.outputs[0] in marked))
