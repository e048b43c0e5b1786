"""torch.utils.data.datapipes.map.combinatorics: other orders of the items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe
from flambeau.utils.data.datapipes.shared import Shuffled


class ShufflerIterDataPipe(Shuffled, IterDataPipe[Any]):
    """The items in random order; a pipe by iteration."""

    def __init__(self, datapipe: Any, *, indices: list[Any] | None = None) -> None:
        self.datapipe = datapipe
        self.indices = list(range(len(datapipe))) if indices is None else indices
        self._shuffled_indices: list[Any] = self.indices
        Shuffled.__init__(self)

    def reset(self) -> None:
        if self._enabled:
            self.draw_seed()
        self._seed = None  # used up, also by a pass in the given order
        self._shuffled_indices = self._rng.sample(self.indices, len(self.indices))

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            for index in self.indices:
                yield self.datapipe[index]
            return
        while self._shuffled_indices:
            yield self.datapipe[self._shuffled_indices.pop()]

    def __len__(self) -> int:
        return len(self.datapipe)


MapDataPipe.register_datapipe_as_function("shuffle", ShufflerIterDataPipe)
