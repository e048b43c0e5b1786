"""Random graphs for property tests: a dozen primitives over small tensors, with views, writes, updates and reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from flambeau import dtypes
from flambeau.compiler.graph import Graph
from flambeau.dtypes import dtype
from tests.graphs import BOOL, FLOAT32, FLOAT64, INT64, GraphBuilder

# Exactly rounded, so that the oracle and every order of fusion give the same bits.
EXACT_UNARY = ("neg", "abs", "sqrt", "floor", "reciprocal", "sgn")
EXACT_BINARY = ("add", "sub", "mul", "div", "maximum", "minimum")
ROUNDED_UNARY = ("exp", "tanh", "sigmoid", "log1p", "sin", "erf")
INTEGER_UNARY = ("neg", "abs", "bitwise_not", "sgn")
INTEGER_BINARY = ("add", "sub", "mul", "maximum", "bitwise_and", "bitwise_xor")
SHAPES = ((), (1,), (5,), (4, 5), (3, 4, 5), (1, 5), (3, 1, 5), (17,), (2, 40), (0, 5))


class _Maker:
    def __init__(self, draw: st.DrawFn, floats: tuple[dtype, ...], rounded: bool) -> None:
        self.draw = draw
        self.b = GraphBuilder()
        self.pool: list[int] = []
        self.floats = floats
        self.unary = EXACT_UNARY + (ROUNDED_UNARY if rounded else ())
        self.rounded = rounded

    def pick(self, *kinds: dtype) -> int | None:
        options = [i for i in self.pool if not kinds or self.b.graph.values[i].dtype in kinds]
        return self.draw(st.sampled_from(options)) if options else None

    def partner(self, x: int) -> int:
        """A value that broadcasts with x."""
        values = self.b.graph.values
        v = values[x]
        fitting = [i for i in self.pool if values[i].dtype is v.dtype and _broadcasts(values[i].shape, v.shape)]
        return self.draw(st.sampled_from(fitting))

    def step(self) -> None:
        b, draw = self.b, self.draw
        x = self.pick()
        assert x is not None
        v = b.graph.values[x]
        floating = v.dtype.is_floating_point
        kind = draw(st.sampled_from(("unary", "binary", "binary", "compare", "cast", "view", "view", "sum", "copy", "write",
                                     "where", "constant", "concatenate", "take", "parameter", "iota")))  # fmt: skip
        new: Any = None
        if kind == "unary" and v.dtype is not BOOL:
            new = b.op(draw(st.sampled_from(self.unary if floating else INTEGER_UNARY)), x)
        elif kind == "binary" and v.dtype is not BOOL:
            new = b.op(draw(st.sampled_from(EXACT_BINARY if floating else INTEGER_BINARY)), x, self.partner(x))
        elif kind == "compare" and v.dtype is not BOOL:
            new = b.op(draw(st.sampled_from(("eq", "lt", "ge"))), x, self.partner(x))
        elif kind == "cast":
            if not floating:
                new = b.cast(x, draw(st.sampled_from((*self.floats, INT64, BOOL))))
            else:
                new = b.cast(x, draw(st.sampled_from((*self.floats, BOOL))))
        elif kind == "view":
            new = self.view(x)
        elif kind == "sum" and v.shape and v.dtype is not BOOL:
            dims = tuple(sorted(draw(st.sets(st.integers(0, len(v.shape) - 1), min_size=1))))
            ops = ("sum", "amax", "amin") if self.rounded or not floating else ("amax", "amin")
            op = draw(st.sampled_from(ops)) if v.numel else "sum"
            new = b.op(op, x, dims=dims)
        elif kind == "copy":
            new = b.op("copy", x)
        elif kind == "write":
            root = b.graph.root(x)
            source = [i for i in self.pool if b.graph.values[i].shape == v.shape and b.graph.values[i].dtype is v.dtype]
            if b.graph.values[root].dtype is v.dtype and 0 not in v.strides:
                new = b.write(root, x, draw(st.sampled_from(source)))
        elif kind == "where":
            condition = self.pick(BOOL)
            if condition is not None and _broadcasts(b.graph.values[condition].shape, v.shape):
                y = self.partner(x)
                shape = np.broadcast_shapes(v.shape, b.graph.values[y].shape)
                if _broadcasts(b.graph.values[condition].shape, shape):
                    new = b.op("where", condition, x, y)
        elif kind == "constant" and v.dtype is not BOOL:
            value = draw(st.sampled_from((0.0, -0.0, 1.0, -1.5, 3.0))) if floating else draw(st.integers(-3, 3))
            c = b.constant(value, v.dtype)
            new = b.op(draw(st.sampled_from(("mul", "add", "sub"))), x, c)
        elif kind == "concatenate" and v.shape:
            new = b.op("concatenate", x, x, dim=draw(st.integers(0, len(v.shape) - 1)))
        elif kind == "take" and len(v.shape) == 1 and v.numel > 0:
            n = v.numel
            index = b.op("iota", shape=(2, 3), dim=1)
            index = b.op("remainder", index, b.constant(n, INT64))
            new = b.op("take", x, index)
        elif kind == "parameter" and v.dtype in (FLOAT32, FLOAT64):
            new = b.op("mul", x, b.cast(b.parameter(FLOAT64), v.dtype))
        elif kind == "iota":
            new = b.op("iota", shape=v.shape, dim=0)
        if new is not None:
            self.pool.append(new)

    def view(self, x: int) -> int | None:
        b, draw = self.b, self.draw
        v = b.graph.values[x]
        if not v.shape:
            return b.expand(x, 3)
        dim = draw(st.integers(0, len(v.shape) - 1))
        match draw(st.sampled_from(("permute", "slice", "select", "expand", "reshape", "dynamic"))):
            case "permute":
                return b.permute(x, *draw(st.permutations(list(range(len(v.shape))))))
            case "slice":
                start = draw(st.integers(0, v.shape[dim]))
                return b.slice(x, dim, start, v.shape[dim], draw(st.integers(1, 2)))
            case "select" if v.shape[dim]:
                return b.select(x, dim, draw(st.integers(0, v.shape[dim] - 1)))
            case "dynamic" if v.shape[dim]:
                return b.select(x, dim, parameter=b.parameter(INT64))
            case "expand" if len(v.shape) < 3:
                return b.expand(x, 2, *v.shape)
            case "reshape" if v.is_contiguous and v.base is None:
                return b.reshape(x, v.numel)
        return None


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(x == y or 1 in (x, y) for x, y in zip(reversed(a), reversed(b), strict=False))


@st.composite
def graphs(draw: st.DrawFn, floats: tuple[dtype, ...] = (FLOAT32, FLOAT64), rounded: bool = True, steps: int = 14) -> Graph:
    """A legal graph with one to three tensors as inputs, at least one output, and perhaps updates."""
    m = _Maker(draw, floats, rounded)
    for _ in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from(SHAPES))
        d = draw(st.sampled_from((*floats, *floats, INT64, dtypes.int32, dtypes.uint8)))
        m.pool.append(m.b.input(shape, d, extra=draw(st.integers(0, 3))))
    for _ in range(draw(st.integers(1, steps))):
        m.step()
    graph = m.b.graph
    m.b.output(*draw(st.lists(st.sampled_from(m.pool), min_size=1, max_size=3, unique=True)))
    for position, root in enumerate(graph.inputs):
        v = graph.values[root]
        fitting = [i for i in m.pool if graph.values[i].base is None and graph.values[i].dtype is v.dtype
                   and graph.values[i].numel == v.numel]  # fmt: skip
        if draw(st.booleans()) and fitting:
            graph.updates.append((position, draw(st.sampled_from(fitting))))
    return graph


def data(graph: Graph, seed: int = 0, special: bool = True) -> tuple[list[Any], list[Any]]:
    """Buffers for the inputs (small numbers, with NaN, infinity and -0.0 among the floats) and parameters."""
    generator = np.random.default_rng(seed)
    buffers = []
    for i in graph.inputs:
        v = graph.values[i]
        if v.dtype.is_floating_point:
            x = np.round(generator.normal(size=v.numel) * 2, 2)
            if special and v.numel > 3:
                x[generator.integers(0, v.numel, 3)] = generator.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], 3)
            buffers.append(x.astype(v.dtype.numpy_name))
        else:
            buffers.append(generator.integers(0, 7, v.numel).astype(v.dtype.numpy_name))
    # An offset of 0 is inside every view that a run-time parameter moves.
    parameters = [0 if graph.values[i].dtype is INT64 else 1.25 for i in graph.parameters]
    return buffers, parameters
