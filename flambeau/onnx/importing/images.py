"""Images: Resize with all its modes, Upsample, GridSample, AffineGrid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau
from flambeau.nn import functional
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import Call, operator


def _source(mode: str, out: int, size: int, scale: float, length: float, region: tuple[float, float], n: Call) -> Any:
    """Where in the input the places of the output lie."""
    at = np.arange(out, dtype=np.float64)
    if mode == "align_corners":
        return np.zeros(out) if length == 1 else at * (size - 1) / (length - 1)
    if mode == "asymmetric":
        return at / scale
    if mode == "tf_crop_and_resize":
        first, last = region
        if out == 1:
            return np.array([0.5 * (first + last) * (size - 1)])
        return first * (size - 1) + at * (last - first) * (size - 1) / (out - 1)
    if mode == "pytorch_half_pixel":
        return np.full(out, -0.5) if length == 1 else (at + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        adjust = out / length
        middle = size / 2
        return middle * (1 - adjust) + (at + 0.5) / scale - 0.5
    if mode == "half_pixel":
        return (at + 0.5) / scale - 0.5
    raise n.refuse(f"coordinate_transformation_mode {mode} is not known")


def _nearest(at: Any, mode: str, n: Call) -> Any:
    match mode:
        case "round_prefer_floor":
            return np.ceil(at - 0.5)
        case "round_prefer_ceil":
            return np.floor(at + 0.5)
        case "floor":
            return np.floor(at)
        case "ceil":
            return np.ceil(at)
    raise n.refuse(f"nearest_mode {mode} is not known")


def _weights(n: Call, kind: str, at: Any, size: int, scale: float) -> Any:
    """A matrix [out, size]: how much of each element of the input is in each of the output."""
    out = len(at)
    matrix = np.zeros((out, size), np.float64)
    rows = np.arange(out)
    if kind == "nearest":
        places = np.clip(_nearest(at, n.get("nearest_mode", "round_prefer_floor"), n), 0, size - 1).astype(int)
        matrix[rows, places] = 1
        return matrix
    wide = 1.0 / min(scale, 1.0) if n.get("antialias", 0) else 1.0
    reach = (1 if kind == "linear" else 2) * wide
    taps = np.arange(math.ceil(2 * reach) + 2)
    places = (np.floor(at - reach)[:, None] + taps).astype(int)
    away = np.abs(places - at[:, None]) / wide
    if kind == "linear":
        weight = np.clip(1 - away, 0, None)
    else:
        a = n.get("cubic_coeff_a", -0.75)
        near = ((a + 2) * away - (a + 3)) * away * away + 1
        far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
        weight = np.where(away <= 1, near, np.where(away < 2, far, 0.0))
    inside = (places >= 0) & (places < size)
    if n.get("exclude_outside", 0):
        weight = weight * inside
    if wide != 1.0 or n.get("exclude_outside", 0) or n.get("antialias", 0):
        weight = weight / weight.sum(1, keepdims=True)
    np.add.at(matrix, (rows[:, None], np.clip(places, 0, size - 1)), weight)
    return matrix


@operator("Resize", raw=True)
def resize(n: Call, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """An image or any tensor in other sizes."""
    x = values.tensor(x)
    if n.version < 11:
        roi, scales = None, roi
    rank = x.ndim
    axes = [a % rank for a in n.get("axes", list(range(rank)))]
    kind = n.get("mode", "nearest")
    how = n.get("coordinate_transformation_mode", "half_pixel" if n.version >= 11 else "asymmetric")
    factor, wanted = [1.0] * rank, list(x.shape)
    length = [float(s) for s in x.shape]
    given = values.numbers(scales) if scales is not None else []
    if given:
        for a, f in zip(axes, given, strict=True):
            factor[a], length[a] = f, x.shape[a] * f
            wanted[a] = math.floor(x.shape[a] * f)
    else:
        asked = values.ints(sizes)
        policy = n.get("keep_aspect_ratio_policy", "stretch")
        ratios = [s / x.shape[a] for a, s in zip(axes, asked, strict=True)]
        if policy != "stretch":
            one = min(ratios) if policy == "not_larger" else max(ratios)
            ratios = [one] * len(axes)
            asked = [math.floor(one * x.shape[a] + 0.5) for a in axes]
        for a, f, s in zip(axes, ratios, asked, strict=True):
            factor[a], wanted[a], length[a] = f, s, float(s)
    box = values.numbers(roi) if roi is not None and how == "tf_crop_and_resize" else []
    span = {a: (box[i], box[i + len(axes)]) for i, a in enumerate(axes)} if box else {}
    integer = None
    if not x.is_floating_point():
        integer, x = x.dtype, x.to(flambeau.float32)
    quick = _quick(n, x, kind, how, factor, wanted)
    if quick is not None:
        return quick if integer is None else flambeau.round(quick).to(integer)
    for a in range(rank):
        region = span.get(a, (0.0, 1.0))
        if wanted[a] == x.shape[a] and factor[a] == 1 and a not in span:
            continue
        key = (a, x.shape[a], wanted[a], factor[a], region)
        if key not in n.kept:
            at = _source(how, wanted[a], x.shape[a], factor[a], length[a], region, n)
            matrix = _weights(n, kind, at, x.shape[a], factor[a])
            outside = (at < 0) | (at > x.shape[a] - 1)
            n.kept[key] = values.own(matrix.astype(np.float32)).to(x.dtype), values.own(outside) if how == "tf_crop_and_resize" else None
            n.kept[key, "places"] = values.own(matrix.argmax(1)) if kind == "nearest" else None
        matrix, outside = n.kept[key]
        if kind == "nearest":
            x = x.index_select(a, n.kept[key, "places"])
        else:
            x = flambeau.tensordot(x, matrix, dims=([a], [1])).movedim(-1, a)
        if outside is not None:
            view = [1] * rank
            view[a] = wanted[a]
            x = flambeau.where(outside.reshape(view), flambeau.full((), n.get("extrapolation_value", 0.0), dtype=x.dtype), x)
    return x if integer is None else flambeau.round(x).clamp(flambeau.iinfo(integer).min, flambeau.iinfo(integer).max).to(integer)


def _quick(n: Call, x: Any, kind: str, how: str, factor: list[float], wanted: list[int]) -> Any:
    """functional.interpolate where it means the same: images whose sizes follow from the scales."""
    if x.ndim != 4 or factor[:2] != [1.0, 1.0] or n.get("antialias", 0) or n.get("exclude_outside", 0) or n.get("axes"):
        return None
    whole = all(f * s == w for f, s, w in zip(factor[2:], x.shape[2:], wanted[2:], strict=True)) and min(wanted[2:]) > 1
    if not whole:
        return None
    if kind == "nearest" and how == "asymmetric" and n.get("nearest_mode", "round_prefer_floor") == "floor" and all(f >= 1 and f == int(f) for f in factor[2:]):
        return functional.interpolate(x, size=tuple(wanted[2:]), mode="nearest")
    if kind == "linear" and how in ("half_pixel", "pytorch_half_pixel", "align_corners"):
        return functional.interpolate(x, size=tuple(wanted[2:]), mode="bilinear", align_corners=how == "align_corners")
    return None


@operator("Upsample", raw=True)
def upsample(n: Call, x: Any, scales: Any = None) -> Any:
    """Resize of opsets before 10: the nearest from below, or linear, from the first corner."""
    if scales is None:
        scales = n.get("scales") or [1.0, 1.0, n.get("height_scale"), n.get("width_scale")]
    n.attributes.setdefault("nearest_mode", "floor")
    n.attributes.setdefault("coordinate_transformation_mode", "asymmetric")
    return resize(Call(n.op, "", 11, n.attributes, n.outputs, n.name), x, None, scales)


@operator("GridSample")
def grid_sample(n: Call, x: Any, grid: Any) -> Any:
    """Images at places that a grid says."""
    mode = {"bilinear": "bilinear", "linear": "bilinear", "nearest": "nearest", "bicubic": "bicubic", "cubic": "bicubic"}[n.get("mode", "linear")]
    padding, corners = n.get("padding_mode", "zeros"), bool(n.get("align_corners", 0))
    return functional.grid_sample(x, grid, mode=mode, padding_mode=padding, align_corners=corners)


@operator("AffineGrid")
def affine_grid(n: Call, theta: Any, size: Any) -> Any:
    """The grid of an affine map."""
    return functional.affine_grid(theta, values.ints(size), align_corners=bool(n.get("align_corners", 0)))
