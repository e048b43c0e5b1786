"""torchvision's operators of position-sensitive regions (R-FCN: each bin has its own channels), and of rotated boxes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import flambeau as torch
from flambeau.extensions.torchvision import _checked, _corners, _gradient, _regions, whole


def _channels(input: Any, rows: int, columns: int, name: str) -> int:
    channels: int = input.shape[1]
    if channels % (rows * columns):
        raise RuntimeError(f"{name}: input channels must be a multiple of pooling height * pooling width, got {channels} channels for {rows} x {columns} bins")
    return channels // (rows * columns)


def _mapping(regions: int, channels: int, rows: int, columns: int) -> Any:
    """Which channel each bin has: (K, channels, rows, columns), int32."""
    places = torch.arange(channels * rows * columns, dtype=torch.int32).reshape(1, channels, rows, columns)
    return places.expand(regions, channels, rows, columns).contiguous()


def _ps_roi_align(input: Any, rois: Any, scale: float, rows: int, columns: int, samples: int) -> Any:
    batch, channels, height, width = input.shape
    out = _channels(input, rows, columns, "ps_roi_align")
    y, x, use_y, use_x, count = _regions(rois, scale, rows, columns, samples, True)
    use_y = use_y[:, None, :] & (y >= -1.0) & (y <= height)
    use_x = use_x[:, None, :] & (x >= -1.0) & (x <= width)
    # A row of `places` has, for one place of one image and one bin, the channels of that bin.
    places = input.reshape(batch, out, rows, columns, height, width).permute(0, 2, 3, 4, 5, 1).reshape(-1, out)
    bins = (rois[:, 0].long() * (rows * columns))[:, None, None] + (torch.arange(rows)[:, None] * columns + torch.arange(columns)[None, :])[None]
    start = (bins * (height * width))[:, :, None, :, None]
    y0, y1, ly = _corners(y, height)
    x0, x1, lx = _corners(x, width)
    total: Any = 0
    for yi, wy in ((y0, 1.0 - ly), (y1, ly)):
        for xi, wx in ((x0, 1.0 - lx), (x1, lx)):
            row = start + (yi * width)[:, :, :, None, None] + xi[:, None, None, :, :]  # (K, rows, IY, columns, IX)
            weight = torch.where(use_y, wy, 0.0)[:, :, :, None, None] * torch.where(use_x, wx, 0.0)[:, None, None, :, :]
            total = total + (places.index_select(0, row.reshape(-1)).reshape(*row.shape, out) * weight[..., None]).sum((2, 4))
    return (total / count[:, None, None, None]).permute(0, 3, 1, 2).contiguous()


def ps_roi_align(input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int) -> tuple[Any, Any]:
    """(means of bilinear samples of each bin's own channels, those channels): (K, C / bins, pooled_height, pooled_width), the second int32."""
    _checked(input, rois, "ps_roi_align")
    found = _ps_roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio)
    return found, _mapping(*found.shape)


def _ps_roi_align_backward(
    grad: Any, rois: Any, channel_mapping: Any, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int, batch_size: int,
    channels: int, height: int, width: int,
) -> Any:  # fmt: skip
    """The gradient for the input of ps_roi_align."""
    image = grad.new_zeros((batch_size, channels, height, width))
    return _gradient(lambda t: _ps_roi_align(t, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio), grad, image)[0]


def _bins(rois: Any, scale: float, rows: int, columns: int, height: int, width: int) -> Iterator[tuple[int, int, int, int, slice, slice]]:
    """(region, image, row, column, rows of the image, columns of it) of every bin that has places; the image's last row and column are in none."""
    boxes = rois.detach().numpy()

    def along(low: int, high: int, number: int, size: int) -> list[tuple[int, int]]:
        step = boxes.dtype.type(max(high - low, 1)) / boxes.dtype.type(number)
        return [tuple(min(max(int(f(i * step)) + low, 0), size - 1) for f, i in ((np.floor, k), (np.ceil, k + 1))) for k in range(number)]  # type: ignore[misc]

    for k, box in enumerate(boxes):
        left, top, right, bottom = whole(box[1:] * boxes.dtype.type(scale)).tolist()
        across = along(left, right, columns, width)
        for i, (y0, y1) in enumerate(along(top, bottom, rows, height)):
            for j, (x0, x1) in enumerate(across):
                if y1 > y0 and x1 > x0:
                    yield k, int(box[0]), i, j, slice(y0, y1), slice(x0, x1)


def ps_roi_pool(input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple[Any, Any]:
    """(means over each bin of its own channels, those channels): (K, C / bins, pooled_height, pooled_width), the second int32."""
    _checked(input, rois, "ps_roi_pool")
    channels = _channels(input, pooled_height, pooled_width, "ps_roi_pool")
    batch, _, height, width = input.shape
    image = input.detach().numpy().reshape(batch, channels, pooled_height, pooled_width, height, width)
    out = np.zeros((rois.shape[0], channels, pooled_height, pooled_width), image.dtype)
    for k, n, i, j, y, x in _bins(rois, spatial_scale, pooled_height, pooled_width, height, width):
        out[k, :, i, j] = image[n, :, i, j, y, x].mean((1, 2))
    return torch.from_numpy(out), _mapping(*out.shape)


def _ps_roi_pool_backward(
    grad: Any, rois: Any, channel_mapping: Any, spatial_scale: float, pooled_height: int, pooled_width: int, batch_size: int, channels: int, height: int,
    width: int,
) -> Any:  # fmt: skip
    """The gradient for the input of ps_roi_pool: each bin's goes to its places in equal shares. torchvision's takes other places at the image's end."""
    given = grad.detach().numpy()
    image = np.zeros((batch_size, given.shape[1], pooled_height, pooled_width, height, width), given.dtype)
    for k, n, i, j, y, x in _bins(rois, spatial_scale, pooled_height, pooled_width, height, width):
        image[n, :, i, j, y, x] += (given[k, :, i, j] / ((y.stop - y.start) * (x.stop - x.start)))[:, None, None]
    return torch.from_numpy(image.reshape(batch_size, channels, height, width))


# -- rotated boxes ------------------------------------------------------------------------------------------------------
def _vertices(boxes: Any) -> Any:
    """The corners, in order, of boxes (x, y, w, h, degrees counter-clockwise, as a picture is seen: y goes down): (..., 4, 2)."""
    angle = np.deg2rad(boxes[..., 4])
    cos, sin = np.cos(angle)[..., None], np.sin(angle)[..., None]
    dx, dy = boxes[..., 2:3] / 2 * np.array([-1, 1, 1, -1]), boxes[..., 3:4] / 2 * np.array([-1, -1, 1, 1])
    return np.stack([boxes[..., 0:1] + dx * cos + dy * sin, boxes[..., 1:2] - dx * sin + dy * cos], -1)


def _cross(a: Any, b: Any) -> Any:
    return a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]


def _shared_areas(a: Any, b: Any) -> Any:
    """The areas that pairs of rectangles share: what they have in common is convex, with corners of both and places where edges meet."""
    edge_a, edge_b = np.roll(a, -1, -2) - a, np.roll(b, -1, -2) - b

    def inside(points: Any, corners: Any, edges: Any) -> Any:
        turns = _cross(edges[..., None, :, :], points[..., :, None, :] - corners[..., None, :, :])
        scale = 1e-9 * (1 + np.abs(turns).max((-1, -2), keepdims=True))
        return (turns >= -scale).all(-1) | (turns <= scale).all(-1)

    between = b[..., None, :, :] - a[..., :, None, :]
    turn = _cross(edge_a[..., :, None, :], edge_b[..., None, :, :])
    with np.errstate(divide="ignore", invalid="ignore"):
        s, t = _cross(between, edge_b[..., None, :, :]) / turn, _cross(between, edge_a[..., :, None, :]) / turn
        meet = (np.abs(turn) > 1e-14) & (s >= 0) & (s <= 1) & (t >= 0) & (t <= 1)
        places = a[..., :, None, :] + np.where(meet, s, 0.0)[..., None] * edge_a[..., :, None, :]
    count = places.shape[:-3]
    points = np.concatenate([a, b, places.reshape(*count, 16, 2)], -2)
    there = np.concatenate([inside(a, b, edge_b), inside(b, a, edge_a), meet.reshape(*count, 16)], -1)
    number = there.sum(-1)
    centre = np.where(there[..., None], points, 0.0).sum(-2) / np.maximum(number, 1)[..., None]
    points = np.where(there[..., None], points - centre[..., None, :], 0.0)
    order = np.argsort(np.where(there, np.arctan2(points[..., 1], points[..., 0]), np.inf), -1, kind="stable")
    points = np.take_along_axis(points, order[..., None], -2)
    last = np.take_along_axis(points, np.maximum(number - 1, 0)[..., None, None], -2)
    kept = np.arange(points.shape[-2]) < number[..., None]
    points = np.where(kept[..., None], points, last)  # those after the last add nothing
    return np.where(number > 2, np.abs(_cross(points, np.roll(points, -1, -2)).sum(-1)) / 2, 0.0)


def box_iou_rotated(boxes1: Any, boxes2: Any) -> Any:
    """Intersection over union of each box (N, 5) with each (M, 5): centre, width, height, degrees counter-clockwise; (N, M) in the boxes' dtype."""
    if boxes1.ndim != 2 or boxes1.shape[1] != 5 or boxes2.ndim != 2 or boxes2.shape[1] != 5:
        raise RuntimeError(f"box_iou_rotated: boxes are two tensors of shape (N, 5) and (M, 5), got {tuple(boxes1.shape)} and {tuple(boxes2.shape)}")
    first, second = boxes1.detach().double().numpy(), boxes2.detach().double().numpy()
    corners = np.broadcast_arrays(_vertices(first)[:, None], _vertices(second)[None])
    shared = _shared_areas(*corners) if first.size and second.size else np.zeros((len(first), len(second)))
    union = (first[:, 2] * first[:, 3])[:, None] + (second[:, 2] * second[:, 3])[None] - shared
    found = np.divide(shared, union, out=np.zeros_like(shared), where=union > 1e-14)
    return torch.from_numpy(found).to(boxes1.dtype if boxes1.is_floating_point() else torch.float32)
