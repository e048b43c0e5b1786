"""torchvision's operators beside plain loops that say what each computes, and their gradients beside differences."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as ft
from flambeau.extensions import torchvision as ours

RANDOM = np.random.default_rng(0)


def _boxes(count: int, size: float) -> np.ndarray:
    corner, extent = RANDOM.uniform(-0.1 * size, 0.8 * size, (count, 2)), RANDOM.uniform(0.05 * size, 0.6 * size, (count, 2))
    return np.concatenate([corner, corner + extent], 1)


@pytest.mark.parametrize("count", [0, 1, 60])
def test_nms(count: int) -> None:
    boxes, scores = _boxes(count, 10.0), np.round(RANDOM.uniform(size=count), 1)  # with equal scores
    kept: list[int] = []
    for i in sorted(range(count), key=lambda i: -scores[i]):

        def overlap(j: int, i: int = i) -> float:
            low, high = np.maximum(boxes[i, :2], boxes[j, :2]), np.minimum(boxes[i, 2:], boxes[j, 2:])
            shared = np.prod(np.maximum(high - low, 0))
            return shared / (np.prod(boxes[i, 2:] - boxes[i, :2]) + np.prod(boxes[j, 2:] - boxes[j, :2]) - shared)

        if all(overlap(j) <= 0.3 for j in kept):
            kept.append(i)
    found = ours.nms(ft.tensor(boxes).reshape(-1, 4), ft.tensor(scores), 0.3)
    assert found.tolist() == kept and found.dtype is ft.int64
    with pytest.raises(RuntimeError, match="boxes should be a 2d tensor"):
        ours.nms(ft.ones(3), ft.ones(3), 0.5)


def _sample(image: np.ndarray, y: float, x: float, margin: bool) -> np.ndarray:
    """A bilinear sample of (C, H, W). `margin`: places up to 1 outside take the edge's values (regions); else what is outside is 0 (convolution)."""
    height, width = image.shape[1:]
    if y < -1 or y > height or x < -1 or x > width:
        return np.zeros(image.shape[0])
    if margin:
        y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    low_y, low_x = int(np.floor(y)), int(np.floor(x))
    total = np.zeros(image.shape[0])
    for yi, wy in ((low_y, 1 - (y - low_y)), (low_y + 1, y - low_y)):
        for xi, wx in ((low_x, 1 - (x - low_x)), (low_x + 1, x - low_x)):
            if 0 <= yi < height and 0 <= xi < width:
                total += wy * wx * image[:, yi, xi]
    return total


@pytest.mark.parametrize(("samples", "aligned"), [(2, True), (2, False), (-1, True), (0, False)])
def test_roi_align(samples: int, aligned: bool) -> None:
    image, rois = RANDOM.normal(size=(2, 3, 7, 9)), np.concatenate([RANDOM.integers(0, 2, (5, 1)), _boxes(5, 18.0)], 1)
    rows, columns, scale = 3, 2, 0.5
    wanted = np.zeros((5, 3, rows, columns))
    for k, roi in enumerate(rois):
        left, top, right, bottom = roi[1:] * scale - (0.5 if aligned else 0.0)
        height, width = bottom - top, right - left
        if not aligned:
            height, width = max(height, 1.0), max(width, 1.0)
        ny, nx = (samples, samples) if samples > 0 else (int(np.ceil(height / rows)), int(np.ceil(width / columns)))
        for i in range(rows):
            for j in range(columns):
                for iy in range(ny):
                    for ix in range(nx):
                        y, x = top + (i + (iy + 0.5) / ny) * height / rows, left + (j + (ix + 0.5) / nx) * width / columns
                        wanted[k, :, i, j] += _sample(image[int(roi[0])], y, x, True)
                wanted[k, :, i, j] /= max(ny * nx, 1)
    x = ft.tensor(image, requires_grad=True)
    found = ours.roi_align(x, ft.tensor(rois), scale, rows, columns, samples, aligned)
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-9, atol=1e-12)
    weights = ft.tensor(RANDOM.normal(size=wanted.shape))
    (found * weights).sum().backward()
    backward = ours._roi_align_backward(weights, ft.tensor(rois), scale, rows, columns, 2, 3, 7, 9, samples, aligned)
    assert x.grad is not None
    np.testing.assert_allclose(backward.numpy(), x.grad.numpy(), rtol=1e-9, atol=1e-12)
    step = ft.tensor(RANDOM.normal(size=image.shape))  # the function is linear in the image
    change = ours.roi_align(step, ft.tensor(rois), scale, rows, columns, samples, aligned)
    np.testing.assert_allclose((change * weights).sum().item(), (step * x.grad).sum().item(), rtol=1e-9)


def test_roi_pool() -> None:
    image = RANDOM.normal(size=(2, 3, 8, 8))
    rois = np.array([[0, 0, 0, 7, 7], [1, 2, 2, 5, 6], [0, 6, 6, 12, 12], [1, 9, 9, 11, 11]], float)
    found, places = ours.roi_pool(ft.tensor(image), ft.tensor(rois), 1.0, 2, 2)
    assert found[0].tolist() == image[0].reshape(3, 2, 4, 2, 4).max((2, 4)).tolist()
    assert found[3].abs().max().item() == 0.0 and places[3].max().item() == -1  # outside
    for k, roi in enumerate(rois[:3]):
        for c in range(3):
            for i in range(2):
                for j in range(2):
                    place = places[k, c, i, j].item()
                    assert place == -1 or image[int(roi[0]), c].reshape(-1)[place] == found[k, c, i, j].item()
    grad = ft.ones(4, 3, 2, 2, dtype=ft.float64)
    back = ours._roi_pool_backward(grad, ft.tensor(rois), places, 1.0, 2, 2, 2, 3, 8, 8)
    assert back.sum().item() == (places >= 0).sum().item() and back.shape == image.shape


@pytest.mark.parametrize(("groups", "offset_groups", "use_mask"), [(1, 1, False), (2, 1, True), (1, 2, True)])
def test_deform_conv2d(groups: int, offset_groups: int, use_mask: bool) -> None:
    shapes = {"input": (2, 4, 6, 5), "weight": (6, 4 // groups, 3, 2), "bias": (6,), "offset": (2, offset_groups * 12, 3, 4)}
    shapes["mask"] = (2, offset_groups * 6, 3, 4)
    given = {name: RANDOM.normal(size=shape) for name, shape in shapes.items()}
    stride, pad, dilation = (2, 1), (1, 0), (1, 1)
    wanted = np.zeros((2, 6, 3, 4)) + given["bias"][None, :, None, None]
    for n in range(2):
        for i in range(3):
            for j in range(4):
                columns = np.zeros((4, 3, 2))
                for a in range(3):
                    for b in range(2):
                        for g in range(offset_groups):
                            tap = g * 6 + a * 2 + b
                            y = i * stride[0] - pad[0] + a * dilation[0] + given["offset"][n, 2 * tap, i, j]
                            x = j * stride[1] - pad[1] + b * dilation[1] + given["offset"][n, 2 * tap + 1, i, j]
                            part = slice(g * 4 // offset_groups, (g + 1) * 4 // offset_groups)
                            inside = -1 < y < 6 and -1 < x < 5
                            value = _sample(given["input"][n, part], y, x, False) if inside else 0.0
                            columns[part, a, b] = value * (given["mask"][n, tap, i, j] if use_mask else 1.0)
                for o in range(6):
                    g = o // (6 // groups)
                    wanted[n, o, i, j] += (given["weight"][o] * columns[g * 4 // groups : (g + 1) * 4 // groups]).sum()
    t = {name: ft.tensor(value, requires_grad=True) for name, value in given.items()}
    options = (*stride, *pad, *dilation, groups, offset_groups, use_mask)
    found = ours.deform_conv2d(t["input"], t["weight"], t["offset"], t["mask"], t["bias"], *options)
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-9, atol=1e-10)
    order = ("input", "weight", "offset", "mask", "bias")
    assert ft.autograd.gradcheck(lambda *a: ours.deform_conv2d(*a, *options), tuple(t[n] for n in order), fast_mode=True)
    weights = ft.tensor(RANDOM.normal(size=wanted.shape))
    grads = ours._deform_conv2d_backward(weights, *(t[n].detach() for n in ("input", "weight", "offset", "mask", "bias")), *options)
    (found * weights).sum().backward()
    for name, grad in zip(("input", "weight", "offset", "mask", "bias"), grads, strict=True):
        own = t[name].grad
        np.testing.assert_allclose(grad.numpy(), np.zeros(shapes[name]) if own is None else own.numpy(), rtol=1e-9, atol=1e-10)


def test_what_is_not_there_says_so() -> None:
    ft.ops.load_library("site-packages/torchvision/_C.so")
    with pytest.raises(NotImplementedError, match=r"torchvision::qnms.*no function for the CPU"):
        ft.ops.torchvision.qnms(ft.ones(1, 4), ft.ones(1), 1.0)
    assert ft.ops.torchvision._cuda_version() == -1
