"""Basic indices whose views are remembered by metadata and index (ops/indexing.py): as NumPy's, read and written, in any order of indices."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import flambeau as fb
from flambeau.ops import indexing


def part(draw: random.Random) -> Any:
    kind = draw.random()
    if kind < 0.35:
        return draw.randint(-3, 2)
    if kind < 0.75:
        return slice(*(draw.choice([None, *range(-5, 6)]) for _ in range(2)), draw.choice([None, 1, 2, 3]))
    return None if kind < 0.85 else Ellipsis


@pytest.mark.parametrize("seed", range(3))
def test_random_indices_are_as_in_numpy(seed: int) -> None:
    draw = random.Random(seed)
    views = 0
    for _ in range(150):
        shape = draw.choice([(3,), (2, 3), (3, 2, 4), ()])
        a = np.arange(float(np.prod(shape))).reshape(shape)
        t = fb.tensor(a.tolist())
        index: Any = tuple(part(draw) for _ in range(draw.randint(0, 4)))
        if sum(i is Ellipsis for i in index) > 1:
            continue
        if len(index) == 1 and draw.random() < 0.5:
            index = index[0]
        try:
            expected = a[index]
        except IndexError:
            with pytest.raises(IndexError):
                t[index]
            continue
        found = t[index]
        assert tuple(found.shape) == expected.shape
        assert found.numel() == 0 or found.tolist() == expected.tolist()
        t[index] = 7.0
        a[index] = 7.0
        assert t.numel() == 0 or t.tolist() == a.tolist()
        views += 1
    assert views > 50


def test_indices_that_are_written_alike_are_told_apart() -> None:
    for _ in range(2):
        t = fb.arange(24.0).reshape(4, 2, 3)
        shapes = [tuple(t[i].shape) for i in ((), 0, (0,), (0, None), slice(2, None, 3), (None, 3), (slice(0, 2), 1), (0, slice(1, 2)), None, ...)]
        assert shapes == [(4, 2, 3), (2, 3), (2, 3), (1, 2, 3), (1, 2, 3), (1, 2, 3), (2, 3), (1, 3), (1, 4, 2, 3), (4, 2, 3)]
        for index, kind in ((slice(1.0, 2), TypeError), ((0, slice(None, None, 1.0)), TypeError), (slice(None, None, -1), ValueError), (4, IndexError)):
            with pytest.raises(kind):
                t[index]
        assert tuple(t[True].shape) == (1, 4, 2, 3) and tuple(t[False].shape) == (0, 4, 2, 3)
        assert t[1].tolist() != t[True].tolist()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_MOST_VIEWS", 8)
    t = fb.arange(40.0)
    for start in range(20):
        assert t[start : start + 3].tolist() == [start, start + 1.0, start + 2.0]
        assert len(indexing._views) <= 8
