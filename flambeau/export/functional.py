"""Calls of nn.functional as the operators of aten that PyTorch's own nn.functional calls for them.

Each function here has the parameters of the one of its name in nn.functional, and returns the operator's name and arguments, or None where the function
is no operator of its own: then what it calls is recorded. Functions that are not here have an operator of the same name and order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

Call = tuple[str, tuple[Any, ...]] | None
REDUCTION: Final = {"none": 0, "mean": 1, "sum": 2}


def _reduction(size_average: Any, reduce: Any, reduction: str) -> int:
    if size_average is not None or reduce is not None:
        mean, some = size_average is None or size_average, reduce is None or reduce
        reduction = ("mean" if mean else "sum") if some else "none"
    return REDUCTION[reduction]


def _inplace(name: str, count: int) -> Callable[..., Call]:
    """Activations with `inplace` after `count` numbers: relu or relu_."""

    def call(input: Any, *numbers: Any, **named: Any) -> Call:
        given = list(numbers)
        inplace = named.pop("inplace", False)
        if len(given) > count:
            inplace = given.pop()
        return name + "_" * bool(inplace), (input, *given, *named.values())

    return call


def _dropout(name: str, training: bool) -> Callable[..., Call]:
    def call(input: Any, p: float = 0.5, training: bool = training, inplace: bool = False) -> Call:
        return name + "_" * bool(inplace), (input, p, training)

    return call


def _loss(name: str) -> Callable[..., Call]:
    def call(input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", weight: Any = None) -> Call:
        return None if weight is not None else (name, (input, target, _reduction(size_average, reduce, reduction)))

    return call


def batch_norm(
    input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5
) -> Call:
    """aten.batch_norm."""
    return "batch_norm", (input, weight, bias, running_mean, running_var, training, momentum, eps, False)


def instance_norm(
    input: Any, running_mean: Any = None, running_var: Any = None, weight: Any = None, bias: Any = None, use_input_stats: bool = True,
    momentum: float = 0.1, eps: float = 1e-5,
) -> Call:  # fmt: skip
    """aten.instance_norm."""
    return "instance_norm", (input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, False)


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Call:
    """aten.layer_norm."""
    return "layer_norm", (input, list(normalized_shape), weight, bias, eps, False)


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Call:
    """aten.group_norm."""
    return "group_norm", (input, num_groups, weight, bias, eps, False)


def embedding(
    input: Any, weight: Any, padding_idx: int | None = None, max_norm: Any = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Call:  # fmt: skip
    """aten.embedding."""
    if max_norm is not None:
        return None
    if padding_idx is not None and padding_idx < 0:
        padding_idx = weight.shape[0] + padding_idx
    return "embedding", (weight, input, -1 if padding_idx is None else padding_idx, scale_grad_by_freq, sparse)


def softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Call:
    """aten.softmax.int."""
    return None if dim is None else ("softmax", (input, dim, dtype))


def log_softmax(input: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Call:
    """aten.log_softmax.int."""
    return None if dim is None else ("log_softmax", (input, dim, dtype))


def logsigmoid(input: Any) -> Call:
    """aten.log_sigmoid."""
    return "log_sigmoid", (input,)


def cross_entropy(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Call:  # fmt: skip
    """aten.cross_entropy_loss."""
    return "cross_entropy_loss", (input, target, weight, _reduction(size_average, reduce, reduction), ignore_index, label_smoothing)


def nll_loss(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: int = -100, reduce: Any = None, reduction: str = "mean"
) -> Call:
    """aten.nll_loss_nd."""
    return "nll_loss_nd", (input, target, weight, _reduction(size_average, reduce, reduction), ignore_index)


def binary_cross_entropy(input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean") -> Call:
    """aten.binary_cross_entropy."""
    return "binary_cross_entropy", (input, target, weight, _reduction(size_average, reduce, reduction))


def binary_cross_entropy_with_logits(
    input: Any, target: Any, weight: Any = None, size_average: Any = None, reduce: Any = None, reduction: str = "mean", pos_weight: Any = None
) -> Call:
    """aten.binary_cross_entropy_with_logits."""
    return "binary_cross_entropy_with_logits", (input, target, weight, pos_weight, _reduction(size_average, reduce, reduction))


def smooth_l1_loss(input: Any, target: Any, size_average: Any = None, reduce: Any = None, reduction: str = "mean", beta: float = 1.0) -> Call:
    """aten.smooth_l1_loss."""
    return "smooth_l1_loss", (input, target, _reduction(size_average, reduce, reduction), beta)


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0, weight: Any = None) -> Call:
    """aten.huber_loss."""
    return None if weight is not None else ("huber_loss", (input, target, REDUCTION[reduction], delta))


def _pool(name: str) -> Callable[..., Call]:
    def call(
        input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
    ) -> Call:
        stride = [] if stride is None or stride == () else stride
        return name + "_with_indices" * bool(return_indices), (input, kernel_size, stride, padding, dilation, ceil_mode)

    return call


def _adaptive(name: str) -> Callable[..., Call]:
    def call(input: Any, output_size: Any, return_indices: bool = False) -> Call:
        if return_indices:
            return name, (input, _sizes(input, output_size))
        return (name, (input, _sizes(input, output_size))) if "avg" in name else None

    return call


def _sizes(input: Any, size: Any) -> Any:
    """Sizes of an adaptive pooling: None is the input's own."""
    if not isinstance(size, (tuple, list)):
        return size
    return [input.shape[d - len(size)] if s is None else s for d, s in enumerate(size)]


def unfold(input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Call:
    """aten.im2col."""
    return "im2col", (input, *[_pair(v) for v in (kernel_size, dilation, padding, stride)])


def fold(input: Any, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Call:
    """aten.col2im."""
    return "col2im", (input, *[_pair(v) for v in (output_size, kernel_size, dilation, padding, stride)])


def _pair(v: Any) -> list[Any]:
    return list(v) if isinstance(v, (tuple, list)) else [v, v]


def grid_sample(input: Any, grid: Any, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None) -> Call:
    """aten.grid_sampler."""
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    if mode not in modes or padding_mode not in paddings:
        return None
    return "grid_sampler", (input, grid, modes.index(mode), paddings.index(padding_mode), bool(align_corners))


_UPSAMPLE: Final = {
    ("nearest", 1): "upsample_nearest1d", ("nearest", 2): "upsample_nearest2d", ("nearest", 3): "upsample_nearest3d",
    ("linear", 1): "upsample_linear1d", ("bilinear", 2): "upsample_bilinear2d", ("trilinear", 3): "upsample_trilinear3d",
    ("bicubic", 2): "upsample_bicubic2d",
}  # fmt: skip


def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Call:  # fmt: skip
    """aten.upsample_*.vec."""
    dims = input.dim() - 2
    name = _UPSAMPLE.get((mode, dims))
    if name is None or recompute_scale_factor or antialias:
        return None
    if size is not None:
        size = list(size) if isinstance(size, (tuple, list)) else [size] * dims
    if scale_factor is not None:
        scale_factor = [float(s) for s in scale_factor] if isinstance(scale_factor, (tuple, list)) else [float(scale_factor)] * dims
    if mode == "nearest":
        return name, (input, size, scale_factor)
    return name, (input, size, bool(align_corners), scale_factor)


CALLS: Final[dict[str, Callable[..., Call]]] = {
    **{f.__name__: f for f in (
        batch_norm, instance_norm, layer_norm, group_norm, embedding, softmax, log_softmax, logsigmoid, cross_entropy, nll_loss, binary_cross_entropy,
        binary_cross_entropy_with_logits, smooth_l1_loss, huber_loss, unfold, fold, grid_sample, interpolate,
    )},
    **{n: _inplace(n, c) for n, c in (
        ("relu", 0), ("relu6", 0), ("elu", 1), ("selu", 0), ("celu", 1), ("leaky_relu", 1), ("hardtanh", 2), ("hardsigmoid", 0), ("hardswish", 0),
        ("silu", 0), ("mish", 0), ("threshold", 2),
    )},
    "dropout": _dropout("dropout", True), "dropout1d": lambda *a, **k: None,
    "alpha_dropout": _dropout("alpha_dropout", False), "feature_alpha_dropout": _dropout("feature_alpha_dropout", False),
    "dropout2d": _dropout("feature_dropout", True), "dropout3d": _dropout("feature_dropout", True),
    "mse_loss": _loss("mse_loss"), "l1_loss": _loss("l1_loss"), "soft_margin_loss": _loss("soft_margin_loss"),
    "max_pool1d": _pool("max_pool1d"), "max_pool2d": _pool("max_pool2d"), "max_pool3d": _pool("max_pool3d"),
    **{f"max_pool{d}d_with_indices": (lambda *a, d=d, **k: _pool(f"max_pool{d}d")(*a, **{**k, "return_indices": True})) for d in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{d}d": _adaptive(f"adaptive_{kind}_pool{d}d") for kind in ("avg", "max") for d in (1, 2, 3)},
}  # fmt: skip
