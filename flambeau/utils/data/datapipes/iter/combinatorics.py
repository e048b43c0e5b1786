"""torch.utils.data.datapipes.iter.combinatorics: other orders of the items."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flambeau.utils.data.datapipes.datapipe import IterDataPipe, functional_datapipe
from flambeau.utils.data.datapipes.iter.utils import _length, _OfOne
from flambeau.utils.data.datapipes.shared import Shuffled
from flambeau.utils.data.sampler import SequentialSampler


@functional_datapipe("shuffle")
class ShufflerIterDataPipe(Shuffled, _OfOne):
    """A buffer of items in random order: reservoir sampling."""

    def __init__(self, datapipe: Any, *, buffer_size: int = 10000, unbatch_level: int = 0) -> None:
        if buffer_size <= 0:
            raise AssertionError("buffer_size should be larger than 0")
        self.datapipe = datapipe if unbatch_level == 0 else datapipe.unbatch(unbatch_level=unbatch_level)
        self.buffer_size = buffer_size
        Shuffled.__init__(self)

    def reset(self) -> None:
        if self._enabled:
            self.draw_seed()

    def __iter__(self) -> Iterator[Any]:
        if not self._enabled:
            yield from self.datapipe
            return
        buffer: list[Any] = []
        for item in self.datapipe:
            if len(buffer) < self.buffer_size:
                buffer.append(item)
                continue
            at = self._rng.randint(0, len(buffer) - 1)
            chosen, buffer[at] = buffer[at], item
            yield chosen
        while buffer:
            yield buffer.pop(self._rng.randint(0, len(buffer) - 1))


class SamplerIterDataPipe(IterDataPipe[Any]):
    """The items of a pipe by index in a sampler's order."""

    def __init__(self, datapipe: Any, sampler: Any = SequentialSampler, sampler_args: Any = None, sampler_kwargs: Any = None) -> None:
        self.datapipe = datapipe
        self.sampler = sampler(*(sampler_args or ()), data_source=datapipe, **(sampler_kwargs or {}))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.sampler)

    def __len__(self) -> int:
        return _length(self, self.sampler)
