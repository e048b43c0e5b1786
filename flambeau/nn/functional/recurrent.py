"""Recurrent layers: one direction of one layer over all steps is one recorded edge, and mostly one primitive, whatever the lengths are.

`sizes` has the batch of each step, largest first: sequence rows are packed as in PackedSequence, step after step, and a step updates the
first `sizes[t]` rows of the state. Narrow numbers, projections and large layers on a matrix unit are compositions, whose edges know their lengths.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import flambeau as torch
from flambeau.nn.functional.engine import Tensor, functional, primitives
from flambeau.nn.functional.linear import linear
from flambeau.ops.primitives.recurrent import gru_step, lstm_step
from flambeau.runtime import tiles
from flambeau.trace.recorder import local

State = tuple[Tensor, ...]
UNIT_HIDDEN = 64  # from so many units on a matrix unit takes the products of the steps one by one


def _project(x: Tensor, weight: Tensor, bias: Tensor | None, more: Tensor | None = None) -> Tensor:
    """The part of the gates that does not depend on the state, for all steps at once; `more`: another bias."""
    y = linear(x, weight, bias)
    return y if more is None else y + more.to(y.dtype)  # under autocast the product is narrower


def _scan(x: Tensor, state: State, sizes: Sequence[int], reverse: bool, step: Callable[[Tensor, State], State]) -> tuple[Tensor, ...]:
    """(outputs packed as the input, *final states). `step` maps rows of x and of the states to new states; the first of
    them is the output."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + size)
    outputs: list[Tensor] = []
    for t in reversed(range(len(sizes))) if reverse else range(len(sizes)):
        size = sizes[t]
        active = tuple(s if s.shape[0] == size else s.narrow(0, 0, size) for s in state)
        new = step(x.narrow(0, starts[t], size), active)
        outputs.append(new[0])
        state = tuple(n if s.shape[0] == size else torch.cat([n, s.narrow(0, size, s.shape[0] - size)]) for n, s in zip(new, state, strict=True))
    if reverse:
        outputs.reverse()
    return (torch.cat(outputs), *state)


@functional
def lstm_layer(
    input: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None,
    w_hr: Tensor | None, sizes: Sequence[int], reverse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(outputs, h, c) of one direction; `w_hr` projects h (proj_size)."""

    w = w_hh.t()  # once: the gradients of all steps' products meet at one value
    w_out = None if w_hr is None else w_hr.t()

    def step(x: Tensor, state: State) -> State:
        _, new_h, new_c = lstm_step(x + torch.matmul(state[0], w), state[1])
        return (new_h if w_out is None else torch.matmul(new_h, w_out)), new_c

    return _scan(_project(input, w_ih, b_ih, b_hh), (h, c), sizes, reverse, step)


@functional
def gru_layer(
    input: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, sizes: Sequence[int],
    reverse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(outputs, h) of one direction."""

    w = w_hh.t()
    x = _project(input, w_ih, b_ih)
    bias = None if b_hh is None else b_hh.to(x.dtype)

    def step(x: Tensor, state: State) -> State:
        from_hidden = torch.matmul(state[0], w)
        return (gru_step(x, from_hidden if bias is None else from_hidden + bias, state[0])[1],)

    return _scan(x, (h,), sizes, reverse, step)


@functional
def rnn_layer(
    input: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, sizes: Sequence[int],
    reverse: bool, nonlinearity: str,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(outputs, h) of one direction of a plain recurrent layer. Elman, 1990."""

    w = w_hh.t()

    def step(x: Tensor, state: State) -> State:
        z = x + torch.matmul(state[0], w)
        return (torch.tanh(z) if nonlinearity == "tanh" else torch.where(z <= 0, 0, z),)

    return _scan(_project(input, w_ih, b_ih, b_hh), (h,), sizes, reverse, step)


@functional
def _steps(
    mode: str, input: Tensor, h: Tensor, c: Tensor | None, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, sizes: Tensor | None,
    reverse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(outputs, h[, c]) of one direction, all steps by one primitive (ops/primitives/recurrent.py)."""
    gru = mode == "gru"
    x = _project(input, w_ih, b_ih) if gru else _project(input, w_ih, b_ih, b_hh)
    given = [x, h, c, w_hh]
    if gru:
        given.append(torch.zeros(w_hh.shape[0], dtype=x.dtype) if b_hh is None else b_hh)
    keep = local.trace.grad_enabled and any(t.requires_grad for t in given if t is not None)
    given = [t.contiguous() for t in (*given, sizes) if t is not None]
    results = primitives().recurrent(*given, mode=mode, reverse=reverse, packed=sizes is not None, keep=keep)
    return tuple(results[: 2 if c is None else 3])


_MODES = {"LSTM": "lstm", "GRU": "gru", "RNN_TANH": "tanh", "RNN_RELU": "relu"}


def _as_one(x: Tensor, state: tuple[Tensor, ...], w_ih: Tensor, w_hh: Tensor) -> bool:
    """Whether all steps are one primitive: not of narrow numbers, not a single step, and not where the matrix unit multiplies faster."""
    if x.dtype not in (torch.float32, torch.float64) or local.main.autocast is not None or any(t.dtype is not x.dtype for t in (*state, w_ih, w_hh)):
        return False
    rows, batch = x.shape[0], state[0].shape[0]
    if not batch or not state[0].shape[1] or rows == batch or w_hh.shape[1] != state[0].shape[1]:
        return False
    return w_hh.shape[1] < UNIT_HIDDEN or "bfloat16" not in tiles.dtypes()


def _checked_sizes(sizes: Tensor, rows: int, batch: int) -> tuple[int, ...]:
    """Batch sizes as numbers; RuntimeError unless they are those of so many packed rows: native code counts on it."""
    if sizes.dtype != torch.int64 or sizes.ndim != 1:
        raise RuntimeError(f"batch_sizes should always be a 1D int64 CPU tensor, but got {sizes.dtype} of shape {tuple(sizes.shape)}")
    each = sizes.tolist()
    falls = all(a >= b for a, b in itertools.pairwise(each))
    if not each or each[0] != batch or each[-1] < 1 or not falls or sum(each) != rows:
        shown = str(each) if len(each) <= 8 else f"[{', '.join(map(str, each[:8]))}, ...]"
        raise RuntimeError(
            f"batch_sizes {shown} do not fit {rows} packed rows and {batch} sequences: they must not increase, begin with the number of sequences, be 1 or "
            "more, and sum up to the rows (pack_padded_sequence makes them)"
        )
    return tuple(each)


def layers(
    mode: str, x: Tensor, state: Sequence[Tensor], weights: Sequence[Sequence[Tensor]], sizes: Tensor | None, *, biases: bool,
    bidirectional: bool, dropout: float, training: bool,
) -> tuple[Tensor, tuple[Tensor, ...]]:  # fmt: skip
    """All layers of an "LSTM", "GRU", "RNN_TANH" or "RNN_RELU" over packed rows `x`: step after step, `sizes` rows each (None: the batch).

    `weights`: those of each layer and direction, in the order of the modules (w_ih, w_hh, b_ih and b_hh with `biases`, w_hr of a
    projection). `state`: stacked as (layers * directions, batch, size), as the final states are that come with the result.
    """
    each = None if sizes is None else _checked_sizes(sizes, x.shape[0], state[0].shape[1])
    directions = 2 if bidirectional else 1
    finals: list[tuple[Tensor, ...]] = []
    for index, own in enumerate(weights):
        if index % directions == 0:
            if index and dropout > 0:
                x = torch.nn.functional.dropout(x, dropout, training)
            outputs = []
        before = tuple(s[index] for s in state)
        results = _layer(mode, x, before, list(own), biases, sizes, each, index % directions == 1)
        outputs.append(results[0])
        finals.append(results[1:])
        if len(outputs) == directions:
            x = outputs[0] if directions == 1 else torch.cat(outputs, 1)
    return x, tuple(torch.stack(parts) for parts in zip(*finals, strict=True))


def _layer(
    mode: str, x: Tensor, state: tuple[Tensor, ...], weights: list[Tensor], biases: bool, sizes: Tensor | None, each: tuple[int, ...] | None,
    reverse: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """One direction of one layer. `each`: the sizes as numbers."""
    projection = weights.pop() if len(weights) == (5 if biases else 3) else None
    w_ih, w_hh, b_ih, b_hh = weights if biases else (*weights, None, None)
    h, c = state[0], state[1] if len(state) == 2 else None
    if projection is None and _as_one(x, state, w_ih, w_hh):
        return _steps(_MODES[mode], x, h, c, w_ih, w_hh, b_ih, b_hh, sizes, reverse)
    batch = h.shape[0]
    each = each or (batch,) * (x.shape[0] // batch)
    if c is not None:
        return lstm_layer(x, h, c, w_ih, w_hh, b_ih, b_hh, projection, each, reverse)
    if mode == "GRU":
        return gru_layer(x, h, w_ih, w_hh, b_ih, b_hh, each, reverse)
    return rnn_layer(x, h, w_ih, w_hh, b_ih, b_hh, each, reverse, _MODES[mode])


@functional
def lstm_cell(input: Tensor, h: Tensor, c: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> tuple[Tensor, ...]:
    """(h, c) after one step."""
    return lstm_step(_project(input, w_ih, b_ih) + _project(h, w_hh, b_hh), c)[1:]


@functional
def gru_cell(input: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor:
    """h after one step."""
    return gru_step(_project(input, w_ih, b_ih), _project(h, w_hh, b_hh), h)[1]


@functional
def rnn_cell(input: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None, nonlinearity: str) -> Tensor:
    """h after one step."""
    z = _project(input, w_ih, b_ih) + _project(h, w_hh, b_hh)
    return torch.tanh(z) if nonlinearity == "tanh" else torch.where(z <= 0, 0, z)
