"""What went wrong in a checkpoint of several processes, by rank."""

from __future__ import annotations

from typing import Any


class CheckpointException(BaseException):
    """What went wrong, by rank."""

    def __init__(self, msg: str, failures: dict[int, Any]) -> None:
        super().__init__(msg, failures)
        self.failures = failures

    def __str__(self) -> str:
        lines = [f"(RANK {rank}) {type(error).__name__}: {error}" for rank, error in self.failures.items()]
        return "\n".join([f"CheckpointException ranks:{self.failures.keys()}", *lines])
