"""Chains of views whose indices change on a learned path: layout, offset, values, sharing and gradients are PyTorch's."""

from __future__ import annotations

import pytest

import flambeau as ft
from tests.engine import view_chains

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("seed", range(0, 200, 40))
def test_random_chains(seed: int) -> None:
    for number in range(seed, seed + 40):
        view_chains.compare(number, ft, torch)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 5000, 200))
def test_many_random_chains(seed: int) -> None:
    for number in range(seed, seed + 200):
        view_chains.compare(number, ft, torch)


def test_views_of_another_item_size_start_where_the_view_does() -> None:
    for m in (ft, torch):
        for start in (3, 4, 5, 4):
            x = m.arange(16.0)
            z = m.complex(x, x + 1)
            assert z[start:].imag.tolist() == [float(n + 1) for n in range(start, 16)]
            assert m.view_as_real(z[start:])[0].tolist() == [start, start + 1.0]
            assert x[start:].view(m.int32)[0].item() == x.view(m.int32)[start].item()
            assert x.double()[start:].view(m.int16)[3].item() == x.double().view(m.int16)[4 * start + 3].item()
            assert x[start:].as_strided((2, 1), (1, 1)).tolist() == [[float(start)], [start + 1.0]]
            z[start:].real.zero_()
            assert z.real.tolist() == [float(n) for n in range(start)] + [0.0] * (16 - start)
        for start in (2, 4, 2):
            assert x[start:][:4].view(m.float64).storage_offset() == start // 2
        with pytest.raises(RuntimeError, match="divisible"):
            x[3:][:4].view(m.float64)


def test_integer_tensors_of_no_dims_select_views() -> None:
    for m in (ft, torch):
        x = m.arange(60.0).reshape(5, 4, 3)
        for place in (m.tensor(2), m.tensor(-3), m.tensor(2, dtype=m.int32), m.tensor(2, dtype=m.int8), m.arange(5)[2], m.arange(5).sum() - 8):
            row = x[place]
            assert row.storage_offset() == 24 and x[place, :, 1].stride() == (3,) and x[..., m.tensor(1)].storage_offset() == 1
            x[2] = -1
            assert row.tolist() == [[-1.0] * 3] * 4
            x[place] = m.arange(12.0).reshape(4, 3)
            assert row.tolist() == m.arange(12.0).reshape(4, 3).tolist() == x[2].tolist()
            row[m.tensor(2)] += 1
            assert x[2, 2].tolist() == [7.0, 8.0, 9.0]
        assert x[m.tensor(1, dtype=m.uint8)].shape == (1, 5, 4, 3)  # a mask
        assert x[m.tensor(2), m.tensor([0, 1])].storage_offset() == 0  # a copy
        with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 5"):
            x[m.tensor(5)]
        with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 5"):
            x[m.tensor(-6)] = 1
    x = ft.arange(60.0).reshape(5, 4, 3)
    for _ in range(3):
        assert [x[i, 0, 0].item() for i in ft.tensor([3, 1, 4, 1])] == [36.0, 12.0, 48.0, 12.0]
