"""Recurrent layers: all steps of one direction of an LSTM, GRU or plain layer as one primitive, and its gradient. Described in compiler/graph.py.

The gradient of the gradient, forward derivatives and batches of layers (vmap) are compositions, step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from flambeau.compiler.graph import Value, contiguous_strides, recurrent_operands
from flambeau.ops.primitive import Infer, primitive, same_dtype
from flambeau.ops.primitives.contract import matmul
from flambeau.ops.primitives.move import zeros_of
from flambeau.ops.primitives.view import expand
from flambeau.trace.meta import Meta
from flambeau.trace.recorder import local


def _inputs(op: str, attrs: dict[str, Any]) -> list[str]:
    """The names of a node's inputs, in order."""
    return [*recurrent_operands(op, attrs, 0, 0, 0)[0], *["sizes"] * attrs["packed"]]


def _rule(op: str) -> Infer:
    """The shape rule of `recurrent` or of its gradient; RuntimeError where operands do not fit."""

    def infer(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
        mode, rows, (batch, hidden) = attrs["mode"], metas[0].shape[0], metas[1].shape
        given, results = recurrent_operands(op, attrs, rows, batch, hidden)
        dtype_ = same_dtype(op, metas[: len(given)])
        for (name, shape), m in zip(given.items(), metas, strict=False):
            if tuple(m.shape) != shape:
                raise RuntimeError(f"{mode} layer: {name} has the shape {tuple(m.shape)}; a state of {(batch, hidden)} and {rows} rows need {shape}")
        if not attrs["packed"] and rows % batch:
            raise RuntimeError(f"{mode} layer: {rows} rows of input are not the same number of steps for each of {batch} sequences")
        return [Value(shape, dtype_, contiguous_strides(shape)) for shape in results.values()]

    return infer


@primitive("recurrent", _rule("recurrent"))
def recurrent(c, *gradients):
    attrs = c.attrs
    mode = attrs["mode"]
    names = _inputs("recurrent", attrs)
    composed = local.trace.grad_enabled or not attrs["keep"]
    values = {name: c.input(i) for i, name in enumerate(names) if composed or name not in ("gates", "bias")}
    for i, name in enumerate(names):
        if name not in values:
            c.later(i)
    results = list(recurrent_operands("recurrent", attrs, 0, 0, 0)[1])
    values |= {name: c.output(i) for i, name in enumerate(results) if not composed and name not in ("last_h", "last_c")}
    y, state = c.output(0)._meta, tuple(values["h"]._meta.shape)
    shapes = {"g": tuple(y.shape), "g_h": state} | ({"g_c": state} if mode == "lstm" else {})
    for (name, shape), x in zip(shapes.items(), gradients, strict=False):  # what is kept has no gradient
        values[name] = zeros_of(shape, y.dtype) if x is None else x.contiguous()
    inner = {name: attrs[name] for name in ("mode", "reverse", "packed")}
    if composed:
        walk = Walk(values["gates"], values["h"], values.get("sizes"), attrs["reverse"])
        found = _slopes(mode, walk, values, _forward(mode, walk, values)[0])
    else:
        found = recurrent_gradient(*[values[name] for name in _inputs("recurrent_gradient", inner)], **inner)
    slopes = dict(zip(recurrent_operands("recurrent_gradient", inner, 0, 0, 0)[1], found, strict=True))
    to_hidden = slopes.get("to_hidden", slopes["to_gates"])
    answer = {"gates": slopes["to_gates"], "h": slopes["to_h"], "c": slopes.get("to_c"), "w": matmul(to_hidden.transpose(-2, -1), slopes["before"])}
    if mode == "gru":
        answer["bias"] = to_hidden.sum(-2)
    return tuple([answer.get(name) for name in names])


@primitive("recurrent_gradient", _rule("recurrent_gradient"))
def recurrent_gradient(c, *gradients):
    raise RuntimeError("recurrent_gradient has no gradient: where one is asked for, `recurrent` uses a composition")


# -- step by step -------------------------------------------------------------------------------------------------------
class Walk:
    """The steps of a batch: rows of each, for padded batches (`sizes` None) and packed ones. Any dims may stand in front of (rows, width)."""

    def __init__(self, rows: Any, h: Any, sizes: Any, reverse: bool) -> None:
        import flambeau as torch

        self.batch = h.shape[-2]
        self.rows = rows.shape[-2]
        self.packed = sizes is not None
        self.count = int(sizes.shape[0]) if self.packed else self.rows // max(self.batch, 1)
        self.order = list(reversed(range(self.count))) if reverse else list(range(self.count))
        if self.packed:
            ends = torch.cumsum(sizes, 0)
            starts = ends - sizes
            lane = torch.arange(self.batch)
            self.inside = [lane < sizes[t] for t in range(self.count)]
            self.index = [torch.where(inside, starts[t] + lane, 0) for t, inside in enumerate(self.inside)]
            row = torch.arange(self.rows)
            step = torch.searchsorted(ends, row, right=True)
            self.place = step * self.batch + row - starts.index_select(0, step)

    def at(self, x: Any, t: int) -> Any:
        """The rows of step t (..., batch, width); those of sequences that are over are any."""
        return x.index_select(-2, self.index[t]) if self.packed else x.narrow(-2, t * self.batch, self.batch)

    def choose(self, t: int, new: Any, old: Any) -> Any:
        """`new` where a sequence has a step t, else `old`."""
        import flambeau as torch

        return torch.where(self.inside[t].unsqueeze(-1), new, old) if self.packed else new

    def together(self, parts: Iterable[Any]) -> Any:
        """The rows of all steps, which are given in order of time."""
        import flambeau as torch

        whole = torch.cat(list(parts), -2)
        return whole.index_select(-2, self.place) if self.packed else whole


class _Step(NamedTuple):
    """What was computed at a step: the states before, the gates' values, the new states."""

    h: Any
    c: Any
    values: Sequence[Any]
    new_h: Any
    new_c: Any


def lstm_step(gates: Any, c: Any) -> tuple[list[Any], Any, Any]:
    """(values of the gates, h, c) from the four gates' inputs, in PyTorch's order: input, forget, cell, output. Hochreiter and Schmidhuber, 1997."""
    import flambeau as torch

    i, f, n, o = gates.chunk(4, -1)
    values = [torch.sigmoid(i), torch.sigmoid(f), torch.tanh(n), torch.sigmoid(o)]
    c = values[1] * c + values[0] * values[2]
    return values, values[3] * torch.tanh(c), c


def gru_step(from_input: Any, from_hidden: Any, h: Any) -> tuple[list[Any], Any]:
    """(values of the gates and what reset multiplies, the new h); gates in PyTorch's order: reset, update, new. Cho et al., 2014."""
    import flambeau as torch

    ri, zi, ni = from_input.chunk(3, -1)
    rh, zh, nh = from_hidden.chunk(3, -1)
    r, z = torch.sigmoid(ri + rh), torch.sigmoid(zi + zh)
    n = torch.tanh(ni + r * nh)
    return [r, z, n, nh], n + z * (h - n)


def _along(walk: Walk, h: Any, c: Any, step: Callable[[int, Any, Any], tuple[Sequence[Any], Any, Any]]) -> tuple[list[_Step], Any, Any]:
    """(all steps in order of time, the last states). `step(t, h, c)` gives a step's values and new states."""
    found: dict[int, _Step] = {}
    for t in walk.order:
        s = found[t] = _Step(h, c, *step(t, h, c))
        h = walk.choose(t, s.new_h, h)
        c = None if c is None else walk.choose(t, s.new_c, c)
    return [found[t] for t in range(walk.count)], h, c


def _forward(mode: str, walk: Walk, given: dict[str, Any]) -> tuple[list[_Step], Any, Any]:
    """All steps, computed."""
    import flambeau as torch

    w = given["w"].transpose(-2, -1)

    def step(t: int, h: Any, c: Any) -> tuple[Sequence[Any], Any, Any]:
        x, z = walk.at(given["gates"], t), torch.matmul(h, w)
        if mode == "lstm":
            return lstm_step(x + z, c)
        if mode == "gru":
            return (*gru_step(x, z + given["bias"].unsqueeze(-2), h), None)
        return [], torch.tanh(x + z) if mode == "tanh" else torch.relu(x + z), None

    return _along(walk, given["h"], given.get("c"), step)


def _kept(walk: Walk, given: dict[str, Any]) -> list[_Step]:
    """All steps, of what a `recurrent` node has kept."""

    def step(t: int, h: Any, c: Any) -> tuple[Sequence[Any], Any, Any]:
        values = walk.at(given["saved"], t).chunk(4, -1) if "saved" in given else []
        return values, walk.at(given["y"], t), None if c is None else walk.at(given["all_c"], t)

    return _along(walk, given["h"], given.get("c"), step)[0]


def _slopes(mode: str, walk: Walk, given: dict[str, Any], steps: list[_Step]) -> list[Any]:
    """What a `recurrent_gradient` gives, step by step."""
    import flambeau as torch

    g, g_h, g_c, w = given["g"], given["g_h"], given.get("g_c"), given["w"]
    to_gates: dict[int, Any] = {}
    to_hidden: dict[int, Any] = {}
    for t in reversed(walk.order):
        s = steps[t]
        d = walk.at(g, t) + g_h
        rest: Any = 0.0
        if mode == "lstm":
            i, f, n, o = s.values
            top = torch.tanh(s.new_c)
            dc = g_c + d * o * (1 - top * top)
            parts = [dc * n * i * (1 - i), dc * s.c * f * (1 - f), dc * i * (1 - n * n), d * top * o * (1 - o)]
            g_c = walk.choose(t, dc * f, g_c)
            to_gates[t] = to_hidden[t] = torch.cat(parts, -1)
        elif mode == "gru":
            r, u, n, hn = s.values
            dn = d * (1 - u) * (1 - n * n)
            first = [dn * hn * r * (1 - r), d * (s.h - n) * u * (1 - u)]
            to_gates[t], to_hidden[t] = torch.cat([*first, dn], -1), torch.cat([*first, dn * r], -1)
            rest = d * u
        else:
            to_gates[t] = to_hidden[t] = d * (1 - s.new_h * s.new_h) if mode == "tanh" else torch.where(s.new_h <= 0, 0.0, d)
        g_h = walk.choose(t, torch.matmul(to_hidden[t], w) + rest, g_h)
    times = range(walk.count)
    together = [walk.together([to_gates[t] for t in times])]
    if mode == "gru":
        together.append(walk.together([to_hidden[t] for t in times]))
    shape = tuple(torch.broadcast_shapes(steps[0].h.shape, steps[0].new_h.shape))
    before = walk.together([s.h.expand(shape) for s in steps])
    return [*together, before, g_h, *[g_c] * (mode == "lstm")]


def batched(name: str, attrs: dict[str, Any], inputs: Sequence[Any], is_batched: Sequence[bool], size: int) -> tuple[Any, ...]:
    """The results of a node whose inputs have one more dim in front (the batch of a vmap), but for those that have none."""
    import flambeau as torch

    names = _inputs(name, attrs)
    given = dict(zip(names, inputs, strict=True))
    if dict(zip(names, is_batched, strict=True)).get("sizes"):
        raise NotImplementedError("vmap: the batch sizes of a packed sequence must be the same for all samples")
    for key, has in zip(names, is_batched, strict=True):
        if not has and key not in ("w", "bias", "sizes"):
            given[key] = expand(given[key], shape=(size, *given[key]._meta.shape))
    mode = attrs["mode"]
    walk = Walk(inputs[0], given["h"], given.get("sizes"), attrs["reverse"])
    if name == "recurrent_gradient":
        return tuple(_slopes(mode, walk, given, _kept(walk, given)))
    steps, h, c = _forward(mode, walk, given)
    of_rows: dict[str, Callable[[_Step], Any]] = {
        "y": lambda s: s.new_h, "all_c": lambda s: s.new_c, "saved": lambda s: torch.cat(list(s.values), -1),
    }  # fmt: skip
    last = {"last_h": h, "last_c": c}
    return tuple([last[key] if key in last else walk.together(map(of_rows[key], steps)) for key in recurrent_operands(name, attrs, 0, 0, 0)[1]])
