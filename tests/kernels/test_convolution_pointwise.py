"""Convolutions with 1x1 kernels as products, by the matrix unit or by multiply-adds: layouts, epilogues, errors beside PyTorch's."""

from __future__ import annotations

import numpy as np
import pytest

from flambeau import dtypes
from flambeau.compiler.kernels.convolution import make_convolution
from flambeau.runtime import tiles
from tests.kernels.test_convolution import OPS, Increment, case, check, make

by_halves = pytest.mark.skipif("float16" not in tiles.dtypes(), reason="this machine's matrix unit has no float16")
by_vectors = pytest.mark.skipif(bool(tiles.dtypes()), reason="this machine has a matrix unit")
SHAPES = [((2, 300, 9, 9), 70), ((3, 130, 17, 31), 160), ((1, 128, 1, 64), 64), ((5, 200, 40, 30), 128), ((2, 30, 23, 31), 70), ((3, 90, 1, 600), 33)]


def used(op: str, x: tuple[int, ...], rows: int) -> bool:
    c = case(op, x, (rows, x[1], 1, 1), (1, 1), (0, 0), (1, 1), 1)
    return make(c.graph)[0].key.startswith("matmul:")


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("op", OPS[:2])
@pytest.mark.parametrize(("x", "rows"), SHAPES)
def test_shapes_and_layouts(op: str, x: tuple[int, ...], rows: int, plain: bool) -> None:
    for seed in range(1 if plain else 3):
        check(case(op, x, (rows, x[1], 1, 1), (1, 1), (0, 0), (1, 1), 1, plain=plain, seed=seed), dtypes.float32, 600)


@by_vectors
def test_where_multiply_adds_use_them() -> None:
    assert used(OPS[0], (2, 30, 23, 31), 70) and used(OPS[1], (2, 70, 23, 31), 30)
    assert not used(OPS[0], (2, 70, 23, 31), 70) and not used(OPS[0], (2, 30, 9, 9), 70) and not used(OPS[1], (2, 30, 23, 31), 70)


@by_halves
@pytest.mark.parametrize("op", OPS[:2])
def test_where_they_are_used(op: str) -> None:
    assert used(op, (2, 160, 9, 9), 160)
    assert not used(op, (2, 40, 9, 9), 40) and not used(op, (2, 160, 3, 3), 160)


@pytest.mark.parametrize("op", OPS[:2])
@pytest.mark.parametrize(("x", "rows"), [((3, 160, 13, 7), 130), ((3, 40, 25, 30), 130), ((3, 130, 25, 30), 40)])
def test_epilogue_visits_each_element_once(op: str, x: tuple[int, ...], rows: int) -> None:
    c = case(op, x, (rows, x[1], 1, 1), (1, 1), (0, 0), (1, 1), 1)
    epilogue = Increment(c.outs[0], c.graph.values[c.outs[0]].shape)
    (plain,) = c.run(make)
    (found,) = c.run(lambda graph: make_convolution(graph, 0, epilogue), 4)
    np.testing.assert_array_equal(found, plain + np.float32(1))
