"""NumPy arrays over a tensor's memory: what was recorded before reads the memory as it was then."""

from __future__ import annotations

import numpy as np
import pytest

import flambeau as torch

pytestmark = pytest.mark.usefixtures("whole")


def test_pending_values_do_not_see_later_writes() -> None:
    x = torch.arange(3.0)
    before = x * 2 + 1
    array = x.numpy()
    array += 10
    after = x * 2 + 1
    assert before.tolist() == [1.0, 3.0, 5.0]
    assert after.tolist() == [21.0, 23.0, 25.0]


def test_views_share_it_both_ways() -> None:
    x = torch.zeros(2, 3)
    total = x.sum()
    row = x[1].numpy()
    row[:] = 7
    assert float(total) == 0.0
    x[0] = 5
    assert np.asarray(x).tolist() == [[5.0] * 3, [7.0] * 3]


def test_reading_lists_leaves_the_trace_pending() -> None:
    x = torch.arange(100.0)
    assert float(x[5]) == 5.0  # computed
    y = (x * 2).sum()
    runs = torch.stats()["traces_run"]
    assert x.tolist()[99] == 99.0
    assert torch.stats()["traces_run"] == runs
    assert float(y) == 9900.0
