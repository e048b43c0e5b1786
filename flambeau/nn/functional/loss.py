"""Losses. Each is one recorded edge; `reduction` is "none", "mean" or "sum"."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import flambeau as torch
from flambeau.compiler.kernel import REFUSED
from flambeau.nn.functional.activation import log_sigmoid, log_softmax_values
from flambeau.nn.functional.engine import Number, Tensor, checked, dense, functional, primitives, refuse_gradients, widen
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.signatures import must_be
from flambeau.trace.once import warn_here


def _fit_into(name: str, what: str, factor: Tensor | None, loss: Tensor) -> None:
    """PyTorch multiplies in place: RuntimeError of a factor that would make the loss larger or of another kind."""
    if factor is None:
        return
    whole = torch.broadcast_shapes(tuple(loss.shape), tuple(factor.shape))
    if whole != loss.shape:
        raise RuntimeError(f"{name}: output with shape {list(loss.shape)} doesn't match the broadcast shape {list(whole)} with argument '{what}'")
    if factor.dtype.category > loss.dtype.category:
        raise RuntimeError(f"{name}: result type {factor.dtype} of argument '{what}' can't be cast to the desired output type {loss.dtype}")


def _reduce(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "none":
        return loss
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    raise ValueError(f"{reduction} is not a valid value for reduction")


def legacy_reduction(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """The reduction that the two arguments of PyTorch before 0.4.1 mean; they win over `reduction`."""
    if size_average is None and reduce is None:
        return reduction
    result = "none" if reduce is False else "sum" if size_average is False else "mean"
    warn_here(f"size_average and reduce args will be deprecated, please use reduction='{result}' instead.")
    return result


def _check_same(name: str, input: Tensor, target: Tensor) -> None:
    """A warning where the two only broadcast: the usual (n, 1) against (n) mistake."""
    if tuple(target.shape) != tuple(input.shape):
        warn_here(
            f"Using a target size ({target.shape}) that is different to the input size ({input.shape}). This will likely lead "
            "to incorrect results due to broadcasting. Please ensure they have the same size.",
        )


def _check_factors(name: str, input: Tensor, target: Tensor, weight: Tensor | None) -> None:
    """ValueError of weights that have not the shape of the input; RuntimeError first, of an input and a target that do not broadcast."""
    if weight is None or tuple(weight.shape) == tuple(input.shape):
        return
    torch.broadcast_shapes(tuple(input.shape), tuple(target.shape))
    raise ValueError(f"{name}(): Weights and input must have the same size, but got {tuple(weight.shape)} and {tuple(input.shape)}.")


# -- classification -----------------------------------------------------------------------------------------------


def _check_batch(name: str, input: Tensor, target: Tensor) -> None:
    """PyTorch's first look at class indices: an axis of classes, and as many targets as samples."""
    if input.ndim == 0:
        probabilities = target.ndim == 0 and not target.dtype.is_floating_point  # PyTorch takes a target of the input's shape for them
        kind = ValueError if name == "nll_loss" else RuntimeError if probabilities else IndexError
        raise kind(f"{name}: expected an input with a dimension of classes, got a 0-d tensor")
    if input.ndim == 1 and target.ndim == 1 and target.shape[0] != 1 and target.dtype.category == 1:
        raise ValueError(f"{name}: For 1D input, 1D target must have size 1, but got target size: {target.shape[0]}; input has shape {tuple(input.shape)}")
    if input.ndim > 1 and (target.ndim == 0 or input.shape[0] != target.shape[0]):
        got = target.shape[0] if target.ndim else 1
        raise ValueError(
            f"{name}: Expected input batch_size ({input.shape[0]}) to match target batch_size ({got}); input has shape "
            f"{tuple(input.shape)}, target {tuple(target.shape)}."
        )


def _one_target(input: Tensor, target: Tensor) -> Tensor:
    """The class of one sample (C): a target of shape (1,) is one without dims."""
    return target.reshape(()) if input.ndim == 1 and tuple(target.shape) == (1,) else target


def _class_axis(name: str, input: Tensor, target: Tensor, reduction: str) -> int:
    """The axis of classes of (C), (N, C) or (N, C, d1, ...), after a check of shapes against class indices."""
    _check_batch(name, input, target)
    axis = 0 if input.ndim == 1 else 1
    expected = (*input.shape[:axis], *input.shape[axis + 1 :])
    if tuple(target.shape) != tuple(expected):
        raise RuntimeError(
            f"{name}: Expected target size {list(expected)}, got {list(target.shape)}, for an input of shape {tuple(input.shape)} "
            f"whose classes are in dimension {axis}"
        )
    if input.shape[axis] == 0 and input.ndim not in (1, 2, 4) and target.numel():  # PyTorch's reshape to four dims loses such targets
        raise RuntimeError(f"{name}: size mismatch: an input of shape {tuple(input.shape)} has no classes for {target.numel()} targets")
    bytes_too = input.ndim <= 2 or (target.numel() == 0 and reduction != "none")
    if target.dtype is not torch.int64 and not (target.dtype is torch.uint8 and bytes_too):
        raise RuntimeError(f"{name}: expected scalar type Long for class indices but found {target.dtype}; cast with .long()")
    return axis


def _nll(logp: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, axis: int) -> tuple[Tensor, Tensor, Tensor]:
    """(weighted loss, weight, is counted) of each target. A class outside [0, C) that is not ignore_index stops the run
    with IndexError."""
    refuse_gradients("nll_loss2d_forward" if logp.ndim > 2 else "nll_loss_forward", weight=weight)
    target, classes = target.to(torch.int64), logp.shape[axis]
    counted = torch.ne(target, ignore_index)
    index = torch.where(counted, primitives().bounded(target, classes, axis, skip=ignore_index, what="Target"), 0)
    if not classes:  # of targets that are ignored all is 0, and there is no other
        index, logp, weight = torch.where(counted, target + REFUSED, 0), logp.sum(axis, keepdim=True), None
    picked = -primitives().gather(logp, index.unsqueeze(axis), dim=axis).squeeze(axis)
    if weight is None:
        scale = counted.to(logp.dtype)
    else:
        scale = torch.where(counted, primitives().take_rows(weight.to(logp.dtype), index, dim=0), 0)
    return torch.where(counted, picked if weight is None else picked * scale, 0), scale, counted


def _weight_of_classes(name: str, weight: Tensor | None, classes: int, any_shape: bool) -> Tensor | None:
    """A vector of an element a class. `any_shape`: PyTorch asks only how many there are, of targets with dims of their own."""
    if weight is not None and any_shape and weight.ndim != 1 and weight.numel() == classes:
        return weight.reshape(-1)
    if weight is not None and tuple(weight.shape) != (classes,):
        raise RuntimeError(
            f"{name}: weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: {list(weight.shape)}"
        )
    return weight


@functional
@checked(lambda input, target, *_: _check_batch("nll_loss", input, _one_target(input, target)), layouts=True)
def _nll_loss(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> Tensor:
    target = _one_target(input, target)
    axis = _class_axis("nll_loss", input, target, reduction)
    weight = _weight_of_classes("nll_loss", weight, input.shape[axis], input.ndim > 2)
    if weight is not None and weight.dtype is not input.dtype:
        raise RuntimeError(f"nll_loss: expected scalar type {input.dtype.name} but found {weight.dtype.name}: the weight must have the input's dtype")
    loss, scale, _ = _nll(widen(input), target, weight, ignore_index, axis)
    if reduction == "mean":
        return (loss.sum() / scale.sum()).to(input.dtype)
    return _reduce(loss, reduction).to(input.dtype)


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Minus the log-probability of the target class: input (C), (N, C) or (N, C, d1, ...), target of class indices."""
    return _nll_loss(input, target, weight, ignore_index, legacy_reduction(size_average, reduce, reduction))


def _check_classes(input: Tensor, target: Tensor, *_: Any) -> None:
    """PyTorch takes the logarithms of the input first, then looks at the batches."""
    if input.ndim == 0 and target.ndim:
        _check_batch("cross_entropy", input, target)
    if input.is_floating_point() and not input.is_sparse and tuple(target.shape) != tuple(input.shape):
        _check_batch("cross_entropy", input, _one_target(input, target))


@functional
@checked(_check_classes, layouts=True)
def _cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str, label_smoothing: float) -> Tensor:
    if label_smoothing > 1.0:  # what is negative or NaN smooths nothing, as in PyTorch
        raise RuntimeError(f"cross_entropy: label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    if not input.is_floating_point():
        raise RuntimeError(f"cross_entropy: expected floating-point logits, but got {input.dtype}; cast them with .float()")
    probabilities = tuple(target.shape) == tuple(input.shape)
    if probabilities and not target.is_floating_point():
        raise RuntimeError(
            f"cross_entropy: Expected floating point type for target with class probabilities, got {target.dtype}: a target of the input's shape "
            f"{tuple(input.shape)} is one of probabilities"
        )
    if label_smoothing == 0 and not probabilities:
        target = _one_target(input, target)
    axis = (0 if input.ndim == 1 else 1) if probabilities else _class_axis("cross_entropy", input, target, reduction)
    classes = input.shape[axis]
    if weight is not None and weight.ndim == 0 and classes == 1 and input.ndim > 2 and not probabilities and label_smoothing > 0:
        raise IndexError("cross_entropy: dimension specified as 0 but the weight tensor has no dimensions: label smoothing wants a vector")
    weight = _weight_of_classes("cross_entropy", weight, classes, input.ndim > 2 and not probabilities and not label_smoothing > 0)
    logp = log_softmax_values(widen(input), axis)
    weights = None
    if weight is not None:
        weights = weight.to(logp.dtype).reshape((-1,) + (1,) * (input.ndim - axis - 1))
    even = label_smoothing / classes if classes else math.inf  # what smoothing gives to each class
    if probabilities:
        if ignore_index >= 0:
            raise RuntimeError(f"cross_entropy: ignore_index is not supported for floating point target (got {ignore_index}); set those weights to 0")
        share = target.to(logp.dtype)
        if label_smoothing > 0:
            share = share * (1 - label_smoothing) + even
        gain = (logp * share if weights is None else logp * share * weights).sum(axis)
        if reduction == "mean":
            return (-gain.sum() / (input.numel() / classes if classes else 0)).to(input.dtype)
        return (-_reduce(gain, reduction)).to(input.dtype)
    loss, scale, counted = _nll(logp, target, weight, ignore_index, axis)
    smooth = None
    if label_smoothing > 0:
        smooth = torch.where(counted, -(logp if weights is None else logp * weights).sum(axis), 0)
    if reduction == "mean":
        total = scale.sum()
        result = loss.sum() / total
        if smooth is not None:
            result = result * (1 - label_smoothing) + smooth.sum() / total * even
        return result.to(input.dtype)
    result = _reduce(loss, reduction)
    if smooth is not None:  # of no targets too: the sum is NaN where there are no classes
        result = result * (1 - label_smoothing) + _reduce(smooth, reduction) * even
    return result.to(input.dtype)


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None, ignore_index: int = -100,
    reduce: bool | None = None, reduction: str = "mean", label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
    """nll_loss of log_softmax of logits (C), (N, C) or (N, C, d1, ...); target: class indices, or probabilities of input's shape."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _cross_entropy(input, target, weight, ignore_index, reduction, label_smoothing)


def linear_cross_entropy(
    input: Tensor, linear_weight: Tensor, target: Tensor, *, linear_bias: Tensor | None = None, weight: Tensor | None = None,
    reduction: str = "mean", ignore_index: int | None = None, label_smoothing: float = 0.0, options: Any = None,
) -> Tensor:  # fmt: skip
    """cross_entropy of input (in) or (N, in) times linear_weight (C, d1, ..., in); target as cross_entropy has it.

    `options` choose how PyTorch cuts the batch into chunks; they are accepted, and here the compiler plans memory.
    """
    if options is not None and not hasattr(options, "chunking_method"):
        raise TypeError(f"linear_cross_entropy(): argument 'options' must be LinearCrossEntropyOptions, not {type(options).__name__}")
    if input.ndim not in (1, 2):
        raise RuntimeError(f"linear_cross_entropy(): expected input with dimensionality 1 or 2, got {input.ndim}")
    if linear_weight.ndim < 2:
        raise RuntimeError(f"linear_cross_entropy(): expected linear_weight with dimensionality at least 2, got {linear_weight.ndim}")
    features, shape = input.shape[-1], tuple(linear_weight.shape[:-1])
    if features != linear_weight.shape[-1]:
        raise RuntimeError(
            f"linear_cross_entropy(): expected equal input and linear_weight last dimensions (in_features), got {features} and {linear_weight.shape[-1]}"
        )
    if linear_bias is not None and tuple(linear_bias.shape) != shape:
        raise RuntimeError(f"linear_cross_entropy(): expected linear_bias shape {shape}, got {tuple(linear_bias.shape)}")
    if len(shape) > 1 and input.ndim == 1:
        raise RuntimeError(
            f"linear_cross_entropy(): K-dimensional loss defined by linear_weight shape {tuple(linear_weight.shape)} requires batched input, (N, {features}), "
            f"got unbatched input with shape {tuple(input.shape)}"
        )
    logits_shape = (*input.shape[:-1], *shape)
    if tuple(target.shape) == logits_shape and ignore_index is not None:
        raise RuntimeError("linear_cross_entropy(): ignore_index cannot be specified when target contains probabilities")
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = torch.nn.functional.linear(input, linear_weight.flatten(0, -2), bias).reshape(logits_shape)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing)


def _check_sizes(input: Tensor, target: Tensor, *_: Any) -> None:
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(
            f"binary_cross_entropy: Using a target size ({target.shape}) that is different to the input size ({input.shape}) "
            "is deprecated. Please ensure they have the same size."
        )
    if target.dtype is not input.dtype and not (target.dtype is torch.bool and input.dtype.category == 2):
        raise RuntimeError(f"binary_cross_entropy: Found dtype {target.dtype} but expected {input.dtype}: the target must have the dtype of the input")


@functional
@checked(_check_sizes, layouts=True)
def _binary_cross_entropy(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    refuse_gradients("binary_cross_entropy", weight=weight)
    _check_sizes(input, target)
    _fit_into("binary_cross_entropy", "weight", weight, input)
    x, t = widen(input), widen(target)
    # Logarithms are cut at -100, as in PyTorch, and so is the slope (x - t) / (x (1 - x)): its denominator is at least 1e-12.
    here = x.detach()
    log_x = torch.where(here > 0, torch.log(torch.where(here > 0, here, 1)), -100).clamp(min=-100)
    log_rest = torch.where(here < 1, torch.log(torch.where(here < 1, 1 - here, 1)), -100).clamp(min=-100)
    loss = -(t * log_x + (1 - t) * log_rest)
    if x._meta.requires_grad:
        edge = here * (1 - here) < 1e-12
        inside = torch.where(edge, 0.5, x)
        smooth = -(t * torch.log(inside) + (1 - t) * torch.log(1 - inside))
        step, curve = x - here, (here * here - 2 * here * t + t) / ((here + 1e-12) * (1 - here + 1e-12)).square()  # a parabola of PyTorch's two slopes
        loss = torch.where(edge, loss + step * ((here - t) * 1e12) + 0.5 * step * step * curve, smooth)
    if weight is not None:
        loss = loss * weight
    return _reduce(loss, reduction).to(input.dtype)


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """-(t log x + (1 - t) log(1 - x)) of probabilities x; logarithms are cut at -100."""
    return _binary_cross_entropy(input, target, weight, legacy_reduction(size_average, reduce, reduction))


def _check_logits(input: Tensor, target: Tensor, *_: Any) -> None:
    if tuple(target.shape) != tuple(input.shape):
        raise ValueError(f"binary_cross_entropy_with_logits: Target size ({target.shape}) must be the same as input size ({input.shape})")
    if target.dtype.category == 1 and input.dtype.category == 2:
        raise RuntimeError(
            f"binary_cross_entropy_with_logits: result type {input.dtype} can't be cast to the desired output type {target.dtype}, the target's: "
            "give a floating target"
        )


@functional
@checked(_check_logits, layouts=True)
def _binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, pos_weight: Tensor | None) -> Tensor:
    refuse_gradients("binary_cross_entropy_with_logits", weight=weight, pos_weight=pos_weight)
    _check_logits(input, target)
    _fit_into("binary_cross_entropy_with_logits", "weight", weight, input)
    _fit_into("binary_cross_entropy_with_logits", "pos_weight", pos_weight, input)
    x, t = widen(input), widen(target)
    if pos_weight is None:
        loss = (1 - t) * x - log_sigmoid(x)
    else:
        loss = (1 - t) * x - ((pos_weight - 1) * t + 1) * log_sigmoid(x)
    if weight is not None:
        loss = loss * weight
    return _reduce(loss, reduction).to(target.dtype if target.is_floating_point() or target.is_complex() else input.dtype)


def binary_cross_entropy_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """binary_cross_entropy of sigmoid(x), without overflow; pos_weight scales the loss of positive targets."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _binary_cross_entropy_with_logits(input, target, weight, reduction, pos_weight)


def _check_divergence(input: Tensor, target: Tensor, *_: Any) -> None:
    for t in (input, target):
        if not t.is_floating_point():
            kind = "Complex" if t.is_complex() else "Integral"
            raise RuntimeError(f"kl_div: {kind} inputs not supported: input and target must be floating, got {input.dtype} and {target.dtype}")


@functional
@checked(_check_divergence)
def _kl_div(input: Tensor, target: Tensor, reduction: str, log_target: bool) -> Tensor:
    _check_divergence(input, target)
    if log_target:
        loss = torch.exp(target) * (target - input)
    else:
        some = torch.ne(target, 0)  # a negative target is no probability: NaN, as in PyTorch
        loss = torch.where(some, target * torch.log(torch.where(some, target, 1)), target * 0) - target * input
    if reduction == "batchmean":
        return loss.sum() / input.shape[0] if input.ndim else loss.sum()
    return _reduce(loss, reduction)


def kl_div(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    log_target: bool = False,
) -> Tensor:  # fmt: skip
    """target * (log target - input), input being log-probabilities; reduction "batchmean" is the mathematical divergence."""
    return _kl_div(input, target, legacy_reduction(size_average, reduce, reduction), log_target)


# -- regression ---------------------------------------------------------------------------------------------------


def _check_cast(name: str, input: Tensor, target: Tensor) -> None:
    """RuntimeError where PyTorch's result, which has the dtype of the input, cannot hold what the two make."""
    kind = torch.promote_types(input.dtype, target.dtype)
    if kind.category > input.dtype.category:
        raise RuntimeError(f"{name}: result type {kind} of input and target can't be cast to the desired output type {input.dtype}, the input's; convert one")


def _regression(values: Callable[..., Tensor], bools: bool = True, like_input: bool = False) -> Callable[..., Tensor]:
    """values(difference, *static) -> loss of each element, made an operation over (input, target, weight); with `bools` one may be of truth values,
    with `like_input` the result has the dtype of the input."""
    name = values.__name__.strip("_").replace("_values", "")

    def body(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, parameter: float | None) -> Tensor:
        if like_input:
            _check_cast(name, input, target)
        kind = torch.promote_types(input.dtype, target.dtype)
        x, t = (v.to(kind) if bools and v.dtype == torch.bool and kind.is_floating_point else v for v in (input, target))
        loss = values(widen(x) - widen(t), parameter)
        if weight is not None:
            loss = loss * weight
            if reduction == "mean":
                return loss.sum() / weight.sum()
        return _reduce(loss, reduction).to(input.dtype if like_input else kind)

    if like_input:
        body = checked(lambda input, target, *_: _check_cast(name, input, target))(body)
    body.__name__ = values.__name__
    body.__doc__ = values.__doc__
    return functional(body)


@_regression
def _mse_values(d: Tensor, parameter: None) -> Tensor:
    return d * d


@partial(_regression, bools=False)
def _l1_values(d: Tensor, parameter: None) -> Tensor:
    return torch.abs(d)


@_regression
def _smooth_l1_values(d: Tensor, beta: float) -> Tensor:
    size = torch.abs(d)
    if beta == 0:
        return size
    far = size >= beta
    return torch.where(far, size - 0.5 * beta, _square_of_near(d, far) * (0.5 / beta))


def _square_of_near(d: Tensor, far: Tensor) -> Tensor:
    """d * d where it counts: an infinite difference elsewhere would make the gradient 0 * infinity."""
    near = torch.where(far, 0.0, d)
    return near * near


@partial(_regression, like_input=True)
def _huber_values(d: Tensor, delta: float) -> Tensor:
    size = torch.abs(d)
    far = size >= delta
    return torch.where(far, (size - 0.5 * delta) * delta, _square_of_near(d, far) * 0.5)


def mse_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """(input - target)^2."""
    _check_same("mse_loss", input, target)
    _check_factors("mse_loss", input, target, weight)
    return _mse_values(input, target, weight, legacy_reduction(size_average, reduce, reduction), None)


def l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """|input - target|."""
    _check_same("l1_loss", input, target)
    _check_factors("l1_loss", input, target, weight)
    if input.is_complex() or target.is_complex():
        input, target = (input - target).abs(), torch.zeros((), dtype=input.abs().dtype).expand(torch.broadcast_shapes(input.shape, target.shape))
    return _l1_values(input, target, weight, legacy_reduction(size_average, reduce, reduction), None)


def smooth_l1_loss(
    input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
    beta: float = 1.0,
) -> Tensor:  # fmt: skip
    """Quadratic below `beta`, linear above. Girshick, 2015."""
    _check_same("smooth_l1_loss", input, target)
    if not beta >= 0:
        raise RuntimeError(f"smooth_l1_loss does not support negative values for beta, but got {beta}")
    return _smooth_l1_values(input, target, None, legacy_reduction(size_average, reduce, reduction), beta)


def huber_loss(input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None) -> Tensor:
    """Quadratic up to `delta`, linear above, with a continuous slope `delta`. Huber, 1964."""
    _check_same("huber_loss", input, target)
    _check_factors("huber_loss", input, target, weight)
    if not delta > 0:
        raise RuntimeError("huber_loss does not support non-positive values for delta.")
    if weight is not None and reduction == "mean":  # over the elements, where mse_loss and l1_loss divide by the sum of the weights: as in PyTorch
        return _huber_values(input, target, weight, "none", delta).mean()
    return _huber_values(input, target, weight, reduction, delta)


@functional
def _poisson_nll_loss(input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: str) -> Tensor:
    loss = torch.exp(input) - target * input if log_input else input - target * torch.log(input + eps)
    if full:  # Stirling's approximation of log(target!), where target > 1
        safe = torch.where(target > 1, target, 1)
        stirling = safe * torch.log(safe) - safe + 0.5 * torch.log(2 * math.pi * safe)
        loss = loss + torch.where(target > 1, stirling, 0)
    return _reduce(loss, reduction)


def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool = True, full: bool = False, size_average: bool | None = None,
    eps: float = 1e-8, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Negative log-likelihood of Poisson counts; `input` is the (log-)rate."""
    reduction = legacy_reduction(size_average, reduce, reduction)
    return _poisson_nll_loss(input, target, log_input, full, eps, reduction)


@functional
def _gaussian_nll_loss(input: Tensor, target: Tensor | Number, var: Tensor, full: bool, eps: float, reduction: str) -> Tensor:
    var = var + (var.detach().clamp(min=eps) - var.detach())  # the clamp is outside the gradient, as in PyTorch
    d = input - target
    loss = 0.5 * (torch.log(var) + d * d / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return _reduce(loss, reduction)


def gaussian_nll_loss(input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> Tensor:
    """Negative log-likelihood of a Gaussian with mean `input` and variance `var`."""
    if not isinstance(var, (float, torch.Tensor)):
        raise TypeError(f"gaussian_nll_loss(): argument 'var' must be Tensor or float, not {type(var).__name__}")
    variance: Tensor = torch.full_like(input, var, requires_grad=False) if isinstance(var, float) else var
    negative = torch.lt(variance, 0)  # before the sizes: it is PyTorch that looks at dtype and layout first
    if tuple(variance.shape) != tuple(input.shape):
        if tuple(input.shape[:-1]) == tuple(variance.shape):
            variance = variance.unsqueeze(-1)
        elif input.ndim != variance.ndim or sum([n for m, n in zip(input.shape, variance.shape, strict=True) if m != n]) != 1:  # PyTorch's rule
            raise ValueError("gaussian_nll_loss(): var is of incorrect size")
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"gaussian_nll_loss(): {reduction} is not valid")
    if bool(negative.any()):
        raise ValueError("gaussian_nll_loss(): var has negative entry/entries")
    if variance.dtype.category == 1:
        raise RuntimeError(f"gaussian_nll_loss(): var of {variance.dtype} cannot be clamped to eps = {eps}: give a floating tensor, or a float")
    return _gaussian_nll_loss(input, target, variance, full, eps, reduction)


# -- margins ------------------------------------------------------------------------------------------------------


def _positive(x: Tensor) -> Tensor:
    """max(x, 0) as PyTorch has it where it compares: the gradient at 0 is 0, and NaN is 0. Where it clamps, so do the losses here."""
    return torch.where(x > 0, x, 0)


@functional
def _hinge_embedding_loss(input: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    if input.dtype is torch.bool:
        raise RuntimeError("hinge_embedding_loss(): input must not be bool, which has no differences; convert it first, with .float()")
    start = margin if input.dtype.is_floating_point or input.dtype.is_complex else int(margin)
    loss = torch.where(torch.ne(target, 1), torch.clamp_min(start - input, 0), 0) + torch.where(torch.ne(target, -1), input, 0)
    return _reduce(loss, reduction)


def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, size_average: bool | None = None, reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """x where the target is 1, max(0, margin - x) where it is -1."""
    return _hinge_embedding_loss(input, target, float(margin), legacy_reduction(size_average, reduce, reduction))


@functional
def _margin_ranking_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    if not input1.ndim == input2.ndim == target.ndim:
        raise RuntimeError(
            "margin_ranking_loss : All input tensors should have same dimension but got sizes: "
            f"input1: {input1.size()}, input2: {input2.size()}, target: {target.size()} "
        )
    return _reduce(torch.clamp_min(-target * (input1 - input2) + margin, 0), reduction)


def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, -target * (input1 - input2) + margin), target 1 or -1."""
    return _margin_ranking_loss(input1, input2, target, float(margin), legacy_reduction(size_average, reduce, reduction))


@functional
def _soft_margin_loss(input: Tensor, target: Tensor, reduction: str) -> Tensor:
    refuse_gradients("soft_margin_loss", target=target)
    _fit_into("soft_margin_loss", "target", target, input)
    product = input * target
    if product.dtype.is_complex:
        if not input.dtype.is_complex:
            raise RuntimeError(f"soft_margin_loss(): result type {product.dtype} of target and input can't be cast to the dtype of the input, {input.dtype}")
        return _reduce(torch.log(torch.exp(-product) + 1).to(input.dtype), reduction)
    return _reduce(-log_sigmoid(product), reduction).to(input.dtype if input.dtype.is_floating_point else product.dtype)


def soft_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """log(1 + exp(-target * x)), target 1 or -1."""
    return _soft_margin_loss(input, target, legacy_reduction(size_average, reduce, reduction))


@functional
def _cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float, reduction: str) -> Tensor:
    if target.ndim > 1:
        raise RuntimeError(f"cosine_embedding_loss: 0D or 1D target tensor expected, multi-target not supported, got shape {tuple(target.shape)}")
    if not input1.ndim == input2.ndim == target.ndim + 1:
        raise RuntimeError(
            f"cosine_embedding_loss: {target.ndim}D target tensor expects {target.ndim + 1}D input tensors, but found inputs with sizes "
            f"{list(input1.shape)} and {list(input2.shape)}."
        )
    eps = 1e-12  # PyTorch's EPSILON in aten/src/ATen/native/Loss.cpp
    dot = (input1 * input2).sum(-1)
    norms = torch.sqrt(((input1 * input1).sum(-1) + eps) * ((input2 * input2).sum(-1) + eps))
    cosine = dot / norms
    loss = torch.where(torch.eq(target, 1), 1 - cosine, 0) + torch.where(torch.eq(target, -1), torch.clamp_min(cosine - margin, 0), 0)
    return _reduce(loss, reduction)


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """1 - cos where the target is 1, max(0, cos - margin) where it is -1."""
    return _cosine_embedding_loss(input1, input2, target, float(margin), legacy_reduction(size_average, reduce, reduction))


@functional
def _multi_margin_loss(input: Tensor, target: Tensor, p: int, margin: float, weight: Tensor | None, reduction: str) -> Tensor:
    refuse_gradients("multi_margin_loss", weight=weight)
    x = input if input.ndim == 2 else input.reshape(1, -1)
    t = primitives().bounded(target.reshape(-1), x.shape[1], 1, what="target")
    right = primitives().gather(x, t.unsqueeze(1), dim=1)
    z = _positive(margin - right + x)
    z = z * z if p == 2 else z
    if weight is not None:
        z = z * primitives().take_rows(weight, t, dim=0).unsqueeze(1)
    others = torch.arange(x.shape[1]) != target.reshape(-1).unsqueeze(1)
    loss = torch.where(others, z, 0).sum(1) / x.shape[1]
    return _reduce(loss if input.ndim == 2 or (target.ndim and reduction == "none") else loss.squeeze(0), reduction)


def _margin_shapes(name: str, input: Tensor, target: Tensor) -> None:
    if input.ndim > 2 or input.shape[-1:] == (0,):
        raise RuntimeError(f"{name}(): Expected non-empty vector or matrix with optional 0-dim batch size, but got: {list(input.shape)}")
    rows = input.shape[0] if input.ndim == 2 else 1
    fits = tuple(target.shape) in (((rows,), ()) if rows == 1 else ((rows,),)) if name == "multi_margin_loss" else target.shape == input.shape
    if not fits and not (name == "multilabel_margin_loss" and target.numel() == input.numel() and input.ndim < 2 and target.ndim < 2):
        raise RuntimeError(f"{name}(): inconsistent target size: {list(target.shape)} for input of size: {list(input.shape)}")
    refuse_dtype(f"nn.functional.{name}", input.dtype)
    if target.dtype is not torch.int64:
        raise RuntimeError(f"{name}(): expected scalar type Long but found {target.dtype.name} for the target; convert it with .long()")


def multi_margin_loss(
    input: Tensor, target: Tensor, p: int = 1, margin: float = 1.0, weight: Tensor | None = None,
    size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Mean over the wrong classes of max(0, margin - x[y] + x[i])^p."""
    dense("nn.functional.multi_margin_loss", input, target)
    if p not in (1, 2):
        raise ValueError("multi_margin_loss(): only p == 1 and p == 2 supported")
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"multi_margin_loss(): {reduction} is not a valid value for reduction")
    classes = input.shape[-1] if input.ndim else 1
    if weight is not None and (weight.ndim != 1 or weight.shape[0] != classes):
        kind = ValueError if weight.ndim != 1 else RuntimeError
        raise kind(f"multi_margin_loss(): weight must be one-dimensional, with an element a class ({classes}), got shape {tuple(weight.shape)}")
    _margin_shapes("multi_margin_loss", input, target)
    return _multi_margin_loss(input, target, p, margin, weight, reduction)


@functional
def _multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str) -> Tensor:
    x = input if input.ndim == 2 else input.reshape(1, -1)
    t = target if target.ndim == 2 else target.reshape(1, -1)
    classes = x.shape[1]
    primitives().expected(t, -1, classes, 1, what="target")
    listed = torch.cumsum((t < 0).to(torch.int64), 1) == 0  # labels stand before the first -1
    index = torch.where(listed, t, 0)
    marks = ((index.unsqueeze(2) == torch.arange(classes)) & listed.unsqueeze(2)).any(1)
    right = primitives().gather(x, index, dim=1)
    z = _positive(1 - right.unsqueeze(2) + x.unsqueeze(1))
    counts = listed.unsqueeze(2) & ~marks.unsqueeze(1)
    loss = torch.where(counts, z, 0).sum((1, 2)) / classes
    return _reduce(loss if input.ndim == 2 else loss.squeeze(0), reduction)


def multilabel_margin_loss(input: Tensor, target: Tensor, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """Margins between each listed class and each class not listed; the list of a row ends at -1."""
    dense("nn.functional.multilabel_margin_loss", input, target)
    reduction = legacy_reduction(size_average, reduce, reduction)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"multilabel_margin_loss(): {reduction} is not a valid value for reduction")
    _margin_shapes("multilabel_margin_loss", input, target)
    return _multilabel_margin_loss(input, target, reduction)


def _check_labels(input: Tensor, *_: Any) -> None:
    if input.ndim == 0:
        raise IndexError("multilabel_soft_margin_loss(): Dimension specified as -1 but the input has no dimensions: it must have one of classes")


@functional
@checked(_check_labels)
def _multilabel_soft_margin_loss(input: Tensor, target: Tensor | Number, weight: Tensor | None, reduction: str) -> Tensor:
    _check_labels(input)
    loss = -(target * log_sigmoid(input) + (1 - target) * log_sigmoid(-input))
    if weight is not None:
        loss = loss * weight
    if loss._meta.shape != input._meta.shape:  # labels of more classes or samples: PyTorch divides by the classes of the input
        return _reduce(loss.sum(input._meta.ndim - 1) / input._meta.shape[-1], reduction)
    return _reduce(loss.mean(-1), reduction)


def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Mean over classes of the binary cross entropy with logits."""
    return _multilabel_soft_margin_loss(input, target, weight, legacy_reduction(size_average, reduce, reduction))


@functional
def _triplet(positive: Tensor, negative: Tensor, margin: float, reduction: str) -> Tensor:
    return _reduce(torch.clamp_min(positive - negative + margin, 0), reduction)


def triplet_margin_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, size_average: bool | None = None, reduce: bool | None = None, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-norm distance. Balntas et al., 2016, for swap."""
    reduction = legacy_reduction(size_average, reduce, reduction)

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return torch.nn.functional.pairwise_distance(a, b, p, eps)

    return triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=distance, margin=margin, swap=swap, reduction=reduction)


def triplet_margin_with_distance_loss(
    anchor: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0, swap: bool = False, reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """The triplet loss with a distance of the caller's choice."""
    if margin <= 0:
        raise ValueError(f"triplet_margin_loss(): margin must be greater than 0, got {margin}")
    if not anchor.ndim == positive.ndim == negative.ndim:
        raise RuntimeError(
            "triplet_margin_loss: The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: "
            f"anchor {anchor.ndim}D, positive {positive.ndim}D, and negative {negative.ndim}D inputs"
        )
    distance = torch.nn.functional.pairwise_distance if distance_function is None else distance_function
    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    return _triplet(distance(anchor, positive), far, margin, reduction)


def _ctc_lengths(name: str, lengths: Any) -> list[int]:
    """The lengths of all samples, from a tensor of whole numbers or a list."""
    if isinstance(lengths, Tensor):
        if lengths.dtype.category != 1:
            raise RuntimeError(f"ctc_loss: {name} must be integral, but is a tensor of {lengths.dtype}")
        return lengths.reshape(-1).tolist()  # type: ignore[no-any-return]
    must_be("ctc_loss", f"{name} int[]", lengths)
    return [int(n) for n in lengths]


def _check_ctc(log_probs: Tensor, targets: Tensor, times: list[int], sizes: list[int], blank: int) -> None:
    """PyTorch's errors of lengths and labels that do not fit."""
    if log_probs.ndim != 3:
        raise RuntimeError(f"ctc_loss: Expected 3-dimensional tensor (or 2-dimensional without a batch) for argument 'log_probs', got {tuple(log_probs.shape)}")
    if targets.ndim not in (1, 2):
        raise RuntimeError(f"ctc_loss: Expected 1 to 2 dimensions, but got {targets.ndim}-dimensional tensor for argument 'targets'")
    steps, batch, labels = log_probs.shape
    if not 0 <= blank < labels:
        raise RuntimeError(f"ctc_loss: blank must be in label range, from 0 to {labels - 1}, but is {blank}")
    if len(times) != batch or len(sizes) != batch:
        raise RuntimeError(f"ctc_loss: input_lengths and target_lengths must be of size batch_size {batch}, but got {len(times)} and {len(sizes)}")
    for name, lengths in (("target_lengths", sizes), ("input_lengths", times)):
        if min(lengths, default=0) < 0:
            raise RuntimeError(f"ctc_loss: Expected {name} to have value at least 0, but got value {min(lengths)}")
    total = sum(sizes) if targets.ndim == 1 else batch
    if targets.shape[0] != total:
        raise RuntimeError(f"ctc_loss: Expected tensor to have size {total} at dimension 0, but got size {targets.shape[0]} for argument 'targets'")
    if targets.ndim == 2 and targets.shape[1] < max(sizes, default=0):
        raise RuntimeError(
            f"ctc_loss: Expected tensor to have size at least {max(sizes)} at dimension 1, but got size {targets.shape[1]} for argument 'targets'"
        )
    if max(times, default=0) > steps:
        raise RuntimeError(f"ctc_loss: Expected input_lengths to have value at most {steps}, but got value {max(times)}")


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Any, target_lengths: Any, blank: int = 0, reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:  # fmt: skip
    """Connectionist temporal classification (Graves et al., 2006): log_probs (T, N, C) or (T, C).

    The forward recursion over the labels with blanks between them, for all samples at once, as ordinary operations.
    """
    from flambeau.ops.autocast_lists import float32_under_autocast

    batched = log_probs.ndim == 3
    log_probs = float32_under_autocast(log_probs)
    dense("nn.functional.ctc_loss", log_probs, targets)
    if log_probs.dtype not in (torch.float32, torch.float64):
        raise NotImplementedError(f'"ctc_loss_cpu" not implemented for {log_probs.dtype}: use float32 or float64')
    times, sizes = _ctc_lengths("input_lengths", input_lengths), _ctc_lengths("target_lengths", target_lengths)
    lp = log_probs if batched else log_probs.unsqueeze(1)
    _check_ctc(lp, targets, times, sizes, blank)
    steps, batch, _ = lp.shape
    flat = targets.reshape(-1).tolist()
    width = targets.shape[1] if targets.ndim == 2 else 0
    rows, at = [], 0
    for n, size in enumerate(sizes):
        at = n * width if width else at
        rows.append([int(v) for v in flat[at : at + size]])
        at += size
    states = 2 * max(sizes) + 1
    labels = [[blank if s % 2 == 0 or s // 2 >= len(r) else r[s // 2] for s in range(states)] for r in rows]
    jump = [[s % 2 == 1 and s > 1 and row[s] != row[s - 2] for s in range(states)] for row in labels]
    index = torch.tensor(labels, dtype=torch.int64)
    may_jump = torch.tensor(jump, dtype=torch.bool)
    floor = torch.finfo(lp.dtype).min
    alpha = torch.where(torch.arange(states) < 2, lp[0].gather(1, index), floor)
    finals: list[Tensor | None] = [None] * batch
    for t in range(steps):
        if t:
            one = torch.nn.functional.pad(alpha, (1, 0), value=floor)[:, :states]
            two = torch.where(may_jump, torch.nn.functional.pad(alpha, (2, 0), value=floor)[:, :states], floor)
            stacked = torch.stack([alpha, one, two])
            alpha = (torch.logsumexp(stacked, 0) + lp[t].gather(1, index)).clamp(min=floor)
        for n in range(batch):
            if t == times[n] - 1:
                last = 2 * sizes[n]
                ends = alpha[n, max(last - 1, 0) : last + 1]
                finals[n] = torch.logsumexp(ends, 0)
    # Without steps there is one path, that of no labels.
    losses = [-f if f is not None else lp.new_full((), -floor if size else 0.0) for f, size in zip(finals, sizes, strict=True)]
    loss = torch.stack(losses)
    # PyTorch's gradient is that of the scores under log_softmax: the probabilities less what the labels take of them.
    used = (torch.arange(steps).unsqueeze(1) < torch.tensor(times)).unsqueeze(2)
    mass = torch.where(used, torch.exp(lp), 0.0).sum((0, 2))
    loss = loss + (mass - mass.detach())
    impossible = loss > -floor / 2
    # What no path leads to is infinite, and has no gradient: 0 times the infinite slope of a root at 0.
    wild = 0.0 if zero_infinity else math.inf + torch.sqrt(torch.where(impossible, mass - mass.detach(), 1.0)) * 0.0
    loss = torch.where(impossible, wild, loss)
    if reduction == "mean":
        return (loss / torch.tensor([max(s, 1) for s in sizes], dtype=loss.dtype)).mean()
    loss = loss if batched or reduction == "sum" else loss.squeeze(0)
    return _reduce(loss, reduction)


__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "ctc_loss",
    "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "linear_cross_entropy", "margin_ranking_loss", "mse_loss",
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "poisson_nll_loss",
    "smooth_l1_loss", "soft_margin_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss",
]  # fmt: skip
