"""torch.distributed.elastic.multiprocessing.errors: what a worker's failure is told as."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class ChildFailedError(Exception):
    """A worker has failed."""

    def __init__(self, name: str, failures: Any) -> None:
        self.name, self.failures = name, failures
        super().__init__(f"{name} FAILED: {failures}")


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """The function itself: there is no agent that would read its errors."""
    return fn
