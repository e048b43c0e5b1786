"""Gradients of aten's operators as calls of aten's operators, as PyTorch's derivatives have them: what graphs of training steps are made of.

A rule takes a call (its arguments, its result) and the gradient of the result, and gives a gradient for each argument by position, None where there is
none. What follows from shapes and dtypes alone (sums over broadcast dims, casts back) is done by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import flambeau
from flambeau.export.schemas import Schema
from flambeau.export.shapes import layout_of
from flambeau.fx.node import Node

aten: Final = flambeau.ops.aten


class Call:
    """A call in a graph: its arguments by the names of its schema, all of them, and its result. `value`: what gives the tensor of a node, when a rule asks."""

    def __init__(self, schema: Schema, node: Node, value: Callable[[Any], Any], result: Callable[[], Any]) -> None:
        given = dict(zip([p.name for p in schema.parameters], node.args, strict=False)) | node.kwargs
        self.args: list[Any] = [given.get(p.name, p.default) for p in schema.parameters]  # nodes in place of tensors
        self.named = {p.name: a for p, a in zip(schema.parameters, self.args, strict=True)}
        self.value, self._result = value, result
        self.wanted: frozenset[int] = frozenset()  # positions of the arguments that have a gradient

    def __getitem__(self, i: Any) -> Any:
        return self.value(self.named[i] if isinstance(i, str) else self.args[i])

    @property
    def result(self) -> Any:
        """What the call gave, a list of several."""
        return self._result()

    def layout(self, i: int = 0) -> Any:
        """The layout of an argument that is a tensor."""
        return layout_of(self.args[i].meta["val"])

    def shape(self, i: int = 0) -> tuple[Any, ...]:
        """The shape of an argument."""
        return tuple(self.layout(i).shape)


Rule = Callable[[Call, Any], Sequence[Any] | None]  # None: this call has no rule


def _each(*formulas: Callable[[Call, Any], Any] | None) -> Rule:
    """A formula for each argument; only those that are wanted are written down."""
    return lambda c, g: [f(c, g) if f is not None and i in c.wanted else None for i, f in enumerate(formulas)]


def _times(g: Any, number: Any) -> Any:
    return g if number == 1 else aten.mul.Tensor(g, number)


def _spread(c: Call, g: Any) -> Any:
    """The gradient of a sum over dims, for every element."""
    shape, dims, keep = c.shape(), c.named.get("dim"), c.named.get("keepdim", False)
    if dims and not keep:
        for d in sorted([d % len(shape) for d in dims]):
            g = aten.unsqueeze.default(g, d)
    return aten.expand.default(g, list(shape))


def _mean(c: Call, g: Any) -> Any:
    shape, dims = c.shape(), c.named.get("dim")
    count = 1
    for d in dims or range(len(shape)):
        count = count * shape[d]
    return aten.div.Scalar(_spread(c, g), count)


def _power(c: Call, g: Any) -> Any:
    n = c[1]
    return aten.mul.Tensor(g, aten.mul.Scalar(aten.pow.Tensor_Scalar(c[0], n - 1), n)) if n else aten.zeros_like.default(c[0])


def _turned(x: Any) -> Any:
    return aten.transpose.int(x, -2, -1)


def _addmm(c: Call, g: Any) -> Sequence[Any] | None:
    if c["beta"] != 1 or c["alpha"] != 1:
        return None
    return _each(lambda c, g: g, lambda c, g: aten.mm.default(g, aten.t.default(c[2])), lambda c, g: aten.mm.default(aten.t.default(c[1]), g))(c, g)


def _permuted(c: Call, g: Any) -> Any:
    dims = [d % len(c[1]) for d in c[1]]
    return aten.permute.default(g, [dims.index(d) for d in range(len(dims))])


def _cat(c: Call, g: Any) -> Sequence[Any] | None:
    parts, dim = [n.meta["val"] for n in c.args[0]], c[1]
    if any(len(layout_of(t).shape) != len(layout_of(g).shape) for t in parts):
        return None  # an empty list of numbers among them
    found, start = [], 0
    for t in parts:
        end = start + layout_of(t).shape[dim]
        found.append(aten.slice.Tensor(g, dim, start, end))
        start = end
    return [found]


def _slice(c: Call, g: Any) -> Any:
    size = c.shape()[c[1]]
    return aten.slice_backward.default(g, list(c.shape()), c[1], 0 if c[2] is None else c[2], size if c[3] is None else c[3], c[4])


def _convolution(c: Call, g: Any) -> Sequence[Any]:
    sizes = None if c.args[2] is None else list(c.shape(2))
    found = aten.convolution_backward.default(g, c[0], c[1], sizes, *c[3:9], [i in c.wanted for i in range(3)])
    return [part if i in c.wanted else None for i, part in enumerate(found)]


def _layer_norm(c: Call, g: Any) -> Sequence[Any] | None:
    if g[1] is not None or g[2] is not None:
        return None
    mask = [0 in c.wanted, 2 in c.wanted, 3 in c.wanted]
    found = aten.native_layer_norm_backward.default(g[0], c[0], c[1], c.result[1], c.result[2], c[2], c[3], mask)
    return [found[0], None, found[1], found[2]]


def _batch_norm(c: Call, g: Any) -> Sequence[Any] | None:
    if any(part is not None for part in g[1:]):
        return None
    mask = [i in c.wanted for i in range(3)]
    running = (None, None) if c[5] else (c[3], c[4])  # they are written to in training, and not asked then
    return list(aten.native_batch_norm_backward.default(g[0], c[0], c[1], *running, c.result[1], c.result[2], c[5], c[7], mask))


def _dropout(c: Call, g: Any) -> Sequence[Any] | None:
    if not c[2]:
        return [g[0]]
    return [aten.native_dropout_backward.default(g[0], c.result[1], 1 / (1 - c[1]) if c[1] < 1 else 0.0)]


def _nll(c: Call, g: Any) -> Sequence[Any]:
    return [aten.nll_loss_backward.default(g[0], *c[:5], c.result[1])]


def _scattered(c: Call, g: Any) -> Any:
    return aten.scatter_add.default(aten.new_zeros.default(g, list(c.shape())), c[1], c[2], g)


def _indexed(c: Call, g: Any) -> Any:
    return aten.index_put.default(aten.new_zeros.default(g, list(c.shape())), c[1], g, True)


def _zero_where(chosen: bool) -> Callable[[Call, Any], Any]:
    def of(c: Call, g: Any) -> Any:
        zero = aten.zeros_like.default(g)
        return aten.where.self(c[0], g, zero) if chosen else aten.where.self(c[0], zero, g)

    return of


def _view(c: Call, g: Any) -> Any:
    return aten.reshape.default(g, list(c.shape()))


def _same(c: Call, g: Any) -> Any:
    return g


def _by_result(name: str) -> Rule:
    return _each(lambda c, g: getattr(aten, name).default(g, c.result))


def _by_input(name: str, *rest: int) -> Rule:
    return _each(lambda c, g: getattr(aten, name).default(g, c[0], *[c[i] for i in rest]))


def _quotient(c: Call, g: Any) -> Any:
    return aten.mul.Tensor(aten.neg.default(g), aten.div.Tensor(c.result, c[1]))


def _remainder(c: Call, g: Any) -> Sequence[Any] | None:
    return None if c.named.get("rounding_mode") is not None else _each(lambda c, g: aten.div.Tensor(g, c[1]), _quotient)(c, g)


_MATRICES: Final[Callable[[Any, Any], Any]] = aten.mm.default

RULES: Final[dict[str, Rule]] = {
    "add": _each(_same, lambda c, g: _times(g, c["alpha"])),
    "sub": _each(_same, lambda c, g: aten.neg.default(_times(g, c["alpha"]))),
    "rsub": _each(lambda c, g: aten.neg.default(_times(g, c["alpha"])), _same),
    "mul": _each(lambda c, g: aten.mul.Tensor(g, c[1]), lambda c, g: aten.mul.Tensor(g, c[0])),
    "div": _remainder, "neg": _each(lambda c, g: aten.neg.default(g)),
    "exp": _each(lambda c, g: aten.mul.Tensor(g, c.result)), "log": _each(lambda c, g: aten.div.Tensor(g, c[0])),
    "sin": _each(lambda c, g: aten.mul.Tensor(g, aten.cos.default(c[0]))),
    "cos": _each(lambda c, g: aten.mul.Tensor(g, aten.neg.default(aten.sin.default(c[0])))),
    "sqrt": _each(lambda c, g: aten.div.Tensor(g, aten.mul.Tensor(c.result, 2))),
    "rsqrt": _each(lambda c, g: aten.mul.Tensor(aten.mul.Scalar(g, -0.5), aten.pow.Tensor_Scalar(c.result, 3))),
    "reciprocal": _each(lambda c, g: aten.mul.Tensor(aten.neg.default(g), aten.mul.Tensor(c.result, c.result))),
    "abs": _each(lambda c, g: aten.mul.Tensor(g, aten.sgn.default(c[0]))), "pow.Tensor_Scalar": _each(_power),
    "tanh": _by_result("tanh_backward"), "sigmoid": _by_result("sigmoid_backward"),
    "relu": _each(lambda c, g: aten.threshold_backward.default(g, c.result, 0)), "threshold": _by_input("threshold_backward", 1),
    "silu": _by_input("silu_backward"), "mish": _by_input("mish_backward"), "hardsigmoid": _by_input("hardsigmoid_backward"),
    "hardswish": _by_input("hardswish_backward"), "hardtanh": _by_input("hardtanh_backward", 1, 2), "softplus": _by_input("softplus_backward", 1, 2),
    "gelu": _each(lambda c, g: aten.gelu_backward.default(g, c[0], approximate=c["approximate"])),
    "leaky_relu": _each(lambda c, g: aten.leaky_relu_backward.default(g, c[0], c[1], False)),
    "elu": _each(lambda c, g: aten.elu_backward.default(g, c[1], c[2], c[3], False, c[0])), "glu": _by_input("glu_backward", 1),
    "mm": _each(lambda c, g: _MATRICES(g, aten.t.default(c[1])), lambda c, g: _MATRICES(aten.t.default(c[0]), g)),
    "bmm": _each(lambda c, g: aten.bmm.default(g, _turned(c[1])), lambda c, g: aten.bmm.default(_turned(c[0]), g)), "addmm": _addmm,
    "t": _each(lambda c, g: aten.t.default(g)), "transpose": _each(lambda c, g: aten.transpose.int(g, c[1], c[2])), "permute": _each(_permuted),
    "view": _each(_view), "_unsafe_view": _each(_view), "reshape": _each(_view), "squeeze": _each(_view), "unsqueeze": _each(_view), "expand": _each(_same),
    "select": _each(lambda c, g: aten.select_backward.default(g, list(c.shape()), c[1], c[2])), "slice": _each(_slice), "clone": _each(_same),
    "alias": _each(_same), "_to_copy": _each(_same), "lift_fresh_copy": _each(_same), "cat": _cat,
    "stack": lambda c, g: [[aten.select.int(g, c[1], i) for i in range(len(c.args[0]))]],
    "sum": _each(_spread), "mean": _each(_mean), "where.self": _each(None, _zero_where(True), _zero_where(False)),
    "masked_fill.Scalar": _each(lambda c, g: aten.masked_fill.Scalar(g, c[1], 0)),
    "_softmax": _each(lambda c, g: aten._softmax_backward_data.default(g, c.result, c[1], c.layout().dtype)),
    "_log_softmax": _each(lambda c, g: aten._log_softmax_backward_data.default(g, c.result, c[1], c.layout().dtype)),
    "nll_loss_forward": _nll, "convolution": _convolution, "native_layer_norm": _layer_norm, "native_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm, "_native_batch_norm_legit_functional": _batch_norm, "native_dropout": _dropout,
    "embedding": _each(lambda c, g: aten.embedding_dense_backward.default(g, c[1], c.shape()[0], c[2], c[3])),
    "gather": _each(_scattered), "index": _each(_indexed),
    "max_pool2d_with_indices": lambda c, g: [aten.max_pool2d_with_indices_backward.default(g[0], *c[:6], c.result[1])],
    "avg_pool2d": _each(lambda c, g: aten.avg_pool2d_backward.default(g, *c[:7])),
}  # fmt: skip

# Operators whose results do not depend smoothly on their arguments.
CONSTANT: Final = frozenset(
    "detach zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full sign sgn floor ceil round trunc "
    "bernoulli new_empty_strided sym_size scalar_tensor".split()
)
