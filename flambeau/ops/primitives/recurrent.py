"""Recurrent layers: all steps of one direction of an LSTM, GRU or plain layer as one primitive, and its gradient. Described in compiler/graph.py.

The gradient of the gradient, forward derivatives and batches of layers (vmap) are compositions, step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau.compiler.graph import GATES, Value, contiguous_strides
from flambeau.ops.primitive import primitive, same_dtype
from flambeau.ops.primitives.contract import matmul
from flambeau.ops.primitives.move import zeros_of
from flambeau.ops.primitives.view import expand
from flambeau.trace.meta import Meta
from flambeau.trace.recorder import local

SAVED = {"lstm": 4, "gru": 4, "tanh": 0, "relu": 0}  # numbers kept of each unit and row: the gates' values; of a GRU also what its reset gate multiplies


def _names(attrs: dict[str, Any]) -> list[str]:
    """The inputs of a `recurrent` node, in order."""
    lstm, gru = attrs["mode"] == "lstm", attrs["mode"] == "gru"
    return ["gates", "h", *["c"] * lstm, "w", *["bias"] * gru, *["sizes"] * attrs["packed"]]


def _gradient_names(attrs: dict[str, Any]) -> list[str]:
    """The inputs of a `recurrent_gradient` node, in order."""
    lstm = attrs["mode"] == "lstm"
    return ["g", "g_h", *["g_c"] * lstm, "y", "h", *["c", "all_c"] * lstm, *["saved"] * bool(SAVED[attrs["mode"]]), "w", *["sizes"] * attrs["packed"]]


def _rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    given = dict(zip(_names(attrs), metas, strict=True))
    dtype_ = same_dtype("recurrent", [m for name, m in given.items() if name != "sizes"])
    batch, hidden = given["h"].shape
    rows = given["gates"].shape[0]
    mode = attrs["mode"]
    width = GATES[mode] * hidden
    for name, shape in (("gates", (rows, width)), ("c", (batch, hidden)), ("w", (width, hidden)), ("bias", (width,))):
        if name in given and tuple(given[name].shape) != shape:
            raise RuntimeError(f"{mode} layer: {name} has the shape {tuple(given[name].shape)}; a state of {(batch, hidden)} and {rows} rows need {shape}")
    if "sizes" not in given and rows % batch:
        raise RuntimeError(f"{mode} layer: {rows} rows of input are not the same number of steps for each of {batch} sequences")
    shapes = [(rows, hidden), (batch, hidden)]
    if mode == "lstm":
        shapes.append((batch, hidden))
    if attrs["keep"]:
        shapes += [(rows, hidden)] * (mode == "lstm") + [(rows, SAVED[mode] * hidden)] * bool(SAVED[mode])
    return [Value(shape, dtype_, contiguous_strides(shape)) for shape in shapes]


def _gradient_rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    given = dict(zip(_gradient_names(attrs), metas, strict=True))
    rows, hidden = given["y"].shape
    mode = attrs["mode"]
    gates = (rows, GATES[mode] * hidden)
    shapes = [gates, *[gates] * (mode == "gru"), (rows, hidden), tuple(given["h"].shape), *[tuple(given["h"].shape)] * (mode == "lstm")]
    return [Value(shape, given["y"].dtype, contiguous_strides(shape)) for shape in shapes]


@primitive("recurrent", _rule)
def recurrent(c, g, g_h, *more):
    attrs = c.attrs
    mode = attrs["mode"]
    lstm = mode == "lstm"
    composed = local.trace.grad_enabled or not attrs["keep"]
    given = {name: c.input(i) for i, name in enumerate(_names(attrs)) if composed or name not in ("gates", "bias")}
    g_c = more[0] if lstm else None
    y = c.output(0)
    shape, state = tuple(y._meta.shape), tuple(given["h"]._meta.shape)
    g, g_h, g_c = [zeros_of(s, y._meta.dtype) if x is None else x.contiguous() for x, s in ((g, shape), (g_h, state), (g_c, state))]
    if composed:
        walk = Walk(given["gates"], given["h"], given.get("sizes"), attrs["reverse"])
        found = _slopes(mode, walk, g, g_h, g_c, _forward(mode, walk, given), given["w"])
    else:
        kept = dict(zip([*["all_c"] * lstm, *["saved"] * bool(SAVED[mode])], range(3 if lstm else 2, 5), strict=False))
        values = {**given, "g": g, "g_h": g_h, "g_c": g_c, "y": y, **{name: c.output(i) for name, i in kept.items()}}
        found = recurrent_gradient(*[values[name] for name in _gradient_names(attrs)], mode=mode, reverse=attrs["reverse"], packed=attrs["packed"])
    slopes = dict(zip(_results(mode), found, strict=True))
    to_hidden = slopes.get("hidden", slopes["gates"])
    answer = {"gates": slopes["gates"], "h": slopes["h"], "c": slopes.get("c"), "w": matmul(to_hidden.transpose(-2, -1), slopes["before"])}
    if mode == "gru":
        answer["bias"] = to_hidden.sum(-2)
    return tuple([answer.get(name) for name in _names(attrs)])


def _results(mode: str) -> list[str]:
    """What a `recurrent_gradient` gives: gradients of the gates' inputs, of what a GRU's hidden state adds to them, the state before each row; of h and c."""
    return ["gates", *["hidden"] * (mode == "gru"), "before", "h", *["c"] * (mode == "lstm")]


@primitive("recurrent_gradient", _gradient_rule)
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

    def together(self, parts: Sequence[Any]) -> Any:
        """The rows of all steps, which are given in order of time."""
        import flambeau as torch

        whole = torch.cat(list(parts), -2)
        return whole.index_select(-2, self.place) if self.packed else whole


class _Step:
    """What was computed at a step: the states before, the gates' values, the new states."""

    def __init__(self, h: Any, c: Any, values: Sequence[Any], new_h: Any, new_c: Any) -> None:
        self.h, self.c, self.values, self.new_h, self.new_c = h, c, values, new_h, new_c


def _forward(mode: str, walk: Walk, given: dict[str, Any]) -> list[_Step]:
    """All steps, in order of time."""
    import flambeau as torch

    h, c = given["h"], given.get("c")
    w = given["w"].transpose(-2, -1)
    found: dict[int, _Step] = {}
    for t in walk.order:
        x, z = walk.at(given["gates"], t), torch.matmul(h, w)
        new_c = None
        if mode == "lstm":
            i, f, g, o = (x + z).chunk(4, -1)
            values = [torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)]
            new_c = values[1] * c + values[0] * values[2]
            new = values[3] * torch.tanh(new_c)
        elif mode == "gru":
            (xr, xz, xn), (hr, hz, hn) = x.chunk(3, -1), (z + given["bias"].unsqueeze(-2)).chunk(3, -1)
            r, u = torch.sigmoid(xr + hr), torch.sigmoid(xz + hz)
            n = torch.tanh(xn + r * hn)
            values, new = [r, u, n, hn], n + u * (h - n)
        else:
            values, new = [], torch.tanh(x + z) if mode == "tanh" else torch.relu(x + z)
        found[t] = _Step(h, c, values, new, new_c)
        h = walk.choose(t, new, h)
        c = None if c is None else walk.choose(t, new_c, c)
    return [found[t] for t in range(walk.count)]


def _kept(mode: str, walk: Walk, given: dict[str, Any]) -> list[_Step]:
    """All steps, of what a `recurrent` node has kept."""
    found: dict[int, _Step] = {}
    h, c = given["h"], given.get("c")
    for t in walk.order:
        values = walk.at(given["saved"], t).chunk(4, -1) if SAVED[mode] else []
        new = walk.at(given["y"], t)
        new_c = None if c is None else walk.at(given["all_c"], t)
        found[t] = _Step(h, c, values, new, new_c)
        h = walk.choose(t, new, h)
        c = None if c is None else walk.choose(t, new_c, c)
    return [found[t] for t in range(walk.count)]


def _slopes(mode: str, walk: Walk, g: Any, g_h: Any, g_c: Any, steps: list[_Step], w: Any) -> list[Any]:
    """What a `recurrent_gradient` gives, step by step."""
    import flambeau as torch

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
    names = _names(attrs) if name == "recurrent" else _gradient_names(attrs)
    given = dict(zip(names, inputs, strict=True))
    if dict(zip(names, is_batched, strict=True)).get("sizes"):
        raise NotImplementedError("vmap: the batch sizes of a packed sequence must be the same for all samples")
    for key, has in zip(names, is_batched, strict=True):
        if not has and key not in ("w", "bias", "sizes"):
            given[key] = expand(given[key], shape=(size, *given[key]._meta.shape))
    mode = attrs["mode"]
    rows = given["gates"] if name == "recurrent" else given["y"]
    walk = Walk(rows, given["h"], given.get("sizes"), attrs["reverse"])
    if name == "recurrent_gradient":
        return tuple(_slopes(mode, walk, given["g"], given["g_h"], given.get("g_c"), _kept(mode, walk, given), given["w"]))
    steps = _forward(mode, walk, given)
    h, c = given["h"], given.get("c")
    for t in walk.order:
        h = walk.choose(t, steps[t].new_h, h)
        c = None if c is None else walk.choose(t, steps[t].new_c, c)
    results = [walk.together([s.new_h for s in steps]), h, *[c] * (mode == "lstm")]
    if attrs["keep"]:
        import flambeau as torch

        kept = [*[[s.new_c for s in steps]] * (mode == "lstm"), *[[torch.cat(list(s.values), -1) for s in steps if s.values]] * bool(SAVED[mode])]
        results += [walk.together(parts) for parts in kept]
    return tuple(results)
