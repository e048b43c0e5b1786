"""A Program: kernels' argument words, how addresses get into them, and the phases in which the kernels run.

Everything is laid out once (`native.py` has the layout); a run packs the io words and makes one native call.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import threading
import weakref
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from itertools import starmap
from typing import Any, Final, NamedTuple

from flambeau.runtime import native_calls, threads, twice
from flambeau.statistics import counters

# What min_units_per_thread units of a kernel take, roughly: the kernels choose it so that waking a thread pays.
THREAD_NANOSECONDS: Final = 10_000
# How finely a parallel phase is cut: a thread that comes late or is interrupted costs at most about one chunk.
CHUNKS_PER_LANE: Final = 4

_programs: weakref.WeakSet[Program] = weakref.WeakSet()


class Task(NamedTuple):
    """One kernel of a phase: native address, its first argument word, and its work (see compiler/kernel.py).

    `nanoseconds`: at least so long it takes one thread (0: unknown); weighs the tasks of a phase against each other.
    """

    address: int
    first_word: int
    units: int
    grain: int = 1
    min_units_per_thread: int = 1
    nanoseconds: float = 0.0


def chunk_of(units: int, grain: int) -> int:
    """The units of the only chunk of a task of one lane."""
    return max(1, -(-units // grain)) * grain if grain > 1 else max(1, units)


def weight_of(task: Task) -> float:
    """Its time in relation to other tasks: min_units_per_thread alone cannot tell how long one long unit takes."""
    _, _, units, _, least, nanoseconds = task
    return max(units / max(least, 1), nanoseconds / THREAD_NANOSECONDS)


class Relocation(NamedTuple):
    """words[word] = io[slot] + offset + sum(io[parameter] * multiplier), at the start of each run."""

    word: int
    slot: int
    offset: int
    dynamic: tuple[tuple[int, int], ...] = ()


class Relocations(NamedTuple):
    """All relocations of a program as native code has them: (word, slot, offset) one after the other, and (word, parameter, multiplier)."""

    plain: Sequence[int]
    dynamic: Sequence[int]


def flat(relocations: Sequence[Relocation]) -> Relocations:
    """Relocations one after the other."""
    plain = [x for word, slot, offset, _ in relocations for x in (word, slot, offset)]
    return Relocations(plain, [x for word, _, _, pairs in relocations for pair in pairs for x in (word, *pair)])


def _own(numbers: Sequence[int]) -> array[int]:
    """The numbers as an array, which is the program's from then on."""
    return numbers if numbers.__class__ is array else array("q", numbers)


class Program:
    """A native program. `run(io_values)` gives 0, or 1 + the number of the task (over all phases) that failed.

    `run(io_values, ran)` puts that number into the list `ran`, too: where an interrupt is raised, it says whether the program has run.

    `words`: the argument words of all tasks, in the machine's 64-bit integers. `phases` run in order; the tasks of
    one phase do not depend on each other, and their units are divided among the threads. A failure ends the program
    after its phase. `io_size`: how many words a run is given; `format`: their struct codes, "q" or "Q" for addresses
    and integers, "d" for floats ("q" for all if None). `small`: a run takes some 10 us at most, so that a serial one
    does better to keep the GIL (to give it away may cost a switch interval, 5 ms, if another Python thread is busy).
    `functions`: the words that are addresses of code. They and the tasks' addresses change when better code comes (runtime/twice.py).

    May be called from any thread: runs of one program wait for each other. `words` and `io`, the block that the io
    words are copied to, stay where they are as long as the program: a word may be the address of an io word.
    Words and relocations that are arrays already become the program's own.
    """

    def __init__(
        self, words: Sequence[int], relocations: Sequence[Relocation] | Relocations, phases: Sequence[Sequence[Task]], io_size: int,
        format: str | None = None, small: bool = False, functions: Sequence[int] = (),
    ) -> None:  # fmt: skip
        self.words = _own(words)
        plain, dynamic = map(_own, relocations if relocations.__class__ is Relocations else flat(relocations))  # type: ignore[arg-type]
        first_word = _address(self.words)
        rows: list[int] = []  # of the tables of the tasks, of the phases, and of where lanes begin
        table: list[int] = []
        bounds: list[int] = []
        self.lanes = 1  # of the widest phase
        self._parallel_phases = 0
        available = threads.count()
        for phase in phases:
            first, start = len(rows) // 5, 0
            if len(phase) == 1:  # most are one kernel, and most of these have work for one thread only: the same as below, at a third of its time
                ((address, word, units, grain, least, _),) = phase
                if available == 1 or units < 2 * least or units < 2:
                    rows += (address, first_word + 8 * word, units, chunk_of(units, grain), 0)
                    table += (first, 1, 1, 1, len(bounds))
                    bounds += (0, 1)
                    continue
            lanes, cuts = _cut(phase, available)
            for task, (size, chunks) in zip(phase, cuts, strict=True):
                rows += (task[0], first_word + 8 * task[1], task[2], size, start)
                start += chunks
            table += (first, len(phase), lanes, start, len(bounds))
            bounds += _bounds(phase, [chunks for _, chunks in cuts], lanes)
            self.lanes = max(self.lanes, lanes)
            self._parallel_phases += lanes > 1
        self._finish(array("q", rows), range(0, len(rows), 5), table, bounds, plain, dynamic, io_size, format, small, functions)

    def _finish(
        self, tasks: array[int], addresses: Sequence[int], table: list[int], bounds: list[int], plain: array[int], dynamic: array[int],
        io_size: int, format: str | None, small: bool, functions: Sequence[int], first: int = 0,
    ) -> None:  # fmt: skip
        """Make what native code reads. `tasks`: an array that has the table of the tasks from `first` on; `addresses`: where it has addresses of code."""
        begins = array("q", bounds)
        if twice.table:
            twice.place(tasks, addresses, self.words, functions)
        for i in range(4, len(table), 5):
            table[i] = _address(begins) + 8 * table[i]
        tables = array("q", table)
        self.io = ctypes.create_string_buffer(8 * max(io_size, 1))
        self._head = array("q", (
            len(plain) // 3, _address(plain), len(dynamic) // 3, _address(dynamic), len(tables) // 5, _address(tables),
            _address(tasks) + 8 * first, _address(self.words), ctypes.addressof(self.io), io_size,
        ))  # fmt: skip
        self._held = (plain, dynamic, tables, tasks, begins)  # the native code has their addresses
        self._lock = threading.Lock()
        # To hold the GIL throughout is as good as a lock, where there is one.
        self.keeps_gil = small and self.lanes == 1 and _has_gil()
        self.run = self._make_run("=" + ("q" * io_size if format is None else format), self.keeps_gil)
        _programs.add(self)

    def _make_run(self, format: str, keep_gil: bool) -> Callable[..., int]:
        size, pack = _packing("=qq" + format[1:])
        given, needed = size - 16, 8 * self._head[-1]
        if given != needed:
            raise ValueError(f"the io format {format!r} makes {given} bytes, the io block has {needed}")
        native, lock = threads.native_function(keep_gil), self._lock
        team, lanes, parallel_phases = threads.team, self.lanes, self._parallel_phases
        self.address = head = _address(self._head)

        def packed(*io: Any) -> int:
            return native(pack(head, 0, *io))  # type: ignore[no-any-return]

        # `run` of the io words one by one, for callers that have them in hand and keep the GIL.
        self.call = call = native_calls.entry(threads.native_address(), head, format[1:]) if keep_gil and native_calls.available() else packed

        # The result of the native call goes into `ran` in the same call of C: an interrupt that came meanwhile finds it there.
        def run_small(values: Sequence[Any], ran: list[int] | None = None) -> int:
            ran = [] if ran is None else ran
            ran.extend(starmap(call, (values,)))
            return ran[0]

        def run_alone(values: Sequence[Any], ran: list[int] | None = None) -> int:
            ran = [] if ran is None else ran
            with lock:
                ran.extend(map(native, (pack(head, 0, *values),)))
                return ran[0]

        def run(values: Sequence[Any], ran: list[int] | None = None) -> int:
            ran = [] if ran is None else ran
            counters.parallel_phases += parallel_phases
            with lock:
                ran.extend(map(native, (pack(head, team(lanes), *values),)))
                return ran[0]

        chosen = run_small if keep_gil else run_alone if lanes == 1 else run
        chosen.tables = self._head, self._held, self.words, self.io  # type: ignore[attr-defined]  # live as long as `run`
        return chosen


class SizedProgram(Program):
    """A program of one lane whose relocations also put argument words and numbers of units where they belong (compiler/sized.py).

    `tasks`: of each phase (address, first word, units, units a chunk). Their tables lie behind `words`: relocations count on from there, five words each.
    """

    def __init__(
        self, words: Sequence[int], relocations: Relocations, tasks: Sequence[Sequence[tuple[int, int, int, int]]], io_size: int, format: str,
        small: bool, functions: Sequence[int],
    ) -> None:  # fmt: skip
        first = len(words)
        self.words = array("q", [*words, *[0] * (5 * sum(map(len, tasks)))])
        begin = _address(self.words)
        at = first
        table: list[int] = []
        bounds: list[int] = []
        for phase in tasks:
            table += ((at - first) // 5, len(phase), 1, len(phase), len(bounds))
            bounds += (0, len(phase))
            for start, (address, word, units, size) in enumerate(phase):
                self.words[at : at + 5] = array("q", (address, begin + 8 * word, units, size, start))
                at += 5
        self.lanes, self._parallel_phases = 1, 0
        plain, dynamic = map(_own, relocations)
        self._finish(self.words, range(first, at, 5), table, bounds, plain, dynamic, io_size, format, small, functions, first)


@cache
def _packing(format: str) -> tuple[int, Callable[..., bytes]]:
    """How many bytes a format makes, and what makes them."""
    made = struct.Struct(format)
    return made.size, made.pack


def _has_gil() -> bool:
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _address(block: array[int]) -> int:
    return block.buffer_info()[0]


def _cut(phase: Sequence[Task], available: int) -> tuple[int, list[tuple[int, int]]]:
    """How many lanes a phase gets, and for each task (units a chunk, chunks). Chunks are multiples of the grain."""
    lanes = min(available, int(sum([units / max(least, 1) for _, _, units, _, least, _ in phase]))) if available > 1 else 1
    if lanes <= 1:  # each task in one piece
        return 1, [(chunk_of(units, grain), 1) for _, _, units, grain, _, _ in phase]
    weights = [weight_of(t) for t in phase]
    total = sum(weights)
    cuts = []
    for (_, _, units, grain, _, _), share in zip(phase, weights, strict=True):
        pieces = max(1.0, lanes * CHUNKS_PER_LANE * share / total)
        grain = max(grain, 1)
        size = max(1, -(-int(-(-units // pieces)) // grain)) * grain
        cuts.append((size, max(1, -(-units // size))))
    return min(lanes, sum([chunks for _, chunks in cuts])) or 1, cuts


def _bounds(phase: Sequence[Task], chunks: Sequence[int], lanes: int) -> list[int]:
    """The chunk at which each lane's own part begins, and the end: parts of equal weight as far as chunks allow."""
    if lanes == 1:
        return [0, sum(chunks)]
    weights = [weight_of(t) / n for t, n in zip(phase, chunks, strict=True) for _ in range(n)]
    total = sum(weights)
    bounds = [0]
    done = 0.0
    for number, weight in enumerate(weights):
        # A lane's part ends before the chunk whose middle is beyond the lane's share.
        while len(bounds) < lanes and done + weight / 2 > total * len(bounds) / lanes:
            bounds.append(number)
        done += weight
    return bounds + [len(weights)] * (lanes + 1 - len(bounds))


def _after_fork() -> None:
    """No thread of a child is in a run: free the locks that threads of the parent held."""
    for program in list(_programs):
        program._lock._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
