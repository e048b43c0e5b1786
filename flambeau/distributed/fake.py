"""The backend "fake": a group of one process that goes through the motions of many, without any others: for looking at what one rank does.

Collectives end at once. What hands over bytes gives this process's own where others' would be, as far as it has such; sums stay what the process has; nothing
is sent, and what is received stays as it was. As with PyTorch's, results are not those of real groups, but for their shapes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.distributed.store import HashStore
from flambeau.distributed.work import Work

if TYPE_CHECKING:
    from flambeau.distributed.window import Piece


class FakeStore(HashStore):
    """What `init_process_group("fake", store=...)` wants; nobody else reads it."""


def _copy(sources: Sequence[Piece], begin: int, address: int, nbytes: int) -> None:
    """Copy what lies in a row of pieces from a byte on, as far as there is something."""
    start = 0
    for at, length in sources:
        first, last = max(start, begin), min(start + length, begin + nbytes)
        if first < last:
            ctypes.memmove(address + first - begin, at + first - start, last - first)
        start += length


class FakeWindow:
    """In place of the memory that ranks share (window.py)."""

    broken: str | None = None

    def begin(self, what: str, key: int) -> None:
        """A collective begins."""

    def meet(self, timeout: float | None = None) -> None:
        """Everybody has come."""

    def swap(self, sends: Sequence[Piece], total: int, receives: Sequence[tuple[int, int, int, int]], timeout: float | None = None) -> None:
        """Each rank has handed out what this one has."""
        for _, start, address, nbytes in receives:
            _copy(sends, start, address, nbytes)

    def reduce(
        self, sources: Sequence[Piece], targets: Sequence[Piece], operator: str, dtype: str, factor: float | None = None, timeout: float | None = None,
        owners: Any = None,
    ) -> None:  # fmt: skip
        """The sum is what this rank has."""
        start = 0
        for address, nbytes in targets:
            _copy(sources, start, address, nbytes)
            start += nbytes

    def reduce_part(
        self, sources: Sequence[Piece], begin: int, target: Piece, operator: str, dtype: str, factor: float | None = None, timeout: float | None = None
    ) -> None:
        """The part of the sum is that of what this rank has."""
        _copy(sources, begin, *target)

    def abandon(self) -> None:
        """Nobody waits."""

    def give_up(self, reason: str) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Leave."""


class FakeMail:
    """In place of the messages between members (p2p.py)."""

    def __init__(self, ranks: Sequence[int]) -> None:
        self._ranks = ranks

    def send(self, tensor: Any, peer: int, tag: int, beside: bool) -> Work | None:
        """It is sent."""
        return self._done(tensor, peer, beside)

    def receive(self, tensor: Any, peer: int, tag: int, beside: bool) -> Work | None:
        """It has come, and is what the tensor was."""
        return self._done(tensor, peer, beside)

    def receive_from_any(self, tensor: Any, tag: int, beside: bool) -> Work:
        """It has come, from the first rank."""
        work = self._done(tensor, 0, True)
        assert work is not None
        return work

    def _done(self, tensor: Any, peer: int, beside: bool) -> Work | None:
        if not beside:
            return None
        work = Work([tensor], lambda: None, "a message of a fake group")
        work._source = self._ranks[peer]
        work._execute()
        return work
