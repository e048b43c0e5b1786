"""What functions of torch make of quantized tensors: a table by name.

Functions that move elements, or compare them, work on the integers. The rest is done with the real numbers, and its result is quantized again where
PyTorch has the function for quantized tensors; where it has not, the call is refused, as there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import flambeau as torch
from flambeau.ops.dispatch import DisableTorchFunctionSubclass
from flambeau.ops.pointwise_names import plain_name
from flambeau.quantized.affine import Affine, integers, rounded
from flambeau.quantized.tensor import QuantizedTensor, inner, made, quantized
from flambeau.tensor import Tensor

_PLAIN: Final = frozenset(
    "__get__ __set__ is_floating_point is_complex element_size is_leaf data_ptr untyped_storage size dim ndimension numel stride storage_offset "
    "is_contiguous __len__ is_shared share_memory_ storage is_signed nelement is_same_size get_device".split()
)
# Elements are moved, and none is computed: of the integers, with the same meaning.
_MOVING: Final = frozenset(
    """view reshape flatten unflatten squeeze unsqueeze permute transpose t movedim swapaxes contiguous clone expand expand_as view_as reshape_as repeat
    getitem select narrow index_select chunk split unbind tensor_split flip roll as_strided detach max amax min amin sort topk kthvalue max_pool1d max_pool2d
    median cpu unfold take gather masked_select tile broadcast_to swapdims diagonal pixel_shuffle pixel_unshuffle channel_shuffle mT mH moveaxis
    index pin_memory repeat_interleave adjoint resolve_conj resolve_neg boolean_dispatch""".split()
)
_KEEPING_CHANNELS: Final = frozenset("clone contiguous detach cpu pin_memory resolve_conj resolve_neg".split())
_COMPARING: Final = frozenset("eq ne lt le gt ge equal allclose isclose greater greater_equal less less_equal not_equal".split())
# Computed with the real numbers; the result has the meaning of the input.
_REAL: Final = frozenset(
    "mean std leaky_relu gelu celu upsample_bilinear interpolate adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d "
    "upsample".split()
)
_IN_PLACE: Final = frozenset("relu clamp hardtanh relu6 leaky_relu sigmoid tanh hardsigmoid".split())


def call(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A public function that was given quantized tensors."""
    name = getattr(func, "__name__", "")
    if name in _PLAIN:
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    plain = plain_name(name)
    if name.endswith("_") and not name.endswith("__") and plain in _IN_PLACE:
        return _write(args[0], _TABLE.get(plain, _real)(getattr(torch.Tensor, plain, getattr(torch, plain, None)), *args, **kwargs))
    handler = _TABLE.get(name) or _TABLE.get(plain)
    if handler is not None:
        return handler(func, *args, **kwargs)
    if plain in _MOVING:
        return _moved(plain, func, args, kwargs)
    if plain in _COMPARING:
        return func(*map(_dequantized, args), **{k: _dequantized(v) for k, v in kwargs.items()})
    if plain in _REAL:
        return _real(func, *args, **kwargs)
    raise NotImplementedError(
        f"{name}(): could not run with a quantized tensor; PyTorch has no such kernel either: use it on dequantize() or int_repr(), or see torch.ops.quantized"
    )


def _dequantized(a: Any) -> Any:
    return a.dequantize() if isinstance(a, QuantizedTensor) else a


def _first(args: Sequence[Any], kwargs: dict[str, Any]) -> QuantizedTensor:
    return next(a for a in (*args, *kwargs.values()) if isinstance(a, QuantizedTensor))


def _again(found: Any, a: Affine) -> Any:
    """Integers of a result as quantized tensors; indices beside them as they are."""
    if isinstance(found, Tensor):
        return made(found, a)
    if hasattr(found, "_fields"):  # (values, indices)
        return type(found)(*(made(found[0], a), *found[1:]))
    return type(found)([made(f, a) for f in found])


def _moved(name: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    t = _first(args, kwargs)
    a = t._affine
    plain = [inner(x) if isinstance(x, QuantizedTensor) else x for x in args]
    named = {k: inner(x) if isinstance(x, QuantizedTensor) else x for k, x in kwargs.items()}
    if a.axis is not None and name not in _KEEPING_CHANNELS:
        return _moved_channels(name, t, func, plain, named)
    found = func(*plain, **named)
    if name == "boolean_dispatch" and isinstance(found, tuple):
        return made(found[0], a), found[1]
    return _again(found, a)


def _moved_channels(name: str, t: QuantizedTensor, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """A function that moves elements, of a tensor whose channels have scales of their own: those are moved with them."""
    a = t._affine
    axis = a.axis or 0
    if name in ("t", "transpose", "permute", "swapaxes", "movedim"):
        number = func(_places(t.ndim), *args[1:], **kwargs)
        return made(func(*args, **kwargs), a._replace(axis=list(number.shape).index(axis + 2)))
    whole = args[1] if name == "getitem" and len(args) > 1 else None
    if axis == 0 and (isinstance(whole, int) or (name == "select" and (args[1:2] == [0] or kwargs.get("dim") == 0))):
        index = whole if isinstance(whole, int) else args[2] if len(args) > 2 else kwargs["index"]
        one = Affine(a.dtype, float(a.scale[index].item()), int(a.zero_point[index].item()))
        return made(func(*args, **kwargs), one)
    if axis == 0 and isinstance(whole, slice):
        return made(func(*args, **kwargs), a._replace(scale=a.scale[whole], zero_point=a.zero_point[whole]))
    found = func(*args, **kwargs)
    if name in ("view", "reshape", "expand", "squeeze", "unsqueeze") and found.ndim > axis and found.shape[: axis + 1] == t.shape[: axis + 1]:
        return made(found, a)
    raise RuntimeError(f"{name}(): the channels along dim {axis} have scales of their own, which cannot be moved so; dequantize() first, or use one scale")


def _places(ndim: int) -> Tensor:
    """A tensor whose size along dim d is d + 2: tells where dims go."""
    return torch.empty([d + 2 for d in range(ndim)], dtype=torch.uint8)


def _write(t: QuantizedTensor, result: QuantizedTensor) -> QuantizedTensor:
    """The elements and the meaning of a result put into a tensor."""
    inner(t).copy_(inner(result))
    t._affine = result._affine
    return t


def _real(func: Callable[..., Any], input: QuantizedTensor, *args: Any, **kwargs: Any) -> Any:
    """The function of the real numbers, quantized as the input is."""
    a = input._per_tensor(getattr(func, "__name__", "function"))
    kwargs.pop("inplace", None)
    return quantized(func(input.dequantize(), *args, **kwargs), a)


def _clamped(t: QuantizedTensor, low: Any, high: Any, name: str) -> QuantizedTensor:
    a = t._per_tensor(name)
    least, greatest = a.limits
    at = [limit if v is None else min(max(_code(v, a), least), greatest) for v, limit in ((low, least), (high, greatest))]
    return made(inner(t).clamp(*at), a)


def _code(value: float, a: Affine) -> int:
    """The integer of a number, not clamped."""
    return round(float(rounded(torch.tensor(float(value)), a.scale, a.zero_point).item()))


def _relu(func: Any, input: QuantizedTensor, inplace: bool = False) -> QuantizedTensor:
    made_ = _clamped(input, 0.0, None, "relu")
    return _write(input, made_) if inplace else made_


def _relu6(func: Any, input: QuantizedTensor, inplace: bool = False) -> QuantizedTensor:
    made_ = _clamped(input, 0.0, 6.0, "relu6")
    return _write(input, made_) if inplace else made_


def _clamp(func: Any, input: QuantizedTensor, min: Any = None, max: Any = None) -> QuantizedTensor:
    return _clamped(input, min, max, "clamp")


def _hardtanh(func: Any, input: QuantizedTensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> QuantizedTensor:
    made_ = _clamped(input, min_val, max_val, "hardtanh")
    return _write(input, made_) if inplace else made_


# Functions whose results lie between fixed limits: the scale and the zero point of the result, for unsigned codes and for signed ones.
_FIXED: Final = {"sigmoid": ((1 / 256, 0), (1 / 256, -128)), "hardsigmoid": ((1 / 256, 0), (1 / 256, -128)), "tanh": ((2 / 256, 128), (2 / 256, 0))}


def _fixed(name: str) -> Callable[..., Any]:
    def between(func: Any, input: QuantizedTensor, *args: Any, **kwargs: Any) -> QuantizedTensor:
        kind = input._per_tensor(name).dtype
        if kind is torch.qint32:
            raise NotImplementedError(f"{name}(): of quantized tensors, those of torch.quint8 and torch.qint8; this one is {kind}")
        scale, zero_point = _FIXED[name][kind is torch.qint8]
        x = input.dequantize()
        found = torch.nn.functional.hardsigmoid(x) if name == "hardsigmoid" else getattr(torch, name)(x)
        return quantized(found, Affine(kind, scale, zero_point))

    return between


def _cat(func: Any, tensors: Sequence[Any], dim: int = 0, *, axis: int | None = None) -> QuantizedTensor:
    """Joined, with the meaning of the first."""
    name = getattr(func, "__name__", "cat")
    if not all(isinstance(t, QuantizedTensor) for t in tensors):
        raise NotImplementedError(f"{name}(): quantized tensors and others cannot be joined; quantize or dequantize() them first")
    a = tensors[0]._per_tensor(name)
    pieces = [inner(t) if t._affine == a else integers(t.dequantize(), a) for t in tensors]
    return made(func(pieces, dim if axis is None else axis), a)


def _pad(func: Any, input: QuantizedTensor, pad: Any, mode: str = "constant", value: Any = None) -> QuantizedTensor:
    a = input._per_tensor("pad")
    if mode != "constant":
        return made(func(inner(input), pad, mode), a)
    low, high = a.limits
    return made(func(inner(input), pad, mode, min(max(_code(value or 0.0, a), low), high)), a)


def _to(func: Any, input: QuantizedTensor, *args: Any, **kwargs: Any) -> Any:
    kinds = [k for k in (*args, *kwargs.values()) if isinstance(k, torch.dtype)]
    if any(k is not input.dtype for k in kinds):
        raise RuntimeError(f"to(): Creation of quantized tensor requires quantized dtype like torch.quint8, got {kinds[0]}; use dequantize()")
    plain = [a for a in args if not isinstance(a, torch.dtype)]
    named = {k: v for k, v in kwargs.items() if not isinstance(v, torch.dtype)}
    found = func(inner(input), *plain, **named) if plain or named else inner(input)
    return input if not named.get("copy") and found.data_ptr() == inner(input).data_ptr() else made(found, input._affine)


def _cast(func: Any, input: QuantizedTensor, *args: Any, **kwargs: Any) -> Any:
    name = getattr(func, "__name__", "float")
    raise RuntimeError(f"{name}(): Creation of quantized tensor requires quantized dtype like torch.quint8; use dequantize()")


def _fill(func: Any, input: QuantizedTensor, value: Any) -> QuantizedTensor:
    a = input._per_tensor("fill_")
    low, high = a.limits
    inner(input).fill_(min(max(_code(float(value), a), low), high))
    return input


def _copy(func: Any, input: Any, src: Any, non_blocking: bool = False) -> Any:
    """Quantize a float tensor into a quantized one, or copy one and its meaning."""
    if not isinstance(input, QuantizedTensor):
        raise RuntimeError("copy_(): Copying from quantized Tensor to non-quantized Tensor is not allowed, please use dequantize to get a float Tensor")
    if isinstance(src, QuantizedTensor):
        if src.dtype is not input.dtype:
            raise RuntimeError(f"copy_(): Quantized Copy only works with same dtype, got {input.dtype} and {src.dtype}")
        return _write(input, made(inner(src).expand(input.shape), src._affine))
    if src.dtype is not torch.float32:
        raise RuntimeError(f"copy_(): Quantized copy only works with kFloat as source Tensor, got {src.dtype}")
    inner(input).copy_(integers(src, input._affine))
    return input


def _masked_fill(func: Any, input: QuantizedTensor, mask: Tensor, value: Any) -> QuantizedTensor:
    a = input._per_tensor("masked_fill")
    low, high = a.limits
    filled = inner(input).masked_fill(mask, min(max(_code(float(value), a), low), high))
    return _write(input, made(filled, a)) if getattr(func, "__name__", "").endswith("_") else made(filled, a)


def _setitem(func: Any, input: QuantizedTensor, index: Any, value: Any) -> None:
    a = input._per_tensor("__setitem__")
    if isinstance(value, QuantizedTensor):
        if value._affine != a:
            value = quantized(value.dequantize(), a)
        inner(input)[index] = inner(value)
    else:
        inner(input)[index] = integers(value if isinstance(value, Tensor) else torch.tensor(float(value)), a)


def _like(func: Any, input: QuantizedTensor, **kwargs: Any) -> QuantizedTensor:
    return made(torch.empty_like(inner(input), memory_format=kwargs.get("memory_format", torch.preserve_format)), input._affine)


def _own(func: Any, *args: Any, **kwargs: Any) -> Any:
    """A function that knows quantized tensors (construct.py)."""
    with DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def _requires_grad(func: Any, input: QuantizedTensor, requires_grad: bool = True) -> QuantizedTensor:
    if requires_grad:
        raise RuntimeError("requires_grad_(): only Tensors of floating point dtype can require gradients; a quantized tensor holds integers")
    return input


def _iter(func: Any, input: QuantizedTensor) -> Any:
    return iter([input[i] for i in range(len(input))])


def _set_detach(func: Any, input: QuantizedTensor) -> QuantizedTensor:
    return input


_TABLE: Final[dict[str, Callable[..., Any]]] = {
    "relu": _relu, "relu6": _relu6, "clamp": _clamp, "hardtanh": _hardtanh, "sigmoid": _fixed("sigmoid"), "tanh": _fixed("tanh"),
    "hardsigmoid": _fixed("hardsigmoid"), "cat": _cat, "concat": _cat, "concatenate": _cat, "stack": _cat, "pad": _pad, "to": _to, "fill_": _fill,
    "copy_": _copy,
    "masked_fill": _masked_fill, "setitem": _setitem, "empty_like": _like, "requires_grad_": _requires_grad, "iter": _iter, "detach_": _set_detach,
    **dict.fromkeys("float double half bfloat16 int long short char byte bool".split(), _cast),
    **dict.fromkeys(
        "dequantize int_repr q_scale q_zero_point q_per_channel_scales q_per_channel_zero_points q_per_channel_axis empty_quantized quantize_per_tensor "
        "quantize_per_channel quantize_per_tensor_dynamic quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d quantized_batch_norm".split(), _own
    ),
}  # fmt: skip
