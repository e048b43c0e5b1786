"""QuantizedTensor: integers, and what gives them their meaning.

The object is itself the tensor of integers for memory, views and copies; its dtype (torch.quint8, ...), what it prints, and what functions make of it,
are of the real numbers. Gradients end here, as in PyTorch.
"""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.ops.dispatch import DisableTorchFunctionSubclass, admit
from flambeau.quantized.affine import Affine, integers, real
from flambeau.tensor import Tensor


def inner(t: Tensor) -> Tensor:
    """The integers of a quantized tensor: the same memory."""
    with DisableTorchFunctionSubclass():
        return t.as_subclass(Tensor)


class QuantizedTensor(Tensor):
    """Integers with a scale and a zero point: see torch.quantize_per_tensor and torch.quantize_per_channel."""

    _affine: Affine
    is_quantized = True

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        from flambeau.quantized.functions import call

        return call(func, args, kwargs or {})

    # -- what it says of itself -----------------------------------------------------------------------------------
    @property
    def dtype(self) -> dtypes.dtype:  # type: ignore[override]
        """torch.quint8, torch.qint8, torch.qint32, or torch.quint4x2, whose integers are kept one a byte."""
        return self._affine.dtype

    def qscheme(self) -> Any:
        """torch.per_tensor_affine, torch.per_channel_affine or torch.per_channel_affine_float_qparams."""
        return self._affine.scheme

    def int_repr(self) -> Tensor:
        """A copy of the integers."""
        return inner(self).clone()

    def dequantize(self) -> Tensor:
        """The real numbers, in float32."""
        return real(inner(self), self._affine)

    def q_scale(self) -> float:
        """The scale; RuntimeError where each channel has its own."""
        return float(self._per_tensor("q_scale").scale)

    def q_zero_point(self) -> int:
        """The zero point; RuntimeError where each channel has its own."""
        return int(self._per_tensor("q_zero_point").zero_point)

    def q_per_channel_scales(self) -> Tensor:
        """(channels,): float64. RuntimeError where there is one scale."""
        return self._per_channel("q_per_channel_scales").scale  # type: ignore[no-any-return]

    def q_per_channel_zero_points(self) -> Tensor:
        """(channels,): int64, or float32 of a scheme with real zero points. RuntimeError where there is one."""
        return self._per_channel("q_per_channel_zero_points").zero_point  # type: ignore[no-any-return]

    def q_per_channel_axis(self) -> int:
        """The dim of the channels; RuntimeError where there is one scale."""
        return self._per_channel("q_per_channel_axis").axis  # type: ignore[return-value]

    def _per_tensor(self, name: str) -> Affine:
        if self._affine.axis is not None:
            raise RuntimeError(f"{name}: Expected quantizer->qscheme() == kPerTensorAffine: each channel has its own, see q_per_channel_scales()")
        return self._affine

    def _per_channel(self, name: str) -> Affine:
        if self._affine.axis is None:
            raise RuntimeError(f"{name}: Expected quantizer->qscheme() == kPerChannelAffine: this tensor has one scale, see q_scale() and q_zero_point()")
        return self._affine

    def type(self, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the type; NotImplementedError for another dtype: use dequantize()."""
        if dtype is not None and dtype is not self.dtype:
            raise NotImplementedError(f"type(): a tensor of {self.dtype} has no other dtype; use dequantize()")
        name = self.dtype.name
        return f"torch.quantized.{'QU' if name.startswith('qu') else 'Q'}Int{name.rpartition('int')[2]}Tensor"

    def item(self) -> float:
        """The real number of a tensor of one element."""
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return float(self.dequantize().item())

    def tolist(self) -> Any:
        """RuntimeError: use dequantize().tolist() or int_repr().tolist()."""
        raise RuntimeError("tolist(): a quantized tensor has no list of its own; use dequantize().tolist() or int_repr().tolist()")

    def numpy(self, *, force: bool = False) -> Any:
        """TypeError: use dequantize().numpy() or int_repr().numpy()."""
        raise TypeError(f"numpy(): Got unsupported ScalarType {self.dtype}; use dequantize().numpy() or int_repr().numpy()")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        from flambeau.printing import quantized_repr

        return quantized_repr(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return rebuilt, (inner(self), self._affine)

    def __deepcopy__(self, memo: Any) -> Any:
        if id(self) not in memo:
            memo[id(self)] = made(self.int_repr(), self._affine)
        return memo[id(self)]

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.ndim == 0 else object.__format__(self, spec)


admit(QuantizedTensor)


def made(values: Tensor, a: Affine) -> QuantizedTensor:
    """A quantized tensor over integers."""
    with DisableTorchFunctionSubclass():
        result = values.as_subclass(QuantizedTensor)
    result._affine = a
    return result


def rebuilt(values: Tensor, a: Any) -> QuantizedTensor:
    """What pickles call."""
    return made(values, Affine(*a))


def quantized(x: Tensor, a: Affine) -> QuantizedTensor:
    """The quantized tensor next to a float tensor."""
    return made(integers(x, a), a)


def parts(t: Any, name: str) -> tuple[Tensor, Affine]:
    """(integers, their meaning) of a quantized tensor; RuntimeError, of function `name`, for anything else."""
    if not isinstance(t, QuantizedTensor):
        kind = t.dtype if isinstance(t, Tensor) else type(t).__name__
        raise RuntimeError(f"{name}: expected a quantized tensor, got {kind}; make one by torch.quantize_per_tensor(x, scale, zero_point, torch.quint8)")
    return inner(t), t._affine
