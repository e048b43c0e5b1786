"""Weights of quantized layers, and the products of integers with them.

A product of integers is exact: of matrices in int32 (`torch._int_mm`), of convolutions in float32, whose sums of products are whole numbers and so
exact below 2^24 (a filter of 518 weights times 8 bits can go beyond, where the last bits are rounded). What follows a product, the zero points'
part, the bias and the scale of the result, is a recorded composition that fuses behind it.
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.quantized.affine import Affine, requantized, single
from flambeau.quantized.tensor import QuantizedTensor, inner, made, parts
from flambeau.tensor import Tensor


def _scales(a: Affine, ndim: int = 0) -> Any:
    """The scale of a weight, in float32: a number, or a tensor (out, 1, ...) with `ndim` dims behind the first."""
    return single(a.scale) if a.axis is None else a.scale.float().view(-1, *[1] * ndim)


def _check_weight(weight: Any, name: str, axis: int = 0) -> None:
    _, a = parts(weight, name)
    if a.dtype is not torch.qint8:
        raise RuntimeError(f"{name}: the weight must be of torch.qint8, got {a.dtype}")
    if a.axis not in (None, axis):
        raise RuntimeError(f"{name}: the weight's scales must be one, or one of each output channel (dim {axis}); they are along dim {a.axis}")


class LinearPackedParams:
    """A quantized weight (out, in) and a float bias (out,) of a linear layer: what torch.ops.quantized.linear_prepack gives."""

    def __init__(self, weight: QuantizedTensor, bias: Tensor | None) -> None:
        _check_weight(weight, "linear_prepack")
        if bias is not None and tuple(bias.shape) != (weight.shape[0],):
            raise RuntimeError(f"linear_prepack: the bias must be of shape ({weight.shape[0]},), got {tuple(bias.shape)}")
        self.weight, self.bias = weight, bias
        integers = inner(weight).contiguous()
        self.columns = integers.t()  # (in, out), as the product reads it
        self.sums = integers.to(torch.int32).sum(1)

    def unpack(self) -> tuple[QuantizedTensor, Tensor | None]:
        """(weight, bias)."""
        return self.weight, self.bias

    def __reduce__(self) -> Any:
        return LinearPackedParams, (self.weight, self.bias)

    def _sums(self, x: Tensor, zero_point: Any) -> Tensor:
        """(rows, out): the sums of (x - zero_point) * (w - its zero point), exact, in int32. `x`: (rows, in) of uint8 or int8."""
        shift = 0
        if x.dtype is torch.uint8:  # dot instructions multiply int8 by int8: codes less 128, which the sums of the weights make up for
            x, shift = (x.to(torch.int16) - 128).to(torch.int8), 128
        total = torch._int_mm(x, self.columns) - self.sums * (zero_point - shift)
        a = self.weight._affine
        if a.axis is None and a.zero_point == 0:
            return total  # type: ignore[no-any-return]
        of_rows = x.to(torch.int32).sum(1, keepdim=True) - (zero_point - shift) * x.shape[1]
        return total - of_rows * (a.zero_point if a.axis is None else a.zero_point.to(torch.int32))  # type: ignore[no-any-return]

    def _rows(self, input: Tensor, name: str) -> Tensor:
        if input.ndim < 1 or input.shape[-1] != self.weight.shape[1]:
            raise RuntimeError(
                f"{name}: the input's last dim must be {self.weight.shape[1]}, as the weight {tuple(self.weight.shape)} has it; got {tuple(input.shape)}"
            )
        return input.reshape(-1, input.shape[-1])

    def static(self, input: Any, scale: float, zero_point: int, relu: bool = False) -> QuantizedTensor:
        """The layer of a quantized input, quantized to a scale and a zero point."""
        x, a = parts(input, "quantized::linear")
        rows = self._rows(x, "quantized::linear")
        at = single(a.scale) * _scales(self.weight._affine)
        total = self._sums(rows, a.zero_point).float()
        if self.bias is not None:
            total = total + self.bias.detach() / at
        low, high = a.limits
        q = requantized(total, at / single(scale), zero_point, max(low, zero_point) if relu else low, high, x.dtype)
        return made(q.view(*x.shape[:-1], -1), Affine(a.dtype, scale, zero_point))

    def dynamic(self, input: Tensor, reduce_range: bool = False, relu: bool = False) -> Tensor:
        """The layer of a float input, which is quantized with a scale found from its values."""
        if input.dtype is not torch.float32:
            raise RuntimeError(f"quantized::linear_dynamic: the input must be float32, got {input.dtype}")
        rows = self._rows(input, "quantized::linear_dynamic")
        x, scale, zero_point = dynamic_codes(rows, reduce_range)
        result = self._sums(x, zero_point).float() * (scale * _scales(self.weight._affine))
        if self.bias is not None:
            result = result + self.bias.detach()
        result = result.relu() if relu else result
        return result.view(*input.shape[:-1], -1)  # type: ignore[no-any-return]


class EmbeddingPackedParams:
    """A table with a scale for each row: what torch.ops.quantized.embedding_bag_prepack gives."""

    def __init__(self, weight: QuantizedTensor) -> None:
        _, a = parts(weight, "embedding_bag_prepack")
        if a.axis != 0:
            raise RuntimeError(f"embedding_bag_prepack: the weight must have a scale for each row, its scheme is {weight.qscheme()}")
        self.weight = weight


def dynamic_codes(x: Tensor, reduce_range: bool) -> tuple[Tensor, Tensor, Tensor]:
    """(codes in uint8, scale, zero point) of a float tensor: as `chosen` finds them, but recorded, so that no value is looked at."""
    qmax = 127 if reduce_range else 255
    if x.numel() == 0:
        return x.to(torch.uint8), torch.tensor(1.0), torch.tensor(0)  # type: ignore[attr-defined]
    low, high = (v.double().detach() for v in torch.aminmax(x))
    low, high = low.clamp(max=0.0), high.clamp(min=0.0)
    scale = (high - low) / qmax
    scale = torch.where((scale.float() == 0.0) | scale.float().reciprocal().isinf(), 0.1, scale)
    least = single(6.1e-5)
    small = scale < least
    ratio = least / scale
    both = torch.where((low == 0.0) | (high == 0.0), least * qmax, 0.0)
    low, high = (
        torch.where(small, torch.where(low == 0.0, 0.0, torch.where(high == 0.0, -both, low * ratio)), low),
        torch.where(small, torch.where(low == 0.0, both, torch.where(high == 0.0, 0.0, high * ratio)), high),
    )
    scale = torch.where(small, least, scale)
    from_low, from_high = -low / scale, qmax - high / scale
    zero = torch.where(-(low / scale).abs() < qmax - (high / scale).abs(), from_low, from_high).round().clamp(0, qmax)
    inverse = scale.float().reciprocal()
    q = (x.double() * inverse.double() + zero).float().round().clamp(0, qmax).to(torch.uint8)
    return q, scale.float(), zero.to(torch.int32)


class ConvPackedParams:
    """A quantized weight and a float bias of a convolution, with its steps: what torch.ops.quantized.conv2d_prepack gives."""

    def __init__(
        self, weight: QuantizedTensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int, transposed: bool = False,
        output_padding: Any = 0,
    ) -> None:  # fmt: skip
        _check_weight(weight, "conv_prepack", 1 if transposed else 0)
        self.weight, self.bias = weight, bias
        self._stride, self._padding, self._dilation, self._groups = stride, padding, dilation, groups
        self._transposed, self._output_padding = transposed, output_padding
        a = weight._affine
        integers = inner(weight).float()  # type: ignore[attr-defined]
        self.filters = (integers - (a.zero_point if a.axis is None else a.along(a.zero_point, integers.ndim).float())).contiguous()
        self.dims = weight.ndim - 2

    def unpack(self) -> tuple[QuantizedTensor, Tensor | None]:
        """(weight, bias)."""
        return self.weight, self.bias

    def stride(self) -> Any:
        """The steps between outputs."""
        return list(self._stride)

    def padding(self) -> Any:
        """Zeros around the image."""
        return list(self._padding)

    def dilation(self) -> Any:
        """The steps between taps."""
        return list(self._dilation)

    def groups(self) -> int:
        """Groups of channels that are apart."""
        return self._groups

    def __reduce__(self) -> Any:
        return ConvPackedParams, (
            self.weight, self.bias, self._stride, self._padding, self._dilation, self._groups, self._transposed, self._output_padding
        )  # fmt: skip

    def _sums(self, x: Tensor) -> Tensor:
        """The sums of whole numbers, in float32."""
        F = torch.nn.functional
        if self._transposed:
            f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self.dims - 1]
            return f(x, self.filters, None, self._stride, self._padding, self._output_padding, self._groups, self._dilation)  # type: ignore[no-any-return]
        f = (F.conv1d, F.conv2d, F.conv3d)[self.dims - 1]
        return f(x, self.filters, None, self._stride, self._padding, self._dilation, self._groups)  # type: ignore[no-any-return]

    def static(self, input: Any, scale: float, zero_point: int, relu: bool = False) -> QuantizedTensor:
        """The layer of a quantized input, quantized to a scale and a zero point. What is padded stands for 0."""
        x, a = parts(input, "quantized::conv")
        if x.ndim != self.dims + 2:
            raise RuntimeError(f"quantized::conv{self.dims}d: the input must have {self.dims + 2} dims, got {tuple(x.shape)}")
        at = single(a.scale) * _scales(self.weight._affine, self.dims)
        total = self._sums(x.float() - float(a.zero_point))  # type: ignore[attr-defined]
        if self.bias is not None:
            total = total + self.bias.detach().view(-1, *[1] * self.dims) / at
        low, high = a.limits
        q = requantized(total, at / single(scale), zero_point, max(low, zero_point) if relu else low, high, x.dtype)
        return made(q, Affine(a.dtype, scale, zero_point))

    def dynamic(self, input: Tensor, reduce_range: bool = False) -> Tensor:
        """The layer of a float input, which is quantized with a scale found from its values."""
        x, scale, zero_point = dynamic_codes(input, reduce_range)
        result = self._sums(x.float() - zero_point.float()) * (scale * _scales(self.weight._affine, self.dims))  # type: ignore[attr-defined]
        return result if self.bias is None else result + self.bias.detach().view(-1, *[1] * self.dims)  # type: ignore[no-any-return]
