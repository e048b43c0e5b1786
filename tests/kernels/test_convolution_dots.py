"""Convolutions of bfloat16 by dot instructions of vectors, over the panels and planes of the matrix unit's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau import dtypes
from flambeau.runtime import target, tiles
from tests.kernels.test_convolution import OPS, case, check, make, problems
from tests.kernels.test_convolution_tiles import by_tiles, random_problems

pytestmark = pytest.mark.skipif(
    "bfloat16" not in target.dots() or bool(tiles.dtypes()), reason="this machine has no such dot instructions, or a matrix unit that is preferred"
)


@pytest.mark.parametrize("op", OPS[:2])
def test_choice(op: str) -> None:
    def keys(d: dtypes.dtype) -> list[str]:
        return [k.key for k in make(case(op, (8, 64, 28, 28), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1, d).graph)]

    assert any(key.startswith("convolution:tiles:bfloat16:dots") for key in keys(dtypes.bfloat16))
    assert not any("tiles" in key for key in keys(dtypes.float32))


@settings(max_examples=40, deadline=None)
@given(random_problems(), st.integers(1, 9))
def test_random_problems(given_: dict[str, Any], splits: int) -> None:
    w = given_["w"]
    terms = (w[1] if given_["op"] == OPS[0] else w[0]) * w[2] * w[3]
    check(case(**given_ | {"d": dtypes.bfloat16}), dtypes.bfloat16, terms, splits, by_tiles)


@pytest.mark.parametrize("op", OPS[:2])
@pytest.mark.parametrize(
    ("x", "w", "padding"),
    [
        ((2, 64, 3, 700), (64, 64, 3, 3), 1),  # pieces of rows
        ((2, 64, 60, 90), (64, 64, 1, 1), 0),  # all pixels one row
        ((40, 64, 4, 4), (96, 64, 3, 3), 1),  # many images in a unit
        ((2, 32, 70, 30), (64, 32, 7, 7), 3),  # blocks of rows, three pixels of padding
        ((1, 1024, 7, 7), (96, 1024, 3, 3), 1),  # many steps
        ((1, 64, 3, 3), (64, 64, 3, 3), 0),  # one pixel
    ],
)
def test_shapes(op: str, x: Any, w: Any, padding: int) -> None:
    check(case(op, x, w, (1, 1), (padding, padding), (1, 1), 1, dtypes.bfloat16), dtypes.bfloat16, 20_000, by=by_tiles)


def test_weight_gradients_are_chosen() -> None:
    keys = [k.key for k in make(case(OPS[2], (2, 20, 9, 9), (40, 20, 3, 3), (1, 1), (1, 1), (1, 1), 1, dtypes.bfloat16).graph)]
    assert keys[0].endswith(":dots")


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(1, 9))
def test_weight_gradients(given_: dict[str, Any], splits: int) -> None:
    x, w = given_["x"], given_["w"]
    assume(w[1] > 1 or given_["groups"] == 1)  # depthwise: no dot instructions
    check(case(**given_ | {"op": OPS[2], "d": dtypes.bfloat16}), dtypes.bfloat16, x[0] * x[2] * x[3], splits)


@pytest.mark.parametrize("value", (np.inf, np.nan))
def test_pixels_behind_a_row_do_not_count(value: float) -> None:
    """The left tap of a kernel of 1 x 2 does not reach the last column, which its last, odd pixel is followed by."""
    x, g = torch.randn(2, 4, 5, 8).bfloat16(), torch.randn(2, 20, 5, 7).bfloat16()
    x[..., -1] = value
    found = torch.nn.grad.conv2d_weight(x, (20, 4, 1, 2), g).float()
    assert bool(found[..., 0].isfinite().all()) and not bool(found[..., 1].isfinite().any())
