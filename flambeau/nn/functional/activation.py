"""Activations. Where two branches meet, the gradient is PyTorch's, and a branch not taken is fed a harmless value."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.composed.random_rejection import rrelu_slopes
from flambeau.nn.functional.engine import Number, Tensor, checked, fitting, functional, functional_with_out, primitives, replace, widen, widened
from flambeau.ops.result_strides import like_input, over_tensors, row_major
from flambeau.ops.shape import dim_of
from flambeau.ops.tied import tied


@functional
@over_tensors
def _relu(input: Tensor) -> Tensor:
    return torch.where(input <= 0, 0, input)


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0); the gradient at 0 is 0, NaN stays NaN."""
    return _write(_relu, input) if inplace else _relu(input)


def relu_(input: Tensor) -> Tensor:
    """In-place form of relu."""
    return _write(_relu, input)


@functional
@over_tensors
def _leaky_relu(input: Tensor, negative_slope: float = 0.01, in_place: bool = False) -> Tensor:
    fitting("leaky_relu", widened(input), negative_slope)
    result = torch.where(input > 0, input, input * negative_slope)
    return _of_negative_slope("leakyReLu", result, input) if in_place and negative_slope < 0 else result


def _of_negative_slope(name: str, result: Tensor, input: Tensor) -> Tensor:
    """PyTorch's gradient of what was written in place is told by the result, which does not tell the input's sign here."""
    return tied(  # type: ignore[no-any-return]
        result, input, refused=f"In-place {name} backward calculation is triggered with a negative slope which is not supported. This is caused by "
        "calling in-place forward function with a negative slope, please call out-of-place version instead.",
    )  # fmt: skip


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where positive, else negative_slope * x."""
    return _write(_leaky_relu, input, negative_slope, True) if inplace else _leaky_relu(input, negative_slope)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """In-place form of leaky_relu."""
    return _write(_leaky_relu, input, negative_slope, True)


def _elu_values(x: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    # At 0 the slope is the negative side's and the second slope 0, as in PyTorch: a line there. Elsewhere expm1 sees no number that it makes infinite.
    negative = primitives().expm1(torch.where(x >= 0, 0, x) * input_scale, of_input=True) * (alpha * scale)
    return torch.where(x > 0, x * scale if scale != 1 else x, torch.where(x == 0, x * (alpha * scale * input_scale), negative))


@functional
@over_tensors
def _elu(input: Tensor, alpha: float = 1.0, in_place: bool = False) -> Tensor:
    fitting("elu", widened(input), alpha)
    result = _elu_values(widen(input), alpha, 1.0, 1.0).to(input.dtype)
    return _of_negative_slope("elu", result, input) if in_place and alpha < 0 else result


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where positive, else alpha * (exp(x) - 1). Clevert et al., 2016."""
    return _write(_elu, input, alpha, True) if inplace else _elu(input, alpha)


@functional
@over_tensors
def _scaled_elu(input: Tensor, alpha: float, scale: float, input_scale: float) -> Tensor:
    return _elu_values(widen(input), alpha, scale, input_scale).to(input.dtype)


def elu_(input: Tensor, alpha: float = 1.0, scale: float = 1, input_scale: float = 1) -> Tensor:
    """In-place form of elu: scale * x where positive, else scale * alpha * (exp(input_scale * x) - 1)."""
    return _write(_elu, input, alpha, True) if scale == input_scale == 1 else _write(_scaled_elu, input, alpha, scale, input_scale)


@functional
@over_tensors
def _celu(input: Tensor, alpha: float = 1.0, in_place: bool = False) -> Tensor:
    fitting("celu", widened(input), alpha)
    if alpha == 0:
        raise RuntimeError("celu: ZeroDivisionError: alpha cannot be 0 for CELU")
    result = _elu_values(widen(input), alpha, 1.0, 1.0 / alpha).to(input.dtype)
    return _of_negative_slope("elu", result, input) if in_place and alpha < 0 else result


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """max(0, x) + min(0, alpha * (exp(x / alpha) - 1)). Barron, 2017."""
    return _write(_celu, input, alpha, True) if inplace else _celu(input, alpha)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place form of celu."""
    return _write(_celu, input, alpha, True)


@functional
@over_tensors
def _selu(input: Tensor) -> Tensor:
    return _elu_values(widen(input), 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0).to(input.dtype)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """Self-normalising ELU; the two constants are those of Klambauer et al., 2017, appendix."""
    return _write(_selu, input) if inplace else _selu(input)


def selu_(input: Tensor) -> Tensor:
    """In-place form of selu."""
    return _write(_selu, input)


@functional_with_out
@over_tensors
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x * Phi(x), Phi the normal distribution function (or its tanh approximation). Hendrycks and Gimpel, 2016."""
    x = widen(input)
    if approximate == "none":
        y = x * 0.5 * primitives().erf_plus_one(x * math.sqrt(0.5))
    elif approximate == "tanh":
        y = x * 0.5 * (torch.tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)) + 1)
    else:
        raise RuntimeError(f"gelu: approximate argument must be either none or tanh, but got {approximate!r}.")
    return y.to(input.dtype)


@functional
@over_tensors
def _silu(input: Tensor) -> Tensor:
    x = widen(input)
    return (x * torch.sigmoid(x)).to(input.dtype)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x)."""
    return _write(_silu, input) if inplace else _silu(input)


def _softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    scaled = x * beta
    large = scaled > threshold
    return torch.where(large, x, torch.log1p(torch.exp(torch.where(large, 0, scaled))) / beta)


@functional_with_out
@over_tensors
def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x > threshold."""
    fitting("softplus", widened(input), beta, threshold)
    return _softplus(widen(input), beta, threshold).to(input.dtype)


@functional
@over_tensors
def _mish(input: Tensor) -> Tensor:
    x = widen(input)
    return (x * torch.tanh(_softplus(x))).to(input.dtype)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)). Misra, 2019."""
    return _write(_mish, input) if inplace else _mish(input)


def log_sigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)), inside a body. At 0 both terms take one side, so that derivatives of all orders are right there."""
    negative = x < 0
    return torch.where(negative, x, 0) - torch.log1p(torch.exp(torch.where(negative, x, -x)))


@functional_with_out
@row_major
def logsigmoid(input: Tensor) -> Tensor:
    """log(1 / (1 + exp(-x))), without overflow."""
    return log_sigmoid(widen(input)).to(input.dtype)


@functional
@like_input
def _hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    if isinstance(min_val, complex) or isinstance(max_val, complex):
        raise TypeError(f"hardtanh(): arguments 'min_val' and 'max_val' must be float, not complex: got {min_val} and {max_val}")
    if min_val > max_val:
        raise ValueError("hardtanh(): min_val cannot be greater than max_val")
    if input.dtype is torch.uint8 and (min_val <= -1 or max_val <= -1):  # limits lose their fractions
        raise RuntimeError(f"hardtanh(): cannot do hardtanh on an unsigned type with negative limits: got {min_val} and {max_val}")
    if input.dtype is torch.uint8:
        min_val, max_val = (math.trunc(v) if math.isfinite(v) else v for v in (min_val, max_val))
    fitting("hardtanh", input.dtype, min_val, max_val)
    if min_val != min_val or max_val != max_val:
        return torch.full_like(input, math.nan)
    return _between(input, min_val, max_val).to(input.dtype)


def _between(x: Tensor, low: Any, high: Any) -> Tensor:
    """x clamped, inside a body: the gradient is 0 at both bounds, and at a bound of zero x keeps its sign."""
    fixed = x.detach()
    return torch.where(x <= low, torch.where(fixed < low, low, fixed), torch.where(x >= high, torch.where(fixed > high, high, fixed), x))


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x clamped to [min_val, max_val]; the gradient at both ends is 0."""
    return _write(_hardtanh, input, min_val, max_val) if inplace else _hardtanh(input, min_val, max_val)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """In-place form of hardtanh."""
    return _write(_hardtanh, input, min_val, max_val)


@functional
@like_input
def _relu6(input: Tensor) -> Tensor:
    return _between(input, 0, 6)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6)."""
    return _write(_relu6, input) if inplace else _relu6(input)


@functional
@over_tensors
def _hardsigmoid(input: Tensor) -> Tensor:
    x = widen(input)
    line = torch.where(torch.isnan(x), math.nan, x / 6 + 0.5) if x.requires_grad else x / 6 + 0.5  # the slope at NaN is 0
    return torch.where(x <= -3, 0, torch.where(x >= 3, 1, line)).to(input.dtype)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """x / 6 + 1 / 2 clamped to [0, 1]."""
    return _write(_hardsigmoid, input) if inplace else _hardsigmoid(input)


@functional
@over_tensors
def _hardswish(input: Tensor) -> Tensor:
    x = widen(input)
    low, high = x <= -3, x >= 3
    inside = torch.where(low | high, 0, x)  # the slope of the other branch may be infinite, and 0 * inf is NaN
    return torch.where(low, 0, torch.where(high, x, inside * (inside + 3) / 6)).to(input.dtype)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x * hardsigmoid(x). Howard et al., 2019."""
    return _write(_hardswish, input) if inplace else _hardswish(input)


@functional_with_out
@over_tensors
def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, else 0."""
    fitting("hardshrink", input.dtype, lambd)
    return torch.where(torch.abs(input) <= lambd, 0, input)


@functional_with_out
@over_tensors
def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, 0 where |x| <= lambd."""
    if isinstance(lambd, complex):
        raise RuntimeError(f"softshrink: lambda must be real, but found {lambd}")
    most = torch.finfo(input.dtype).max if input.is_floating_point() else math.inf
    if not 0 <= lambd <= most:
        raise RuntimeError(f"softshrink: lambda must be in range [0, {most:g}] for input dtype {input.dtype}, but found {lambd}")
    return torch.where(input > lambd, input - lambd, torch.where(input < -lambd, input + lambd, torch.where(input.isnan(), input, 0.0)))


@functional
def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x)."""
    return input - torch.tanh(input)


@functional
def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|)."""
    return input / (torch.abs(input) + 1)


@functional
@over_tensors
def _threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    fitting("threshold", widened(input), threshold)
    fitting("threshold", input.dtype, value)
    return torch.where(widen(input) <= threshold, value, input).to(input.dtype)  # which is not rounded to what 16 bits hold


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where x > threshold, else value."""
    return _write(_threshold, input, threshold, value) if inplace else _threshold(input, threshold, value)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """In-place form of threshold."""
    return _write(_threshold, input, threshold, value)


@functional
def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return torch.tanh(input)


@functional
def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return torch.sigmoid(input)


@functional
def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim`, times the sigmoid of the second. Dauphin et al., 2016."""
    if input.ndim == 0:
        raise RuntimeError("glu does not support 0-dimensional tensors")
    size = input.shape[dim]
    if size % 2:
        raise RuntimeError(f"glu: Halving dimension must be even, but dimension {dim % input.ndim} is size {size}; input has shape {tuple(input.shape)}")
    x = widen(input)
    return (x.narrow(dim, 0, size // 2) * torch.sigmoid(x.narrow(dim, size // 2, size // 2))).to(input.dtype)


def _check_dtypes(input: Tensor, weight: Tensor) -> None:
    if input.dtype is not weight.dtype:
        raise RuntimeError(f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}: give input and weight one dtype")


@functional
@checked(_check_dtypes)
@like_input
def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where positive, else weight * x; weight has one element, or one for each channel (dim 1)."""
    if weight.ndim > 1:
        raise RuntimeError(f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.ndim}, shape {tuple(weight.shape)}")
    _check_dtypes(input, weight)
    count = weight.numel()
    if count != 1:
        channels = input.shape[1] if input.ndim > 1 else 1
        if count != channels:
            raise RuntimeError(
                f"prelu: Mismatch of parameter numbers and input channel size. Found parameter numbers = {count} and "
                f"channel size = {channels}; weight needs 1 or {channels} elements for an input of shape {tuple(input.shape)}."
            )
        weight = weight.reshape((count,) + (1,) * (input.ndim - 2))
    elif weight.ndim == 1:
        weight = weight.reshape(())
    positive = input > 0
    return torch.where(positive, input, torch.where(positive, 0, input) * weight)  # not 0 * inf in the weight's gradient


@functional
def _rrelu(input: Tensor, slope: Tensor) -> Tensor:
    return (widen(input) * slope).to(input.dtype)


def rrelu(input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False, inplace: bool = False) -> Tensor:
    """leaky_relu with a slope drawn from [lower, upper) for each element while training, else their mean."""
    for bound, what in ((lower, "lower"), (upper, "upper")):
        if not math.isfinite(bound):
            raise RuntimeError(f"rrelu(): {what} bound must be finite, got {bound}")
    if lower > upper:
        raise RuntimeError(f"rrelu(): Lower bound should be less than or equal to the upper bound, got {lower} and {upper}")
    if not training:
        return leaky_relu(input if inplace else input.contiguous(), (lower + upper) / 2, inplace)
    return rrelu_by(None, input, lower, upper, inplace)


def rrelu_by(generator: Any, input: Tensor, lower: float, upper: float, inplace: bool = False) -> Tensor:
    """rrelu while training, its slopes from a generator."""
    slope = rrelu_slopes(input, lower, upper, generator)
    return _write(_rrelu, input, slope) if inplace else _rrelu(input.contiguous(), slope)


def _softmax_dim(ndim: int) -> int:
    """The axis that PyTorch takes where none is given (deprecated there)."""
    return 0 if ndim in (0, 1, 3) else 1


def _check_floating(name: str, x: Tensor) -> None:
    if not (x.is_floating_point() or x.is_complex()):
        raise RuntimeError(f"{name}: not implemented for {x.dtype}; the input must be floating point: cast it or give dtype=")


@functional
@row_major
def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) / sum of exp(x) along `dim`; computed in `dtype` if given."""
    x = input if dtype is None else input.to(dtype)
    dim = _softmax_dim(x.ndim) if dim is None else dim
    if not x._meta.numel and x.dtype.category < 2:  # PyTorch does not look for a kernel, so integers pass, too
        dim_of(dim, x.ndim)
        return x.clone()
    _check_floating("softmax", x)
    wide = widen(x)
    e = primitives().exp_weight(wide - _shift(wide, dim))
    return (e / e.sum(dim, keepdim=True)).to(x.dtype)


def _shift(x: Tensor, dim: int) -> Tensor:
    """The maximum along `dim`, which the result does not depend on: no gradient goes through it."""
    if x.numel() == 0:
        return torch.zeros((), dtype=x.dtype)
    return x.detach().amax(dim, keepdim=True)


def log_softmax_values(x: Tensor, dim: int) -> Tensor:
    """The composition of log_softmax, for other bodies."""
    shifted = x - _shift(x, dim)
    return shifted - torch.log(primitives().exp_weight(shifted).sum(dim, keepdim=True))


@functional
@row_major
def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along `dim`, without underflow; computed in `dtype` if given."""
    x = input if dtype is None else input.to(dtype)
    dim = _softmax_dim(x.ndim) if dim is None else dim
    if not x._meta.numel and x.dtype.category < 2:  # PyTorch does not look for a kernel, so integers pass, too
        dim_of(dim, x.ndim)
        return x.clone()
    _check_floating("log_softmax", x)
    return log_softmax_values(widen(x), dim).to(x.dtype)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax of -x."""
    return softmax(-input, _softmax_dim(input.ndim) if dim is None else dim, dtype=dtype)


def gumbel_softmax(logits: Tensor, tau: Number = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A sample from the Gumbel-softmax distribution (Jang et al., 2017); with `hard`, one-hot with the soft gradient."""
    gumbels = -torch.empty_like(logits, requires_grad=False, memory_format=torch.contiguous_format).exponential_().log()
    soft = softmax((logits + gumbels) / tau, dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = torch.zeros_like(logits, requires_grad=False).scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft


def _write(function: Callable[..., Tensor], input: Tensor, *args: Any) -> Tensor:
    """The in-place form of a function: its result replaces the values of its first argument."""
    return replace(function, input, args, {}, function.__name__.lstrip("_") + "_")


__all__ = [
    "celu", "celu_", "elu", "elu_", "gelu", "glu", "gumbel_softmax", "hardshrink", "hardsigmoid", "hardswish", "hardtanh",
    "hardtanh_", "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid", "mish", "prelu", "relu", "relu6", "relu_", "rrelu",
    "selu", "selu_", "sigmoid", "silu", "softmax", "softmin", "softplus", "softshrink", "softsign", "tanh", "tanhshrink",
    "threshold", "threshold_",
]  # fmt: skip
