"""Weights of quantized layers in archives: objects of PyTorch's C++ classes, whose states hold the quantized tensors, as flambeau's own packed weights."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, NoReturn

import flambeau
from flambeau.jit.torchscript.errors import refuse
from flambeau.quantized.packed import ConvPackedParams, EmbeddingPackedParams, LinearPackedParams
from flambeau.quantized.recurrent import CellParams
from flambeau.quantized.tensor import QuantizedTensor
from flambeau.tensor import Tensor

SPACE: Final = "__torch__.torch.classes."


class HalfWeights(NamedTuple):
    """A weight in float16, as the operators for such weights take it."""

    weight: Tensor
    bias: Tensor | None


class PickledWeights:
    """An object of a C++ class before it is made: its state."""

    name = ""
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def made(self, state: Any) -> Any:
        """The object of a state."""
        raise NotImplementedError

    def _unknown(self) -> NoReturn:
        refuse(f"the state of an object of {self.name} is not what PyTorch 1.6 and later write")

    def _optional(self, v: Any) -> Any:
        return v if v is None or isinstance(v, Tensor) else self._unknown()

    def _tensor(self, v: Any) -> Tensor:
        return v if isinstance(v, Tensor) else self._unknown()


class _Linear(PickledWeights):
    """(weight, bias): integers, or float16."""

    def made(self, state: Any) -> Any:
        if not isinstance(state, tuple) or len(state) != 2:
            self._unknown()
        weight, bias = self._tensor(state[0]), self._optional(state[1])
        bias = None if bias is None else bias.detach()
        return LinearPackedParams(weight, bias) if isinstance(weight, QuantizedTensor) else HalfWeights(weight, bias)


class _Conv(PickledWeights):
    """("2", [numbers as a tensor, weight], [bias]) or (3, [numbers], [bias, weight]). Numbers: dims, then by dim stride, padding, dilation and padding of the
    output, then groups, and whether the convolution is transposed."""

    def made(self, state: Any) -> Any:
        if not isinstance(state, tuple) or len(state) != 3 or not isinstance(state[1], list) or not isinstance(state[2], list):
            self._unknown()
        version, first, second = state
        if version == "2" and len(first) == 2 and second:
            numbers, weight, bias = self._tensor(first[0]).tolist(), first[1], second[0]
        elif version == 3 and len(second) >= 2:
            numbers, bias, weight = first, second[0], second[1]
        else:
            self._unknown()
        if not numbers or not all(isinstance(n, int) for n in numbers) or len(numbers) != 4 * numbers[0] + 3 or not isinstance(weight, QuantizedTensor):
            self._unknown()
        d = numbers[0]
        stride, padding, dilation, output_padding = (numbers[1 + i * d : 1 + (i + 1) * d] for i in range(4))
        bias = self._optional(bias)
        bias = None if bias is None else bias.detach()
        return ConvPackedParams(weight, bias, stride, padding, dilation, numbers[-2], bool(numbers[-1] & 1), output_padding)


class _Embedding(PickledWeights):
    """(version, [weight], numbers, numbers)."""

    def made(self, state: Any) -> Any:
        if not isinstance(state, tuple) or len(state) != 4 or not isinstance(state[1], list) or len(state[1]) != 1:
            self._unknown()
        if not isinstance(state[1][0], QuantizedTensor):
            self._unknown()
        return EmbeddingPackedParams(state[1][0])


class _Cell(PickledWeights):
    """(kind, tensors, numbers, [whether the range is reduced], [packed weights of the inputs, of the states])."""

    def made(self, state: Any) -> Any:
        if not isinstance(state, tuple) or len(state) != 5 or state[0] not in ("quantized_dynamic", "quantized_fp16"):
            refuse(f"the state of an object of {self.name} is {state[0] if isinstance(state, tuple) and state else state!r}, which is not read")
        if not isinstance(state[4], list) or len(state[4]) != 2 or not all(isinstance(p, (LinearPackedParams, tuple)) for p in state[4]):
            self._unknown()
        return CellParams(state[4][0], state[4][1], bool(state[3][0]) if state[3] else True)


def _class(base: type[PickledWeights], space: str, name: str) -> type[PickledWeights]:
    return type(name, (base,), {"name": f"{SPACE}{space}.{name}"})


CLASSES: Final = {
    made.name: made
    for made in (
        _class(_Linear, "quantized", "LinearPackedParamsBase"),
        _class(_Conv, "quantized", "Conv2dPackedParamsBase"),
        _class(_Conv, "quantized", "Conv3dPackedParamsBase"),
        _class(_Embedding, "quantized", "EmbeddingPackedParamsBase"),
        _class(_Cell, "rnn", "CellParamsBase"),
    )
}


def class_of(value: Any) -> str | None:
    """The C++ class whose objects hold such weights; None if `value` is none."""
    if isinstance(value, ConvPackedParams):
        return f"{SPACE}quantized.Conv{max(value.dims, 2)}dPackedParamsBase"
    for kind, name in ((CellParams, "rnn.CellParamsBase"), (EmbeddingPackedParams, "quantized.EmbeddingPackedParamsBase")):
        if isinstance(value, kind):
            return SPACE + name
    return f"{SPACE}quantized.LinearPackedParamsBase" if isinstance(value, (LinearPackedParams, HalfWeights)) else None


def state_of(value: Any, qualified: str) -> Any:
    """What the archive says of packed weights: the state of an object of the C++ class."""
    kind = qualified.rpartition(".")[2]
    if kind == "LinearPackedParamsBase":
        return (value.weight, value.bias) if isinstance(value, LinearPackedParams) else tuple(value)
    if kind == "EmbeddingPackedParamsBase":
        return 1, [value.weight], [8.0 if value.weight.dtype is flambeau.quint8 else 4.0], [1]
    if kind == "CellParamsBase":
        fp16 = not isinstance(value.ih, LinearPackedParams)
        biases = [p[1] if fp16 else p.bias for p in (value.ih, value.hh)]
        return "quantized_fp16" if fp16 else "quantized_dynamic", [] if fp16 else biases, [], [] if fp16 else [int(value.reduce_range)], [value.ih, value.hh]
    numbers = [value.dims]
    for each in (value._stride, value._padding, value._dilation, value._output_padding):
        numbers += [each] * value.dims if isinstance(each, int) else list(each)
    numbers += [value._groups, int(value._transposed)]
    return "2", [flambeau.tensor(numbers, dtype=flambeau.int16), value.weight], [value.bias]
