"""A thread that lets MPI go on while nobody in this process waits for it.

A message counts as sent once MPI has copied it, but what is left to do (to open a connection, to write what the network did not take) is done in
calls of MPI only. A rank that computes after it, or waits in its machine's memory for one that waits for the message's receiver, makes none.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

_SHORT: Final = 0.0005  # seconds between two calls, after something was sent
_LONG: Final = 0.02  # and when nothing was for a while


class Progress:
    """Calls MPI now and then."""

    def __init__(self, comm: Any) -> None:
        # A message that nobody sends is waited for: to ask for it lets MPI go on, and touches nothing else (a probe would look at all that has come).
        self._comm, self._word = comm.Dup(), bytearray(1)
        self._never = self._comm.Irecv(self._word, comm.rank, 1)
        self._used = True  # whether something was begun since the last call
        self._others, self._lock = 0, threading.Lock()  # how many threads call MPI themselves
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._live, name="flambeau MPI", daemon=True)
        self._thread.start()

    def _live(self) -> None:
        from mpi4py import MPI

        pause = _SHORT
        while not self._stop.wait(pause):
            pause = _SHORT if self._used else min(2 * pause, _LONG)
            self._used = False
            if not self._others:
                with suppress(MPI.Exception):  # whoever waits for a rank that is gone is told so
                    self._never.Test()

    @contextmanager
    def by_others(self) -> Iterator[None]:
        """A block that calls MPI itself."""
        with self._lock:
            self._others += 1
        try:
            yield
        finally:
            with self._lock:
                self._others -= 1
            self._used = True

    def close(self) -> None:
        """The process ends."""
        self._stop.set()
        self._thread.join(1.0)
