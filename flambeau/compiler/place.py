"""Memory: which buffer every value lives in. Liveness by phases, reuse of dying buffers, one arena for all temporaries.

A value is alive from the phase that writes it to the last phase that reads it. Two values may share bytes if their
lives do not meet. A kernel may write over an input of its own (`Kernel.in_place`) if nobody else reads that input in or
after the same phase. Offsets are in bytes from the arena's start, in multiples of ALIGNMENT.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import Kernel, Scratch
from flambeau.compiler.schedule import Home, Schedule
from flambeau.symbols import Sym

ALIGNMENT: Final = 64  # bytes: a cache line, and the widest vector


@dataclass(slots=True)
class Placement:
    """`places[root]`: ("input" | "output" | "arena", position or byte offset) for every root that a step touches;
    `scratch[(step, word)]`: byte offset in the arena. `unshared_bytes`: what the arena would be without reuse.
    `workers`: the threads that there is scratch memory for."""

    places: dict[int, Home]
    scratch: dict[tuple[int, int], int]
    arena_bytes: int
    unshared_bytes: int
    workers: int = 1
    lives: tuple[tuple[int, int, int], ...] = ()  # of blocks whose sizes are symbols, and so their offsets: (first phase, last phase, bytes)


def place(graph: Graph, schedule: Schedule, workers: int) -> Placement:
    """Give every root of the schedule a place. `workers`: threads that may run a kernel at once (sizes scratch)."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    last_readers: dict[int, list[int]] = {}  # steps that read a root in its last phase
    buffer = schedule.buffer
    for index, (step, phase) in enumerate(zip(schedule.steps, schedule.phases, strict=True)):
        for root in {*step.reads, *step.writes}:
            first.setdefault(root, phase)
            if last.get(root, -1) < phase:
                last_readers[root] = []
            last[root] = phase
            last_readers[root].append(index)
    homes = schedule.homes
    values = graph.values
    nbytes = {root: values[root].numel * values[root].dtype.itemsize for root in first}
    parameters = set(graph.parameters)
    # Gather the roots that share a buffer by the schedule's word.
    members: dict[int, list[int]] = {}
    for root in first:
        if root not in parameters:
            members.setdefault(buffer(root), []).append(root)
    start = {b: min(first[r] for r in roots) for b, roots in members.items()}
    end = {b: max(last[r] for r in roots) for b, roots in members.items()}
    size = {b: max(nbytes[r] for r in roots) for b, roots in members.items()}
    merged: dict[int, int] = {}

    def stand_in(root: int) -> int:
        b = buffer(root)
        while b in merged:
            b = merged[b]
        return b

    _reuse_in_place(schedule, homes, stand_in, merged, last_readers, last, (start, end, size))
    places: dict[int, Home] = {}
    lives: list[tuple[int, int, int, tuple[int, int]]] = []  # (first phase, last phase, bytes, (buffer, -1) or (step, word))
    for b in start:
        if b not in merged and b not in homes:
            lives.append((start[b], end[b], size[b], (b, -1)))
    for index, step in enumerate(schedule.steps):
        if isinstance(step, Kernel):
            for at, word in enumerate(step.words):
                if isinstance(word, Scratch):
                    phase = schedule.phases[index]
                    lives.append((phase, phase, word.per_worker * workers + word.shared, (index, at)))
    blocks = [life[:3] for life in lives]
    over_symbols: list[Any] = [b for _, _, b in blocks if b.__class__ is Sym]
    offsets: list[int]
    arena_bytes: int
    if over_symbols:  # offsets are symbols of their own: no order of sizes is asked for
        plain, top = assign_offsets([(a, b, int.__int__(n)) for a, b, n in blocks])
        *offsets, arena_bytes = over_symbols[0].rec.more((*plain, top))
    else:
        offsets, arena_bytes = assign_offsets(blocks)
    scratch: dict[tuple[int, int], int] = {}
    for (_, _, _, (b, at)), offset in zip(lives, offsets, strict=True):
        if at < 0:
            places[b] = ("arena", offset)
        else:
            scratch[b, at] = offset
    final: dict[int, Home] = {}
    for root in first:
        if root not in parameters:
            b = stand_in(root)
            final[root] = homes[b] if b in homes else places[b]
    for root, home in homes.items():  # inputs and outputs that no step touches
        final.setdefault(root, home)
    unshared_bytes = sum(-(-life[2] // ALIGNMENT) * ALIGNMENT for life in lives)
    return Placement(final, scratch, arena_bytes, unshared_bytes, workers, tuple(blocks) if over_symbols else ())


def _reuse_in_place(
    schedule: Schedule, homes: dict[int, Home], stand_in: Callable[[int], int], merged: dict[int, int],
    last_readers: dict[int, list[int]], last: dict[int, int],
    lives: tuple[dict[int, int], dict[int, int], dict[int, int]],
) -> None:  # fmt: skip
    """Let kernels write over inputs that die with them: `merged[buffer of the write] = buffer of the read`."""
    start, end, size = lives
    wholes = {schedule.buffer(root) for root in schedule.inside}  # who reads and writes their pieces is not looked at here
    for index, (step, phase) in enumerate(zip(schedule.steps, schedule.phases, strict=True)):
        if not isinstance(step, Kernel):
            continue
        taken: set[int] = set()
        for write, read in step.in_place:
            if read not in last or write not in last:
                continue
            source, to = stand_in(read), stand_in(write)
            if source in wholes or to in wholes:
                continue
            if source == to or source in taken or source in homes or end[source] != phase or start[to] != phase:
                continue
            if last[read] != phase or last_readers[read] != [index] or size[source] != size[to]:
                continue
            if to in homes and homes[to][0] == "input":
                continue
            # The write's life is appended to the read's; a write that lives in an output takes the read along.
            start[source], end[source] = start[source], end[to]
            merged[to] = source
            taken.add(source)
            if to in homes:
                homes[source] = homes[to]
            del start[to], end[to], size[to]


# What happens phase by phase: the blocks that nothing needs any more, and those that begin to live.
Turns = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def turns_of(lives: Sequence[tuple[int, int]]) -> Turns:
    """The turns of blocks with these lives (first phase, last phase). They are the same whatever the blocks' bytes are."""
    deaths = sorted(range(len(lives)), key=lambda i: lives[i][1])
    born: dict[int, list[int]] = {}
    for i, (phase, _) in enumerate(lives):
        born.setdefault(phase, []).append(i)
    turns = []
    gone = 0
    for phase in sorted(born):
        start = gone
        while gone < len(deaths) and lives[deaths[gone]][1] < phase:
            gone += 1
        turns.append((tuple(deaths[start:gone]), tuple(born[phase])))
    return tuple(turns)


def assign_offsets(lives: list[tuple[int, int, int]]) -> tuple[list[int], int]:
    """Byte offsets for blocks with lives (first phase, last phase, bytes), and the arena's size."""
    return offsets_of(turns_of([life[:2] for life in lives]), [nbytes for _, _, nbytes in lives])


def offsets_of(turns: Turns, nbytes: list[int]) -> tuple[list[int], int]:
    """Byte offsets for blocks of these bytes, and the arena's size.

    Best fit in order of birth: a block takes the smallest gap that holds it, else it extends the arena.
    """
    padded = [-(-n // ALIGNMENT) * ALIGNMENT for n in nbytes]
    offsets = [0] * len(nbytes)
    gaps: list[tuple[int, int]] = []  # (offset, bytes), sorted by offset
    top = 0
    for gone, born in turns:
        for i in gone:
            _release(gaps, offsets[i], padded[i])
        for i in born if len(born) == 1 else sorted(born, key=lambda i: -nbytes[i]):
            need = padded[i]
            if need == 0:
                continue
            best = min([(length, at) for at, length in gaps if length >= need], default=None) if gaps else None
            if best is not None:
                length, at = best
                gaps.remove((at, length))
                if length > need:
                    insort(gaps, (at + need, length - need))
            else:
                at = top
                if gaps and sum(gaps[-1]) == top:  # extend the gap at the end
                    at, _ = gaps.pop()
                top = at + need
            offsets[i] = at
    return offsets, top


def _release(gaps: list[tuple[int, int]], offset: int, length: int) -> None:
    """Add a gap, joined with its neighbours."""
    if length == 0:
        return
    at = bisect_left(gaps, (offset, 0))
    if at < len(gaps) and gaps[at][0] == offset + length:
        length += gaps.pop(at)[1]
    if at > 0 and sum(gaps[at - 1]) == offset:
        offset, before = gaps.pop(at - 1)
        length += before
        at -= 1
    gaps.insert(at, (offset, length))
