"""Padding, resampling and rearranging of images (N, C, spatial dimensions)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import flambeau as torch
from flambeau.dtypes import dtype
from flambeau.nn.functional.engine import Tensor, functional, primitives, whole_size, widen
from flambeau.ops.creation import check_memory
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.promotion import fitted
from flambeau.ops.remembered import remembered
from flambeau.ops.result_strides import as_suggested
from flambeau.ops.signatures import must_be, whole
from flambeau.trace.limits import fit
from flambeau.trace.once import warn_here

# -- padding ------------------------------------------------------------------------------------------------------


@functional
def _crop(input: Tensor, pad: Sequence[int]) -> Tensor:
    """A copy without what the negative numbers of `pad` cut, as no other ones are among them."""
    x = input
    for i in range(len(pad) // 2):
        axis = input.ndim - 1 - i
        x = x.narrow(axis, -pad[2 * i], x.shape[axis] + pad[2 * i] + pad[2 * i + 1])
    return x.clone()


@functional
@as_suggested()
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
    check_memory(shape, x.dtype)
    return primitives().full_of(shape, fitted(value, x.dtype, "pad"))  # type: ignore[no-any-return]


@functional
@as_suggested()
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


def _padding(value: Any, d: dtype) -> Any:
    """The number that pads, a float to PyTorch: RuntimeError if it has no place in the dtype."""
    if isinstance(value, complex):
        raise TypeError(f"pad(): argument 'value' (position 4) must be float, not complex: got {value}")
    return fit(float(value), d, "pad") if isinstance(value, (int, float)) and d.category < 2 else value


def _check_padding(input: Tensor, sizes: Sequence[int]) -> None:
    if len(sizes) % 2:
        raise RuntimeError(f"pad: Padding length must be divisible by 2, but got {list(sizes)}")
    if len(sizes) // 2 > input.ndim:
        raise RuntimeError(
            f"pad: Padding length should be less than or equal to two times the input dimension but got padding length "
            f"{len(sizes)} and input of dimension {input.ndim}"
        )


def padded(input: Tensor, sizes: Sequence[int], value: Any) -> Tensor:
    """pad in mode "constant", by a number that has a place in the dtype."""
    _check_padding(input, sizes)
    if max(sizes, default=0) <= 0 and all(n + a + b >= 0 for n, a, b in zip(input.shape[::-1], sizes[::2], sizes[1::2], strict=False)):
        return _crop(input, sizes)
    return _pad_constant(input, sizes, value)


@remembered
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad the last dimensions; `pad` = (before, after) of the last dimension, then of the one before it, ...

    mode "constant" (with `value`, default 0), "reflect", "replicate" or "circular". Negative numbers cut (constant only).
    """
    sizes = tuple([whole("pad", "pad", p) for p in pad])
    if mode == "constant":
        return padded(input, sizes, 0 if value is None else _padding(value, input.dtype))
    _check_padding(input, sizes)
    if value is not None and value != 0:
        raise RuntimeError(f'pad: Padding mode "{mode}" doesn\'t take in value argument')
    refuse_dtype(f"{mode}_pad", input.dtype)
    if mode not in ("reflect", "replicate", "circular"):
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if len(sizes) not in (2, 4, 6) or not len(sizes) // 2 < input.ndim <= len(sizes) // 2 + 2:
        raise NotImplementedError(
            "pad(): Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now; got padding of length "
            f"{len(sizes)} for an input of dimension {input.ndim}"
        )
    if mode != "circular" and 0 in input.shape[-len(sizes) // 2 - 1 :]:
        raise RuntimeError(
            f"{mode}_pad(): Expected {len(sizes) // 2 + 1}D or {len(sizes) // 2 + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero "
            f"dimensions for input, but got: {list(input.shape)}"
        )
    return _pad_by_index(input.contiguous() if mode == "circular" else input, sizes, mode)


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


def _triangle(x: Tensor) -> Tensor:
    return (1 - torch.abs(x)).clamp(min=0)


def _keys(x: Tensor) -> Tensor:
    """Keys' kernel with a = -0.5, which PyTorch takes here (and Pillow)."""
    d, a = torch.abs(x), -0.5
    return torch.where(d < 1, ((a + 2) * d - (a + 3)) * d * d + 1, torch.where(d < 2, (((d - 5) * d + 8) * d - 4) * a, 0))


def _lanczos(x: Tensor) -> Tensor:
    return torch.where(torch.abs(x) < 3, torch.sinc(x) * torch.sinc(x / 3), 0)


_FILTERS = {"bilinear": (_triangle, 1.0), "bicubic": (_keys, 2.0), "lanczos": (_lanczos, 3.0)}  # and how far they reach


def _antialiased_matrix(mode: str, size: int, out: int, align_corners: bool, factor: float | None, dtype: Any) -> Tensor:
    """(size, out): column i has a filter's weights around output i, as wide as an output where the image shrinks; their sum is 1."""
    weigh, reach = _FILTERS[mode]
    step = _scale(size, out, align_corners, factor)
    wide = max(step, 1.0)
    centre = (torch.arange(out, dtype=dtype) + 0.5) * step
    rows = torch.arange(size).unsqueeze(1)
    first = (centre - reach * wide + 0.5).to(torch.int64).clamp(min=0)
    last = (centre + reach * wide + 0.5).to(torch.int64)
    weights = torch.where((rows >= first) & (rows < last), weigh((rows.to(dtype) - centre + 0.5) / wide), 0)
    return weights / weights.sum(0)


@functional
@as_suggested()
def _interpolate(input: Tensor, size: Sequence[int], factors: Sequence[float | None], mode: str, align_corners: bool, antialias: bool) -> Tensor:
    x = widen(input) if input.is_floating_point() else input
    dims = len(size)
    whole = input.dtype is torch.uint8 and not mode.startswith("nearest")  # images: the last axis first, and bytes between the axes
    for axis, out, factor in sorted(zip(range(2, 2 + dims), size, factors, strict=True), key=lambda item: item[0], reverse=whole):
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
            make = partial(_antialiased_matrix, mode) if antialias else _cubic_matrix if mode == "bicubic" else _linear_matrix
            matrix = make(n, out, align_corners, factor, torch.float32 if whole else x.dtype)
            x = torch.matmul((x.to(torch.float32) if whole else x).transpose(axis, -1), matrix).transpose(axis, -1)
            if whole:
                x = torch.floor(x + 0.5).clamp(0, 255)
    return x.to(input.dtype)


_MODES = {
    "nearest": (3, 4, 5), "nearest-exact": (3, 4, 5), "area": (3, 4, 5), "linear": (3,), "bilinear": (4,), "bicubic": (4,),
    "trilinear": (5,), "lanczos": (4,),
}  # fmt: skip


@remembered
def interpolate(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """Resample the spatial dimensions of (N, C, ...) to `size`, or by `scale_factor`.

    mode: "nearest", "nearest-exact", "linear" (3-D), "bilinear" and "bicubic" (4-D), "trilinear" (5-D), "area". `antialias`: of "bilinear",
    "bicubic" and "lanczos" (only so): the filter is as wide as an element of the result, so that nothing is skipped where the image shrinks.
    """
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear")
    must_be("interpolate", "align_corners bool?", align_corners)
    dims = input.ndim - 2
    if (size is None) == (scale_factor is None):
        count = "either" if size is None else "only one of"
        raise ValueError(f"{count} size or scale_factor should be defined")
    if isinstance(size, (tuple, list)) and len(size) != dims:
        raise ValueError(
            f"Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of "
            f"{list(input.shape[2:])} and output size of {size}. Please provide input tensor in (N, C, d1, d2, ...,dK) "
            "format and output size in (o1, o2, ...,oK) format."
        )
    if isinstance(scale_factor, (tuple, list)) and len(scale_factor) != dims:
        raise ValueError(
            f"Input and scale_factor must have the same number of spatial dimensions, but got input with spatial dimensions "
            f"of {list(input.shape[2:])} and scale_factor of shape {scale_factor}."
        )
    if antialias and (mode not in _FILTERS or input.ndim != 4):
        raise ValueError(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input, "
            f"got mode {mode!r} and shape {tuple(input.shape)}"
        )
    if not isinstance(mode, str) or mode not in _MODES:
        raise NotImplementedError(f"Input Error: unknown interpolation mode {mode!r}; it must be one of {', '.join(_MODES)}")
    if input.ndim not in _MODES[mode]:
        raise NotImplementedError(
            f"Input Error: Got {input.ndim}D input of shape {tuple(input.shape)}, but mode {mode!r} needs {' or '.join(f'{n}D' for n in _MODES[mode])}"
        )
    refuse_dtype(f"interpolate_{mode}", input.dtype)
    if mode == "lanczos" and (align_corners or not antialias):
        raise ValueError("Lanczos mode does not support align_corners=True" if align_corners else "Lanczos mode requires antialias=True")
    factors: tuple[float | None, ...] = (None,) * dims
    if size is not None:
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        must_be("interpolate", "size int[1]", size)
        sizes = tuple(int(s) for s in size) if isinstance(size, (tuple, list)) else (int(size),) * dims
    else:
        must_be("interpolate", "scale_factor float[1]", scale_factor)
        listed = scale_factor if isinstance(scale_factor, (tuple, list)) else (scale_factor,)
        if mode != "area" and not recompute_scale_factor and any(isinstance(s, Tensor) for s in listed):
            raise TypeError("interpolate(): argument 'scale_factor' must be float or tuple of floats, not Tensor")
        given = tuple(float(s) for s in scale_factor) if isinstance(scale_factor, (tuple, list)) else (float(scale_factor),) * dims
        wanted = [n * s for n, s in zip(input.shape[2:], given, strict=True)]
        if not recompute_scale_factor:
            factors = given
            if mode != "area" and not all(abs(s) < 1 << 63 for s in wanted):
                raise RuntimeError(f"interpolate(): value cannot be converted to type int64_t without overflow: the output would have size {wanted}")
        sizes = tuple(whole_size(s, "interpolate") for s in wanted)
    if mode != "area" and (min(sizes, default=1) <= 0 or min(input.shape[2:], default=1) <= 0):
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input {list(input.shape[2:])} and output {list(sizes)}")
    if mode == "area":
        pool = getattr(torch.nn.functional, f"adaptive_avg_pool{dims}d")
        return pool(input, sizes)  # type: ignore[no-any-return]
    if 0 in input.shape[1:] and input.numel() == 0:
        raise RuntimeError(f"interpolate(): Non-empty {input.ndim}D data tensor expected but got a tensor with sizes {list(input.shape)}")
    return _interpolate(input, sizes, factors, mode, bool(align_corners), bool(antialias))


def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None) -> Tensor:
    """The old name of interpolate."""
    warn_here("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(mode="nearest"); deprecated by PyTorch."""
    warn_here("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate(mode="bilinear", align_corners=True); deprecated by PyTorch."""
    warn_here("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


# -- rearranging --------------------------------------------------------------------------------------------------


@functional
@as_suggested()
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
@as_suggested()
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., C, H * r, W * r) -> (..., C * r^2, H, W)."""
    r = downscale_factor
    if input.ndim < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)")
    *batch, c, h, w = input.shape
    if h % r or w % r:
        raise RuntimeError(
            f"pixel_unshuffle expects height and width to be divisible by downscale_factor, but input of shape {list(input.shape)} is not divisible by {r}"
        )
    k = len(batch)
    x = input.reshape(*batch, c, h // r, r, w // r, r)
    return x.permute(*range(k), k, k + 2, k + 4, k + 1, k + 3).reshape(*batch, c * r * r, h // r, w // r)


__all__ = [
    "interpolate", "pad", "pixel_shuffle", "pixel_unshuffle", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip
