"""Sampling of images (N, C, spatial dimensions) at the points of a grid, and the grids of affine maps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import flambeau as torch
from flambeau.dtypes import C_NAMES
from flambeau.nn.functional.engine import Tensor, functional, primitives
from flambeau.ops.remembered import remembered
from flambeau.ops.result_strides import row_major
from flambeau.ops.tied import tied

_MODES = {4: ("bilinear", "nearest", "bicubic"), 5: ("bilinear", "nearest")}


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


def _into(x: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """Positions brought into the image, as the padding says."""
    if padding_mode == "reflection":
        x = _reflect(x, size, align_corners)
    if padding_mode == "zeros":
        return x
    return torch.where(x <= 0, 0, torch.where(x >= size - 1, size - 1, x))  # as PyTorch's, without a gradient at the border itself


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Of the pixels at -1, 0, 1, 2 for a point at t in [0, 1): Keys' kernel (1981), a = -0.75 as in PyTorch."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


@functional
@row_major
def _grid_sample(input: Tensor, grid: Tensor, mode: str, padding_mode: str, align_corners: bool) -> Tensor:
    n, c, *sizes = input.shape
    dims = len(sizes)
    # The last coordinate of a point is that of the first spatial dimension.
    positions = [_pixels(grid[..., dims - 1 - i], size, align_corners) for i, size in enumerate(sizes)]
    if mode != "bicubic":
        positions = [_into(x, size, padding_mode, align_corners) for x, size in zip(positions, sizes, strict=True)]
    flat = input.reshape(-1)
    planes = (torch.arange(n * c) * prod(sizes)).reshape(n, c, *[1] * dims)

    def at(places: Sequence[Tensor]) -> Tensor:
        """The pixels at whole positions, 0 outside of the image."""
        index: Any = 0
        inside: Any = None
        for place, size in zip(places, sizes, strict=True):
            here = (place >= 0) & (place < size)
            inside = here if inside is None else inside & here
            index = index * size + torch.where(here, place, 0).to(torch.int64)  # NaN is nowhere
        return torch.where(inside.unsqueeze(1), primitives().take(flat, planes + index.unsqueeze(1)), 0)

    if mode == "nearest":
        return tied(at([torch.round(x) for x in positions]), grid)  # type: ignore[no-any-return]
    first = [torch.floor(x) for x in positions]
    offsets = [(x - f).unsqueeze(1) for x, f in zip(positions, first, strict=True)]
    first = [f.detach() for f in first]
    if mode == "bicubic":
        weights = [_cubic_weights(t) for t in offsets]
        places = [[_into(f + k, size, padding_mode, align_corners) for k in (-1, 0, 1, 2)] for f, size in zip(first, sizes, strict=True)]
    else:
        weights = [[1 - t, t] for t in offsets]
        places = [[f, f + 1] for f in first]
    total: Any = None
    for taps in product(range(len(weights[0])), repeat=dims):
        part = at([places[i][k] for i, k in enumerate(taps)])
        for i, k in enumerate(taps):
            part = part * weights[i][k]
        total = part if total is None else total + part
    return total  # type: ignore[no-any-return]


@remembered
def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None) -> Tensor:
    """Values of (N, C, H, W) at the points of grid (N, OH, OW, 2), x and y in [-1, 1]; or of (N, C, D, H, W) at those of
    (N, OD, OH, OW, 3), x, y and z.

    mode: "bilinear" (in volumes trilinear), "nearest", "bicubic" (images only). padding_mode: "zeros", "border", "reflection".
    """
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'")
    dims = input.ndim - 2
    if not (input.ndim and grid.ndim):
        raise IndexError(f"grid_sampler(): Dimension specified as 0 but input of shape {list(input.shape)} or grid of {list(grid.shape)} has no dimensions")
    if dims not in (2, 3) or grid.ndim != input.ndim:
        raise RuntimeError(
            f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input with sizes "
            f"{list(input.shape)} and grid with sizes {list(grid.shape)}"
        )
    if mode not in _MODES[input.ndim]:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    if grid.dtype is not input.dtype:
        raise RuntimeError(
            f"grid_sampler(): expected scalar type {C_NAMES[input.dtype.name]} but found {C_NAMES[grid.dtype.name]}: input and grid are of one dtype"
        )
    if grid.shape[0] != input.shape[0] or grid.shape[-1] != dims:
        raise RuntimeError(
            f"grid_sampler(): expected grid of {input.shape[0]} samples with {dims} coordinates in the last dimension for an input of shape "
            f"{tuple(input.shape)}, but got {tuple(grid.shape)}"
        )
    if 0 in input.shape[2:]:
        raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes {list(input.shape)}")
    return _grid_sample(input, grid, mode, padding_mode, bool(align_corners))


@functional
def _affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    n, _, *sizes = size

    def axis(count: int) -> Tensor:  # PyTorch's operations: points that lie on pixels stay on the side where its rounding puts them
        steps = torch.linspace(-1, 1, count, dtype=theta.dtype) if count > 1 else torch.zeros(1, dtype=theta.dtype)
        return steps if align_corners else steps * (count - 1) / count

    dims = len(sizes)
    axes = [axis(count).reshape([-1 if j == i else 1 for j in range(dims)]).expand(sizes) for i, count in enumerate(sizes)]
    base = torch.stack([*reversed(axes), torch.ones(sizes, dtype=theta.dtype)], -1).reshape(1, axes[0].numel(), dims + 1)
    return torch.matmul(base, theta.transpose(1, 2)).reshape(n, *sizes, dims)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid for grid_sample of affine maps theta (N, 2, 3) or (N, 3, 4), for an output of `size` (N, C, H, W) or (N, C, D, H, W)."""
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    dims = len(size) - 2
    if dims not in (2, 3):
        raise NotImplementedError(f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {tuple(size)}.")
    if theta.ndim != 3 or tuple(theta.shape[1:]) != (dims, dims + 1):
        raise ValueError(f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {tuple(size)}. Got {tuple(theta.shape)}.")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    return _affine_grid(theta, tuple(size), bool(align_corners))


__all__ = ["affine_grid", "grid_sample"]
