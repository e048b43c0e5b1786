"""One batch of a dataset, in this process: shared by the single-process loader and by workers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import flambeau as torch
from flambeau.utils.data.collate import Collate, default_collate
from flambeau.utils.data.dataset import Subset, TensorDataset


class MapFetcher:
    """Samples by index. `collates`: indices come in lists, which become batches."""

    def __init__(self, dataset: Any, collates: bool, collate: Collate) -> None:
        self.dataset = dataset
        self.collates = collates
        self.collate = collate
        self.whole = collates and collate is default_collate and _is_tensors(dataset)

    def __call__(self, index: Any) -> Any:
        if not self.collates:
            return self.collate(self.dataset[index])
        if self.whole:
            return _take(self.dataset, index)
        several = getattr(self.dataset, "__getitems__", None)
        return self.collate(several(index) if several else [self.dataset[i] for i in index])

    def state(self) -> None:
        """No position of its own: the sampler's is all."""


def _is_tensors(dataset: Any) -> bool:
    """Whether batches can be taken from whole tensors: the same values as stacking samples, in one operation each."""
    while type(dataset) is Subset:
        dataset = dataset.dataset
    return type(dataset) is TensorDataset


def _take(dataset: Any, indices: list[int]) -> list[Any]:
    while type(dataset) is Subset:
        indices = [dataset.indices[i] for i in indices]
        dataset = dataset.dataset
    index = torch.tensor(indices, dtype=torch.int64)
    return [t[index] for t in dataset.tensors]


class IterableFetcher:
    """Samples in the order of iteration; an index list only says how many."""

    def __init__(self, dataset: Any, collates: bool, collate: Collate, drop_last: bool, position: Any = None, batch_size: int | None = None) -> None:
        self.dataset = dataset
        saved = None if position is None else position["state"]
        if saved is not None and saved["of"] == "dataset":
            dataset.load_state_dict(saved["state"])
        self.samples: Iterator[Any] = iter(dataset)
        if saved is not None and saved["of"] == "iterator":
            self.samples.load_state_dict(saved["state"])  # type: ignore[attr-defined]
        elif saved is None and position is not None:
            for _ in itertools.islice(self.samples, position["yielded"] * (batch_size or 1)):
                pass
        self.collates = collates
        self.collate = collate
        self.drop_last = drop_last
        self.ended = False

    def __call__(self, index: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.collates:
            return self.collate(next(self.samples))
        batch = []
        for _ in index:
            try:
                batch.append(next(self.samples))
            except StopIteration:
                self.ended = True
                break
        if not batch or (self.drop_last and len(batch) < len(index)):
            raise StopIteration
        return self.collate(batch)

    def state(self) -> Any:
        """The position of the iterator or of the dataset, if one of them says it."""
        for of, target in (("iterator", self.samples), ("dataset", self.dataset)):
            if hasattr(target, "state_dict") and hasattr(target, "load_state_dict"):
                return {"of": of, "state": target.state_dict()}
        return None


def make_fetcher(dataset: Any, iterable: bool, collates: bool, collate: Collate, drop_last: bool, position: Any = None, batch_size: int | None = None) -> Any:
    """The fetcher for a kind of dataset. `position`: {"yielded": batches, "state"} of an iterable one that is to go on there."""
    if iterable:
        return IterableFetcher(dataset, collates, collate, drop_last, position, batch_size)
    return MapFetcher(dataset, collates, collate)
