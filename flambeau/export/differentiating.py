"""Reverse mode over a graph that is being traced: the calls that lead to an output, last first, each by its rule; what the rules call becomes nodes.

A call without a rule (gradient_rules.py) becomes one node whose target is a `Pullback`, which differentiates the call when the graph runs; so every operator
has a gradient, and second gradients are gradients of that.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import flambeau
from flambeau._ops import OpOverload
from flambeau.autograd.function import pullback_of
from flambeau.export.gradient_rules import CONSTANT, RULES, Call
from flambeau.export.schemas import schema_of
from flambeau.export.shapes import layout_of
from flambeau.fx.node import Node, writes
from flambeau.trace.meta import meta
from flambeau.utils._pytree import tree_flatten, tree_unflatten

if TYPE_CHECKING:
    from flambeau.export.make_fx import FunctionTracer
    from flambeau.export.tracing import Traced

aten: Final = flambeau.ops.aten
VIEWS: Final = frozenset(
    "view t transpose permute select slice expand unsqueeze squeeze alias detach split split_with_sizes unbind diagonal as_strided view_as_real unfold".split()
)


class Pullback:
    """The gradients of a function's results pulled back to its tensors, at run time: `(gradients, args, kwargs) -> one for each wanted leaf`."""

    def __init__(self, function: Callable[..., Any], wanted: tuple[int, ...]) -> None:
        self.function, self.wanted = function, wanted
        self.__name__ = self.__qualname__ = f"pullback_of_{str(getattr(function, '__name__', function)).replace('.', '_')}"

    def __call__(self, gradients: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        leaves, structure = tree_flatten((tuple(args), kwargs))
        kept: list[int] = []

        def of(*tensors: Any) -> tuple[Any, ...]:
            given = list(leaves)
            for i, t in zip(self.wanted, tensors, strict=True):
                given[i] = t
            inner, named = tree_unflatten(given, structure)
            results = tree_flatten(self.function(*inner, **named))[0]
            kept[:] = [i for i, r in enumerate(results) if i < len(gradients) and gradients[i] is not None]
            return tuple([results[i] for i in kept])

        _, pull = flambeau.func.vjp(of, *[leaves[i] for i in self.wanted])
        return tuple(pull(tuple([gradients[i] for i in kept])))


def fits(g: Any, like: Any) -> Any:
    """A gradient with the shape and dtype of what it is the gradient of: sums over what was broadcast, a cast back."""
    m, wanted = layout_of(g), layout_of(like)
    more = len(m.shape) - len(wanted.shape)
    dims = [*range(more), *[d + more for d, n in enumerate(wanted.shape) if isinstance(n, int) and n == 1 and not _is_one(m.shape[d + more])]]
    if dims:
        g = aten.sum.dim_IntList(g, dims, True)
        if more:
            g = aten.view.default(g, list(wanted.shape))
    if m.dtype is not wanted.dtype:
        if m.dtype.is_complex and not wanted.dtype.is_complex:
            g = aten.real.default(g)
        g = aten._to_copy.default(g, dtype=wanted.dtype)
    return g


def _is_one(n: Any) -> bool:
    return isinstance(n, int) and n == 1


class Pass:
    """One backward pass over what `tracer` has recorded."""

    def __init__(self, tracer: FunctionTracer) -> None:
        self.tracer = tracer
        self.gradients: dict[Node, Any] = {}  # of the node's value; of one with several results a list
        self.order = {node: i for i, node in enumerate(tracer.graph.nodes)}
        self.written = {self._root(n.args[0]): n for n in tracer.graph.nodes if writes(n.target) and n.args and isinstance(n.args[0], Node)}

    def _root(self, node: Any) -> Any:
        """What a view is a view of, through writes."""
        while node.op == "call_function" and node.args:
            name = node.target.overloadpacket.__name__ if isinstance(node.target, OpOverload) else ""
            if node.target is not operator.getitem and name not in VIEWS and not writes(node.target):
                break
            node = node.args[0]
        return node

    def value(self, node: Node) -> Any:
        """The tensor that a node stands for, under a name of its own. RuntimeError if it was written to since."""
        last = self.written.get(self._root(node)) if self.written else None
        if last is not None and last is not node and self.order[last] > self.order[node]:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"{node} by {last.target} while a function was traced"
            )
        return self.tracer.again(node)

    def add(self, node: Node, g: Any, part: int | None = None) -> None:
        """Add to the gradient of a node, or of one of its results."""
        if node.target is operator.getitem and part is None:
            source, index = node.args
            self.add(source, g, index)
            return
        if part is not None:
            found = self.gradients.setdefault(node, [None] * len(node.meta["val"]))
            found[part] = g if found[part] is None else aten.add.Tensor(found[part], g)
            return
        before = self.gradients.get(node)
        self.gradients[node] = g if before is None else aten.add.Tensor(before, g)

    def run(self, outputs: Sequence[Any], inputs: Sequence[Any], gradients: Sequence[Any]) -> list[Any]:
        """The gradients of `inputs`, None where an output does not depend on one."""
        wanted = [self.tracer.node_of(t) for t in inputs]
        leads = self._leads(set(wanted))
        for root, node in self.written.items():
            if root in leads and root is not self._unwritten(node):
                raise NotImplementedError(
                    f"make_fx: the gradient of a write to a view ({node} = {node.target}): write without one (torch.where, index_put, torch.cat), or "
                    "differentiate outside of what is traced"
                )
        for t, g in zip(outputs, gradients, strict=True):
            node = self.tracer.node_of(t)
            if node in leads:
                self.add(node, g)
        ends = {n.args[0] if n.target is operator.getitem else n for n in wanted}
        for node in sorted(leads, key=self.order.__getitem__, reverse=True):
            g = self.gradients.get(node)
            if g is not None and node.op == "call_function" and not (node in ends and node in set(wanted)):
                self._back(node, g, leads)
        found = []
        for node in wanted:
            source, part = (node.args[0], node.args[1]) if node.target is operator.getitem else (node, None)
            g = self.gradients.get(source)
            found.append(g if part is None or g is None else g[part])
        return found

    def _leads(self, wanted: set[Node]) -> set[Node]:
        """The nodes that depend on what is wanted by way of numbers that have gradients."""
        found: set[Node] = set()
        for node in self.order:
            custom = self.tracer.custom.get(node)
            if node in wanted or (custom is not None and any(a in found for a in custom.inputs)):
                found.add(node)
            elif node.op == "call_function" and any(a in found for a in node.all_input_nodes):
                name = node.target.overloadpacket.__name__ if isinstance(node.target, OpOverload) else ""
                if name not in CONSTANT and _smooth(node.meta.get("val")):
                    found.add(node)
        found |= {n.args[0] for n in wanted if n.target is operator.getitem and isinstance(n.args[0], Node)}
        return found

    def _back(self, node: Node, g: Any, leads: set[Node]) -> None:
        """From a call's result to its arguments."""
        if node.target is operator.getitem:
            return
        custom = self.tracer.custom.get(node)
        if custom is not None:
            self._custom(custom, node, leads)
            return
        found = None
        schema = schema_of(node.target) if isinstance(node.target, OpOverload) else None
        if schema is not None and not _complex(node):
            plain = schema.name.removesuffix("_") if not schema.name.startswith("__") else schema.name
            rule = RULES.get(f"{plain}.{schema.overload}") or RULES.get(plain)
            if rule is not None:
                call = Call(schema, node, self._given, partial(self._result, node))
                call.wanted = frozenset(i for i, a in enumerate(call.args) if any(x in leads for x in _nodes(a)))
                found = rule(call, g)
                if found is not None:
                    for a, part in zip(call.args, found, strict=False):
                        self._give(a, part, leads)
        if found is None:
            self._by_pullback(node, g, leads)

    def _unwritten(self, node: Node) -> Any:
        """What a chain of writes began with."""
        source: Any = node
        while isinstance(source.target, OpOverload) and writes(source.target):
            source = source.args[0]
        return source

    def _given(self, a: Any) -> Any:
        """An argument with tensors in place of nodes."""
        if isinstance(a, Node):
            val = a.meta.get("val")
            return self.value(a) if isinstance(val, flambeau.Tensor) else val
        if isinstance(a, dict):
            return {k: self._given(v) for k, v in a.items()}
        return [self._given(x) for x in a] if isinstance(a, list) else tuple([self._given(x) for x in a]) if isinstance(a, tuple) else a

    def _result(self, node: Node) -> Any:
        val = node.meta["val"]
        if isinstance(val, flambeau.Tensor):
            return self.tracer.again(node)
        parts = {n.args[1]: n for n in node.users if n.target is operator.getitem}
        return [self.tracer.again(parts[i]) if i in parts else v for i, v in enumerate(val)]

    def _give(self, a: Any, g: Any, leads: set[Node]) -> None:
        if isinstance(a, (list, tuple)):
            for x, part in zip(a, g or (), strict=False):
                self._give(x, part, leads)
        elif g is not None and isinstance(a, Node) and a in leads:
            self.add(a, fits(g, a.meta["val"]))

    def _by_pullback(self, node: Node, g: Any, leads: set[Node]) -> None:
        """By one node that differentiates the call when the graph runs."""
        kwargs = {k: v for k, v in node.kwargs.items() if k not in ("pin_memory",)}
        leaves = tree_flatten(_open((tuple(node.args), kwargs)))[0]
        positions = tuple([i for i, a in enumerate(leaves) if isinstance(a, Node) and a in leads])
        several = isinstance(g, list)
        args, named = self._given(tuple(node.args)), self._given(kwargs)
        likes = [leaves[i].meta["val"] for i in positions]
        found = self.tracer.opaque(Pullback(node.target, positions), (list(g) if several else [g], list(args), named), [_dense(t) for t in likes])
        for i, part in zip(positions, found, strict=True):
            self.add(leaves[i], part)

    def _custom(self, custom: Any, node: Node, leads: set[Node]) -> None:
        """The backward of a torch.autograd.Function, when the gradients of all its results have come."""
        if node is not min(custom.outputs, key=self.order.__getitem__):
            return
        given = [self.gradients.get(n) for n in custom.outputs]
        if custom.ctx._materialize:
            given = [aten.zeros_like.default(self.tracer.again(n)) if g is None else g for n, g in zip(custom.outputs, given, strict=True)]
        found = pullback_of(custom.function)(custom.ctx, *given)
        found = found if isinstance(found, tuple) else (found,)
        for a, part in zip(custom.inputs, found, strict=False):
            self._give(a, part, leads)


def _open(a: Any) -> Any:
    """A node's arguments as plain lists and dicts, which are trees."""
    if isinstance(a, dict):
        return {k: _open(v) for k, v in a.items()}
    return [_open(x) for x in a] if isinstance(a, list) else tuple([_open(x) for x in a]) if isinstance(a, tuple) else a


def _nodes(a: Any) -> list[Node]:
    return [a] if isinstance(a, Node) else [n for x in a for n in _nodes(x)] if isinstance(a, (list, tuple)) else []


def _smooth(val: Any) -> bool:
    """Whether a result, or one of several, has gradients."""
    if isinstance(val, (list, tuple)):
        return any(_smooth(v) for v in val)
    return isinstance(val, flambeau.Tensor) and (layout_of(val).dtype.is_floating_point or layout_of(val).dtype.is_complex)


def _complex(node: Node) -> bool:
    """Whether there are complex numbers in a call: the rules are those of real ones."""
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    return any(isinstance(v, flambeau.Tensor) and layout_of(v).dtype.is_complex for v in values)


def _dense(like: Any) -> Traced:
    from flambeau.export.tracing import traced

    m = layout_of(like)
    return traced(meta(m.shape, None, m.dtype, device=m.device))
