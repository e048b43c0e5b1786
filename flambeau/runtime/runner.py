"""A Program: kernels' argument words, how addresses get into them, and the phases in which the kernels run.

Everything is laid out once; a run is one `pack_into` of the io block and one native call.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from flambeau.runtime import threads
from flambeau.statistics import counters

_CHUNKS_PER_LANE = 4  # how finely a phase is cut, so that a late thread costs little
_RUN: list[Any] = []  # the native runner: [without the GIL, with it]
SMALL_UNITS = 64


class Task(NamedTuple):
    """One kernel of a phase: native address, its first argument word, and its work (see compiler/kernel.py)."""

    address: int
    first_word: int
    units: int
    grain: int = 1
    min_units_per_thread: int = 1


class Relocation(NamedTuple):
    """words[word] = io[index] + offset + sum(io[parameter] * multiplier), at the start of each run."""

    word: int
    index: int
    offset: int
    dynamic: tuple[tuple[int, int], ...] = ()


def _runner() -> list[Any]:
    if not _RUN:
        from flambeau.runtime import jit

        address = jit.function(*threads.module())
        signature = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        _RUN.extend([ctypes.CFUNCTYPE(*signature)(address), ctypes.PYFUNCTYPE(*signature)(address)])
    return _RUN


class Program:
    """A native program. `run(io_values)` gives 0, or 1 + the number of the task (over all phases) that failed.

    `format`: struct codes of the io words ("Q" address, "q" int64, "d" float64). `parallel` and `small` say whether more
    than one thread may work, and whether the run is so short that it keeps the GIL.
    """

    def __init__(
        self, words: Sequence[int], relocations: Sequence[Relocation], phases: Sequence[Sequence[Task]], io_size: int,
        format: str | None = None, small: bool = False,
    ) -> None:  # fmt: skip
        self.words = array("q", words or [0])
        start = self.words.buffer_info()[0]
        plain: list[int] = []
        dynamic: list[int] = []
        for r in relocations:
            plain.extend((r.word, r.index, r.offset))
            for index, multiplier in r.dynamic:
                dynamic.extend((r.word, index, multiplier))
        self._plain, self._dynamic = array("q", plain or [0]), array("q", dynamic or [0])
        table: list[int] = []
        tasks: list[int] = []
        lanes_most = 1
        available = threads.count()
        for phase in phases:
            wanted = sum([t.units // max(t.min_units_per_thread, 1) for t in phase])
            lanes = max(1, min(available, wanted))
            lanes_most = max(lanes_most, lanes)
            first, chunks = len(tasks) // 5, 0
            total = sum([max(t.units, 1) / max(t.min_units_per_thread, 1) for t in phase])
            for t in phase:
                share = (t.units / max(t.min_units_per_thread, 1)) / total if total else 1.0
                pieces = max(1, round(lanes * _CHUNKS_PER_LANE * share)) if lanes > 1 else 1
                size = max(1, -(-t.units // pieces))
                size = -(-size // t.grain) * t.grain
                tasks.extend((t.address, start + 8 * t.first_word, t.units, size, chunks))
                chunks += max(1, -(-t.units // size))
            table.extend((first, len(phase), min(lanes, chunks), chunks))
        self._table, self._tasks = array("q", table or [0]), array("q", tasks or [0])

        def at(a: array[int]) -> int:
            return a.buffer_info()[0]

        self._head = array("q", [
            len(plain) // 3, at(self._plain), len(dynamic) // 3, at(self._dynamic), len(phases), at(self._table),
            at(self._tasks), start,
        ])  # fmt: skip
        self.lanes = lanes_most
        self.io = ctypes.create_string_buffer(8 * max(io_size, 1))
        self.format = "=" + (format or "q" * io_size)
        self._pack = struct.Struct(self.format).pack_into
        self._head_address = ctypes.c_void_p(self._head.buffer_info()[0])
        self._io_address = ctypes.c_void_p(ctypes.addressof(self.io))
        self._team = ctypes.c_void_p(threads.team(lanes_most))
        self._native = _runner()[1 if small and lanes_most == 1 else 0]
        self._lock = threading.Lock()
        self.run = self._make_run()

    def _make_run(self) -> Callable[[Sequence[Any]], int]:
        pack, io, native, lock = self._pack, self.io, self._native, self._lock
        head, io_address, team_of, lanes = self._head_address, self._io_address, threads.team, self.lanes
        if lanes == 1:

            def run_alone(values: Sequence[Any]) -> int:
                with lock:
                    pack(io, 0, *values)
                    return native(head, io_address, None)  # type: ignore[no-any-return]

            return run_alone

        def run(values: Sequence[Any]) -> int:
            counters.parallel_phases += 1
            with lock:
                pack(io, 0, *values)
                return native(head, io_address, team_of(lanes) if threads.count() > 1 else None)  # type: ignore[no-any-return]

        return run
