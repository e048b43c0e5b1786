"""Processes that must not be missed: a thread that learns at once when one of them has ended, by the kernel's process descriptors."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from ctypes import c_int64

_POLL = 0.1  # seconds between two looks, where the system has no process descriptors


class Peers:
    """The processes of a group's other ranks on this machine. `word` is 1 (for native code that waits) once one of them has ended."""

    def __init__(self, processes: dict[int, int]) -> None:
        self.processes = processes  # rank -> process id
        self.word = c_int64(0)
        self.gone: set[int] = set()  # ranks whose process has ended
        self._stop_read, self._stop_write = os.pipe2(os.O_CLOEXEC) if processes else (-1, -1)
        if processes:
            threading.Thread(target=self._watch, name="flambeau ranks", daemon=True).start()

    def _watch(self) -> None:
        poll = select.poll()
        poll.register(self._stop_read, select.POLLIN)
        ranks: dict[int, int] = {}
        without: dict[int, int] = {}
        for rank, process in self.processes.items():
            try:
                descriptor = os.pidfd_open(process)
                ranks[descriptor] = rank
                poll.register(descriptor, select.POLLIN)
            except ProcessLookupError:
                self._note(rank)
            except (OSError, AttributeError):  # an old kernel, or a system that is not Linux
                without[rank] = process
        try:
            while ranks or without:
                for descriptor, _ in poll.poll(_POLL * 1000 if without else None):
                    if descriptor == self._stop_read:
                        return
                    poll.unregister(descriptor)
                    self._note(ranks.pop(descriptor))
                    os.close(descriptor)
                for rank, process in list(without.items()):
                    try:
                        os.kill(process, 0)
                    except ProcessLookupError:
                        del without[rank]
                        self._note(rank)
                    except PermissionError:
                        continue
        finally:
            for descriptor in ranks:
                os.close(descriptor)
            os.close(self._stop_read)

    def _note(self, rank: int) -> None:
        self.gone.add(rank)
        self.word.value = 1

    def close(self) -> None:
        """Watch no more."""
        if self._stop_write >= 0:
            with contextlib.suppress(OSError):
                os.close(self._stop_write)  # the reading end hangs up
            self._stop_write = -1
