"""Pooling over windows. The primitives have two spatial dimensions; 1-D adds one of size 1, 3-D pools depth apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.nn.functional.engine import Tensor, checked, dense, entries, functional, functional_with_out, primitives, widen
from flambeau.ops.creation import check_memory
from flambeau.ops.result_strides import as_suggested, row_major
from flambeau.ops.signatures import whole

Size = int | Sequence[int]


def _out_size(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Number of windows; with ceil_mode a last partial window counts if it starts inside the input or left padding."""
    span = size + 2 * padding - dilation * (kernel - 1) - 1
    out = (-(-span // stride) if ceil_mode else span // stride) + 1
    if ceil_mode and (out - 1) * stride >= size + padding:
        out -= 1
    return out


_MOST = 2**31 - 1  # PyTorch counts in 32 bits in images and volumes


def _check_rank(name: str, x: Tensor, dims: int) -> None:
    if x.ndim not in (dims + 1, dims + 2):
        # PyTorch's means over images ask for the channels before they look at the shape.
        kind: type[Exception] = IndexError if name == "avg_pool2d" and x.ndim < dims + 1 else RuntimeError
        raise kind(
            f"{name}(): Expected {dims + 1}D or {dims + 2}D input (channels and {dims} spatial dimensions, with or "
            f"without a batch), but got input of shape {list(x.shape)}"
        )


def _ranked(name: str, dims: int) -> Any:
    """A decorator of bodies: the rank of the input is looked at before its dtype, as in PyTorch."""
    return checked(lambda input, *_: _check_rank(name, input, dims))


class _Windows:
    """Checked arguments of a pooling call over `dims` spatial dimensions, and the input with a batch dimension."""

    def __init__(self, name: str, x: Tensor, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> None:
        _check_rank(name, x, dims)
        if 0 in x.shape[-dims - 1 :]:
            raise RuntimeError(
                f"{name}(): Expected {dims + 1}D or {dims + 2}D (batch mode) tensor whose non-batch dimensions have positive length, but got input of "
                f"shape {list(x.shape)}"
            )
        self.kernel = entries(kernel, dims, "kernel_size", name)
        self.stride = self.kernel if stride is None or stride == () or stride == [] else entries(stride, dims, "stride", name)
        self.padding = entries(padding, dims, "padding", name)
        self.dilation = entries(dilation, dims, "dilation", name)
        if (dims > 1 or name == "avg_pool1d") and max(*self.kernel, *self.stride, *self.padding, *self.dilation) > _MOST:
            raise RuntimeError(
                f"{name}: value cannot be converted to type int without overflow: kernel_size {self.kernel}, stride {self.stride}, "
                f"padding {self.padding}, dilation {self.dilation}"
            )
        if min(self.kernel) < 1 or min(self.stride) < 1 or min(self.dilation) < 1:
            raise RuntimeError(
                f"{name}: kernel size, stride and dilation should be greater than zero, but got kernel_size {self.kernel}, "
                f"stride {self.stride}, dilation {self.dilation}"
            )
        for k, p, d in zip(self.kernel, self.padding, self.dilation, strict=True):
            if p < 0:
                raise RuntimeError(f"{name}: pad must be non-negative, but got pad: {p}")
            if p > ((k - 1) * d + 1) // 2:
                raise RuntimeError(f"{name}: pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation={d}")
        self.batched = x.ndim == dims + 2
        self.x = x if self.batched else x.unsqueeze(0)
        self.out = tuple(
            _out_size(n, k, s, p, d, ceil_mode) for n, k, s, p, d in zip(self.x.shape[2:], self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )
        if min(self.out) < 1:
            raise RuntimeError(
                f"{name}: Given input size: {tuple(self.x.shape[1:])}. Calculated output size: {(self.x.shape[1], *self.out)}. Output size is too small"
            )
        if dims == 1:
            self.x = self.x.unsqueeze(2)
            self.kernel, self.stride = (1, *self.kernel), (1, *self.stride)
            self.padding, self.dilation = (0, *self.padding), (1, *self.dilation)
        self.flat = dims == 1

    def shape(self) -> tuple[int, ...]:
        return (*self.x.shape[:2], *((1,) if self.flat else ()), *self.out)

    def finish(self, y: Tensor) -> Tensor:
        if self.flat:
            y = y.squeeze(2)
        return y if self.batched else y.squeeze(0)


def _refuse(name: str, input: Tensor, *, ints: bool) -> None:
    """NotImplementedError for the dtypes that PyTorch's pooling does not take: truth values, and whole numbers unless `ints`."""
    d = input.dtype
    if d == torch.bool or not (ints or d.is_floating_point or d.is_complex):
        raise NotImplementedError(f'"{name}" not implemented for {d}: convert the input to a floating dtype')


def _max(name: str, input: Tensor, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> tuple[Tensor, Tensor]:
    _refuse(name, input, ints=True)
    w = _Windows(name, input, dims, kernel, stride, padding, dilation, ceil_mode)
    values, indices = primitives().max_pool(w.x, kernel=w.kernel, stride=w.stride, padding=w.padding, dilation=w.dilation, shape=w.shape())
    return w.finish(values), w.finish(indices)


@functional
@_ranked("max_pool1d", 1)
@as_suggested(dims=1)
def _max_pool1d(input: Tensor, kernel_size: Size, stride: Size | None, padding: Size, dilation: Size, ceil_mode: bool) -> tuple[Tensor, Tensor]:
    return _max("max_pool1d", input, 1, kernel_size, stride, padding, dilation, ceil_mode)


@functional
@_ranked("max_pool2d", 2)
@as_suggested()
def _max_pool2d(input: Tensor, kernel_size: Size, stride: Size | None, padding: Size, dilation: Size, ceil_mode: bool) -> tuple[Tensor, Tensor]:
    return _max("max_pool2d", input, 2, kernel_size, stride, padding, dilation, ceil_mode)


@functional
@_ranked("max_pool1d", 1)
@row_major
def _max_pool1d_values(input: Tensor, kernel_size: Size, stride: Size | None, padding: Size, dilation: Size, ceil_mode: bool) -> Tensor:
    _refuse("max_pool1d", input, ints=False)
    return _max("max_pool1d", input, 1, kernel_size, stride, padding, dilation, ceil_mode)[0]


@functional
@_ranked("max_pool2d", 2)
@as_suggested()
def _max_pool2d_values(input: Tensor, kernel_size: Size, stride: Size | None, padding: Size, dilation: Size, ceil_mode: bool) -> Tensor:
    return _max("max_pool2d", input, 2, kernel_size, stride, padding, dilation, ceil_mode)[0]


@functional
@_ranked("max_pool3d", 3)
@as_suggested()
def _max_pool3d(input: Tensor, kernel_size: Size, stride: Size | None, padding: Size, dilation: Size, ceil_mode: bool, with_indices: bool) -> Any:
    _refuse("max_pool3d", input, ints=True)
    w = _Windows("max_pool3d", input, 3, kernel_size, stride, padding, dilation, ceil_mode)
    n, c, depth, height, width = w.x.shape
    pool = primitives().max_pool
    planes = w.x.reshape(n, c * depth, height, width)
    y, in_plane = pool(
        planes, kernel=w.kernel[1:], stride=w.stride[1:], padding=w.padding[1:], dilation=w.dilation[1:],
        shape=(n, c * depth, *w.out[1:]),
    )  # fmt: skip
    area = w.out[1] * w.out[2]
    y, in_depth = pool(
        y.reshape(n, c, depth, area), kernel=(w.kernel[0], 1), stride=(w.stride[0], 1), padding=(w.padding[0], 0),
        dilation=(w.dilation[0], 1), shape=(n, c, w.out[0], area),
    )  # fmt: skip
    y = w.finish(y.reshape(n, c, *w.out))
    if not with_indices:
        return y
    found = in_depth.reshape(n, c, w.out[0] * area)  # flat over (depth, area)
    flat = in_plane.reshape(n, c, depth * area).gather(-1, found) + found // area * (height * width)
    return y, w.finish(flat.reshape(n, c, *w.out))


def max_pool1d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """Maxima over windows of (N, C, L); with return_indices also where they stood."""
    function = _max_pool1d if return_indices else _max_pool1d_values
    return function(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool2d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """Maxima over windows of (N, C, H, W); with return_indices also the flat index in H * W of each."""
    function = _max_pool2d if return_indices else _max_pool2d_values
    return function(input, kernel_size, stride, padding, dilation, ceil_mode)


def max_pool3d(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> Any:  # fmt: skip
    """Maxima over windows of (N, C, D, H, W); with return_indices also the flat index in D * H * W of each."""
    return _max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool1d_with_indices(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """max_pool1d with return_indices=True."""
    return max_pool1d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[no-any-return]


def max_pool2d_with_indices(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """max_pool2d with return_indices=True."""
    return max_pool2d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[no-any-return]


def max_pool3d_with_indices(
    input: Tensor, kernel_size: Size, stride: Size | None = None, padding: Size = 0, dilation: Size = 1,
    ceil_mode: bool = False, return_indices: bool = False,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """max_pool3d with return_indices=True."""
    return max_pool3d(input, kernel_size, stride, padding, dilation, ceil_mode, True)  # type: ignore[no-any-return]


def _average(
    name: str, input: Tensor, dims: int, kernel: Any, stride: Any, padding: Any, ceil_mode: bool, count_include_pad: bool,
    divisor: int | None,
) -> Tensor:  # fmt: skip
    _refuse(name, input, ints=input.dtype == torch.int64)
    w = _Windows(name, input, dims, kernel, stride, padding, 1, ceil_mode)
    if divisor == 0:
        raise RuntimeError(f"{name}: divisor must be not zero")
    y = primitives().average_pool(
        widen(w.x), kernel=w.kernel, stride=w.stride, padding=w.padding, dilation=(1, 1),
        count_include_pad=count_include_pad, divisor=divisor or 0, shape=w.shape(),
    )  # fmt: skip
    return w.finish(y).to(input.dtype)


@functional
@_ranked("avg_pool1d", 1)
@as_suggested(dims=1)
def avg_pool1d(
    input: Tensor, kernel_size: Size, stride: Size | None = (), padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:  # fmt: skip
    """Means over windows of (N, C, L)."""
    return _average("avg_pool1d", input, 1, kernel_size, None if stride == () else stride, padding, ceil_mode, count_include_pad, None)


@functional_with_out
@_ranked("avg_pool2d", 2)
@as_suggested()
def avg_pool2d(
    input: Tensor, kernel_size: Size, stride: Size | None = (), padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Means over windows of (N, C, H, W); `divisor_override` divides instead of the number of elements."""
    return _average("avg_pool2d", input, 2, kernel_size, None if stride == () else stride, padding, ceil_mode, count_include_pad, divisor_override)


@functional_with_out
@_ranked("avg_pool3d", 3)
@row_major
def avg_pool3d(
    input: Tensor, kernel_size: Size, stride: Size | None = (), padding: Size = 0, ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> Tensor:  # fmt: skip
    """Means over windows of (N, C, D, H, W)."""
    _refuse("avg_pool3d", input, ints=input.dtype == torch.int64)
    w = _Windows("avg_pool3d", input, 3, kernel_size, None if stride == () else stride, padding, 1, ceil_mode)
    if divisor_override == 0:
        raise RuntimeError("avg_pool3d: divisor must be not zero")
    n, c, depth, height, width = w.x.shape
    pool = primitives().average_pool
    whole = input.dtype == torch.int64
    sums = whole or divisor_override is not None  # a quotient of whole numbers is rounded once
    y = pool(
        widen(w.x).reshape(n, c * depth, height, width), kernel=w.kernel[1:], stride=w.stride[1:], padding=w.padding[1:],
        dilation=(1, 1), count_include_pad=count_include_pad, divisor=1 if sums else 0,
        shape=(n, c * depth, *w.out[1:]),
    )  # fmt: skip
    area = w.out[1] * w.out[2]
    y = pool(
        y.reshape(n, c, depth, area), kernel=(w.kernel[0], 1), stride=(w.stride[0], 1), padding=(w.padding[0], 0),
        dilation=(1, 1), count_include_pad=count_include_pad, divisor=1 if whole else divisor_override or 0, shape=(n, c, w.out[0], area),
    ).reshape(n, c, *w.out)  # fmt: skip
    if whole:
        y = y.div(divisor_override or _counts(w, count_include_pad), rounding_mode="trunc")
    return w.finish(y).to(input.dtype)


def _counts(w: _Windows, include_padding: bool) -> Tensor:
    """How many elements each window has, of the shape of the windows; those of the padding, if they count, within its width."""
    count = torch.ones((), dtype=torch.int64, device=w.x.device)
    for size, out, kernel, stride, padding in zip(w.x.shape[2:], w.out, w.kernel, w.stride, w.padding, strict=True):
        first = torch.arange(out, device=w.x.device) * stride - padding
        last = (first + kernel).clamp(max=size + padding)
        if not include_padding:
            first, last = first.clamp(min=0), last.clamp(max=size)
        count = count.unsqueeze(-1) * (last - first)
    return count


def _targets(name: str, input: Tensor, output_size: Any, dims: int) -> tuple[int, ...]:
    listed = isinstance(output_size, (tuple, list))
    if dims > 1 and listed and input.ndim <= len(output_size):
        raise ValueError(f"{name}: Input dimension should be at least {len(output_size) + 1}, got an input of shape {list(input.shape)}")
    if input.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(f"{name}: Expected {dims + 1}D or {dims + 2}D tensor, but got {list(input.shape)}")
    given = tuple(output_size) if listed else (output_size,) * dims
    if len(given) != dims:  # a list of one number, too: only a number itself stands for all
        raise RuntimeError(f"{name}: output_size must be a number, or {dims} numbers (None keeps a dimension), but got {list(given)}")
    targets = tuple([n if o is None else whole(name, "output_size", o) for n, o in zip(input.shape[-dims:], given, strict=True)])
    if min(targets) < 0:
        raise RuntimeError(f"{name}: elements of output_size must be greater than or equal to 0, but got {list(targets)}")
    check_memory((*input.shape[:-dims], *targets), input.dtype)
    return targets


def window_bounds(size: int, out: int) -> tuple[Tensor, Tensor]:
    """Where `out` windows that cover `size` elements begin and end: window i goes from floor(i size / out) up to ceil((i + 1) size / out)."""
    i = torch.arange(out)
    return (i * size) // out, ((i + 1) * size + (out - 1)) // out


def _window_matrix(size: int, out: int, dtype: Any) -> Tensor:
    """(size, out): column i averages the elements of window i."""
    start, end = window_bounds(size, out)
    j = torch.arange(size).unsqueeze(1)
    inside = (j >= start) & (j < end)
    return inside.to(dtype) / (end - start).to(dtype)


def _adaptive_average(name: str, input: Tensor, output_size: Any, dims: int) -> Tensor:
    """One dimension at a time: a mean over equal windows, or a product with the matrix of unequal ones."""
    _refuse(name, input, ints=False)
    targets = _targets(name, input, output_size, dims)
    if 0 in input.shape[(1 if dims == 3 else -dims) :] and (dims == 1 or set(targets) != {1}):  # PyTorch takes the plain mean for one window
        raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {list(input.shape)}")
    x = widen(input)
    for axis, out in zip(range(-dims, 0), targets, strict=True):
        size = x.shape[axis]
        if out == size:
            continue
        if out and size % out == 0:
            x = x.unflatten(axis, (out, size // out)).mean(axis)
        else:
            matrix = _window_matrix(size, out, x.dtype)
            x = torch.matmul(x.transpose(axis, -1), matrix).transpose(axis, -1)
    return x.to(input.dtype)


@functional
@as_suggested(dims=1)
def adaptive_avg_pool1d(input: Tensor, output_size: Size) -> Tensor:
    """Means over `output_size` windows that cover L."""
    return _adaptive_average("adaptive_avg_pool1d", input, output_size, 1)


@functional
@as_suggested()
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """Means over output_size windows that cover (H, W); None keeps a dimension."""
    return _adaptive_average("adaptive_avg_pool2d", input, output_size, 2)


@functional
@as_suggested()
def _global_avg_pool3d(input: Tensor) -> Tensor:
    return _adaptive_average("adaptive_avg_pool3d", input, 1, 3)


@functional
@row_major
def _adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    return _adaptive_average("adaptive_avg_pool3d", input, output_size, 3)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """Means over output_size windows that cover (D, H, W)."""
    dense("nn.functional.adaptive_avg_pool3d", input)
    if _targets("adaptive_avg_pool3d", input, output_size, 3) == (1, 1, 1):
        return _global_avg_pool3d(input)
    return _adaptive_avg_pool3d(input, output_size)


def _adaptive_max(name: str, input: Tensor, output_size: Any, dims: int) -> tuple[Tensor, Tensor]:
    """(maxima, flat indices) of windows of unequal sizes."""
    _refuse(name, input, ints=False)
    targets = _targets(name, input, output_size, dims)
    if min(input.shape[1:]) == 0:
        raise RuntimeError(f"{name}(): Expected input to have non-zero size for non-batch dimensions, but input has sizes {list(input.shape)}")
    x, flat = input, flat_places(input.shape[-dims:]).expand(input.shape)
    if not all(targets):
        shape = (*input.shape[:-dims], *targets)
        return input.new_zeros(shape), flat.new_zeros(shape)
    for axis in range(-1, -dims - 1, -1):
        x, flat = _axis_maxima(x, flat, axis, targets[axis])
    return x, flat


def flat_places(shape: Sequence[int]) -> Tensor:
    """The flat index of every element of the spatial dimensions."""
    return torch.arange(math.prod(shape)).reshape(tuple(shape))


def _axis_maxima(x: Tensor, flat: Tensor, axis: int, out: int) -> tuple[Tensor, Tensor]:
    """Maxima over `out` windows that cover an axis, and what `flat` (of x's shape) holds where they stood.

    A window that is shorter than others has its last place several times.
    """
    size = x.shape[axis]
    most = -(-size // out) + (size % out != 0)  # the longest window is no longer
    start, end = window_bounds(size, out)
    places = torch.minimum(start.unsqueeze(1) + torch.arange(most), end.unsqueeze(1) - 1).flatten()
    values, index = x.index_select(axis, places).unflatten(axis, (out, most)).max(axis)
    windows = flat.index_select(axis, places).unflatten(axis, (out, most))
    return values, windows.gather(axis, index.unsqueeze(axis)).squeeze(axis)


@functional
@as_suggested(dims=1)
def _adaptive_max_pool1d(input: Tensor, output_size: Size) -> tuple[Tensor, Tensor]:
    return _adaptive_max("adaptive_max_pool1d", input, output_size, 1)


@functional
@as_suggested()
def _adaptive_max_pool2d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    targets = _targets("adaptive_max_pool2d", input, output_size, 2)
    _refuse("adaptive_max_pool2d", input, ints=False)
    size = input.shape[-2:]
    if 0 not in input.shape[-3:] and all(o and n % o == 0 for n, o in zip(size, targets, strict=True)):
        kernel = tuple(n // o for n, o in zip(size, targets, strict=True))
        return _max("adaptive_max_pool2d", input, 2, kernel, None, 0, 1, False)
    return _adaptive_max("adaptive_max_pool2d", input, output_size, 2)


def adaptive_max_pool1d(input: Tensor, output_size: Size, return_indices: bool = False) -> Any:
    """Maxima over `output_size` windows that cover L."""
    result = _adaptive_max_pool1d(input, output_size)
    return result if return_indices else result[0]


def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:
    """adaptive_max_pool1d with return_indices=True."""
    return adaptive_max_pool1d(input, output_size, True)  # type: ignore[no-any-return]


def adaptive_max_pool2d(input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """Maxima over output_size windows that cover (H, W)."""
    result = _adaptive_max_pool2d(input, output_size)
    return result if return_indices else result[0]


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:
    """adaptive_max_pool2d with return_indices=True."""
    return adaptive_max_pool2d(input, output_size, True)  # type: ignore[no-any-return]


def _lp_pool(name: str, input: Tensor, dims: int, norm_type: float, kernel_size: Any, stride: Any, ceil_mode: bool) -> Tensor:
    average, extreme = ((avg_pool1d, max_pool1d), (avg_pool2d, max_pool2d), (avg_pool3d, max_pool3d))[dims - 1]
    if isinstance(kernel_size, (tuple, list)) and (dims == 1 or len(kernel_size) != dims):
        kind = (TypeError if len(kernel_size) == 1 else RuntimeError) if dims == 1 else ValueError  # which part of PyTorch's meets it first
        raise kind(f"{name}(): kernel_size must be {'one int' if dims == 1 else f'one int, or {dims} ints'}, but got {list(kernel_size)}")
    if math.isinf(norm_type):
        y: Tensor = extreme(input.abs() if norm_type > 0 else -input.abs(), kernel_size, stride, 0, 1, ceil_mode)
        return y if norm_type > 0 else -y
    if not norm_type:
        raise ZeroDivisionError(f"{name}(): float division by zero: norm_type is {norm_type}")
    y = average(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    count = math.prod(entries(kernel_size, dims, "kernel_size", name))
    return (torch.sign(y) * _relu(torch.abs(y)) * count).pow(1.0 / norm_type)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: int, stride: Size | None = None, ceil_mode: bool = False) -> Tensor:
    """p-norms over windows of (N, C, L)."""
    return _lp_pool("lp_pool1d", input, 1, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False) -> Tensor:
    """p-norms over windows of (N, C, H, W)."""
    return _lp_pool("lp_pool2d", input, 2, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Size, stride: Size | None = None, ceil_mode: bool = False) -> Tensor:
    """p-norms over windows of (N, C, D, H, W)."""
    return _lp_pool("lp_pool3d", input, 3, norm_type, kernel_size, stride, ceil_mode)


def _relu(x: Tensor) -> Tensor:
    """max(x, 0) of a value that is not negative: keeps PyTorch's gradient at 0."""
    return torch.nn.functional.relu(x)


__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool1d_with_indices",
    "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d", "lp_pool1d", "lp_pool2d",
    "lp_pool3d", "max_pool1d", "max_pool1d_with_indices", "max_pool2d", "max_pool2d_with_indices", "max_pool3d",
    "max_pool3d_with_indices",
]  # fmt: skip
