"""Building graphs by hand for tests. Shapes and dtypes come from the graph's specification (`compiler/check.py`).

b = GraphBuilder()
x = b.input((4, 5), float32)                 # a storage, and a view of it with that shape
y = b.op("add", x, b.op("exp", x))
b.output(y)
b.update(0, ...)                             # the storage of input 0 takes a new value
graph = b.graph
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import dtypes
from flambeau.compiler import check
from flambeau.compiler.graph import Graph, Node, Value, contiguous_strides
from flambeau.dtypes import dtype


class GraphBuilder:
    """Appends nodes to `graph`; every method that makes a value returns its id (a tuple of ids for several results)."""

    def __init__(self) -> None:
        self.graph = Graph()

    # -- what comes from outside ----------------------------------------------------------------------------------
    def storage(self, numel: int, d: dtype) -> int:
        """An external storage of `numel` elements."""
        root = self.graph.add_value(Value((numel,), d, (1,)))
        self.graph.inputs.append(root)
        return root

    def input(self, shape: Sequence[int], d: dtype, strides: Sequence[int] | None = None, offset: int = 0, extra: int = 0) -> int:
        """A view of a new external storage that is as long as the layout needs, and `extra` elements longer."""
        shape = tuple(shape)
        steps = contiguous_strides(shape) if strides is None else tuple(strides)
        span = 0 if 0 in shape else offset + 1 + sum((s - 1) * st for s, st in zip(shape, steps, strict=True))
        return self.as_strided(self.storage(span + extra, d), shape, steps, offset)

    def parameter(self, d: dtype) -> int:
        """A run-time scalar: int64, float64 or bool."""
        i = self.graph.add_value(Value((), d, ()))
        self.graph.parameters.append(i)
        return i

    # -- nodes ----------------------------------------------------------------------------------------------------
    def op(self, name: str, *inputs: int, layout: Sequence[int] | None = None, **attrs: Any) -> Any:
        """A primitive whose results are materialised (strides `layout`, else contiguous)."""
        node = Node(name, tuple(inputs), (), tuple(sorted(attrs.items())))
        outs = []
        for shape, d in check.infer(node, [self.graph.values[i] for i in inputs]):
            steps = contiguous_strides(shape) if layout is None else tuple(layout)
            outs.append(self.graph.add_value(Value(shape, d, steps)))
        self.graph.nodes.append(Node(name, tuple(inputs), tuple(outs), node.attrs))
        return outs[0] if len(outs) == 1 else tuple(outs)

    def constant(self, value: Any, d: dtype) -> int:
        result: int = self.op("constant", value=value, text=repr(value), dtype=d)
        return result

    def cast(self, x: int, d: dtype) -> int:
        result: int = self.op("cast", x, dtype=d)
        return result

    def host_call(self, function: str, *inputs: int, results: Sequence[tuple[tuple[int, ...], dtype]], **kwargs: Any) -> Any:
        """A host call with the given result shapes and dtypes."""
        outs = tuple(self.graph.add_value(Value(s, d, contiguous_strides(s))) for s, d in results)
        attrs = (("function", function), ("kwargs", tuple(sorted(kwargs.items()))))
        self.graph.nodes.append(Node("host_call", tuple(inputs), outs, attrs))
        return outs[0] if len(outs) == 1 else outs

    # -- views ----------------------------------------------------------------------------------------------------
    def as_strided(
        self, x: int, shape: Sequence[int], strides: Sequence[int], offset: int = 0,
        dynamic: Sequence[tuple[int, int]] = (), op: str = "as_strided", d: dtype | None = None,
    ) -> int:  # fmt: skip
        """A view with an absolute layout; `dynamic`: (parameter, multiplier) pairs beside those of x."""
        value = self.graph.values[x]
        pairs = value.dynamic + tuple(dynamic)
        view = Value(tuple(shape), d or value.dtype, tuple(strides), offset, self.graph.root(x), pairs)
        out = self.graph.add_value(view)
        self.graph.nodes.append(Node(op, (x, *(p for p, _ in dynamic)), (out,)))
        return out

    def permute(self, x: int, *dims: int) -> int:
        v = self.graph.values[x]
        return self.as_strided(x, [v.shape[d] for d in dims], [v.strides[d] for d in dims], v.offset, op="permute")

    def expand(self, x: int, *shape: int) -> int:
        v = self.graph.values[x]
        skip = len(shape) - len(v.shape)
        strides = [0] * skip + [0 if s == 1 and n != 1 else st
                                for s, n, st in zip(v.shape, shape[skip:], v.strides, strict=True)]  # fmt: skip
        return self.as_strided(x, shape, strides, v.offset, op="expand")

    def slice(self, x: int, dim: int, start: int, stop: int, step: int = 1) -> int:
        v = self.graph.values[x]
        shape, strides = list(v.shape), list(v.strides)
        shape[dim] = max(0, -(-(stop - start) // step))
        strides[dim] *= step
        return self.as_strided(x, shape, strides, v.offset + start * v.strides[dim], op="slice")

    def select(self, x: int, dim: int, index: int | None = None, parameter: int | None = None) -> int:
        """One index of a dim, static or a run-time parameter."""
        v = self.graph.values[x]
        shape = v.shape[:dim] + v.shape[dim + 1 :]
        strides = v.strides[:dim] + v.strides[dim + 1 :]
        if parameter is not None:
            return self.as_strided(x, shape, strides, v.offset, [(parameter, v.strides[dim])], op="select")
        return self.as_strided(x, shape, strides, v.offset + (index or 0) * v.strides[dim], op="select")

    def reshape(self, x: int, *shape: int) -> int:
        """Of a contiguous value."""
        v = self.graph.values[x]
        if not v.is_contiguous:
            raise ValueError("GraphBuilder.reshape: of a contiguous value only")
        return self.as_strided(x, shape, contiguous_strides(tuple(shape)), v.offset, op="reshape")

    def write(self, base: int, view: int, source: int) -> int:
        """`base` (a root) with the elements of its view `view` replaced by `source`."""
        v = self.graph.values[view]
        result: int = self.op(
            "scatter_view", base, source, *(p for p, _ in v.dynamic), shape=v.shape, strides=v.strides, offset=v.offset,
            multipliers=tuple(m for _, m in v.dynamic), )  # fmt: skip
        out = self.graph.values[result]
        out.strides = self.graph.values[base].strides
        return result

    # -- what goes out ----------------------------------------------------------------------------------------------
    def output(self, *values: int) -> None:
        """Return these values; a view is copied first."""
        for x in values:
            self.graph.outputs.append(x if self.graph.values[x].base is None else self.op("copy", x))

    def update(self, position: int, x: int) -> None:
        """The storage of input `position` takes the value x (all of it)."""
        self.graph.updates.append((position, x if self.graph.values[x].base is None else self.op("copy", x)))


BOOL, INT64, FLOAT32, FLOAT64 = dtypes.bool_, dtypes.int64, dtypes.float32, dtypes.float64
