"""interpolate with antialias=True: PyTorch's values and gradients, bytes off by one at most; padding with complex numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau
from flambeau.testing import Input, compare

torch = pytest.importorskip("torch")

WAYS: tuple[dict[str, Any], ...] = (
    {"size": (3, 11)}, {"size": (9, 7)}, {"scale_factor": 0.37}, {"scale_factor": (1.7, 0.5)}, {"scale_factor": 0.6, "recompute_scale_factor": True},
    {"size": (4, 5), "align_corners": True}, {"size": 1},
)  # fmt: skip
IMAGE = np.random.default_rng(0).standard_normal((2, 3, 9, 7))


@pytest.mark.parametrize("mode", ["bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_values_and_gradients(mode: str, way: dict[str, Any]) -> None:
    for dtype in ("float64", "float32"):
        found = compare("nn.functional.interpolate", Input(IMAGE, dtype, requires_grad=True), reference=torch, referee=True, mode=mode, antialias=True, **way)
        assert not found, found


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_bytes(mode: str) -> None:
    image = (IMAGE * 40 + 120).clip(0, 255).astype("uint8")
    ours, theirs = (m.nn.functional.interpolate(m.tensor(image), (4, 5), mode=mode, antialias=True).numpy().astype(int) for m in (flambeau, torch))
    assert np.abs(ours - theirs).max() <= 1


REFUSED: tuple[dict[str, Any], ...] = (
    {"mode": "nearest", "antialias": True}, {"mode": "lanczos"}, {"mode": "lanczos", "antialias": True, "align_corners": True},
)  # fmt: skip


@pytest.mark.parametrize("way", REFUSED, ids=str)
def test_refused(way: dict[str, Any]) -> None:
    for module in (flambeau, torch):
        with pytest.raises(ValueError):
            module.nn.functional.interpolate(module.ones(1, 1, 4, 4), (2, 2), **way)


def test_padding_with_complex_numbers() -> None:
    ours, theirs = (m.constant_pad_nd(m.ones(2, 2, dtype=m.complex64), (1, 1), 1j).tolist() for m in (flambeau, torch))
    assert ours == theirs
    with pytest.raises(TypeError):
        flambeau.nn.functional.pad(flambeau.ones(2, 2, dtype=flambeau.complex64), (1, 1), value=1j)  # type: ignore[arg-type]
