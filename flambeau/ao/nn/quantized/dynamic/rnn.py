"""Recurrent layers with quantized weights and float states: inputs are quantized a sequence at a time, states a step at a time, as PyTorch does."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.nn.quantized.weights import quantize_by
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.rnn import PackedSequence
from flambeau.ops.primitives.recurrent import gru_step, lstm_step
from flambeau.quantized import recurrent
from flambeau.quantized.packed import LinearPackedParams


def _packed(mod: Any, weight: Any, bias: Any) -> Any:
    """A weight as the module's QConfig says: packed integers, or (weight in float16, bias)."""
    from flambeau.ao.quantization.qconfig import default_dynamic_qconfig

    watcher = (getattr(mod, "qconfig", None) or default_dynamic_qconfig).weight()
    weight = weight.detach().float()
    bias = None if bias is None else bias.detach()
    if watcher.dtype is torch.float16:
        return weight.half(), bias
    watcher(weight)
    return LinearPackedParams(quantize_by(watcher, weight), bias)


class _Recurrent(Module):
    """What LSTM and GRU share."""

    mode = "LSTM"

    def __init__(self, mod: Any) -> None:
        super().__init__()
        for name in ("input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional"):
            setattr(self, name, getattr(mod, name))
        if getattr(mod, "proj_size", 0):
            raise NotImplementedError(f"quantized dynamic {self.mode}: proj_size is not supported; use proj_size=0")
        self._weights = []
        for layer in range(self.num_layers):
            for suffix in ("", "_reverse")[: 1 + self.bidirectional]:
                biases = [getattr(mod, f"bias_{kind}_l{layer}{suffix}") if self.bias else None for kind in ("ih", "hh")]
                weights = [getattr(mod, f"weight_{kind}_l{layer}{suffix}") for kind in ("ih", "hh")]
                self._weights.append(recurrent.CellParams(*[_packed(mod, w, b) for w, b in zip(weights, biases, strict=True)]))

    def _get_name(self) -> str:
        return f"DynamicQuantized{self.mode}"

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + (f", num_layers={self.num_layers}" if self.num_layers != 1 else "")

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of the float layer."""
        return cls(mod)

    def forward(self, input: Any, hx: Any = None) -> Any:
        if isinstance(input, PackedSequence):
            raise NotImplementedError(f"quantized dynamic {self.mode}: packed sequences are not supported; pad them, or use the float module")
        x = input.unsqueeze(1 if not self.batch_first else 0) if input.ndim == 2 else input
        ways, batch = 1 + self.bidirectional, x.shape[0 if self.batch_first else 1]
        count = 2 if self.mode == "LSTM" else 1
        if hx is None:
            given = [torch.zeros(self.num_layers * ways, batch, self.hidden_size)] * count
        else:
            given = [h.unsqueeze(1) if h.ndim == 2 else h for h in (hx if count == 2 else (hx,))]
        step = recurrent.steps_of_lstm if self.mode == "LSTM" else recurrent.steps_of_gru
        x, ends = recurrent.layers(step, x, given, self._weights, ways, self.dropout if self.training else 0.0, self.batch_first)
        if input.ndim == 2:
            x, ends = x.squeeze(0 if self.batch_first else 1), [e.squeeze(1) for e in ends]
        return x, (tuple(ends) if count == 2 else ends[0])


class LSTM(_Recurrent):
    """torch.nn.LSTM with quantized weights."""


class GRU(_Recurrent):
    """torch.nn.GRU with quantized weights."""

    mode = "GRU"


class _Cell(Module):
    """What the cells share."""

    def __init__(self, mod: Any) -> None:
        super().__init__()
        self.input_size, self.hidden_size = mod.input_size, mod.hidden_size
        self.nonlinearity = getattr(mod, "nonlinearity", "tanh")
        self._weights = _packed(mod, mod.weight_ih, mod.bias_ih), _packed(mod, mod.weight_hh, mod.bias_hh)

    def _get_name(self) -> str:
        return f"DynamicQuantized{type(self).__name__}"

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """Of the float cell."""
        return cls(mod)

    def _gates(self, input: Any, h: Any) -> tuple[Any, Any]:
        return recurrent.product(self._weights[0], input), recurrent.product(self._weights[1], h)

    def _zeros(self, input: Any) -> Any:
        return torch.zeros(*input.shape[:-1], self.hidden_size)


class LSTMCell(_Cell):
    """torch.nn.LSTMCell with quantized weights."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        h, c = hx if hx is not None else (self._zeros(input), self._zeros(input))
        from_input, from_hidden = self._gates(input, h)
        return tuple(lstm_step(from_input + from_hidden, c)[1:])


class GRUCell(_Cell):
    """torch.nn.GRUCell with quantized weights."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        h = self._zeros(input) if hx is None else hx
        return gru_step(*self._gates(input, h), h)[1]


class RNNCell(_Cell):
    """torch.nn.RNNCell with quantized weights."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        from_input, from_hidden = self._gates(input, self._zeros(input) if hx is None else hx)
        return (torch.relu if self.nonlinearity == "relu" else torch.tanh)(from_input + from_hidden)
