"""Recurrent layers with quantized weights and float states, over all steps of a sequence, and the weights as PyTorch's operators pass them around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flambeau as torch
from flambeau.ops.primitives.recurrent import gru_step, lstm_step
from flambeau.quantized.packed import LinearPackedParams
from flambeau.tensor import Tensor

# A weight as packed integers, or (weight in float16, bias).
Packed = Any
Step = Callable[[Any, Any, tuple[Any, ...]], tuple[Any, ...]]


class CellParams(NamedTuple):
    """The weights of one direction of a layer: what torch.ops.quantized.make_quantized_cell_params_dynamic gives."""

    ih: Packed
    hh: Packed
    reduce_range: bool = True


def product(packed: Packed, x: Any, reduce_range: bool = True) -> Any:
    """x times the weight, plus the bias."""
    if isinstance(packed, LinearPackedParams):
        return packed.dynamic(x, reduce_range)
    return torch.nn.functional.linear(x, packed[0].float(), packed[1])


def steps_of_lstm(from_input: Any, from_hidden: Any, states: Any) -> Any:
    """(hidden, cell) of the next step."""
    return lstm_step(from_input + from_hidden, states[1])[1:]


def steps_of_gru(from_input: Any, from_hidden: Any, states: Any) -> Any:
    """(hidden,) of the next step."""
    return (gru_step(from_input, from_hidden, states[0])[1],)


def _direction(step: Step, x: Any, weights: CellParams, states: Any, reverse: bool) -> tuple[Any, Any]:
    """(results of all steps, last states) of one direction: x (steps, batch, in)."""
    gates = product(weights.ih, x, weights.reduce_range)
    results = [None] * x.shape[0]
    for t in reversed(range(x.shape[0])) if reverse else range(x.shape[0]):
        states = step(gates[t], product(weights.hh, states[0], weights.reduce_range), states)
        results[t] = states[0]
    return torch.stack(results), states


def layers(step: Step, x: Any, states: Sequence[Any], weights: Sequence[CellParams], ways: int, dropout: float, batch_first: bool) -> tuple[Any, list[Any]]:
    """(results of the last layer, last states of all): x (steps, batch, in), or batch first; states (layers * ways, batch, hidden)."""
    x = x.transpose(0, 1) if batch_first else x
    last = []
    for layer in range(len(weights) // ways):
        found = []
        for way in range(ways):
            at = layer * ways + way
            made, ends = _direction(step, x, weights[at], tuple([s[at] for s in states]), bool(way))
            found.append(made)
            last.append(ends)
        x = torch.cat(found, -1) if ways == 2 else found[0]
        if dropout and layer + 1 < len(weights) // ways:
            x = torch.nn.functional.dropout(x, dropout)
    return x.transpose(0, 1) if batch_first else x, [torch.stack([s[i] for s in last]) for i in range(len(states))]


# -- as operators ---------------------------------------------------------------------------------------------------------
def make_quantized_cell_params_dynamic(w_ih: Packed, w_hh: Packed, bias_ih: Tensor, bias_hh: Tensor, reduce_range: bool = False) -> CellParams:
    """The weights of a layer or cell, of packed integers; the biases are those of the packed weights."""
    return CellParams(w_ih, w_hh, reduce_range)


def make_quantized_cell_params_fp16(w_ih: Packed, w_hh: Packed) -> CellParams:
    """The weights of a layer or cell, in float16."""
    return CellParams(w_ih, w_hh)


def _whole(name: str, x: Any, states: Any, params: Any, num_layers: int, bidirectional: bool) -> None:
    if not isinstance(params, (list, tuple)):
        raise NotImplementedError(f"{name}: packed sequences are not supported; pad them, or use the float module")
    if len(params) != num_layers * (1 + bidirectional) or not all(isinstance(p, CellParams) for p in params):
        raise RuntimeError(f"{name}: params must be the packed weights of {num_layers * (1 + bidirectional)} layers and directions, got {len(params)} values")
    if x.dim() != 3:
        raise RuntimeError(f"{name}: the input must have 3 dims, got {tuple(x.shape)}")


def quantized_lstm(
    input: Any, hx: Any, params: Any, has_biases: Any, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool = False,
    *, dtype: Any = None, use_dynamic: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """All layers of an LSTM: (results, hidden, cells)."""
    _whole("quantized_lstm", input, hx, params, num_layers, bidirectional)
    y, (h, c) = layers(steps_of_lstm, input, hx, params, 1 + bidirectional, dropout if train else 0.0, batch_first)
    return y, h, c


def quantized_gru(
    input: Any, hx: Any, params: Any, has_biases: Any, num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool = False
) -> tuple[Tensor, Tensor]:
    """All layers of a GRU: (results, hidden)."""
    _whole("quantized_gru", input, hx, params, num_layers, bidirectional)
    y, (h,) = layers(steps_of_gru, input, (hx,), params, 1 + bidirectional, dropout if train else 0.0, batch_first)
    return y, h


def _gates(input: Any, h: Any, w_ih: Packed, w_hh: Packed) -> tuple[Any, Any]:
    return product(w_ih, input), product(w_hh, h)


def quantized_lstm_cell_dynamic(input: Any, hx: Any, w_ih: Packed, w_hh: Packed, b_ih: Any, b_hh: Any) -> tuple[Tensor, Tensor]:
    """One step of an LSTM."""
    from_input, from_hidden = _gates(input, hx[0], w_ih, w_hh)
    h, c = steps_of_lstm(from_input, from_hidden, hx)
    return h, c


def quantized_gru_cell_dynamic(input: Any, hx: Any, w_ih: Packed, w_hh: Packed, b_ih: Any, b_hh: Any) -> Tensor:
    """One step of a GRU."""
    return steps_of_gru(*_gates(input, hx, w_ih, w_hh), (hx,))[0]  # type: ignore[no-any-return]


def quantized_rnn_tanh_cell_dynamic(input: Any, hx: Any, w_ih: Packed, w_hh: Packed, b_ih: Any, b_hh: Any) -> Tensor:
    """One step of a plain layer."""
    return torch.tanh(sum(_gates(input, hx, w_ih, w_hh)))


def quantized_rnn_relu_cell_dynamic(input: Any, hx: Any, w_ih: Packed, w_hh: Packed, b_ih: Any, b_hh: Any) -> Tensor:
    """One step of a plain layer with relu."""
    return torch.relu(sum(_gates(input, hx, w_ih, w_hh)))


CELLS = (
    make_quantized_cell_params_dynamic, make_quantized_cell_params_fp16, quantized_lstm_cell_dynamic, quantized_gru_cell_dynamic,
    quantized_rnn_tanh_cell_dynamic, quantized_rnn_relu_cell_dynamic,
)  # fmt: skip
