"""Recurrent layers and cells. A layer's parameters are weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0 (, weight_hr_l0),
then the same with _reverse, then _l1, ...; all are uniform in +-1/sqrt(hidden_size)."""

from __future__ import annotations

import math
import numbers
from typing import Any

import flambeau as torch
from flambeau.nn import init
from flambeau.nn.functional import recurrent
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.nn.utils.rnn import PackedSequence
from flambeau.ops import dispatch
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import local

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


class RNNBase(Module):
    """All layers and directions of an RNN, GRU or LSTM."""

    __constants__ = [
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size",
    ]  # fmt: skip

    def __init__(
        self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if isinstance(dropout, bool) or not isinstance(dropout, numbers.Number) or not 0 <= dropout <= 1:
            raise ValueError(f"dropout should be a number in range [0, 1] representing the probability of an element being zeroed, but got {dropout}")
        if dropout > 0 and num_layers == 1:
            warn_here(
                "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers "
                f"greater than 1, but got dropout={dropout} and num_layers={num_layers}",
            )
        for name, value in (("input_size", input_size), ("hidden_size", hidden_size)):
            if not isinstance(value, int):
                raise TypeError(f"{name} should be of type int, got: {type(value).__name__}")
            if value <= 0:
                raise ValueError(f"{name} must be greater than zero, but got {value}")
        for name, value in (("bias", bias), ("batch_first", batch_first)):
            if not isinstance(value, bool):
                raise TypeError(f"{name} should be of type bool, got: {type(value).__name__}")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode = mode
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        directions = 2 if bidirectional else 1
        gates = hidden_size if _GATES[mode] == 1 else _GATES[mode] * hidden_size  # not 1 * True, which is an int
        out = proj_size or hidden_size
        self._all_weights: list[list[str]] = []
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * directions
            for suffix in ("", "_reverse")[:directions]:
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, width), "weight_hh": (gates, out)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = []
                for name, shape in shapes.items():
                    names.append(f"{name}_l{layer}{suffix}")
                    self.register_parameter(names[-1], Parameter(torch.empty(shape, device=device, dtype=dtype)))
                self._all_weights.append(names)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Only cuDNN needs it: nothing to do."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _flat_weights_names(self) -> list[str]:
        """The names of all of them, in PyTorch's order."""
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Any]:
        """What `forward` computes with: under a name that has been pruned or normalized, a tensor."""
        return [getattr(self, name, None) for name in self._flat_weights_names]

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        dtype = self._parameters["weight_ih_l0"].dtype if "weight_ih_l0" in self._parameters else input.dtype  # type: ignore[union-attr]
        if input.dtype != dtype and local.main.autocast is None:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({dtype}). Convert input: input.to({dtype}), "
                f"or convert model: model.to({input.dtype})"
            )
        dims = 2 if batch_sizes is not None else 3
        if input.ndim != dims:
            raise RuntimeError(f"input must have {dims} dimensions, got {input.ndim}")
        if self.input_size != input.shape[-1]:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input.shape[-1]}; the input has shape {tuple(input.shape)}"
            )

    def _check_state(self, state: tuple[Tensor, ...], batch: int) -> None:
        layers = self.num_layers * (2 if self.bidirectional else 1)
        for i, s in enumerate(state):
            expected = (layers, batch, self.hidden_size if i else self.proj_size or self.hidden_size)
            if tuple(s.shape) != expected:
                which = f"hidden[{i}]" if self.mode == "LSTM" else "hidden"
                raise RuntimeError(f"Expected {which} size {expected}, got {list(s.shape)}")

    def _zeros(self, batch: int, like: Tensor) -> tuple[Tensor, ...]:
        layers = self.num_layers * (2 if self.bidirectional else 1)
        h = torch.zeros(layers, batch, self.proj_size or self.hidden_size, dtype=like.dtype, device=like.device)
        return (h, torch.zeros(layers, batch, self.hidden_size, dtype=like.dtype, device=like.device)) if self.mode == "LSTM" else (h,)

    def forward(self, input: Any, hx: Any = None) -> Any:
        name = self.mode.partition("_")[0]
        lstm = self.mode == "LSTM"
        state = None if hx is None else (tuple(hx) if lstm else (hx,))
        if isinstance(input, PackedSequence):
            data, batch_sizes, sorted_indices, unsorted_indices = input
            self.check_input(data, batch_sizes)
            batch = int(batch_sizes[0])
            if state is not None and sorted_indices is not None:
                state = tuple(s.index_select(1, sorted_indices) for s in state)
            state = self._zeros(batch, data) if state is None else state
            self._check_state(state, batch)
            output, state = self._run(data, state, batch_sizes)
            if unsorted_indices is not None:
                state = tuple(s.index_select(1, unsorted_indices) for s in state)
            packed = PackedSequence(output, batch_sizes, sorted_indices, unsorted_indices)
            return packed, state if lstm else state[0]
        if input.ndim not in (2, 3):
            raise ValueError(f"{name}: Expected input to be 2D or 3D, got {input.ndim}D instead")
        batched = input.ndim == 3
        if state is not None:
            for s in state:
                if s.ndim != input.ndim:
                    raise RuntimeError(f"For {'batched 3-D' if batched else 'unbatched 2-D'} input, hx should also be {input.ndim}-D but got {s.ndim}-D tensor")
        x = input if batched else input.unsqueeze(0 if self.batch_first else 1)
        if state is not None and not batched:
            state = tuple(s.unsqueeze(1) for s in state)
        if dispatch.state.modes and not self.proj_size:  # who sees calls is shown the one that PyTorch makes
            whole = self._native(x, state)
            output, state = whole[0], whole[1:]
            if not batched:
                output, state = output.squeeze(0 if self.batch_first else 1), tuple(s.squeeze(1) for s in state)
            return output, tuple(state) if lstm else state[0]
        if self.batch_first:
            x = x.transpose(0, 1)
        self.check_input(x, None)
        steps, batch = x.shape[:2]
        if steps == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        state = self._zeros(batch, x) if state is None else state
        self._check_state(state, batch)
        output, state = self._run(x.reshape(steps * batch, -1), state, None)
        output = output.reshape(steps, batch, -1)
        if self.batch_first:
            output = output.transpose(0, 1)
        if not batched:
            output = output.squeeze(0 if self.batch_first else 1)
            state = tuple(s.squeeze(1) for s in state)
        return output, state if lstm else state[0]

    def _native(self, x: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """All layers as one call of torch.lstm, torch.gru, ..."""
        state = self._zeros(x.shape[0 if self.batch_first else 1], x) if state is None else state
        weights = [w for layer in self.all_weights for w in layer]
        options = self.bias, self.num_layers, float(self.dropout), self.training, self.bidirectional, self.batch_first
        found: tuple[Tensor, ...] = getattr(torch, self.mode.lower())(x, list(state) if self.mode == "LSTM" else state[0], weights, *options)
        return found

    def _run(self, x: Tensor, state: tuple[Tensor, ...], sizes: Tensor | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """All layers over packed rows; the final states stacked as (layers * directions, batch, size)."""
        weights = [[getattr(self, name) for name in names] for names in self._all_weights]
        return recurrent.layers(
            self.mode, x, state, weights, sizes, biases=self.bias, bidirectional=self.bidirectional, dropout=self.dropout, training=self.training
        )

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        if self.proj_size != 0:
            s += f", proj_size={self.proj_size}"
        if self.num_layers != 1:
            s += f", num_layers={self.num_layers}"
        if self.bias is not True:
            s += f", bias={self.bias}"
        if self.batch_first is not False:
            s += f", batch_first={self.batch_first}"
        if self.dropout != 0:
            s += f", dropout={self.dropout}"
        if self.bidirectional is not False:
            s += f", bidirectional={self.bidirectional}"
        return s


class RNN(RNNBase):
    """h = tanh or relu of (W_ih x + b_ih + W_hh h + b_hh)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        if len(args) > 3:
            self_nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self_nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self_nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{self_nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__("RNN_TANH" if self_nonlinearity == "tanh" else "RNN_RELU", *args, **kwargs)
        self.nonlinearity = self_nonlinearity


class GRU(RNNBase):
    """Gated recurrent unit."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class LSTM(RNNBase):
    """Long short-term memory; the state is (h, c)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class RNNCellBase(Module):
    """weight_ih, weight_hh, bias_ih, bias_hh of one step."""

    __constants__ = ["input_size", "hidden_size", "bias"]
    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    nonlinearity: str

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.bias = bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(torch.empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(torch.empty((rows, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(torch.empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        bound = 1.0 / math.sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def extra_repr(self) -> str:
        s = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            s += f", bias={self.bias}"
        if "nonlinearity" in self.__dict__ and self.nonlinearity != "tanh":
            s += f", nonlinearity={self.nonlinearity}"
        return s

    def _enter(self, input: Tensor, state: tuple[Tensor, ...] | None, count: int) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Input and states with a batch dimension."""
        name = type(self).__name__
        if input.ndim not in (1, 2):
            raise ValueError(f"{name}: Expected input to be 1D or 2D, got {input.ndim}D instead")
        for i, s in enumerate(state or ()):
            if s.ndim not in (1, 2):
                which = f"hx[{i}]" if count > 1 else "hidden"
                raise ValueError(f"{name}: Expected {which} to be 1D or 2D, got {s.ndim}D instead")
        if input.shape[-1] != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {input.shape[-1]} expected {self.input_size}")
        x = input if input.ndim == 2 else input.unsqueeze(0)
        if state is None:
            return x, (torch.zeros(x.shape[0], self.hidden_size, dtype=x.dtype, device=x.device),) * count
        state = tuple(s if s.ndim == 2 else s.unsqueeze(0) for s in [state[i] for i in range(count)])
        for s in state:
            if tuple(s.shape) != (x.shape[0], self.hidden_size):
                raise RuntimeError(
                    f"{name}: hidden has shape {tuple(s.shape)}, but batch {x.shape[0]} and hidden_size {self.hidden_size} "
                    f"need {(x.shape[0], self.hidden_size)}"
                )
        return x, state


class RNNCell(RNNCellBase):
    """One step of a plain recurrent network."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None,
        dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        x, (h,) = self._enter(input, None if hx is None else (hx,), 1)
        y = recurrent.rnn_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, self.nonlinearity)
        return y if input.ndim == 2 else y.squeeze(0)


class LSTMCell(RNNCellBase):
    """One step of an LSTM; the state is (h, c)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if isinstance(hx, Tensor) and hx.ndim and input.ndim == 2:
            raise TypeError("LSTMCell: argument 'hx' must be a tuple of Tensors (h, c), not Tensor")
        x, (h, c) = self._enter(input, None if hx is None else tuple(hx), 2)
        h, c = recurrent.lstm_cell(x, h, c, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return (h, c) if input.ndim == 2 else (h.squeeze(0), c.squeeze(0))


class GRUCell(RNNCellBase):
    """One step of a GRU."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x, (h,) = self._enter(input, None if hx is None else (hx,), 1)
        y = recurrent.gru_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return y if input.ndim == 2 else y.squeeze(0)
