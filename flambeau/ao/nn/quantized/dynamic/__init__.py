"""torch.ao.nn.quantized.dynamic: modules with quantized weights whose inputs are floats, quantized as they come."""

from __future__ import annotations

from flambeau.ao.nn.quantized.dynamic.linear import Linear
from flambeau.ao.nn.quantized.dynamic.rnn import GRU, LSTM, GRUCell, LSTMCell, RNNCell
from flambeau.names import answering as _answering

__getattr__ = _answering("torch.ao.nn.quantized.dynamic", globals())
