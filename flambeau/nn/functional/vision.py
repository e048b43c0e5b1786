"""Padding, resampling and rearranging of images (N, C, spatial dimensions)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.nn.functional.engine import Tensor, functional, primitives, widen

# -- padding ------------------------------------------------------------------------------------------------------


@functional
def _pad_constant(input: Tensor, pad: Sequence[int], value: float) -> Tensor:
    x = input
    for i in range(len(pad) // 2):
        axis = input.ndim - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        size = x.shape[axis]
        if size + before + after < 0:
            raise RuntimeError(
                f"pad: The input size {size}, plus negative padding {before} and {after}, resulted in a negative output size, "
                f"which is invalid. Check dimension {axis} of your input of shape {tuple(input.shape)}."
            )
        if before < 0 or after < 0:
            start = max(0, -before)
            x = x.narrow(axis, start, size - start - max(0, -after))
        parts = [x]
        if before > 0:
            parts.insert(0, _block(x, axis, before, value))
        if after > 0:
            parts.append(_block(x, axis, after, value))
        if len(parts) > 1:
            x = torch.cat(parts, axis)
    return x.clone() if x is input else x


def _block(x: Tensor, axis: int, size: int, value: float) -> Tensor:
    shape = list(x.shape)
    shape[axis] = size
    return torch.full(shape, value, dtype=x.dtype)


@functional
def _pad_by_index(input: Tensor, pad: Sequence[int], mode: str) -> Tensor:
    """Reflect, replicate or wrap: along each axis, rows are taken by a computed index."""
    x = input
    for i in range(len(pad) // 2):
        axis = input.ndim - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        if mode == "circular" and min(before, after) < 0:  # cut first: it goes around what is left
            x = x.narrow(axis, max(-before, 0), x.shape[axis] - max(-before, 0) - max(-after, 0))
            before, after = max(before, 0), max(after, 0)
        size = x.shape[axis]
        if before == 0 and after == 0:
            continue
        if mode == "reflect" and max(before, after) >= size:
            raise RuntimeError(
                f"pad: Padding size should be less than the corresponding input dimension, but got: padding ({before}, {after}) "
                f"at dimension {axis} of input {list(input.shape)}"
            )
        if mode == "circular" and max(before, after) > size:
            raise RuntimeError(f"pad: Padding value causes wrapping around more than once; dimension {axis} has size {size}")
        if size == 0:
            raise RuntimeError(f"pad: expected a non-empty dimension {axis} for {mode} padding, got {list(input.shape)}")
        index = torch.arange(-before, size + after)
        if mode == "replicate":
            index = index.clamp(0, size - 1)
        elif mode == "reflect":
            index = (size - 1) - torch.abs((size - 1) - torch.abs(index))
        else:
            index = torch.remainder(index, size)
        x = primitives().take_rows(x, index, dim=axis)
    return x.clone() if x is input else x


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad the last dimensions; `pad` = (before, after) of the last dimension, then of the one before it, ...

    mode "constant" (with `value`, default 0), "reflect", "replicate" or "circular". Negative numbers cut (constant only).
    """
    sizes = tuple(int(p) for p in pad)
    if len(sizes) % 2:
        raise RuntimeError(f"pad: Padding length must be divisible by 2, but got {list(sizes)}")
    if len(sizes) // 2 > input.ndim:
        raise RuntimeError(
            f"pad: Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(sizes)} and input of dimension {input.ndim}"
        )
    if mode == "constant":
        return _pad_constant(input, sizes, 0 if value is None else value)
    if value is not None and value != 0:
        raise ValueError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if len(sizes) not in (2, 4, 6) or not len(sizes) // 2 < input.ndim <= len(sizes) // 2 + 2:
        raise NotImplementedError(
            "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now; got padding of length "
            f"{len(sizes)} for an input of dimension {input.ndim}"
        )
    return _pad_by_index(input, sizes, mode)


# -- resampling ---------------------------------------------------------------------------------------------------


def _scale(size: int, out: int, align_corners: bool, factor: float | None) -> float:
    """Source steps for one step of the output."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / factor if factor else size / out


def _nearest_index(size: int, out: int, factor: float | None, exact: bool) -> Tensor:
    if factor is None and not exact:
        return (torch.arange(out) * size) // out
    step = _scale(size, out, False, factor)
    at = torch.arange(out, dtype=torch.float32)
    return torch.floor((at + 0.5) * step if exact else at * step).to(torch.int64).clamp(max=size - 1)


def _linear_matrix(size: int, out: int, align_corners: bool, factor: float | None, dtype: Any) -> Tensor:
    """(size, out): column i has the weights of the two neighbours of output i."""
    step = _scale(size, out, align_corners, factor)
    at = torch.arange(out, dtype=dtype)
    source = at * step if align_corners else ((at + 0.5) * step - 0.5).clamp(min=0)
    source = source.clamp(max=size - 1)
    return (1 - torch.abs(source - torch.arange(size, dtype=dtype).unsqueeze(1))).clamp(min=0)


def _cubic_matrix(size: int, out: int, align_corners: bool, factor: float | None, dtype: Any) -> Tensor:
    """(size, out): the four weights of Keys' cubic kernel (1981, a = -0.75 as in PyTorch); edges are repeated."""
    a = -0.75
    step = _scale(size, out, align_corners, factor)
    at = torch.arange(out, dtype=dtype)
    source = at * step if align_corners else (at + 0.5) * step - 0.5
    first = torch.floor(source)
    t = source - first
    rows = torch.arange(size).unsqueeze(1)
    total = None
    for k in (-1, 0, 1, 2):
        d = torch.abs(t - k)
        if k in (0, 1):
            weight = ((a + 2) * d - (a + 3)) * d * d + 1
        else:
            weight = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        index = (first.to(torch.int64) + k).clamp(0, size - 1)
        part = torch.where(rows == index, weight, 0)
        total = part if total is None else total + part
    assert total is not None
    return total


@functional
def _interpolate(
    input: Tensor, size: Sequence[int], factors: Sequence[float | None], mode: str, align_corners: bool
) -> Tensor:
    x = widen(input) if input.is_floating_point() else input
    dims = len(size)
    for axis, out, factor in zip(range(2, 2 + dims), size, factors, strict=True):
        n = x.shape[axis]
        if mode.startswith("nearest"):
            if out == n and (factor is None or factor == 1):
                continue
            if out % n == 0 and (factor is None or factor == out // n):
                times = out // n
                x = x.unsqueeze(axis + 1).expand(*x.shape[: axis + 1], times, *x.shape[axis + 1 :]).flatten(axis, axis + 1)
            else:
                x = primitives().take_rows(x, _nearest_index(n, out, factor, mode == "nearest-exact"), dim=axis)
        else:
            if out == n and factor in (None, 1):
                continue
            make = _cubic_matrix if mode == "bicubic" else _linear_matrix
            matrix = make(n, out, align_corners, factor, x.dtype)
            x = torch.matmul(x.transpose(axis, -1), matrix).transpose(axis, -1)
    return x.to(input.dtype).contiguous()


_MODES = {
    "nearest": (3, 4, 5), "nearest-exact": (3, 4, 5), "area": (3, 4, 5), "linear": (3,), "bilinear": (4,), "bicubic": (4,),
    "trilinear": (5,),
}  # fmt: skip


def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Resample the spatial dimensions of (N, C, ...) to `size`, or by `scale_factor`.

    mode: "nearest", "nearest-exact", "linear" (3-D), "bilinear" and "bicubic" (4-D), "trilinear" (5-D), "area".
    """
    if mode not in _MODES:
        raise NotImplementedError(f"Input Error: unknown interpolation mode {mode!r}; it must be one of {', '.join(_MODES)}")
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if input.ndim not in _MODES[mode]:
        raise NotImplementedError(
            f"Input Error: Got {input.ndim}D input of shape {tuple(input.shape)}, but mode {mode!r} needs "
            f"{' or '.join(f'{n}D' for n in _MODES[mode])}"
        )
    if antialias:
        raise NotImplementedError("interpolate: antialias=True is not supported")
    dims = input.ndim - 2
    if (size is None) == (scale_factor is None):
        count = "either" if size is None else "only one of"
        raise ValueError(f"{count} size or scale_factor should be defined")
    factors: tuple[float | None, ...] = (None,) * dims
    if size is not None:
        sizes = (int(size),) * dims if not isinstance(size, (tuple, list)) else tuple(int(s) for s in size)
        if len(sizes) != dims:
            raise ValueError(
                f"Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of "
                f"{list(input.shape[2:])} and output size of {size}. Please provide input tensor in (N, C, d1, d2, ...,dK) "
                "format and output size in (o1, o2, ...,oK) format."
            )
    else:
        given = tuple(float(s) for s in scale_factor) if isinstance(scale_factor, (tuple, list)) else (float(scale_factor),) * dims
        if len(given) != dims:
            raise ValueError(
                f"Input and scale_factor must have the same number of spatial dimensions, but got input with spatial dimensions "
                f"of {list(input.shape[2:])} and scale_factor of shape {scale_factor}."
            )
        sizes = tuple(math.floor(n * s) for n, s in zip(input.shape[2:], given, strict=True))
        if not recompute_scale_factor:
            factors = given
    if min(sizes, default=1) <= 0 or min(input.shape[2:], default=1) <= 0:
        raise RuntimeError(
            f"Input and output sizes should be greater than 0, but got input {list(input.shape[2:])} and output {list(sizes)}"
        )
    if mode == "area":
        pool = getattr(torch.nn.functional, f"adaptive_avg_pool{dims}d")
        return pool(input, sizes)  # type: ignore[no-any-return]
    return _interpolate(input, sizes, factors, mode, bool(align_corners))


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None) -> Tensor:
    """The old name of interpolate."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(mode="nearest"); deprecated by PyTorch."""
    warnings.warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(mode="bilinear", align_corners=True); deprecated by PyTorch."""
    warnings.warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


def _pixels(x: Tensor, size: int, align_corners: bool) -> Tensor:
    """Grid coordinates in [-1, 1] as positions in pixels."""
    return (x + 1) * ((size - 1) / 2) if align_corners else ((x + 1) * size - 1) * 0.5


def _reflect(x: Tensor, size: int, align_corners: bool) -> Tensor:
    low, high = (0.0, float(size - 1)) if align_corners else (-0.5, size - 0.5)
    span = high - low
    if span <= 0:
        return x * 0
    d = torch.abs(x - low)
    extra = torch.remainder(d, 2 * span)
    return torch.where(extra <= span, extra, 2 * span - extra) + low


@functional
def _grid_sample(input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
    n, c, height, width = input.shape
    if grid.ndim != 4 or grid.shape[0] != n or grid.shape[3] != 2:
        raise RuntimeError(
            f"grid_sampler(): expected grid of shape ({n}, H, W, 2) for an input of shape {tuple(input.shape)}, but got {tuple(grid.shape)}"
        )
    x = _pixels(grid[..., 0], width, align_corners)
    y = _pixels(grid[..., 1], height, align_corners)
    if padding_mode == "reflection":
        x, y = _reflect(x, width, align_corners), _reflect(y, height, align_corners)
    if padding_mode != "zeros":
        x, y = x.clamp(0, width - 1), y.clamp(0, height - 1)
    flat = input.reshape(n, c, height * width)

    def at(row: Tensor, column: Tensor) -> Tensor:
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        r, k = row.clamp(0, height - 1).to(torch.int64), column.clamp(0, width - 1).to(torch.int64)
        index = (r * width + k).reshape(n, 1, -1).expand(n, c, grid.shape[1] * grid.shape[2])
        values = primitives().gather(flat, index, dim=2).reshape(n, c, *grid.shape[1:3])
        return torch.where(inside.unsqueeze(1), values, 0)

    if mode == "nearest":
        return at(torch.round(y), torch.round(x))
    top, left = torch.floor(y), torch.floor(x)
    dy, dx = (y - top).unsqueeze(1), (x - left).unsqueeze(1)
    top, left = top.detach(), left.detach()
    upper = at(top, left) * (1 - dx) + at(top, left + 1) * dx
    lower = at(top + 1, left) * (1 - dx) + at(top + 1, left + 1) * dx
    return upper * (1 - dy) + lower * dy


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Values of (N, C, H, W) at the points of grid (N, OH, OW, 2), x and y in [-1, 1]."""
    if mode not in ("bilinear", "nearest"):
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear' or 'nearest', but got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    if input.ndim != 4:
        raise NotImplementedError(f"grid_sample: only 4-D inputs (N, C, H, W) are supported, got shape {tuple(input.shape)}")
    return _grid_sample(input, grid, mode, padding_mode, bool(align_corners))


@functional
def _affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    n, _, height, width = size

    def axis(count: int) -> Tensor:
        steps = torch.arange(count, dtype=theta.dtype)
        if align_corners:
            return steps * (2.0 / (count - 1)) - 1 if count > 1 else steps
        return (steps * 2 + 1) / count - 1

    x = axis(width).unsqueeze(0).expand(height, width)
    y = axis(height).unsqueeze(1).expand(height, width)
    base = torch.stack([x, y, torch.ones(height, width, dtype=theta.dtype)], -1).reshape(1, height * width, 3)
    return torch.matmul(base, theta.transpose(1, 2)).reshape(n, height, width, 2)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for grid_sample of affine maps theta (N, 2, 3), for an output of `size` (N, C, H, W)."""
    if len(size) != 4 or theta.ndim != 3 or tuple(theta.shape[1:]) != (2, 3):
        raise ValueError(
            f"Expected a batch of 2D affine matrices of shape Nx2x3 for size {tuple(size)}. Got {tuple(theta.shape)}."
        )
    return _affine_grid(theta, tuple(size), bool(align_corners))


# -- rearranging --------------------------------------------------------------------------------------------------


@functional
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., C * r^2, H, W) -> (..., C, H * r, W * r). Shi et al., 2016."""
    r = upscale_factor
    if input.ndim < 3:
        raise RuntimeError(f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)")
    *batch, c, h, w = input.shape
    if c % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
            f"input.size(-3)={c} is not divisible by {r * r}"
        )
    k = len(batch)
    x = input.reshape(*batch, c // (r * r), r, r, h, w)
    return x.permute(*range(k), k, k + 3, k + 1, k + 4, k + 2).reshape(*batch, c // (r * r), h * r, w * r)


@functional
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) -> (..., C * r^2, H, W)."""
    r = downscale_factor
    if input.ndim < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)")
    *batch, c, h, w = input.shape
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but input of shape "
            f"{list(input.shape)} is not divisible by {r}"
        )
    k = len(batch)
    x = input.reshape(*batch, c, h // r, r, w // r, r)
    return x.permute(*range(k), k, k + 2, k + 4, k + 1, k + 3).reshape(*batch, c * r * r, h // r, w // r)


__all__ = [
    "affine_grid", "grid_sample", "interpolate", "pad", "pixel_shuffle", "pixel_unshuffle", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip
