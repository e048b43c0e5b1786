"""Normalisation. Statistics are of float32 (float64) values even for half-precision inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import flambeau as torch
from flambeau.dtypes import C_NAMES
from flambeau.nn.functional.engine import Number, Tensor, functional, overwrite, refuse_gradients, widen
from flambeau.ops.remembered import remembered, remembered_writes
from flambeau.ops.result_strides import as_suggested, row_major
from flambeau.ops.signatures import must_be


def _standardise(x: Tensor, dims: tuple[int, ...], eps: float) -> Tensor:
    """(x - mean) / sqrt(biased variance + eps) over `dims`."""
    variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(variance + eps)


def _exactly(x: Tensor) -> Tensor:
    """float32 numbers as float64. A standardised number is the difference of two numbers that may be large, times a factor: in
    float64 only the result is rounded. Kernels that read rows from memory have the time for it."""
    return x.to(torch.float64) if x.dtype == torch.float32 else widen(x)


def _check_normalized(name: str, input: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None) -> None:
    shape = tuple(shape)
    if not shape:
        raise RuntimeError(f"{name}: Expected normalized_shape to be at least 1-dimensional, but got normalized_shape = []")
    for what, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != shape:
            raise RuntimeError(
                f"{name}: Expected {what} to be of same shape as normalized_shape, but got {what} of shape {list(t.shape)} and normalized_shape = {list(shape)}"
            )
    if tuple(input.shape[-len(shape) :]) != shape or input.ndim < len(shape):
        expected = ", ".join(["*", *map(str, shape)])
        raise RuntimeError(f"{name}: Given normalized_shape={list(shape)}, expected input with shape [{expected}], but got input of size{list(input.shape)}")


def _check_dtypes(name: str, input: Tensor, **vectors: Tensor | None) -> None:
    """Parameters and running statistics are of one dtype: the input's, or float32 beside an input of 16 bits."""
    first: tuple[str, Tensor] | None = None
    for what, t in vectors.items():
        if t is None:
            continue
        first = first or (what, t)
        if t.dtype is not input.dtype and not (t.dtype is torch.float32 and input.dtype in (torch.float16, torch.bfloat16)):
            found, expected = C_NAMES[t.dtype.name], C_NAMES[input.dtype.name]
            raise RuntimeError(
                f"{name}: expected scalar type {expected} but found {found}: {what} is {t.dtype}, the input {input.dtype}; give it in the input's dtype"
                " (or in float32 beside an input of 16 bits)"
            )
        if t.dtype is not first[1].dtype:
            raise RuntimeError(
                f"{name}: mixed dtype (CPU): expect parameter to have scalar type of Float, or all of the input's: {first[0]} is {first[1].dtype}, "
                f"{what} is {t.dtype}, the input {input.dtype}"
            )


@functional
@row_major
def layer_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Standardise over the last len(normalized_shape) dimensions, then scale and shift. Ba et al., 2016."""
    _check_normalized("layer_norm", input, normalized_shape, weight, bias)
    _check_dtypes("layer_norm", input, weight=weight, bias=bias)
    y = _standardise(widen(input), tuple(range(-len(normalized_shape), 0)), eps)
    if weight is not None:
        y = y * weight
    if bias is not None:
        y = y + bias
    return y.to(input.dtype)


@functional
@as_suggested()
def rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last dimensions, then scale. Zhang and Sennrich, 2019; eps None: the dtype's."""
    fits = weight is None or tuple(weight.shape) == tuple(normalized_shape)
    if input.ndim < len(normalized_shape) and fits:
        raise ValueError(
            f"rms_norm(): Input tensor must have at least {len(normalized_shape)} dimensions, but got {input.ndim}; normalized_shape is "
            f"{list(normalized_shape)}"
        )
    _check_normalized("rms_norm", input, normalized_shape, weight, None)
    x = widen(input.contiguous())
    dims = tuple(range(-len(normalized_shape), 0))
    if eps is None:
        eps = torch.finfo(x.dtype).eps
    y = x * torch.rsqrt((x * x).mean(dims, keepdim=True) + eps)
    if weight is not None:
        y = y * weight
    return y.to(input.dtype)


def _several_values(name: str, shape: Sequence[int], counted: Sequence[int]) -> None:
    """ValueError of an input that has one value to standardise; native functions (torch.batch_norm, ...) take it."""
    if math.prod(counted) == 1:
        raise ValueError(f"{name}(): Expected more than 1 value per channel when training, got input size {list(shape)}: there is one to standardise")


@remembered
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5) -> Tensor:
    """Standardise each group of channels of (N, C, ...), then scale and shift each channel. Wu and He, 2018."""
    if input.ndim >= 2 and num_groups:  # as PyTorch counts: of all samples and groups together
        _several_values("group_norm", input.shape, (input.shape[0] * input.shape[1] // num_groups, *input.shape[2:]))
    return _group_norm(input, num_groups, weight, bias, eps)


@functional
@as_suggested()
def _group_norm(input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """group_norm, also of one value."""
    if input.ndim < 2:
        raise RuntimeError(f"group_norm: Expected at least 2 dimensions for input tensor but received {input.ndim}")
    n, c = input.shape[:2]
    if c % num_groups:
        raise RuntimeError(
            "group_norm: Expected number of channels in input to be divisible by num_groups, but got input of shape "
            f"{list(input.shape)} and num_groups={num_groups}"
        )
    for what, t in (("weight", weight), ("bias", bias)):
        if t is not None and tuple(t.shape) != (c,):
            raise RuntimeError(
                f"group_norm: Expected {what} to be a vector of size equal to the number of channels in input, but got "
                f"{what} of shape {list(t.shape)} and input of shape {list(input.shape)}"
            )
    _check_dtypes("group_norm", input, weight=weight, bias=bias)
    members = input.numel() // max(n * num_groups, 1)
    y = _standardise(_exactly(input).reshape(n, num_groups, members), (2,), eps).reshape(input.shape)
    return _per_channel(y, weight, bias).to(input.dtype)


def _per_channel(y: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """y * weight + bias, one of each for every channel (dimension 1)."""
    shape = (1, -1) + (1,) * (y.ndim - 2)
    if weight is not None:
        y = y * weight.reshape(shape)
    if bias is not None:
        y = y + bias.reshape(shape)
    return y


def _scaled(y: Tensor, scale: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """y * (scale * weight) + bias: the factor of each channel is multiplied first, so that gradients need one sum for both."""
    shape = (1, -1) + (1,) * (y.ndim - 2)
    return _per_channel(y * (scale if weight is None else scale * weight.reshape(shape)), None, bias)


def inverse_deviation(variance: Tensor, eps: float) -> Tensor:
    """1 / sqrt(variance + eps) of a batch; 0 where both are 0."""
    scale = torch.rsqrt(variance + eps)
    return scale if eps != 0 else torch.where(variance == 0, 0, scale)


def _check_channels(name: str, input: Tensor, **vectors: Tensor | None) -> None:
    c = input.shape[1] if input.ndim > 1 else 0
    for what, t in vectors.items():
        if t is not None and t.numel() != c:
            raise RuntimeError(f"{name}: {what} should contain {c} elements not {t.numel()}: the input of shape {tuple(input.shape)} has {c} channels")
        if t is not None and what.startswith("running") and t.ndim != 1:
            raise RuntimeError(f"{name}: {what} must be a vector of {c} elements, but has shape {tuple(t.shape)}")
    if input.ndim < 2:
        raise IndexError(f"{name}: Dimension out of range: expected an input of at least 2 dimensions, (N, C, ...), but got shape {tuple(input.shape)}")


def _of_nothing(name: str, input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """A copy of an input without elements, of the dtype and the history that scale and shift would give it; statistics stay."""
    for what, t in (("weight", weight), ("bias", bias)):
        if t is not None and not (t.ndim and t.shape[0]):
            raise IndexError(f"{name}: {what} of shape {tuple(t.shape)} has no first element, and an input without elements takes one")
    y = input.clone()
    y = y if weight is None else y * weight[0]
    return y if bias is None else y + bias[0]


def _with_statistics(input: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    _check_channels("batch_norm", input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    _check_dtypes("batch_norm", input, weight=weight, bias=bias)
    refuse_gradients("native_batch_norm", running_mean=running_mean, running_var=running_var)
    shape = (1, -1) + (1,) * (input.ndim - 2)
    scale = torch.rsqrt(_exactly(running_var) + eps).reshape(shape)
    if weight is not None:
        scale = scale * weight.reshape(shape)
    y = (widen(input) - running_mean.reshape(shape)) * scale.to(running_var.dtype)
    return _per_channel(y, None, bias).to(input.dtype)


@functional
@as_suggested()
def _batch_norm_eval(input: Tensor, running_mean: Tensor, running_var: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    _check_dtypes("batch_norm", input, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    return _with_statistics(input, running_mean, running_var, weight, bias, eps)


_instance_norm_eval = functional(row_major(_with_statistics), "instance_norm_eval")


@functional
@as_suggested()
def _batch_norm_train(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None,
    momentum: Number, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    """(normalised input, new running mean, new running variance); the last two only where there were old ones."""
    _check_channels("batch_norm", input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    _check_dtypes("batch_norm", input, weight=weight, bias=bias, running_mean=running_mean, running_var=running_var)
    refuse_gradients("native_batch_norm", running_mean=running_mean, running_var=running_var)
    dims = (0, *range(2, input.ndim))
    x = _exactly(input)
    variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
    y = _scaled(x - mean, inverse_deviation(variance, eps), weight, bias).to(input.dtype)
    if running_mean is None or running_var is None:
        return (y,)
    count = input.numel() // input.shape[1]
    unbiased = variance.detach().reshape(-1) * count / (count - 1)
    new_mean = running_mean * (1 - momentum) + mean.detach().reshape(-1) * momentum
    new_var = running_var * (1 - momentum) + unbiased * momentum
    return y, new_mean.to(running_mean.dtype), new_var.to(running_var.dtype)


@remembered_writes
def batch_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
    bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Standardise each channel of (N, C, ...) over batch and space. Ioffe and Szegedy, 2015.

    In training the running statistics, if given, are moved towards the batch's by `momentum`, in place (the variance with
    Bessel's correction); otherwise they are used.
    """
    if training and eps <= 0.0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    if eps < 0.0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")
    if training:
        if not input.ndim:
            raise IndexError("batch_norm(): tuple index out of range: expected an input of at least 2 dimensions, (N, C, ...), but got one without dimensions")
        _several_values("batch_norm", input.shape, (input.shape[0], *input.shape[2:]))
    return standardised(input, running_mean, running_var, weight, bias, training, momentum, eps)


def standardised(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None, training: bool,
    momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    """batch_norm for any eps, and of one value for each channel."""
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError("batch_norm: Expected running_mean and running_var to be defined when training=False")
    if not input.numel():
        return _of_nothing("batch_norm", input, weight, bias)
    if not training:
        assert running_mean is not None and running_var is not None
        return _batch_norm_eval(input, running_mean, running_var, weight, bias, eps)
    results = _batch_norm_train(input, running_mean, running_var, weight, bias, momentum, eps)
    if len(results) == 3:
        overwrite((running_mean, running_var), results[1:])  # type: ignore[arg-type]
    return results[0]


@remembered_writes
def instance_norm(
    input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None, weight: Tensor | None = None,
    bias: Tensor | None = None, use_input_stats: bool = True, momentum: float = 0.1, eps: float = 1e-5,
) -> Tensor:  # fmt: skip
    """Standardise each channel of each sample of (N, C, ...) over space. Ulyanov et al., 2016."""
    must_be("instance_norm", "use_input_stats bool", use_input_stats)
    if (running_mean is None) is not (running_var is None):
        raise ValueError("instance_norm: running_mean and running_var must either both be None or neither be None")
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise RuntimeError("instance_norm: Expected running_mean and running_var to be defined when use_input_stats is false")
    elif math.prod(input.shape[2:]) == 1:
        raise ValueError(f"instance_norm(): Expected more than 1 spatial element when training, got input size {input.shape}")
    return standardised_samples(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


def standardised_samples(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None, own: bool,
    momentum: float, eps: float,
) -> Tensor:  # fmt: skip
    """instance_norm, also of one value for each channel. PyTorch's is batch_norm of (1, N * C, ...): vectors are repeated N times."""
    vectors = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
    for what, t in vectors.items():
        if t is not None and t.ndim > 1:
            raise RuntimeError(f"instance_norm(): {what} must be a vector of an element a channel, but has shape {tuple(t.shape)}")
    if input.ndim < 2:
        raise IndexError(f"instance_norm(): Dimension out of range: expected an input of at least 2 dimensions, (N, C, ...), but got {tuple(input.shape)}")
    if not input.numel():
        if not input.shape[0] and (weight is not None or bias is not None):
            raise IndexError(f"instance_norm(): an input of no samples, of shape {tuple(input.shape)}, has no weight or bias")
        y = _of_nothing("instance_norm", input, weight, bias)
        for what, t in (("running_mean", running_mean), ("running_var", running_var)):
            if own and t is not None and t.numel() != input.shape[1]:
                raise RuntimeError(f"instance_norm(): {what} should contain {input.shape[1]} elements not {t.numel()}")
        return y
    if input.ndim == 2:  # each number for itself
        return standardised_samples(input.unsqueeze(2), running_mean, running_var, weight, bias, own, momentum, eps).squeeze(2)
    if not own:
        assert running_mean is not None and running_var is not None
        return _instance_norm_eval(input, running_mean, running_var, weight, bias, eps)
    results = _instance_norm(input, running_mean, running_var, weight, bias, momentum, eps)
    if len(results) == 3:
        overwrite((running_mean, running_var), results[1:])  # type: ignore[arg-type]
    return results[0]


@functional
@row_major
def _instance_norm(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None, bias: Tensor | None,
    momentum: Number, eps: float,
) -> tuple[Tensor, ...]:  # fmt: skip
    _check_channels("instance_norm", input, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    _check_dtypes("instance_norm", input, weight=weight, bias=bias)
    refuse_gradients("native_batch_norm", running_mean=running_mean, running_var=running_var)
    x = _exactly(input)
    dims = tuple(range(2, input.ndim))
    variance, mean = torch.var_mean(x, dim=dims, correction=0, keepdim=True)
    y = _scaled(x - mean, inverse_deviation(variance, eps), weight, bias).to(input.dtype)
    if running_mean is None or running_var is None:
        return (y,)
    count = math.prod(input.shape[2:])
    unbiased = (variance.detach() * count / (count - 1)).mean((0, *dims))
    new_mean = running_mean * (1 - momentum) + mean.detach().mean((0, *dims)) * momentum
    return y, new_mean.to(running_mean.dtype), (running_var * (1 - momentum) + unbiased * momentum).to(running_var.dtype)


def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha * mean of squares over `size` neighbouring channels)^beta. Krizhevsky et al., 2012."""
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    return _local_response_norm(input, size, alpha, beta, k)


@functional
def _local_response_norm(input: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    c = input.shape[1]
    squares = input * input
    whole = not input.is_floating_point() and not input.is_complex()  # of integers PyTorch's mean is an integer
    total = squares
    for shift in range(max(-(size // 2), 1 - c), min((size - 1) // 2, c - 1) + 1):
        if shift == 0:
            continue
        part = squares.narrow(1, max(shift, 0), c - abs(shift))
        edge = torch.zeros_like(squares.narrow(1, 0, abs(shift)))
        total = total + torch.cat([part, edge] if shift > 0 else [edge, part], 1)
    mean = torch.div(total, size, rounding_mode="trunc") * alpha if whole else total * (alpha / size)
    return input / torch.pow(mean + k, beta)


__all__ = ["batch_norm", "group_norm", "instance_norm", "layer_norm", "local_response_norm", "rms_norm"]
