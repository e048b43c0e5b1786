"""torch.distributed.algorithms.join: processes with different numbers of batches wait for each other; one process waits for nobody."""

from __future__ import annotations

from typing import Any


class Joinable:
    """What can take part in a Join."""


class JoinHook:
    """What a Joinable does while others go on."""

    def main_hook(self) -> None:
        """Called for each batch of another process."""

    def post_hook(self, is_last_joiner: bool) -> None:
        """Called when all are done."""


class Join:
    """A `with` block; nothing to wait for."""

    def __init__(self, joinables: list[Any], enable: bool = True, throw_on_early_termination: bool = False, **kwargs: Any) -> None:
        self._joinables = joinables

    def __enter__(self) -> Join:
        return self

    def __exit__(self, *_: Any) -> None:
        return None

    @staticmethod
    def notify_join_context(joinable: Any) -> None:
        """Nobody to tell."""
