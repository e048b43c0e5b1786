"""Iterators over loaders as packages reach into them: a function before `__init__` that skips places, and the count of batches given out."""

from __future__ import annotations

from typing import Any

import pytest

from flambeau.utils.data import DataLoader
from flambeau.utils.data.dataloader import _BaseDataLoaderIter


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_places_are_skipped_and_batches_counted(monkeypatch: pytest.MonkeyPatch, workers: int, persistent: bool) -> None:
    if persistent and not workers:
        pytest.skip("there are no workers to keep")
    plain = _BaseDataLoaderIter.__init__

    def skipping(self: Any, loader: Any, *args: Any) -> None:
        plain(self, loader, *args)
        for i in range(2):
            next(self._sampler_iter)
            self._num_yielded = i + 1

    monkeypatch.setattr(_BaseDataLoaderIter, "__init__", skipping)
    loader: Any = DataLoader(
        range(10),  # type: ignore[arg-type]
        batch_size=2,
        num_workers=workers,
        persistent_workers=persistent,
    )
    batches: Any = iter(loader)
    assert next(batches).tolist() == [4, 5] and batches._num_yielded == 3
    assert [b.tolist() for b in batches] == [[6, 7], [8, 9]] and batches._num_yielded == 5
    if persistent:  # the second pass of kept workers begins no new iterator
        assert next(iter(loader)).tolist() == [0, 1] and batches._num_yielded == 1
