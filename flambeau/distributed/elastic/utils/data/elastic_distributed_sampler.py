"""A DistributedSampler that begins in the middle of an epoch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from flambeau.utils.data.sampler import DistributedSampler


class ElasticDistributedSampler(DistributedSampler):
    """Samples from `start_index` on, shuffled by the epoch's number and shared among the ranks, each of which has equally many."""

    def __init__(self, dataset: Any, num_replicas: int | None = None, rank: int | None = None, start_index: int = 0) -> None:
        super().__init__(dataset, num_replicas=num_replicas, rank=rank)
        if start_index >= len(dataset):
            raise ValueError(f"Start index {start_index} should be less than dataset size {len(dataset)}")
        self.start_index = start_index
        self.num_samples = math.ceil((len(dataset) - start_index) / self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def __iter__(self) -> Iterator[Any]:
        import flambeau

        generator = flambeau.Generator().manual_seed(self.epoch)
        chosen = flambeau.randperm(len(self.dataset) - self.start_index, generator=generator)
        order = [self.start_index + i for i in chosen.tolist()]
        order *= math.ceil(self.total_size / len(order))  # where they do not suffice for all, they come again
        return iter(order[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        return self.num_samples
