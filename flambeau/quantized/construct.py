"""torch's functions that make quantized tensors, and that read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import flambeau as torch
from flambeau import dtypes
from flambeau.quantized.affine import RANGES, Affine, chosen
from flambeau.tensor import Tensor

if TYPE_CHECKING:
    from flambeau.quantized.tensor import QuantizedTensor


def _of_tensor(name: str) -> Any:
    """A name of `tensor.py`, which can be imported once these functions are there: it looks at all functions of torch."""
    from flambeau.quantized import tensor

    return getattr(tensor, name)


def parts(t: Any, name: str) -> tuple[Tensor, Affine]:
    """(integers, their meaning): see tensor.parts."""
    return _of_tensor("parts")(t, name)  # type: ignore[no-any-return]


def made(values: Tensor, a: Affine) -> QuantizedTensor:
    """A quantized tensor over integers."""
    return _of_tensor("made")(values, a)  # type: ignore[no-any-return]


def quantized(x: Tensor, a: Affine) -> QuantizedTensor:
    """The quantized tensor next to a float tensor."""
    return _of_tensor("quantized")(x, a)  # type: ignore[no-any-return]


def _check(name: str, input: Any, dtype: Any) -> None:
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' must be Tensor, not {type(input).__name__}")
    if isinstance(input, _of_tensor("QuantizedTensor")):
        raise NotImplementedError(f"{name}(): the input is quantized already, as {input.dtype}")
    if dtype not in RANGES:
        raise RuntimeError(f"{name}(): ScalarType {dtype} is not supported in new_qtensor: the dtype must be torch.quint8, torch.qint8 or torch.qint32")
    if input.dtype is not torch.float32:
        raise RuntimeError(f"{name}(): Quantize only works on Float Tensor, got {input.dtype}; use .float() first")


def _check_zero_point(name: str, zero_point: int, dtype: dtypes.dtype) -> None:
    low, high = RANGES[dtype]
    if not low <= zero_point <= high:
        side = "above upper" if zero_point > high else "below lower"
        raise RuntimeError(f"{name} zero_point {zero_point} is {side} bound: integers of {dtype} are {low} to {high}")


def _one(value: Any, kind: type) -> Any:
    return kind(value.item()) if isinstance(value, Tensor) else kind(value)


def quantize_per_tensor(input: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """round(input / scale) + zero_point, clamped to the integers of a quantized dtype: a quantized tensor of the input's shape.

    `input`: float32, or a list of tensors, with tensors of scales and zero points. RuntimeError for other dtypes, and for a zero point that is no
    integer of `dtype`.
    """
    if isinstance(input, (list, tuple)):
        return tuple([quantize_per_tensor(t, s, z, dtype) for t, s, z in zip(input, scale.tolist(), zero_point.tolist(), strict=True)])
    _check("quantize_per_tensor", input, dtype)
    a = Affine(dtype, _one(scale, float), _one(zero_point, int))
    _check_zero_point("quantize_tensor_per_tensor_affine", a.zero_point, dtype)
    return quantized(input, a)


def quantize_per_channel(input: Any, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any) -> QuantizedTensor:
    """As quantize_per_tensor, with a scale and a zero point for each index of dim `axis`: 1-d tensors.

    Zero points of a floating dtype are added before the rounding, and may lie between integers. RuntimeError for sizes that do not fit.
    """
    _check("quantize_per_channel", input, dtype)
    if not 0 <= axis < max(input.ndim, 1):
        raise RuntimeError(f"quantize_per_channel(): Channel axis out of range in per channel affine quantization. Got: {axis}Expected: [0, {input.ndim})")
    return quantized(input, _channels("quantize_per_channel", scales, zero_points, axis, dtype, tuple(input.shape)))


def _channels(name: str, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any, shape: tuple[int, ...]) -> Affine:
    for what, t in (("scales", scales), ("zero_points", zero_points)):
        if tuple(t.shape) != (shape[axis],):
            raise RuntimeError(
                f"{name}(): length of {what} must equal to channel, expected {shape[axis]} got, {t.numel()}: a 1-d tensor, one for each index of dim {axis}"
            )
    real = zero_points.dtype.is_floating_point
    return Affine(dtype, scales.detach().to(torch.float32 if real else torch.float64), zero_points.detach().to(torch.float32 if real else torch.int64), axis)


def quantize_per_tensor_dynamic(input: Tensor, dtype: Any, reduce_range: bool) -> QuantizedTensor:
    """quantize_per_tensor with a scale and a zero point that are found from the input's least and greatest value; `reduce_range`: of 7 bits."""
    _check("quantize_per_tensor_dynamic", input, dtype)
    if dtype not in (torch.qint8, torch.quint8):
        raise RuntimeError(f"quantize_per_tensor_dynamic(): dtype {dtype} not supported: torch.quint8 or torch.qint8")
    low, high = (float(v) for v in torch.stack(torch.aminmax(input)).tolist())
    qmin, qmax = RANGES[dtype]
    if reduce_range:
        qmin, qmax = qmin // 2, qmax // 2
    return quantized(input, Affine(dtype, *chosen(low, high, qmin, qmax)))


def dequantize(input: Any = None, *, tensors: Any = None) -> Any:
    """The real numbers of a quantized tensor, in float32 (of another tensor: its values), or of each of a list."""
    given = tensors if input is None else input
    if isinstance(given, (list, tuple)):
        return tuple([t.dequantize() for t in given])
    return given.dequantize()


def int_repr(input: Tensor) -> Tensor:
    """A copy of the integers of a quantized tensor: uint8, int8 or int32."""
    return parts(input, "int_repr")[0].clone()


def q_scale(input: Tensor) -> float:
    """The scale of a tensor that was quantized with one."""
    return _quantized(input, "q_scale").q_scale()


def q_zero_point(input: Tensor) -> int:
    """The zero point of a tensor that was quantized with one."""
    return _quantized(input, "q_zero_point").q_zero_point()


def q_per_channel_scales(input: Tensor) -> Tensor:
    """(channels,): the scales, in float64."""
    return _quantized(input, "q_per_channel_scales").q_per_channel_scales()


def q_per_channel_zero_points(input: Tensor) -> Tensor:
    """(channels,): the zero points, in int64."""
    return _quantized(input, "q_per_channel_zero_points").q_per_channel_zero_points()


def q_per_channel_axis(input: Tensor) -> int:
    """The dim whose indices have scales of their own."""
    return _quantized(input, "q_per_channel_axis").q_per_channel_axis()


def _quantized(input: Any, name: str) -> QuantizedTensor:
    parts(input, name)
    return input  # type: ignore[no-any-return]


def _make_per_tensor_quantized_tensor(input: Tensor, scale: float, zero_point: int) -> QuantizedTensor:
    """A quantized tensor of integers (uint8, int8, int32)."""
    return made(input.clone(), Affine(_dtype_over(input), float(scale), int(zero_point)))


def _make_per_channel_quantized_tensor(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> QuantizedTensor:
    """A quantized tensor of integers, with scales along dim `axis`."""
    return made(input.clone(), _channels("_make_per_channel_quantized_tensor", scale, zero_point, axis, _dtype_over(input), tuple(input.shape)))


def _dtype_over(t: Tensor) -> dtypes.dtype:
    found = {torch.uint8: torch.quint8, torch.int8: torch.qint8, torch.int32: torch.qint32}.get(t.dtype)
    if found is None:
        raise RuntimeError(f"a quantized tensor is made over integers of uint8, int8 or int32, not of {t.dtype}")
    return found


def _empty_affine_quantized(
    size: Sequence[int], *, scale: float = 1.0, zero_point: int = 0, dtype: Any = torch.quint8, device: Any = None, memory_format: Any = None, **_: Any
) -> QuantizedTensor:  # fmt: skip
    """A quantized tensor whose integers are not set."""
    if dtype not in RANGES:
        raise RuntimeError(f"_empty_affine_quantized(): Creation of quantized tensor requires quantized dtype like torch.quint8, got {dtype}")
    return made(torch.empty(tuple(size), dtype=dtypes.INTEGER_OF[dtype], device=device), Affine(dtype, float(scale), int(zero_point)))


def _empty_per_channel_affine_quantized(
    size: Sequence[int], *, scales: Tensor, zero_points: Tensor, axis: int, dtype: Any = torch.quint8, device: Any = None, **_: Any
) -> QuantizedTensor:  # fmt: skip
    """A quantized tensor with scales along dim `axis`, whose integers are not set."""
    a = _channels("_empty_per_channel_affine_quantized", scales, zero_points, axis, dtype, tuple(size))
    return made(torch.empty(tuple(size), dtype=dtypes.INTEGER_OF[dtype], device=device), a)


def empty_quantized(size: Sequence[int], qtensor: Tensor, **_: Any) -> QuantizedTensor:
    """A tensor of another size quantized as `qtensor` is (per tensor), whose integers are not set."""
    t, a = parts(qtensor, "empty_quantized")
    _quantized(qtensor, "empty_quantized")._per_tensor("empty_quantized")
    return made(torch.empty(tuple(size), dtype=t.dtype), a)


def quantized_max_pool1d(input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> QuantizedTensor:
    """torch.nn.functional.max_pool1d of a quantized tensor."""
    t, a = parts(input, "quantized_max_pool1d")
    size, step, border, distance = (v[0] if isinstance(v, (list, tuple)) else v for v in (kernel_size, stride or kernel_size, padding, dilation))
    planes = t.unsqueeze(-2)  # max_pool1d itself takes no integers, here as in PyTorch
    return made(torch.nn.functional.max_pool2d(planes, (1, size), (1, step), (0, border), (1, distance), ceil_mode).squeeze(-2), a)


def quantized_max_pool2d(input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> QuantizedTensor:
    """torch.nn.functional.max_pool2d of a quantized tensor."""
    t, a = parts(input, "quantized_max_pool2d")
    return made(torch.nn.functional.max_pool2d(t, kernel_size, stride or None, padding, dilation, ceil_mode), a)


def quantized_max_pool3d(input: Tensor, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False) -> QuantizedTensor:
    """torch.nn.functional.max_pool3d of a quantized tensor."""
    t, a = parts(input, "quantized_max_pool3d")
    return made(torch.nn.functional.max_pool3d(t, kernel_size, stride or None, padding, dilation, ceil_mode), a)


def quantized_batch_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, output_scale: float, output_zero_point: int
) -> QuantizedTensor:
    """(x - mean) / sqrt(var + eps) * weight + bias along dim 1 of a quantized tensor, quantized to the output's scale and zero point."""
    t, a = parts(input, "quantized_batch_norm")
    slope = (1.0 if weight is None else weight) / torch.sqrt(var + eps)
    offset = (0.0 if bias is None else bias) - mean * slope
    shape = [1, -1, *[1] * (t.ndim - 2)]
    return quantized(input.dequantize() * slope.view(shape) + offset.view(shape), Affine(a.dtype, float(output_scale), int(output_zero_point)))  # type: ignore[attr-defined]
