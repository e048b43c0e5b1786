"""Simplification: passes from graph to graph that remove work without changing one bit of any result.

A pass keeps value ids: it drops nodes and redirects uses (`_redirect`), so dead entries may stay in `graph.values`. A value
that must stand in a buffer of its own (an output, an update) is *pinned*: two pinned values are never merged, and a pinned
value is never merged into an external input, because their storages would become one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from flambeau import dtypes
from flambeau.compiler import graph as g
from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides
from flambeau.dtypes import dtype, held
from flambeau.exact import exact
from flambeau.symbols import by_expression

Pass = Callable[[Graph], Graph]


def dead_code(graph: Graph) -> Graph:
    """Drop nodes whose results nobody uses."""
    values = graph.values
    live = set(graph.outputs)
    live.update(i for _, i in graph.updates)
    kept = []
    for node in reversed(graph.nodes):
        outputs = node.outputs
        if outputs[0] in live or (len(outputs) > 1 and not live.isdisjoint(outputs)):
            kept.append(node)
            live.update(node.inputs)
            if node.op in g.VIEWS:
                base = values[outputs[0]].base
                if base is not None:
                    live.add(base)
    if len(kept) == len(graph.nodes):
        return graph
    kept.reverse()
    return replace(graph, nodes=kept)


_OF_NOTHING: Final = {"sum": 0, "prod": 1, "var_mean": float("nan")}


def empty_values(graph: Graph) -> Graph:
    """Nodes without elements need no kernel and go; a reduction of nothing is a constant, a write of nothing a copy.

    A materialised value without elements has a (zero-byte) buffer, whether a node makes it or not.
    """
    values = graph.values
    if all(0 not in v.shape for v in values):
        return graph
    values = list(values)
    nodes = []
    for node in graph.nodes:
        out = values[node.outputs[0]]
        if node.op in g.VIEWS or all(0 not in values[i].shape for i in (*node.inputs, *node.outputs)):
            nodes.append(node)
        elif node.op == "scatter_view" and 0 not in out.shape:
            nodes.append(Node("copy", node.inputs[:1], node.outputs))
        elif node.op in _OF_NOTHING and 0 not in out.shape:
            number = _OF_NOTHING[node.op]
            value: Any = complex(number) if out.dtype.is_complex else float(number) if out.dtype.is_floating_point else number
            scalar, view = len(values), len(values) + 1
            values.append(Value((), out.dtype, ()))
            values.append(Value(out.shape, out.dtype, (0,) * len(out.shape), 0, scalar))
            attrs = (("dtype", out.dtype), ("value", value))
            nodes += [Node("constant", (), (scalar,), attrs), Node("expand", (scalar,), (view,))]
            nodes += [Node("copy", (view,), (o,)) for o in node.outputs]
        elif any(0 not in values[o].shape for o in node.outputs):
            nodes.append(node)  # a product over nothing, a concatenation with nothing: their kernels know
    return replace(graph, values=values, nodes=nodes)


def common_subexpressions(graph: Graph) -> Graph:
    """Compute equal expressions once. Random numbers are functions of (seed, offset): equal inputs are equal values."""
    values = graph.values
    pinned = _pinned(graph)
    seen: dict[Any, tuple[int, ...]] = {}
    moved: dict[int, int] = {}
    for node in graph.nodes:
        inputs = tuple([moved.get(i, i) for i in node.inputs]) if moved else node.inputs
        if node.op in g.COMMUTATIVE and inputs[0] > inputs[1]:
            a, b = values[inputs[0]], values[inputs[1]]
            if a.shape == b.shape:  # NaN payloads apart, x op y is y op x
                inputs = (inputs[1], inputs[0])
        layout = tuple([(v.shape, v.strides, v.dtype, v.offset, v.base and moved.get(v.base, v.base), v.dynamic)
                        for v in [values[o] for o in node.outputs]])  # fmt: skip
        key = (node.op, inputs, by_expression(_attribute_key(node)), by_expression(layout))
        first = seen.setdefault(key, node.outputs)
        if first is node.outputs or first == node.outputs:
            continue
        if not pinned.isdisjoint(node.outputs):
            if not pinned.isdisjoint(first):
                continue
            pinned.update(a for a, b in zip(first, node.outputs, strict=True) if b in pinned)
        moved.update(zip(node.outputs, first, strict=True))
    return _redirect(graph, moved) if moved else graph


def _attribute_key(node: Node) -> Any:
    """The attributes as a hashable key that keeps 0.0 and -0.0, 1 and True and 1.0 apart."""
    if not node.attrs:
        return ()
    key = exact(node.attrs)
    try:
        hash(key)
    except TypeError:
        return repr(node.attrs)
    return key


def fold_constants(graph: Graph) -> Graph:
    """A cast of a static scalar is a static scalar."""
    values = graph.values
    constants: dict[int, Node] = {}
    nodes = []
    changed = False
    for node in graph.nodes:
        if node.op == "constant":
            constants[node.outputs[0]] = node
        elif node.op == "cast" and node.inputs[0] in constants and values[node.outputs[0]].shape == ():
            source = constants[node.inputs[0]]
            folded = _convert(source.attr("value"), source.attr("dtype"), node.attr("dtype"))
            if folded is not None:
                attrs = (("dtype", node.attr("dtype")), ("value", folded))
                node = Node("constant", (), node.outputs, attrs)
                constants[node.outputs[0]] = node
                changed = True
        nodes.append(node)
    return replace(graph, nodes=nodes) if changed else graph


def _convert(value: Any, source: dtype, to: dtype) -> Any:
    """`value`, as dtype `source` holds it, in dtype `to`; None where the conversion is not exact or not defined."""
    if source.is_complex or to.is_complex:
        return None
    if source.is_floating_point:
        value = held(value, source)
    if to is dtypes.bool_:
        return bool(value != 0)
    if source.category <= 1 and to.category == 1:
        bits = 8 * to.itemsize
        wrapped = int(value) & ((1 << bits) - 1)
        return wrapped - (1 << bits) if to.is_signed and wrapped >> (bits - 1) else wrapped
    if source.category <= 1 and to.category == 2:
        return float(value) if abs(int(value)) <= _EXACT_INTEGERS.get(to, 0) else None
    if to.category == 2 and _is_exact(source, to):
        return float(value)
    return None


# Integers up to this size are exact: 2 ** (bits of the significand).
_EXACT_INTEGERS: Final = {dtypes.float16: 1 << 11, dtypes.bfloat16: 1 << 8, dtypes.float32: 1 << 24, dtypes.float64: 1 << 53}
_WIDER_FLOATS: Final = {
    dtypes.float16: (dtypes.float32, dtypes.float64),
    dtypes.bfloat16: (dtypes.float32, dtypes.float64),
    dtypes.float32: (dtypes.float64,),
}


def _is_exact(source: dtype, to: dtype) -> bool:
    """Whether every number of dtype `source` is a number of dtype `to`."""
    if source is to or source is dtypes.bool_:
        return source is to or to is not dtypes.float8_e8m0fnu  # which has no zero
    if source.category == 1 and to.category == 1:
        if source.is_signed == to.is_signed:
            return source.itemsize <= to.itemsize
        return to.is_signed and source.itemsize < to.itemsize
    if source.category == 1 and to.category == 2:
        largest: int = 1 << (8 * source.itemsize - source.is_signed)
        return largest <= _EXACT_INTEGERS.get(to, 0)
    return source.category == 2 and to in _WIDER_FLOATS.get(source, ())


def cast_chains(graph: Graph) -> Graph:
    """`cast(cast(x, B), C)` is `cast(x, C)` where B holds every value of x; a cast to the same dtype is nothing."""
    values = graph.values
    pinned = _pinned(graph)
    viewed = _viewed(graph)
    casts: dict[int, Node] = {}
    moved: dict[int, int] = {}
    nodes = []
    changed = False
    for node in graph.nodes:
        if node.op == "cast":
            out = node.outputs[0]
            source = casts.get(node.inputs[0])
            if source is not None:
                x = source.inputs[0]
                if values[x].shape == values[source.outputs[0]].shape and _casts_compose(values[x].dtype, node_dtype(source), node_dtype(node)):
                    node = Node("cast", (x,), node.outputs, node.attrs)
                    changed = True
            if values[node.inputs[0]].dtype is node_dtype(node) and _may_become(graph, out, node.inputs[0], pinned, viewed):
                moved[out] = node.inputs[0]
                continue
            casts[out] = node
        nodes.append(node)
    if moved:
        return _redirect(replace(graph, nodes=nodes), moved)
    return replace(graph, nodes=nodes) if changed else graph


def node_dtype(node: Node) -> dtype:
    """The attribute `dtype` of a cast or constant."""
    d = node.attr("dtype")
    assert isinstance(d, dtype)
    return d


def _casts_compose(a: dtype, b: dtype, c: dtype) -> bool:
    if a.is_complex or b.is_complex or c.is_complex or not _is_exact(a, b):
        return False
    if a.category == 1 and b.category == 2 and c.category == 1:
        return _is_exact(a, c)  # float -> integer does not wrap as integer -> integer does
    return True


_SELF_INVERSE: Final = frozenset("neg bitwise_not conj_physical".split())


def identities(graph: Graph) -> Graph:
    """`x * 1`, `x / 1`, `x - 0`, `x + -0.0` (for integers `x + 0`), `-(-x)`, and copies that nobody can tell from `x`.

    `x + 0.0` is not here: it turns -0.0 into 0.0.
    """
    values = graph.values
    constants: dict[int, Any] = {}
    inverse: dict[int, tuple[str, int]] = {}
    pinned: set[int] | None = None
    viewed: set[int] = set()
    moved: dict[int, int] = {}
    nodes = []
    for node in graph.nodes:
        op = node.op
        same: int | None = None
        if op == "constant":
            constants[node.outputs[0]] = node.attr("value")
        elif op in _SELF_INVERSE:
            x = moved.get(node.inputs[0], node.inputs[0])
            before = inverse.get(x)
            if before is not None and before[0] == op:
                same = before[1]
            else:
                inverse[node.outputs[0]] = (op, x)
        elif op == "copy":
            same = node.inputs[0]
        elif op in ("mul", "add", "sub", "div"):
            a, b = node.inputs
            if b in constants and _is_neutral(op, constants[b], values[b].dtype):
                same = a
            elif op in ("mul", "add") and a in constants and _is_neutral(op, constants[a], values[a].dtype):
                same = b
        if same is not None:
            same = moved.get(same, same)
            if pinned is None:
                pinned, viewed = _pinned(graph), _viewed(graph)
            if _may_become(graph, node.outputs[0], same, pinned, viewed):
                moved[node.outputs[0]] = same
                continue
        nodes.append(node)
    return _redirect(replace(graph, nodes=nodes), moved) if moved else graph


def _is_neutral(op: str, value: Any, d: dtype) -> bool:
    """Whether `x op value` is x for every x of dtype `d`, bit for bit."""
    if d.is_complex or d is dtypes.bool_:
        return False
    if op in ("mul", "div"):
        return bool(value == 1)
    if value != 0:
        return False
    negative_zero = d.is_floating_point and str(float(value))[0] == "-"
    return not d.is_floating_point or (negative_zero if op == "add" else not negative_zero)


# -- Redirecting uses -----------------------------------------------------------------------------------------------


def _pinned(graph: Graph) -> set[int]:
    """Values that need a buffer of their own."""
    pinned = set(graph.outputs)
    pinned.update(i for _, i in graph.updates)
    return pinned


def _viewed(graph: Graph) -> set[int]:
    """Roots whose buffer's layout somebody relies on: they have views, or are the base of a `scatter_view`."""
    values = graph.values
    viewed = {base for node in graph.nodes if node.op in g.VIEWS and (base := values[node.outputs[0]].base) is not None}
    viewed.update(node.inputs[0] for node in graph.nodes if node.op == "scatter_view")
    return viewed


def _may_become(graph: Graph, out: int, x: int, pinned: set[int], viewed: set[int]) -> bool:
    """Whether uses of the materialised value `out` may read the equal value `x` instead."""
    values = graph.values
    a, b = values[out], values[x]
    if a.shape != b.shape or out in pinned:
        return False
    if b.base is None and b.strides == a.strides:
        return True
    # Another layout: the views of `out` are in terms of its buffer; a strided read may be why the copy is there.
    return out not in viewed and a.strides == b.strides


def _redirect(graph: Graph, moved: dict[int, int]) -> Graph:
    """The graph without the nodes that made the keys of `moved`; their uses (bases of views too) become the values."""
    final = {}
    for key in moved:
        to = key
        while to in moved:
            to = moved[to]
        final[key] = to
    values: list[Value] = graph.values
    nodes = []
    for node in graph.nodes:
        if node.outputs[0] in final:
            continue
        if node.op in g.VIEWS:
            out = node.outputs[0]
            base = values[out].base
            if base in final:
                if values is graph.values:
                    values = list(values)
                values[out] = replace(values[out], base=final[base])
        if any(i in final for i in node.inputs):
            node = Node(node.op, tuple([final.get(i, i) for i in node.inputs]), node.outputs, node.attrs)
        nodes.append(node)
    outputs = [final.get(i, i) for i in graph.outputs]
    updates = [(p, final.get(i, i)) for p, i in graph.updates]
    return replace(graph, values=values, nodes=nodes, outputs=outputs, updates=updates)


def outer_products(graph: Graph) -> Graph:
    """A matrix product over a K of one is a multiplication, which fuses with what is around it (zeros may change their sign)."""
    values = graph.values
    nodes: list[Node] | None = None
    for index, node in enumerate(graph.nodes):
        out = values[node.outputs[0]]
        sources = [values[i] for i in node.inputs]
        if node.op != "matmul" or sources[0].shape[-1] != 1 or out.dtype.is_complex or any(v.dynamic for v in sources):
            if nodes is not None:
                nodes.append(node)
            continue
        if nodes is None:
            values, nodes = list(values), list(graph.nodes[:index])
        factors = []
        for source, v, dim in zip(node.inputs, sources, (-1, -2), strict=True):
            strides = list(v.strides)
            strides[dim] = 0
            factors.append(len(values))
            base = source if v.base is None else v.base
            values.append(Value(out.shape, v.dtype, tuple(strides), v.offset, base))
            nodes.append(Node("expand", (source,), (factors[-1],)))
            if v.dtype is not out.dtype:
                values.append(Value(out.shape, out.dtype, contiguous_strides(out.shape)))
                nodes.append(Node("cast", (factors[-1],), (len(values) - 1,), (("dtype", out.dtype),)))
                factors[-1] = len(values) - 1
        nodes.append(Node("mul", tuple(factors), node.outputs))
    return graph if nodes is None else replace(graph, values=values, nodes=nodes)


PASSES: Final[list[tuple[str, Pass]]] = [
    ("dead code", dead_code),
    ("empty values", empty_values),
    ("constants", fold_constants),
    ("casts", cast_chains),
    ("identities", identities),
    ("outer products", outer_products),
    ("common subexpressions", common_subexpressions),
    ("dead code again", dead_code),
]
