"""Operators that only torch.ops.aten has: PyTorch's public functions under their dispatcher's names, and what those are made of."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

import flambeau as torch


def _to_copy(
    self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> Any:
    """A copy with this dtype and memory format."""
    made = self.to(device=device, dtype=dtype, non_blocking=non_blocking, copy=True)
    return made if memory_format is None else made.contiguous(memory_format=memory_format)


def alias(self: Any) -> Any:
    """A view of all of it."""
    return self.view(self.shape)


def _unsafe_view(self: Any, size: Any) -> Any:
    """A view of another shape."""
    return self.view(size)


def slice(self: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    """self[start:end:step] along a dim."""
    size = self.shape[dim]
    low = 0 if start is None else min(max(start + size if start < 0 else start, 0), size)
    high = size if end is None else min(max(end + size if end < 0 else end, low), size)
    index = [builtins.slice(None)] * self.ndim
    index[dim] = builtins.slice(low, high, step)
    return self[tuple(index)]


def index(self: Any, indices: Any) -> Any:
    """self[indices], None for a dim that stays."""
    return self[tuple([builtins.slice(None) if i is None else i for i in indices])]


def _unique2(self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> tuple[Any, Any, Any]:
    """torch.unique of all elements, always with three results: those that were not asked for are empty."""
    return _three(torch.unique(self, sorted, return_inverse, return_counts), return_inverse, return_counts)


def unique_dim(
    self: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Any, Any, Any]:  # fmt: skip
    """torch.unique along a dim, always with three results: those that were not asked for are empty."""
    return _three(torch.unique(self, sorted, return_inverse, return_counts, dim), return_inverse, return_counts)


def _three(found: Any, inverse: bool, counts: bool) -> tuple[Any, Any, Any]:
    rest = list(found if isinstance(found, tuple) else (found,))
    first, nothing = rest.pop(0), torch.empty(0, dtype=torch.int64)
    return first, rest.pop(0) if inverse else nothing, rest.pop(0) if counts else nothing


def lift_fresh(self: Any) -> Any:
    """The tensor itself: what torch.tensor has made."""
    return self


def lift_fresh_copy(self: Any) -> Any:
    """A copy of the tensor."""
    return self.clone()


def copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """The values of `src` in a tensor like `self`."""
    return src.to(self.dtype).expand(self.shape).clone()


def embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    """The rows of `weight` at `indices`."""
    padding = None if padding_idx < 0 else padding_idx
    return torch.nn.functional.embedding(indices, weight, padding, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def sym_size(self: Any, dim: int | None = None) -> Any:
    """The shape, or one of its sizes."""
    return self.size() if dim is None else self.size(dim)


def sym_numel(self: Any) -> int:
    """How many elements."""
    return int(self.numel())


def sym_stride(self: Any, dim: int | None = None) -> Any:
    """The strides, or one of them."""
    return self.stride() if dim is None else self.stride(dim)


def _pin_memory(self: Any, device: Any = None) -> Any:
    """See Tensor.pin_memory."""
    return self.pin_memory()


def _sparse_addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """torch.sparse.addmm."""
    return torch.sparse.addmm(self, mat1, mat2, beta=beta, alpha=alpha)


def _sparse_mm_reduce_impl(self: Any, other: Any, reduce: str) -> tuple[Any, Any]:
    """(torch.sparse.mm with a reduction, an empty tensor in place of the places that its gradient needs in PyTorch)."""
    return torch.sparse.mm(self, other, reduce), torch.empty(0, dtype=torch.int64)


def _local_scalar_dense(self: Any) -> Any:
    """The one element as a number."""
    return self.item()


def _conj(self: Any) -> Any:
    """The complex conjugate."""
    return self.conj()


def _is_all_true(self: Any) -> Any:
    """Whether all elements are True, as a tensor."""
    return self.all()


def _is_any_true(self: Any) -> Any:
    """Whether some element is True, as a tensor."""
    return self.any()


def _assert_async(self: Any, assert_msg: str = "") -> None:
    """RuntimeError unless the one element is not zero."""
    torch._assert_async(self, assert_msg)


def _assert_scalar(self: Any, assert_msg: str) -> None:
    """RuntimeError unless the number is not zero."""
    if not self:
        raise RuntimeError(assert_msg)


def _assert_tensor_metadata(a: Any, size: Any = None, stride: Any = None, dtype: Any = None, *, device: Any = None, layout: Any = None) -> None:
    """RuntimeError unless the tensor is like this, as far as it is said."""
    for name, found, wanted in (("sizes", tuple(a.shape), size), ("strides", a.stride(), stride)):
        if wanted is not None and tuple(wanted) != tuple(found):
            raise RuntimeError(f"Tensor {name} mismatch! Expected: {tuple(wanted)}, Got: {tuple(found)}")
    for name, found, wanted in (("dtype", a.dtype, dtype), ("device", a.device, device), ("layout", a.layout, layout)):
        if wanted is not None and wanted != found:
            raise RuntimeError(f"Tensor {name} mismatch! Expected: {wanted}, Got: {found}")


# -- what graphs of decomposed programs call ----------------------------------------------------------------------------------
def numpy_T(self: Any) -> Any:
    """All dims in the opposite order."""
    return self.permute(*reversed(range(self.ndim)))


def mT(self: Any) -> Any:
    """The last two dims exchanged."""
    return self.mT


def matrix_H(self: Any) -> Any:
    """The last two dims exchanged, and conjugated."""
    return self.H


def _native_batch_norm_legit_no_training(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    """torch.native_batch_norm with the running statistics."""
    return torch.native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)  # type: ignore[no-any-return]


def _native_batch_norm_legit(input: Any, weight: Any, bias: Any, *rest: Any) -> tuple[Any, Any, Any]:
    """torch.native_batch_norm; without running statistics if none are given."""
    statistics = rest if len(rest) == 5 else (None, None, *rest)
    return torch.native_batch_norm(input, weight, bias, *statistics)  # type: ignore[no-any-return]


def _native_batch_norm_legit_functional(
    input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float, eps: float
) -> tuple[Any, Any, Any, Any, Any]:
    """torch.native_batch_norm, and the new running statistics as results."""
    mean, var = running_mean.clone(), running_var.clone()
    return (*torch.native_batch_norm(input, weight, bias, mean, var, training, momentum, eps), mean, var)


def _adaptive_avg_pool2d(self: Any, output_size: Any) -> Any:
    """nn.functional.adaptive_avg_pool2d."""
    return torch.nn.functional.adaptive_avg_pool2d(self, output_size)


def _adaptive_avg_pool3d(self: Any, output_size: Any) -> Any:
    """nn.functional.adaptive_avg_pool3d."""
    return torch.nn.functional.adaptive_avg_pool3d(self, output_size)


def im2col(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """nn.functional.unfold."""
    return torch.nn.functional.unfold(self, kernel_size, dilation, padding, stride)


def col2im(self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    """nn.functional.fold."""
    return torch.nn.functional.fold(self, output_size, kernel_size, dilation, padding, stride)


def log_sigmoid(self: Any) -> Any:
    """nn.functional.logsigmoid."""
    return torch.nn.functional.logsigmoid(self)


def _cdist_forward(x1: Any, x2: Any, p: float, compute_mode: int | None = None) -> Any:
    """torch.cdist."""
    return torch.cdist(x1, x2, p)


def _pdist_forward(self: Any, p: float = 2.0) -> Any:
    """nn.functional.pdist."""
    return torch.nn.functional.pdist(self, p)


def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False, per_sample_weights: Any = None,
    include_last_offset: bool = False, padding_idx: int = -1,
) -> Any:  # fmt: skip
    """torch.embedding_bag, without padding where `padding_idx` is below zero."""
    padding = None if padding_idx < 0 else padding_idx
    return torch.embedding_bag(weight, indices, offsets, scale_grad_by_freq, mode, sparse, per_sample_weights, include_last_offset, padding)


def elu(self: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    """scale * x above zero, scale * alpha * (exp(input_scale * x) - 1) below."""
    if scale == input_scale == 1:
        return torch.nn.functional.elu(self, alpha)
    return torch.where(self > 0, self * scale, torch.expm1(self * input_scale) * (alpha * scale))


def zero(self: Any) -> Any:
    """Zeros like `self`."""
    return torch.zeros_like(self)


def fill(self: Any, value: Any) -> Any:
    """A tensor like `self` that has one value everywhere."""
    return torch.full_like(self, value) if not isinstance(value, torch.Tensor) else value.to(self.dtype).expand(self.shape).clone()


def _reduced(reduction: int) -> str:
    return ("none", "mean", "sum")[reduction]


def cross_entropy_loss(self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100, label_smoothing: float = 0.0) -> Any:
    """nn.functional.cross_entropy."""
    return torch.nn.functional.cross_entropy(self, target, weight, ignore_index=ignore_index, reduction=_reduced(reduction), label_smoothing=label_smoothing)


def nll_loss_nd(self: Any, target: Any, weight: Any = None, reduction: int = 1, ignore_index: int = -100) -> Any:
    """nn.functional.nll_loss."""
    return torch.nn.functional.nll_loss(self, target, weight, ignore_index=ignore_index, reduction=_reduced(reduction))


def _loss(name: str) -> Any:
    def loss(self: Any, target: Any, reduction: int = 1) -> Any:
        return getattr(torch.nn.functional, name)(self, target, reduction=_reduced(reduction))

    loss.__name__, loss.__doc__ = name, f"nn.functional.{name}, with the reduction as a number."
    return loss


mse_loss, l1_loss, soft_margin_loss = _loss("mse_loss"), _loss("l1_loss"), _loss("soft_margin_loss")


def smooth_l1_loss(self: Any, target: Any, reduction: int = 1, beta: float = 1.0) -> Any:
    """nn.functional.smooth_l1_loss."""
    return torch.nn.functional.smooth_l1_loss(self, target, reduction=_reduced(reduction), beta=beta)


def huber_loss(self: Any, target: Any, reduction: int = 1, delta: float = 1.0) -> Any:
    """nn.functional.huber_loss."""
    return torch.nn.functional.huber_loss(self, target, reduction=_reduced(reduction), delta=delta)


def binary_cross_entropy(self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    """nn.functional.binary_cross_entropy."""
    return torch.nn.functional.binary_cross_entropy(self, target, weight, reduction=_reduced(reduction))


def _padding(mode: str) -> Any:
    def padded(self: Any, padding: Any) -> Any:
        return torch.nn.functional.pad(self, list(padding), mode)

    padded.__doc__ = f"nn.functional.pad in mode {mode}."
    return padded


reflection_pad1d = reflection_pad2d = reflection_pad3d = _padding("reflect")
replication_pad1d = replication_pad2d = replication_pad3d = _padding("replicate")


def _upsample(mode: str, aligned: bool) -> Any:
    """Both overloads: `vec` (output_size or scale_factors), and `default` (output_size and a scale for each dim, which only tells how it came about)."""

    def upsample(input: Any, output_size: Any, *rest: Any, **named: Any) -> Any:
        align = bool(rest[0] if rest else named.get("align_corners")) if aligned else None
        after = rest[1:] if aligned else rest
        factors = named.get("scale_factors", after[0] if after and isinstance(after[0], (list, tuple)) else None)
        size = None if output_size is None else list(output_size)
        return torch.nn.functional.interpolate(input, size, None if size is not None else factors, mode, align)

    upsample.__doc__ = f"nn.functional.interpolate in mode {mode}."
    return upsample


upsample_nearest1d = upsample_nearest2d = upsample_nearest3d = _upsample("nearest", False)
upsample_linear1d, upsample_bilinear2d = _upsample("linear", True), _upsample("bilinear", True)
upsample_trilinear3d, upsample_bicubic2d = _upsample("trilinear", True), _upsample("bicubic", True)


def _written(name: str) -> Any:
    def write(self: Any, *args: Any, **named: Any) -> Any:
        return self.copy_(getattr(torch.nn.functional, name)(self, *args, **named))

    write.__name__, write.__doc__ = f"{name}_", f"nn.functional.{name} in place."
    return write


relu6_, hardswish_, hardsigmoid_, silu_, mish_ = (_written(name) for name in ("relu6", "hardswish", "hardsigmoid", "silu", "mish"))


# -- overloads whose parameters are in another order than those of the public function ---------------------------------------
def _add_number(self: Any, other: Any, alpha: Any = 1) -> Any:
    return torch.add(self, other, alpha=alpha)


def _subtract_number(self: Any, other: Any, alpha: Any = 1) -> Any:
    return torch.sub(self, other, alpha=alpha)


def _to_layout(
    self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: bool | None = None, non_blocking: bool = False, copy: bool = False,
    memory_format: Any = None,
) -> Any:  # fmt: skip
    """aten.to.dtype_layout: what PyTorch's `to(other)` and `type_as` are in its graphs; a dense tensor stays one."""
    if layout is not None and layout is not self.layout:
        raise NotImplementedError(f"aten.to.dtype_layout: from {self.layout} to {layout}")
    more = {} if memory_format is None else {"memory_format": memory_format}
    return self.to(device=device or self.device, dtype=dtype or self.dtype, non_blocking=non_blocking, copy=copy, **more)


OVERLOADS: Final[dict[str, Callable[..., Any]]] = {"add.Scalar": _add_number, "sub.Scalar": _subtract_number, "to.dtype_layout": _to_layout}
