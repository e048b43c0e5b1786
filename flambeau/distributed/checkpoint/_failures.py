"""What went wrong in a checkpoint of several processes, by rank."""

from __future__ import annotations

import pickle
import traceback
from typing import Any


def failure_of(error: BaseException) -> tuple[BaseException, traceback.StackSummary]:
    """What went wrong, and where, as other processes can read it: an exception that cannot be sent to them becomes a RuntimeError of the same text."""
    try:
        pickle.loads(pickle.dumps(error))
        sent = error
    except Exception:
        sent = RuntimeError(f"{type(error).__name__}: {error}")
    return sent, traceback.extract_tb(error.__traceback__)


class CheckpointException(BaseException):
    """What went wrong: `failures` has for each rank that failed the exception, and the stack that led to it."""

    def __init__(self, msg: str, failures: dict[int, Any]) -> None:
        super().__init__(msg, failures)
        self.failures = failures

    def __str__(self) -> str:
        lines = [f"(RANK {rank}) {type(error).__name__}: {error}" for rank, (error, _) in self.failures.items()]
        return "\n".join([f"CheckpointException ranks:{self.failures.keys()}", *lines])
