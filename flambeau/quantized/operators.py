"""torch.ops.quantized: operators of quantized tensors, each with the scale and the zero point of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import flambeau as torch
from flambeau.dtypes import INTEGER_OF
from flambeau.quantized.affine import Affine, chosen, integers, inverse, real, requantized, single
from flambeau.quantized.packed import ConvPackedParams, EmbeddingPackedParams, LinearPackedParams
from flambeau.quantized.recurrent import CELLS
from flambeau.quantized.tensor import QuantizedTensor, made, parts, quantized
from flambeau.tensor import Tensor


def _number(value: Any, kind: type) -> Any:
    return kind(value.item()) if isinstance(value, Tensor) else kind(value)


def _result(like: Any, scale: Any, zero_point: Any, name: str) -> Affine:
    return Affine(parts(like, f"quantized::{name}")[1].dtype, _number(scale, float), _number(zero_point, int))


# -- two operands -------------------------------------------------------------------------------------------------------
def _pair(name: str, qa: Any, qb: Any) -> None:
    a, b = (parts(t, f"quantized::{name}")[1] for t in (qa, qb))
    if a.dtype is not b.dtype:
        raise RuntimeError(f"quantized::{name}: Both inputs to quantized {name} must be of the same dtype, got {a.dtype} and {b.dtype}")
    if a.axis is not None or b.axis is not None:
        raise RuntimeError(f"quantized::{name}: Only per tensor quantization is supported")


def _premultiplied(t: Any) -> Tensor:
    """The real numbers, with one rounding: scale * q - scale * zero point, as PyTorch's kernels compute them."""
    q, a = parts(t, "quantized::add")
    scale = single(a.scale)
    return (q.double() * scale + single(-a.zero_point * scale)).float()  # type: ignore[no-any-return]


def add(qa: Any, qb: Any, scale: float = 1.0, zero_point: int = 0) -> QuantizedTensor:
    """qa + qb, quantized; with a number for `qb` the integers stay and their meaning moves."""
    if not isinstance(qb, Tensor):
        return add_scalar(qa, qb)
    _pair("add", qa, qb)
    return quantized_as_kernels(_premultiplied(qa) + _premultiplied(qb), _result(qa, scale, zero_point, "add"))


def add_relu(qa: Any, qb: Any, scale: float = 1.0, zero_point: int = 0) -> QuantizedTensor:
    """relu(qa + qb), quantized."""
    _pair("add_relu", qa, qb)
    return quantized_as_kernels((_premultiplied(qa) + _premultiplied(qb)).relu(), _result(qa, scale, zero_point, "add_relu"))


def quantized_as_kernels(x: Tensor, a: Affine) -> QuantizedTensor:
    """Quantized with a product that is rounded before the zero point is added: as vectorised kernels do behind an operation."""
    low, high = a.limits
    return made(requantized(x, inverse(a.scale), a.zero_point, low, high, INTEGER_OF[a.dtype]), a)


def mul(qa: Any, qb: Any, scale: float = 1.0, zero_point: int = 0, _relu: bool = False) -> QuantizedTensor:
    """qa * qb, quantized."""
    if not isinstance(qb, Tensor):
        return mul_scalar(qa, qb)
    _pair("mul", qa, qb)
    (x, a), (y, b), r = parts(qa, "mul"), parts(qb, "mul"), _result(qa, scale, zero_point, "mul")
    product = ((x.to(torch.int32) - a.zero_point) * (y.to(torch.int32) - b.zero_point)).float()  # type: ignore[attr-defined]
    factor = single(single(single(a.scale) * single(b.scale)) * single(1.0 / single(r.scale)))
    low, high = r.limits
    return made(requantized(product, factor, r.zero_point, max(low, r.zero_point) if _relu else low, high, x.dtype), r)


def mul_relu(qa: Any, qb: Any, scale: float = 1.0, zero_point: int = 0) -> QuantizedTensor:
    """relu(qa * qb), quantized."""
    return mul(qa, qb, scale, zero_point, True)


def add_scalar(qa: Any, b: Any) -> QuantizedTensor:
    """qa + a number: the same integers as far as the zero point can move."""
    x, a = parts(qa, "quantized::add_scalar")
    low, high = a.limits
    zero = a.zero_point - round(_number(b, float) / a.scale)
    if low <= zero <= high:
        return made(x.clone(), a._replace(zero_point=zero))
    # The zero point stays at the end, and the range grows to hold what was beyond.
    end = low if zero < low else high
    scale = a.scale * ((high - zero) if zero < low else (zero - low)) / (high - low)
    factor = single(a.scale / scale)
    return made(requantized(x.float() - float(zero), factor, end, low, high, x.dtype), Affine(a.dtype, scale, end))  # type: ignore[attr-defined]


def mul_scalar(qa: Any, b: Any) -> QuantizedTensor:
    """qa * a number: the scale is multiplied; a negative number mirrors the integers."""
    x, a = parts(qa, "quantized::mul_scalar")
    factor = _number(b, float)
    low, high = a.limits
    if factor == 0.0:
        return made(torch.zeros_like(x), Affine(a.dtype, 1.0, 0))
    if factor > 0.0:
        return made(x.clone(), a._replace(scale=a.scale * factor))
    return made((low + high - x.to(torch.int32)).to(x.dtype), Affine(a.dtype, -a.scale * factor, low + high - a.zero_point))


def add_scalar_relu(qa: Any, b: Any) -> QuantizedTensor:
    """relu(qa + a number)."""
    return add_scalar(qa, b).relu()  # type: ignore[attr-defined, no-any-return]


def mul_scalar_relu(qa: Any, b: Any) -> QuantizedTensor:
    """relu(qa * a number)."""
    return mul_scalar(qa, b).relu()  # type: ignore[attr-defined, no-any-return]


def matmul(qa: Any, qb: Any, scale: float, zero_point: int) -> QuantizedTensor:
    """qa @ qb, quantized; both (..., n, k) and (..., k, m), with one scale each."""
    _pair("matmul", qa, qb)
    (x, a), (y, b), r = parts(qa, "matmul"), parts(qb, "matmul"), _result(qa, scale, zero_point, "matmul")
    total = ((x.to(torch.int32) - a.zero_point) @ (y.to(torch.int32) - b.zero_point)).float()
    low, high = r.limits
    return made(requantized(total, single(single(a.scale) * single(b.scale)) / single(r.scale), r.zero_point, low, high, x.dtype), r)


def cat(qxs: Sequence[Any], dim: int, scale: Any = None, zero_point: Any = None, _relu: bool = False) -> QuantizedTensor:
    """Joined along a dim, quantized to a scale and a zero point (by default the first's)."""
    a = parts(qxs[0], "quantized::cat")[1]
    r = a if scale is None else _result(qxs[0], scale, zero_point, "cat")
    low, high = r.limits
    pieces = []
    for q in qxs:
        x, b = parts(q, "quantized::cat")
        pieces.append(x if b == r else integers(q.dequantize(), r))
    joined = torch.cat(pieces, dim)
    return made(joined.clamp(max(low, r.zero_point), high) if _relu else joined, r)


def cat_relu(qxs: Sequence[Any], dim: int, scale: Any = None, zero_point: Any = None) -> QuantizedTensor:
    """relu of tensors joined along a dim."""
    return cat(qxs, dim, scale, zero_point, True)


# -- layers -------------------------------------------------------------------------------------------------------------
def linear_prepack(weight: Any, bias: Any = None) -> LinearPackedParams:
    """A weight (out, in) of qint8 and a float bias, ready for `linear` and `linear_dynamic`."""
    return LinearPackedParams(weight, bias)


def linear_unpack(packed: LinearPackedParams) -> tuple[Any, Any]:
    """(weight, bias)."""
    return packed.unpack()


def linear(qx: Any, packed: LinearPackedParams, scale: Any, zero_point: Any) -> QuantizedTensor:
    """x W^T + b of a quantized x (..., in), quantized."""
    return packed.static(qx, _number(scale, float), _number(zero_point, int))


def linear_relu(qx: Any, packed: LinearPackedParams, scale: Any, zero_point: Any) -> QuantizedTensor:
    """relu(x W^T + b), quantized."""
    return packed.static(qx, _number(scale, float), _number(zero_point, int), relu=True)


def linear_dynamic(x: Tensor, packed: LinearPackedParams, reduce_range: bool = False) -> Tensor:
    """x W^T + b of a float x, which is quantized by its least and greatest value."""
    return packed.dynamic(x, reduce_range)


def linear_relu_dynamic(x: Tensor, packed: LinearPackedParams, reduce_range: bool = False) -> Tensor:
    """relu(x W^T + b) of a float x, which is quantized by its least and greatest value."""
    return packed.dynamic(x, reduce_range, relu=True)


def linear_prepack_fp16(weight: Tensor, bias: Any = None) -> tuple[Tensor, Any]:
    """A weight rounded to float16, and the bias."""
    return weight.detach().half(), bias  # type: ignore[attr-defined]


def linear_dynamic_fp16(x: Tensor, packed: tuple[Tensor, Any]) -> Tensor:
    """x W^T + b with a weight of float16, computed in float32."""
    return torch.nn.functional.linear(x, packed[0].float(), packed[1])  # type: ignore[attr-defined, no-any-return]


def linear_unpack_fp16(packed: tuple[Tensor, Any]) -> tuple[Tensor, Any]:
    """(weight in float32, bias)."""
    return packed[0].float(), packed[1]  # type: ignore[attr-defined]


def _conv(dims: int) -> dict[str, Callable[..., Any]]:
    def pack(weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> ConvPackedParams:
        return ConvPackedParams(weight, bias, stride, padding, dilation, groups)

    def pack_transposed(weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, dilation: Any, groups: int) -> ConvPackedParams:
        return ConvPackedParams(weight, bias, stride, padding, dilation, groups, True, output_padding)

    def whole(x: Any, packed: ConvPackedParams, run: Callable[[Any], Any]) -> Any:
        """PyTorch packs a convolution of one dim as one of two, with images of one line."""
        return run(x.unsqueeze(2)).squeeze(2) if dims == 1 and packed.dims == 2 else run(x)

    def forward(qx: Any, packed: ConvPackedParams, scale: Any, zero_point: Any) -> QuantizedTensor:
        return whole(qx, packed, lambda x: packed.static(x, _number(scale, float), _number(zero_point, int)))  # type: ignore[no-any-return]

    def forward_relu(qx: Any, packed: ConvPackedParams, scale: Any, zero_point: Any) -> QuantizedTensor:
        return whole(qx, packed, lambda x: packed.static(x, _number(scale, float), _number(zero_point, int), relu=True))  # type: ignore[no-any-return]

    def dynamic(x: Tensor, packed: ConvPackedParams, reduce_range: bool = False) -> Tensor:
        return whole(x, packed, lambda x: packed.dynamic(x, reduce_range))  # type: ignore[no-any-return]

    name = f"conv{dims}d"
    found = {
        f"{name}_prepack": pack, f"conv_transpose{dims}d_prepack": pack_transposed, name: forward, f"{name}_relu": forward_relu,
        f"{name}_dynamic": dynamic, f"conv_transpose{dims}d": forward, f"conv_transpose{dims}d_dynamic": dynamic,
        f"{name}_unpack": ConvPackedParams.unpack, f"conv_transpose{dims}d_unpack": ConvPackedParams.unpack,
    }  # fmt: skip
    return found


# -- tables of rows ------------------------------------------------------------------------------------------------------
def embedding_rows(table: Any, indices: Tensor) -> Tensor:
    """The rows of a quantized table that indices name, in floats: only those are read."""
    integers, a = parts(table, "quantized embedding")
    flat = indices.reshape(-1).long()
    found = real(integers[flat], a._replace(scale=a.scale[flat], zero_point=a.zero_point[flat]))
    return found.view(*indices.shape, table.shape[1])  # type: ignore[no-any-return]


def embedding_bag_prepack(weight: Any, *_: Any) -> EmbeddingPackedParams:
    """A table with a scale for each row, packed."""
    return EmbeddingPackedParams(weight)


def embedding_bag_unpack(packed: EmbeddingPackedParams) -> Any:
    """The table."""
    return packed.weight


def embedding_byte(packed: EmbeddingPackedParams, indices: Tensor, pruned_weights: bool = False) -> Tensor:
    """Rows of a packed table, in floats."""
    return embedding_rows(packed.weight, indices)


def embedding_bag(
    table: Any, indices: Tensor, offsets: Any = None, mode: str = "sum", per_sample_weights: Any = None, include_last_offset: bool = False
) -> Tensor:
    """Sums or means of rows of a quantized table, in floats."""
    rows = embedding_rows(table, indices.reshape(-1))
    places = torch.arange(rows.shape[0]).view(indices.shape)
    return torch.nn.functional.embedding_bag(  # type: ignore[no-any-return]
        places, rows, offsets, mode=mode, per_sample_weights=per_sample_weights, include_last_offset=include_last_offset
    )


def embedding_bag_byte(
    packed: EmbeddingPackedParams, indices: Tensor, offsets: Any = None, scale_grad_by_freq: bool = False, mode: int = 0, pruned_weights: bool = False,
    per_sample_weights: Any = None, compressed_indices_mapping: Any = None, include_last_offset: bool = False,
) -> Tensor:  # fmt: skip
    """Sums of rows of a packed table, in floats (PyTorch's kernel sums, whatever the mode)."""
    return embedding_bag(packed.weight, indices, offsets, "sum", per_sample_weights, include_last_offset)


# -- one operand --------------------------------------------------------------------------------------------------------
def _unary(name: str, function: Callable[..., Tensor]) -> Callable[..., QuantizedTensor]:
    def operator(qx: Any, output_scale: Any, output_zero_point: Any, *args: Any, **kwargs: Any) -> QuantizedTensor:
        r = _result(qx, output_scale, output_zero_point, name)
        return quantized(function(qx.dequantize(), *args, **kwargs), r)

    operator.__name__ = name
    return operator


def leaky_relu(qx: Any, negative_slope: float, inplace: bool, output_scale: Any, output_zero_point: Any) -> QuantizedTensor:
    """leaky_relu, quantized."""
    return quantized(torch.nn.functional.leaky_relu(qx.dequantize(), negative_slope), _result(qx, output_scale, output_zero_point, "leaky_relu"))


def elu(qx: Any, output_scale: Any, output_zero_point: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> QuantizedTensor:
    """elu, quantized."""
    x = qx.dequantize()
    found = torch.where(x > 0, x, alpha * torch.expm1(x * input_scale)) * scale
    return quantized(found, _result(qx, output_scale, output_zero_point, "elu"))


def celu(qx: Any, output_scale: Any, output_zero_point: Any, alpha: Any = 1) -> QuantizedTensor:
    """celu, quantized."""
    return elu(qx, output_scale, output_zero_point, alpha, 1.0, 1.0 / alpha)


def prelu(qx: Any, weight: Any, output_scale: Any, output_zero_point: Any) -> QuantizedTensor:
    """prelu with a quantized weight, quantized."""
    return quantized(torch.prelu(qx.dequantize(), weight.dequantize()), _result(qx, output_scale, output_zero_point, "prelu"))


def relu6(qx: Any, inplace: bool = False) -> QuantizedTensor:
    """min(max(x, 0), 6), with the input's scale."""
    return torch.nn.functional.relu6(qx, inplace)  # type: ignore[no-any-return]


def threshold(qx: Any, threshold: float, value: float) -> QuantizedTensor:
    """x where it is above a number, else `value`; with the input's scale."""
    return quantized(torch.nn.functional.threshold(qx.dequantize(), threshold, value), parts(qx, "quantized::threshold")[1])


def _batch_norm(relu: bool) -> Callable[..., QuantizedTensor]:
    def operator(
        qx: Any, weight: Tensor | None, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, output_scale: float, output_zero_point: int
    ) -> QuantizedTensor:
        """Normalisation by running statistics along dim 1, folded into one multiplication: PyTorch's batch_norm.cpp."""
        x, a = parts(qx, "quantized::batch_norm")
        r = _result(qx, output_scale, output_zero_point, "batch_norm")
        deviation = torch.sqrt(var + eps)
        gamma = deviation.reciprocal() if weight is None else weight * deviation.reciprocal()
        shape = [1, -1, *[1] * (x.ndim - 2)]
        alpha = (gamma * (single(a.scale) / single(r.scale))).detach().view(shape)
        beta = (((0.0 if bias is None else bias) - mean * gamma) / single(r.scale)).detach().view(shape)
        low, high = r.limits
        q = (x.float() - float(a.zero_point)) * alpha + beta  # type: ignore[attr-defined]
        return made((q.round() + float(r.zero_point)).clamp(max(low, r.zero_point) if relu else low, high).to(x.dtype), r)

    return operator


def layer_norm(qx: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int) -> QuantizedTensor:
    """layer_norm, quantized."""
    found = torch.nn.functional.layer_norm(qx.dequantize(), normalized_shape, weight, bias, eps)
    return quantized(found, _result(qx, output_scale, output_zero_point, "layer_norm"))


def group_norm(qx: Any, num_groups: int, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int) -> QuantizedTensor:
    """group_norm, quantized."""
    found = torch.nn.functional.group_norm(qx.dequantize(), num_groups, weight, bias, eps)
    return quantized(found, _result(qx, output_scale, output_zero_point, "group_norm"))


def instance_norm(qx: Any, weight: Any, bias: Any, eps: float, output_scale: float, output_zero_point: int) -> QuantizedTensor:
    """instance_norm, quantized."""
    found = torch.nn.functional.instance_norm(qx.dequantize(), weight=weight, bias=bias, eps=eps)
    return quantized(found, _result(qx, output_scale, output_zero_point, "instance_norm"))


def choose_qparams_per_tensor(x: Tensor, reduce_range: bool = False) -> tuple[float, int]:
    """(scale, zero point) for torch.quint8 of a tensor's values."""
    low, high = (float(v) for v in torch.stack(torch.aminmax(x)).tolist())
    return chosen(low, high, 0, 127 if reduce_range else 255)


OPERATORS: Final[dict[str, Callable[..., Any]]] = {
    **{
        f.__name__: f
        for f in (
            add, add_relu, mul, mul_relu, add_scalar, mul_scalar, add_scalar_relu, mul_scalar_relu, matmul, cat, cat_relu, linear_prepack, linear_unpack,
            linear,
            linear_relu, linear_dynamic, linear_relu_dynamic, linear_prepack_fp16, linear_dynamic_fp16, linear_unpack_fp16, leaky_relu, elu, celu, prelu, relu6,
            threshold, layer_norm, group_norm, instance_norm, choose_qparams_per_tensor,
        )
    },
    **{f.__name__: f for f in CELLS}, "embedding_byte": embedding_byte, "embedding_4bit": embedding_byte, "embedding_bag_byte": embedding_bag_byte,
    "embedding_bag_4bit": embedding_bag_byte, "embedding_bag_prepack": embedding_bag_prepack, "embedding_bag_unpack": embedding_bag_unpack,
    **_conv(1), **_conv(2), **_conv(3),
    **{f"batch_norm{d}": _batch_norm(False) for d in ("", "1d", "2d", "3d")},
    **{f"batch_norm{d}_relu": _batch_norm(True) for d in ("", "1d", "2d", "3d")},
    "hardswish": _unary("hardswish", torch.nn.functional.hardswish), "sigmoid": _unary("sigmoid", torch.sigmoid), "softmax": _unary("softmax", torch.softmax),
    "dropout": lambda qx, output_scale, output_zero_point, p=0.5, training=False: quantized(
        torch.nn.functional.dropout(qx.dequantize(), p, training), _result(qx, output_scale, output_zero_point, "dropout")
    ),
}  # fmt: skip
