"""Convolutions of bfloat16 by dot instructions of vectors, over the panels and planes of the matrix unit's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flambeau import dtypes
from flambeau.runtime import target, tiles
from tests.kernels.test_convolution import OPS, case, check, make
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
