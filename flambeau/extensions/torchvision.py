"""torchvision's operators: non-maximum suppression, pooling of regions, deformable convolution."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau as torch


def _cuda_version() -> int:
    """-1: there is no CUDA."""
    return -1


def nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """Indices of the boxes (N, 4) that overlap no better one by more than the threshold, the best first; int64.

    RuntimeError for other shapes.
    """
    if dets.ndim != 2 or dets.shape[1] != 4:
        raise RuntimeError(f"boxes should be a 2d tensor with 4 elements in dimension 1, got {tuple(dets.shape)}")
    if scores.ndim != 1 or scores.shape[0] != dets.shape[0]:
        raise RuntimeError(f"scores should be a 1d tensor with one element a box, got {tuple(scores.shape)} for {dets.shape[0]} boxes")
    if dets.dtype not in (torch.float32, torch.float64):
        dets = dets.float()
    x1, y1, x2, y2 = np.ascontiguousarray(dets.detach().numpy().T)
    areas = (x2 - x1) * (y2 - y1)
    order = scores.detach().sort(stable=True, dim=0, descending=True)[1].numpy()
    kept = []
    while order.size:
        best, order = order[0], order[1:]
        kept.append(best)
        width = np.minimum(x2[best], x2[order]) - np.maximum(x1[best], x1[order])
        height = np.minimum(y2[best], y2[order]) - np.maximum(y1[best], y1[order])
        shared = np.maximum(width, 0) * np.maximum(height, 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            order = order[~(shared / (areas[best] + areas[order] - shared) > iou_threshold)]
    return torch.tensor(np.array(kept, np.int64))


# -- bilinear samples -----------------------------------------------------------------------------------------------
def _corners(at: Any, size: int) -> tuple[Any, Any, Any]:
    """(the lower place, the upper place, the share of the upper) of positions along a dim of this size; positions outside go to its ends."""
    at = at.clamp(min=0)
    low = at.detach().floor().clamp(max=size - 1)
    share = torch.where(low >= size - 1, torch.zeros_like(at), at - low)
    return low.long(), (low + 1).clamp(max=size - 1).long(), share


def _checked(input: Any, rois: Any, name: str) -> None:
    if rois.ndim != 2 or rois.shape[1] != 5:
        raise RuntimeError(f"rois must have shape as Tensor[K, 5], got {tuple(rois.shape)}")
    if input.dtype is not rois.dtype:
        raise RuntimeError(f"{name}: Expected tensor for argument #1 'input' to have the same type as tensor for argument #2 'rois'; "
                           f"but type {input.dtype} does not equal {rois.dtype}")  # fmt: skip


def _regions(rois: Any, scale: float, rows: int, columns: int, samples: int, aligned: bool) -> tuple[Any, Any, Any, Any, Any]:
    """Positions of samples (K, rows, IY) and (K, columns, IX), which of them count (K, IY), (K, IX), and how many count (K,)."""
    offset = 0.5 if aligned else 0.0
    left, top, right, bottom = [rois[:, i] * scale - offset for i in (1, 2, 3, 4)]
    width, height = right - left, bottom - top
    if not aligned:
        width, height = width.clamp(min=1.0), height.clamp(min=1.0)

    def along(start: Any, size: Any, bins: int) -> tuple[Any, Any, Any]:
        step = size / bins
        number = torch.full_like(step, samples) if samples > 0 else step.ceil()
        most = samples if samples > 0 else max(int(number.max().item()), 1) if number.numel() else 1
        i = torch.arange(most, dtype=rois.dtype)
        places = start[:, None, None] + torch.arange(bins, dtype=rois.dtype)[None, :, None] * step[:, None, None]
        return places + (i + 0.5)[None, None, :] * (step / number)[:, None, None], i[None, :] < number[:, None], number

    y, use_y, count_y = along(top, height, rows)
    x, use_x, count_x = along(left, width, columns)
    return y, x, use_y, use_x, (count_y * count_x).clamp(min=1)


def _roi_align(input: Any, rois: Any, scale: float, rows: int, columns: int, samples: int, aligned: bool) -> Any:
    batch, channels, height, width = input.shape
    y, x, use_y, use_x, count = _regions(rois, scale, rows, columns, samples, aligned)
    use_y = use_y[:, None, :] & (y >= -1.0) & (y <= height)
    use_x = use_x[:, None, :] & (x >= -1.0) & (x <= width)
    places = input.permute(0, 2, 3, 1).reshape(batch * height * width, channels)
    image = (rois[:, 0].long() * (height * width))[:, None, None]
    y0, y1, ly = _corners(y, height)
    x0, x1, lx = _corners(x, width)
    total: Any = 0
    for yi, wy in ((y0, 1.0 - ly), (y1, ly)):
        for xi, wx in ((x0, 1.0 - lx), (x1, lx)):
            row = (image + yi * width)[:, :, :, None, None] + xi[:, None, None, :, :]  # (K, rows, IY, columns, IX)
            weight = torch.where(use_y, wy, 0.0)[:, :, :, None, None] * torch.where(use_x, wx, 0.0)[:, None, None, :, :]
            values = places.index_select(0, row.reshape(-1)).reshape(*row.shape, channels)
            total = total + (values * weight[..., None]).sum((2, 4))
    return (total / count[:, None, None, None]).permute(0, 3, 1, 2).contiguous()


def roi_align(input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int, aligned: bool) -> Any:
    """Means of bilinear samples in the bins of regions: (N, C, H, W) and (K, 5) -> (K, C, pooled_height, pooled_width)."""
    _checked(input, rois, "roi_align")
    return _roi_align(input, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned)


def _gradient(function: Any, grad: Any, *inputs: Any) -> tuple[Any, ...]:
    """The gradients of a function's result, for these inputs."""
    with torch.enable_grad():
        leaves = [t.detach().requires_grad_() for t in inputs]
        found = torch.autograd.grad(function(*leaves), leaves, grad, allow_unused=True)
    return tuple(torch.zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True))


def _roi_align_backward(
    grad: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int, batch_size: int, channels: int, height: int, width: int,
    sampling_ratio: int, aligned: bool,
) -> Any:  # fmt: skip
    """The gradient for the input of roi_align."""
    image = grad.new_zeros((batch_size, channels, height, width))
    return _gradient(lambda t: _roi_align(t, rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned), grad, image)[0]


# -- deformable convolution -----------------------------------------------------------------------------------------
def _fits(input: Any, weight: Any, offset: Any, mask: Any, steps: tuple[int, ...], groups: int, offset_groups: int, use_mask: bool) -> None:
    """RuntimeError for shapes that are no deformable convolution's."""
    for name, t in (("input", input), ("offset", offset), ("weight", weight), *((("mask", mask),) if use_mask else ())):
        if t.ndim != 4:
            raise RuntimeError(f"deform_conv2d: {name} must have 4 dims, got shape {tuple(t.shape)}")
    (batch, channels, *size), (out_channels, inner, *taps) = input.shape, weight.shape
    if min(*steps[:2], *steps[4:]) < 1 or min(steps[2:4]) < 0 or min(taps) < 1:
        raise RuntimeError(f"deform_conv2d: kernel, stride and dilation must be positive and padding not negative; kernel {taps}, (stride_h, stride_w, pad_h, "
                           f"pad_w, dilation_h, dilation_w) is {steps}")  # fmt: skip
    if inner * groups != channels or out_channels % groups or channels % offset_groups:
        raise RuntimeError(f"deform_conv2d: an input of {channels} channels and a weight of shape {tuple(weight.shape)} do not fit {groups} groups and "
                           f"{offset_groups} offset groups")  # fmt: skip
    out = [(n + 2 * pad - (step * (k - 1) + 1)) // stride + 1 for n, k, stride, pad, step in zip(size, taps, steps[:2], steps[2:4], steps[4:], strict=True)]
    if min(out) < 1:
        raise RuntimeError(f"Calculated output size too small - out_h: {out[0]} out_w: {out[1]}")
    for name, t, wanted in (("offset", offset, 2), *((("mask", mask, 1),) if use_mask else ())):
        if t.shape[1] != wanted * offset_groups * taps[0] * taps[1]:
            raise RuntimeError(f"{name}.shape[1] is not valid: got: {t.shape[1]} expected: {wanted * offset_groups * taps[0] * taps[1]}")
        if t.shape[0] != batch:
            raise RuntimeError(f"invalid batch size of {name}: got {t.shape[0]}, the input has {batch}")
        if list(t.shape[2:]) != out:
            raise RuntimeError(f"{name} output dims: ({t.shape[2]}, {t.shape[3]}) - computed output dims: ({out[0]}, {out[1]})")


def _deform_conv2d(
    input: Any, weight: Any, offset: Any, mask: Any, bias: Any, stride: tuple[int, int], pad: tuple[int, int], dilation: tuple[int, int], groups: int,
    offset_groups: int, use_mask: bool,
) -> Any:  # fmt: skip
    batch, channels, height, width = input.shape
    out_channels, _, rows, columns = weight.shape
    out_h, out_w = offset.shape[2:]
    taps = rows * columns
    moved = offset.reshape(batch, offset_groups, taps, 2, out_h, out_w)
    kind = input.dtype
    base_y = torch.arange(out_h, dtype=kind)[None, :, None] * stride[0] - pad[0] + (torch.arange(rows, dtype=kind) * dilation[0])[:, None, None]
    base_x = torch.arange(out_w, dtype=kind)[None, None, :] * stride[1] - pad[1] + (torch.arange(columns, dtype=kind) * dilation[1])[:, None, None]
    y = moved[:, :, :, 0] + base_y[:, None].expand(rows, columns, out_h, out_w).reshape(taps, out_h, out_w)
    x = moved[:, :, :, 1] + base_x[None].expand(rows, columns, out_h, out_w).reshape(taps, out_h, out_w)
    inside = (y > -1) & (y < height) & (x > -1) & (x < width)
    shares = channels // offset_groups
    # A row of `places` has the channels of one offset group at one place of one image.
    places = input.reshape(batch, offset_groups, shares, height * width).transpose(2, 3).reshape(-1, shares)
    image = (torch.arange(batch * offset_groups) * (height * width)).reshape(batch, offset_groups, 1, 1, 1)
    low_y, low_x = y.detach().floor(), x.detach().floor()
    total: Any = 0
    for yi, wy in ((low_y, 1 - (y - low_y)), (low_y + 1, y - low_y)):
        for xi, wx in ((low_x, 1 - (x - low_x)), (low_x + 1, x - low_x)):
            there = inside & (yi >= 0) & (yi < height) & (xi >= 0) & (xi < width)
            row = image + yi.clamp(0, height - 1).long() * width + xi.clamp(0, width - 1).long()
            values = places.index_select(0, row.reshape(-1)).reshape(*row.shape, shares)
            total = total + values * torch.where(there, wy * wx, 0.0)[..., None]
    if use_mask:
        total = total * mask.reshape(batch, offset_groups, taps, out_h, out_w)[..., None]
    # (batch, offset groups, taps, out_h, out_w, channels of one) -> (batch, groups, channels of a group x taps, places)
    taken = total.permute(0, 1, 5, 2, 3, 4).reshape(batch, groups, channels // groups * taps, out_h * out_w)
    filters = weight.reshape(1, groups, out_channels // groups, -1)
    return (filters @ taken).reshape(batch, out_channels, out_h, out_w) + bias.reshape(1, -1, 1, 1)


def deform_conv2d(
    input: Any, weight: Any, offset: Any, mask: Any, bias: Any, stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int,
    groups: int, offset_groups: int, use_mask: bool,
) -> Any:  # fmt: skip
    """A convolution whose places are moved by `offset` (N, 2 offset_groups rows columns, H', W') and weighted by `mask`."""
    _fits(input, weight, offset, mask, (stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w), groups, offset_groups, use_mask)
    return _deform_conv2d(input, weight, offset, mask, bias, (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), groups, offset_groups, use_mask)


def _deform_conv2d_backward(
    grad: Any, input: Any, weight: Any, offset: Any, mask: Any, bias: Any, stride_h: int, stride_w: int, pad_h: int, pad_w: int, dilation_h: int,
    dilation_w: int, groups: int, offset_groups: int, use_mask: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients for input, weight, offset, mask and bias."""

    def function(i: Any, w: Any, o: Any, m: Any, b: Any) -> Any:
        return _deform_conv2d(i, w, o, m, b, (stride_h, stride_w), (pad_h, pad_w), (dilation_h, dilation_w), groups, offset_groups, use_mask)

    return _gradient(function, grad, input, weight, offset, mask, bias)


def whole(values: Any) -> Any:
    """Numbers rounded to whole ones, halves away from zero."""
    return np.copysign(np.floor(np.abs(values) + 0.5), values).astype(np.int64)


# -- maxima -------------------------------------------------------------------------------------------------------------
def roi_pool(input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int) -> tuple[Any, Any]:
    """(maxima over the bins of regions, places of the maxima in the image or -1): (K, C, pooled_height, pooled_width), int32 places."""
    _checked(input, rois, "roi_pool")
    image, boxes = input.detach().numpy(), rois.detach().numpy()
    channels, height, width = image.shape[1:]
    out = np.zeros((len(boxes), channels, pooled_height, pooled_width), image.dtype)
    places = np.full(out.shape, -1, np.int32)

    def bins(start: int, end: int, number: int, size: int) -> list[tuple[int, int]]:
        step = max(end - start + 1, 1) / number
        return [(min(max(int(np.floor(i * step)) + start, 0), size), min(max(int(np.ceil((i + 1) * step)) + start, 0), size)) for i in range(number)]

    for k, box in enumerate(boxes):
        left, top, right, bottom = whole(box[1:] * spatial_scale).tolist()
        rows, columns = bins(top, bottom, pooled_height, height), bins(left, right, pooled_width, width)
        for i, (y0, y1) in enumerate(rows):
            for j, (x0, x1) in enumerate(columns):
                if y1 > y0 and x1 > x0:
                    part = image[int(box[0]), :, y0:y1, x0:x1].reshape(channels, -1)
                    best = part.argmax(1)
                    out[k, :, i, j] = part[np.arange(channels), best]
                    places[k, :, i, j] = (y0 + best // (x1 - x0)) * width + x0 + best % (x1 - x0)
    return torch.from_numpy(out), torch.from_numpy(places)


def _roi_pool_backward(
    grad: Any, rois: Any, argmax: Any, spatial_scale: float, pooled_height: int, pooled_width: int, batch_size: int, channels: int, height: int, width: int
) -> Any:
    """The gradient for the input of roi_pool: each maximum's goes to its place."""
    image = grad.new_zeros(batch_size * channels * height * width)
    start = rois[:, 0].long()[:, None] * (channels * height * width) + (torch.arange(channels) * (height * width))[None, :]
    rows = start[:, :, None, None] + argmax.long().clamp(min=0)
    return image.index_add(0, rows.reshape(-1), torch.where(argmax >= 0, grad, 0.0).reshape(-1)).reshape(batch_size, channels, height, width)
