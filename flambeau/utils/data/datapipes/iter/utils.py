"""torch.utils.data.datapipes.iter.utils: a pipe over an iterable, and what pipes share."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe


class _OfOne(IterDataPipe[Any]):
    """A pipe that reads from one and gives as many."""

    datapipe: Any

    def __len__(self) -> int:
        return _length(self, self.datapipe)


def _length(pipe: Any, *sources: Any) -> int:
    try:
        return sum(len(source) for source in sources)
    except (TypeError, NotImplementedError):
        raise TypeError(f"{type(pipe).__name__} instance doesn't have valid length") from None


class IterableWrapperIterDataPipe(IterDataPipe[Any]):
    """Any iterable as a pipe; each pass goes over a deep copy, unless deepcopy=False."""

    def __init__(self, iterable: Iterable[Any], deepcopy: bool = True) -> None:
        self.iterable = iterable
        self.deepcopy = deepcopy

    def __iter__(self) -> Iterator[Any]:
        yield from copy.deepcopy(self.iterable) if self.deepcopy else self.iterable

    def __len__(self) -> int:
        return _length(self, self.iterable)
