"""Errors of torch.distributed, under PyTorch's names."""

from __future__ import annotations


class DistError(RuntimeError):
    """An error of torch.distributed."""


class DistBackendError(DistError):
    """A collective has failed: a rank is gone, ranks do not agree, or time has run out."""


class Disagreement(DistBackendError):
    """Ranks have come for different collectives. `told`: who for what."""

    def __init__(self, text: str, told: str) -> None:
        super().__init__(text)
        self.told = told


class DistNetworkError(DistError):
    """An error of the network."""


class DistStoreError(DistError):
    """An error of a store: time has run out while a key was waited for, mostly."""


class QueueEmptyError(DistStoreError):
    """A queue of a store has nothing to give."""


DistQueueEmptyError = QueueEmptyError
