"""Maxima over windows of any place and size, one axis after another: adaptive pooling, fractional pooling, volumes with indices.

The last axis is pooled first, so that among equal values the first of a window in row-major order wins, as in PyTorch's kernels.
Indices are flat over the spatial dimensions of the input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.nn.functional.engine import Tensor, dense, exact_entries, functional, whole_size
from flambeau.nn.functional.pooling import _adaptive_max, _targets, flat_places, max_pool3d_with_indices
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.result_strides import row_major
from flambeau.ops.signatures import whole
from flambeau.trace.strides import suggests_channels_last

Size = int | Sequence[int]


@functional
@row_major
def _adaptive_max_pool3d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    return _adaptive_max("adaptive_max_pool3d", input, output_size, 3)


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:
    """adaptive_max_pool3d with return_indices=True."""
    dense("nn.functional.adaptive_max_pool3d", input)
    targets = _targets("adaptive_max_pool3d", input, output_size, 3)
    if input.is_floating_point() and 0 not in input.shape[-4:] and all(o and n and n % o == 0 for n, o in zip(input.shape[-3:], targets, strict=True)):
        return max_pool3d_with_indices(input.contiguous(), tuple(n // o for n, o in zip(input.shape[-3:], targets, strict=True)))  # type: ignore[attr-defined]
    return _adaptive_max_pool3d(input, output_size)


def adaptive_max_pool3d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over output_size windows that cover (D, H, W); None keeps a dimension."""
    result = adaptive_max_pool3d_with_indices(input, output_size)
    return result if return_indices else result[0]


# -- fractional max pooling (Graham, 2014) ----------------------------------------------------------------------------
def _starts(sample: Tensor, size: int, out: int, kernel: int) -> Tensor:
    """(N, C, out): the first element of each window, from one random number in [0, 1) for each plane; the last window ends the axis."""
    last = torch.full((*sample.shape, 1), size - kernel, dtype=torch.int64, device=sample.device)
    if out <= 1:
        return last[..., :out]
    alpha = torch.full((), size - kernel, dtype=sample.dtype, device=sample.device) / (out - 1)
    steps = torch.arange(out - 1, dtype=sample.dtype, device=sample.device)
    place = sample.unsqueeze(-1)
    starts = ((steps + place) * alpha).to(torch.int64) - (place * alpha).to(torch.int64)
    return torch.cat([starts, last], -1)


def _gathered_maxima(x: Tensor, flat: Tensor, axis: int, starts: Tensor, kernel: int) -> tuple[Tensor, Tensor]:
    """Maxima over windows of `kernel` elements of an axis of (N, C, spatial) that start at `starts` (N, C, out)."""
    n, c, out = starts.shape
    taken = (starts.unsqueeze(-1) + torch.arange(kernel, device=starts.device)).reshape(n, c, out * kernel)
    rank, place = x.ndim, x.ndim + axis
    taken = taken.reshape([n, c, *(out * kernel if d == place else 1 for d in range(2, rank))])
    taken = taken.expand([out * kernel if d == place else size for d, size in enumerate(x.shape)])
    windows = x.gather(place, taken).unflatten(place, (out, kernel))
    value, best = windows.max(place + 1)
    index = flat.gather(place, taken).unflatten(place, (out, kernel))
    return value, index.gather(place + 1, best.unsqueeze(place + 1)).squeeze(place + 1)


@functional
@row_major
def _fractional(input: Tensor, samples: Tensor, kernel: tuple[int, ...], out: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    dims = len(kernel)
    batched = input.ndim == dims + 2
    x = input if batched else input.unsqueeze(0)
    flat = flat_places(x.shape[-dims:]).expand(x.shape)
    sizes = x.shape[-dims:]
    for axis in range(-1, -dims - 1, -1):
        # PyTorch's 2-D kernel takes the first number for the width, the 3-D kernel for the depth
        sample = samples[..., -1 - axis] if dims == 2 else samples[..., axis]
        x, flat = _gathered_maxima(x, flat, axis, _starts(sample, sizes[axis], out[axis], kernel[axis]), kernel[axis])
    return (x, flat) if batched else (x.squeeze(0), flat.squeeze(0))


def _fractional_pool(name: str, dims: int, input: Tensor, kernel_size: Any, output_size: Any, ratio: Any, samples: Tensor | None) -> Any:
    if output_size is None and ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    shares = None
    if output_size is None:
        single = isinstance(ratio, (int, float))
        if dims == 2 and not single and len(ratio) > 2:
            raise ValueError(f"{name} requires output_ratio to either be a single Int or tuple of Ints.")
        shares = (ratio,) * dims if single else tuple(ratio)
        if len(shares) < dims:
            raise IndexError(f"{name}(): output_ratio must be a number or {dims} numbers, but got {list(shares)}")
    if input.ndim < (dims if shares else dims + 1) and (shares or samples is None):
        raise IndexError(f"{name}(): Dimension out of range: expected {dims + 1}D or {dims + 2}D tensor, but got: {list(input.shape)}")
    if input.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}(): Expected {dims + 1}D or {dims + 2}D tensor, but got: {list(input.shape)}")
    if 0 in input.shape[-dims - 1 :]:
        raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but got {list(input.shape)}")
    if shares:
        output_size = [whole_size(n * r, name) for n, r in zip(input.shape[-dims:], shares, strict=False)]
    kernel, out = exact_entries(kernel_size, dims, "kernel_size", name), exact_entries(output_size, dims, "output_size", name)
    axes = ("height", "width") if dims == 2 else ("time", "height", "width")
    if min(out) < 0:
        raise RuntimeError(f"{name}(): Trying to create tensor with negative dimension {min(out)}: an output of {list(out)}")
    for axis, size, k, o in zip(axes, input.shape[-dims:], kernel, out, strict=True):
        if o + k - 1 > size - (dims == 3):  # in volumes PyTorch asks for one element more
            raise RuntimeError(f"{name}(): pool {axis} {k} too large relative to input {axis} {size} for an output of {o}")
    batch = 1 if input.ndim == dims + 1 else input.shape[0]
    if samples is None:
        samples = torch.rand(batch, input.shape[-dims - 1], dims, dtype=input.dtype, device=input.device)
    if samples.ndim != 3 or samples.shape[0] < batch or tuple(samples.shape[1:]) != (input.shape[-dims - 1], dims):
        raise RuntimeError(
            f"{name}: Expect _random_samples of shape {(batch, input.shape[-dims - 1], dims)}, one number for each plane and "
            f"dimension, but got {tuple(samples.shape)}"
        )
    if samples.dtype is not input.dtype:
        raise RuntimeError(f"{name}: Expect _random_samples to have the same dtype as input, got {samples.dtype} and {input.dtype}")
    return _fractional(input, samples if samples.shape[0] == batch else samples[:batch], kernel, out)


def fractional_max_pool2d_with_indices(
    input: Tensor, kernel_size: Size, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """fractional_max_pool2d with return_indices=True."""
    refuse_dtype("fractional_max_pool2d", input.dtype)
    return _fractional_pool("fractional_max_pool2d", 2, input, kernel_size, output_size, output_ratio, _random_samples)  # type: ignore[no-any-return]


def fractional_max_pool3d_with_indices(
    input: Tensor, kernel_size: Size, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """fractional_max_pool3d with return_indices=True."""
    refuse_dtype("fractional_max_pool3d", input.dtype)
    return _fractional_pool("fractional_max_pool3d", 3, input, kernel_size, output_size, output_ratio, _random_samples)  # type: ignore[no-any-return]


def fractional_max_pool2d(
    input: Tensor, kernel_size: Size, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """Maxima over windows of `kernel_size` at random distances, (N, C, H, W) to output_size, or to a share of the input's."""
    result = fractional_max_pool2d_with_indices(input, kernel_size, output_size, output_ratio, True, _random_samples)
    return result if return_indices else result[0]


def fractional_max_pool3d(
    input: Tensor, kernel_size: Size, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
    _random_samples: Tensor | None = None,
) -> Any:  # fmt: skip
    """Maxima over windows of `kernel_size` at random distances, (N, C, D, H, W) to output_size, or to a share of the input's."""
    result = fractional_max_pool3d_with_indices(input, kernel_size, output_size, output_ratio, True, _random_samples)
    return result if return_indices else result[0]


def _for_unpooling(name: str, what: str, value: Any, dims: int) -> tuple[int, ...]:
    """A number for each dim, of a number for all; lists stay as they are."""
    if isinstance(value, (tuple, list)):
        return tuple([whole(name, what, v) for v in value])
    return (whole(name, what, value),) * dims


def _unpooled_size(name: str, input: Tensor, kernel: Any, stride: Any, padding: Any, output_size: Any, dims: int) -> tuple[int, ...]:
    """The size before pooling: the usual one, or `output_size`, if it lies within a stride of it. The kernel says how many dims are looked at."""
    kernel = _for_unpooling(name, "kernel_size", kernel, dims)
    stride = kernel if stride is None else _for_unpooling(name, "stride", stride, dims)
    padding = _for_unpooling(name, "padding", padding, dims)
    count = len(kernel)
    if min(len(stride), len(padding), input.ndim) < count:
        raise IndexError(
            f"{name}(): tuple index out of range: kernel_size {list(kernel)} has {count} elements, stride {list(stride)}, padding {list(padding)}, and "
            f"the input {input.ndim} dimensions"
        )
    size = tuple((n - 1) * s - 2 * p + k for n, s, p, k in zip(input.shape[input.ndim - count :], stride, padding, kernel, strict=False))
    if output_size is not None:
        given = tuple(output_size)
        given = given[2:] if len(given) == count + 2 else given
        if len(given) != count:
            raise ValueError(f"output_size should be a sequence containing {count} or {count + 2} elements, but it has a length of '{len(given)}'")
        for d, (wanted, usual, s) in enumerate(zip(given, size, stride, strict=False)):
            if not usual - s < wanted < usual + s:
                raise ValueError(f'invalid output_size "{list(given)}" (dim {d} must be between {usual - s} and {usual + s})')
        size = given
    if count != dims or (dims == 3 and (len(stride), len(padding)) != (3, 3)):
        raise RuntimeError(
            f"{name}: There should be exactly {dims} elements in output_size, stride and padding, but kernel_size {list(kernel)} makes a size of "
            f"{list(size)}, stride is {list(stride)}, padding {list(padding)}"
        )
    return size


# -- unpooling --------------------------------------------------------------------------------------------------------
def unpool(name: str, input: Tensor, indices: Tensor, kernel: Any, stride: Any, padding: Any, output_size: Any, dims: int) -> Tensor:
    """Zeros of the size before pooling, with `input` at `indices`."""
    size = _unpooled_size(name, input, kernel, stride, padding, output_size, dims)
    if indices.dtype is not torch.int64:
        raise RuntimeError(f"{name}: elements in indices should be type int64 but got: {indices.dtype}")
    if tuple(indices.shape) != tuple(input.shape):
        raise RuntimeError(
            f"{name}: Expected shape of indices to be same as that of the input tensor ({list(input.shape)}) but got indices "
            f"tensor with shape: {list(indices.shape)}"
        )
    if input.ndim not in ((2, 3) if dims == 1 else (dims + 1, dims + 2)) or 0 in input.shape[1:]:
        raise RuntimeError(f"{name}: Expected {dims + 1}D or {dims + 2}D input with non-zero size for non-batch dimensions, but got shape {list(input.shape)}")
    leading = input.shape[:-dims]
    flat = torch.zeros(*leading, math.prod(size), dtype=input.dtype, device=input.device)
    return flat.scatter(-1, indices.flatten(-dims), input.flatten(-dims)).reshape(*leading, *size)


def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, output_size: Any = None) -> Tensor:
    """Puts maxima back to where max_pool1d found them; zeros elsewhere."""
    refuse_dtype("max_unpool1d", input.dtype)
    return unpool("max_unpool1d", input, indices, kernel_size, stride, padding, output_size, 1)


def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, output_size: Any = None) -> Tensor:
    """Puts maxima back to where max_pool2d found them; zeros elsewhere."""
    refuse_dtype("max_unpool2d", input.dtype)
    result = unpool("max_unpool2d", input, indices, kernel_size, stride, padding, output_size, 2)
    return result.contiguous(memory_format=torch.channels_last) if suggests_channels_last(input._meta) else result  # type: ignore[attr-defined, no-any-return]


def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, output_size: Any = None) -> Tensor:
    """Puts maxima back to where max_pool3d found them; zeros elsewhere."""
    refuse_dtype("max_unpool3d", input.dtype)
    return unpool("max_unpool3d", input, indices, kernel_size, stride, padding, output_size, 3)


__all__ = [
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "fractional_max_pool2d", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d", "fractional_max_pool3d_with_indices", "max_unpool1d", "max_unpool2d", "max_unpool3d",
]  # fmt: skip
