"""Position-sensitive regions beside plain loops, rotated boxes beside what is known of areas, and all of torchvision's operators by opcheck."""

from __future__ import annotations

from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as ft
from flambeau.extensions import torchvision_operators, torchvision_sensitive
from flambeau.testing._internal import optests
from tests.extensions.test_torchvision import RANDOM, _boxes, _sample

OPS = ft.ops.torchvision
ROWS, COLUMNS, CHANNELS = 3, 2, 2


def _given(count: int = 6) -> tuple[np.ndarray, np.ndarray]:
    rois = np.concatenate([RANDOM.integers(0, 2, (count, 1)), _boxes(count, 20.0)], 1)
    return RANDOM.normal(size=(2, CHANNELS * ROWS * COLUMNS, 9, 11)), rois


def _own(image: np.ndarray, c: int, i: int, j: int) -> np.ndarray:
    return image[(c * ROWS + i) * COLUMNS + j][None]


@pytest.mark.parametrize("samples", [2, -1])
def test_ps_roi_align(samples: int) -> None:
    image, rois = _given()
    wanted = np.zeros((len(rois), CHANNELS, ROWS, COLUMNS))
    for k, roi in enumerate(rois):
        left, top, right, bottom = roi[1:] * 0.5 - 0.5
        height, width = (bottom - top) / ROWS, (right - left) / COLUMNS
        ny, nx = (samples, samples) if samples > 0 else (ceil(height), ceil(width))
        for c, i, j in np.ndindex(CHANNELS, ROWS, COLUMNS):
            own = _own(image[int(roi[0])], c, i, j)
            total = [_sample(own, top + (i + (y + 0.5) / ny) * height, left + (j + (x + 0.5) / nx) * width, True)[0] for y, x in np.ndindex(ny, nx)]
            wanted[k, c, i, j] = sum(total) / (ny * nx)
    x = ft.tensor(image, requires_grad=True)
    found, mapping = OPS.ps_roi_align(x, ft.tensor(rois), 0.5, ROWS, COLUMNS, samples)
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-9, atol=1e-12)
    assert mapping.dtype is ft.int32 and (mapping == ft.arange(CHANNELS * ROWS * COLUMNS).reshape(CHANNELS, ROWS, COLUMNS)).all().item()
    weights = ft.tensor(RANDOM.normal(size=wanted.shape))
    (found * weights).sum().backward()
    back = OPS._ps_roi_align_backward(weights, ft.tensor(rois), mapping, 0.5, ROWS, COLUMNS, samples, *image.shape)
    assert x.grad is not None
    np.testing.assert_allclose(back.numpy(), x.grad.numpy(), rtol=1e-9, atol=1e-12)


def test_ps_roi_pool() -> None:
    image, rois = _given()
    rois[0, 1:] = [-3.0, 5.0, 3.0, 7.0]  # halves, of both signs
    wanted = np.zeros((len(rois), CHANNELS, ROWS, COLUMNS))
    for k, roi in enumerate(rois):
        left, top, right, bottom = [int(np.sign(v) * floor(abs(v) + 0.5)) for v in roi[1:] * 0.5]
        for c, i, j in np.ndindex(CHANNELS, ROWS, COLUMNS):
            low_y, high_y, low_x, high_x = [
                min(max(rounded(at * max(high - low, 1) / number) + low, 0), size - 1)
                for low, high, number, size, n in ((top, bottom, ROWS, 9, i), (left, right, COLUMNS, 11, j)) for rounded, at in ((floor, n), (ceil, n + 1))
            ]  # fmt: skip
            part = _own(image[int(roi[0])], c, i, j)[0, low_y:high_y, low_x:high_x]
            wanted[k, c, i, j] = part.mean() if part.size else 0.0
    x = ft.tensor(image, requires_grad=True)
    found, mapping = OPS.ps_roi_pool(x, ft.tensor(rois), 0.5, ROWS, COLUMNS)
    np.testing.assert_allclose(found.detach().numpy(), wanted, rtol=1e-12, atol=1e-14)
    assert not mapping.requires_grad and mapping[1].flatten().tolist() == list(range(CHANNELS * ROWS * COLUMNS))
    assert ft.autograd.gradcheck(lambda t: OPS.ps_roi_pool(t, ft.tensor(rois), 0.5, ROWS, COLUMNS)[0], (x,), fast_mode=True)
    assert ft.autograd.gradcheck(lambda t: OPS.roi_pool(t, ft.tensor(rois), 0.5, ROWS, COLUMNS)[0], (x,), fast_mode=True)
    for name in ("ps_roi_pool", "ps_roi_align"):
        with pytest.raises(RuntimeError, match=f"{name}: input channels must be a multiple of .* got 12 channels for 5 x 2 bins"):
            getattr(OPS, name)(x, ft.tensor(rois), 0.5, 5, 2, *((2,) if "align" in name else ()))


ANGLES = st.floats(-360, 360)


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.floats(-5, 5)] * 2, *[st.floats(0.1, 6)] * 2, ANGLES), st.tuples(*[st.floats(-5, 5)] * 2, *[st.floats(0.1, 6)] * 2, ANGLES), ANGLES)
def test_rotated_boxes(a: tuple[float, ...], b: tuple[float, ...], turn: float) -> None:
    first, second = ft.tensor([a], dtype=ft.float64), ft.tensor([b], dtype=ft.float64)
    found = OPS.box_iou_rotated(first, second).item()
    assert OPS.box_iou_rotated(second, first).item() == pytest.approx(found, abs=1e-9)
    assert OPS.box_iou_rotated(first, first).item() == pytest.approx(1.0, abs=1e-7)
    assert 0.0 <= found <= min(a[2] * a[3], b[2] * b[3]) / max(a[2] * a[3], b[2] * b[3]) + 1e-7
    corners = torchvision_sensitive._vertices(np.array([a, b]))
    # Points of a grid over the first box: the share of them that lies in the second is the share of its area.
    places = np.stack(np.meshgrid(*[(np.arange(200) + 0.5) / 200] * 2), -1).reshape(-1, 2)
    grid = places @ np.stack([corners[0, 1] - corners[0, 0], corners[0, 3] - corners[0, 0]]) + corners[0, 0]
    edges = [corners[1, i] - corners[1, 0] for i in (1, 3)]
    shares = [((grid - corners[1, 0]) @ e) / (e @ e) for e in edges]
    shared = np.mean((shares[0] >= 0) & (shares[0] <= 1) & (shares[1] >= 0) & (shares[1] <= 1)) * a[2] * a[3]
    assert found == pytest.approx(shared / (a[2] * a[3] + b[2] * b[3] - shared), abs=0.02)
    # Turned about the origin by the same angle, counter-clockwise as a picture is seen (y goes down), they overlap as before.
    angle = np.deg2rad(turn)
    turned = [ft.tensor([[x * np.cos(angle) + y * np.sin(angle), -x * np.sin(angle) + y * np.cos(angle), w, h, r + turn]], dtype=ft.float64)
              for x, y, w, h, r in (a, b)]  # fmt: skip
    assert OPS.box_iou_rotated(*turned).item() == pytest.approx(found, abs=1e-7)


def test_rotated_boxes_of_known_areas() -> None:
    square = ft.tensor([[0.0, 0, 2, 2, 0]])
    others = ft.tensor([[0.0, 0, 2, 2, 90], [0, 0, 2, 2, 45], [1, 0, 2, 2, 0], [9, 9, 1, 1, 30], [0, 0, 1, 4, 90]])
    octagon = 8 * (2**0.5 - 1)
    np.testing.assert_allclose(OPS.box_iou_rotated(square, others).numpy(), [[1.0, octagon / (8 - octagon), 1 / 3, 0.0, 2 / 6]], rtol=1e-6)
    assert OPS.box_iou_rotated(square[:0], others).shape == (0, 5)
    with pytest.raises(RuntimeError, match=r"of shape \(N, 5\) and \(M, 5\), got \(1, 4\) and \(5, 5\)"):
        OPS.box_iou_rotated(square[:, :4], others)


def _arguments() -> dict[str, tuple[Any, ...]]:
    image, rois = [ft.tensor(t) for t in _given(3)]
    weight, offset, mask = ft.randn(4, 6, 3, 3), ft.randn(2, 18, 9, 11), ft.rand(2, 9, 9, 11)
    return {
        "nms": (rois[:, 1:], ft.rand(3).double(), 0.5), "roi_align": (image, rois, 0.5, 3, 2, 2, True), "roi_pool": (image, rois, 0.5, 3, 2),
        "ps_roi_align": (image, rois, 0.5, 3, 2, 2), "ps_roi_pool": (image, rois, 0.5, 3, 2),
        "deform_conv2d": (image[:, :6].float(), weight, offset, mask, ft.randn(4), 1, 1, 1, 1, 1, 1, 1, 1, True),
        "box_iou_rotated": (rois, rois),
    }  # fmt: skip


@pytest.mark.parametrize("name", list(_arguments()))
def test_operators_keep_their_schemas(name: str) -> None:
    op = getattr(OPS, name).default
    assert str(op._schema).partition("(")[0] == f"torchvision::{name}" and str(op._schema).endswith(torchvision_operators.SCHEMAS[name].rpartition("->")[2])
    assert optests.opcheck(op, _arguments()[name], test_utils=("test_schema", "test_autograd_registration")) == {
        "test_schema": "SUCCESS", "test_autograd_registration": "SUCCESS",
    }  # fmt: skip


def test_deform_conv2d_says_what_does_not_fit() -> None:
    given = list(_arguments()["deform_conv2d"])
    for place, bad, text in (
        (3, ft.rand(2, 4, 9, 11), r"mask.shape\[1\] is not valid: got: 4 expected: 9"), (2, ft.rand(2, 9, 9, 11), r"offset.shape\[1\] is not valid"),
        (2, ft.rand(1, 18, 9, 11), "invalid batch size of offset"), (2, ft.rand(2, 18, 8, 11), r"offset output dims: \(8, 11\)"),
        (1, ft.randn(4, 3, 3, 3), "do not fit 1 groups"), (1, ft.randn(4, 6, 30, 3), "output size too small"), (5, 0, "must be positive"),
        (0, ft.randn(6, 9, 11), "input must have 4 dims"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=text):
            OPS.deform_conv2d(*given[:place], bad, *given[place + 1 :])
