"""What pipes by iteration and pipes by index have in common: batches, orders drawn from a seed."""

from __future__ import annotations

import random
from typing import Any, Self

import flambeau as torch
from flambeau.utils.data.datapipes.datapipe import DataChunk


class Batches:
    """What makes batches of `batch_size` items; a shorter last one unless drop_last."""

    def __init__(self, datapipe: Any, batch_size: int, drop_last: bool = False, wrapper_class: Any = DataChunk) -> None:
        if batch_size <= 0:
            raise AssertionError("Batch size is required to be larger than 0!")
        self.datapipe = datapipe
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.wrapper_class = wrapper_class

    def batches_of(self, count: int) -> int:
        """How many batches `count` items make."""
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class Shuffled:
    """An order that is drawn anew for each pass, from a seed that is given or from torch's generator."""

    _enabled = True
    _seed: int | None = None

    def __init__(self) -> None:
        self._rng = random.Random()

    def set_shuffle(self, shuffle: bool = True) -> Self:
        """Turn it on or off."""
        self._enabled = shuffle
        return self

    def set_seed(self, seed: int) -> Self:
        """The seed of the next pass."""
        self._seed = seed
        return self

    def draw_seed(self) -> None:
        """Begin a pass: its seed is used up; without one, torch's generator gives it."""
        if self._seed is None:
            self._seed = int(torch.empty((), dtype=torch.int64).random_().item())
        self._rng.seed(self._seed)
        self._seed = None
