"""A window: memory that the ranks of a group on one machine share, in which they meet, hand each other bytes, and add up tensors.

Each rank has a control block (how often it has come, and for what), two slots for what it hands out, and there are two slots of results.
Every collective is a sequence of meetings: each rank fills its slot, says that it has come, waits for the others, and reads their slots.
Two slots are enough: who fills one a second time knows by the meeting in between that all have read it.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate
from typing import Any, Final, Protocol

from flambeau.compiler.kernels import window as code
from flambeau.compiler.kernels import window_sums
from flambeau.compiler.kernels.window import DONE, GONE, LINE, MISMATCH, SLOT, SMALL, WORDS, Word
from flambeau.distributed import flight
from flambeau.distributed.errors import Disagreement, DistBackendError
from flambeau.distributed.memory import scratch
from flambeau.distributed.peer_memory import DIRECT, Owner, PeerMemory
from flambeau.distributed.peers import Peers
from flambeau.distributed.store import Store, exchanged, seconds
from flambeau.runtime import jit, shared_memory

_TEXT: Final = 4096  # bytes in which a rank says what it came for, when ranks do not agree
RING: Final = 1 << 16  # bytes on their way from one rank to another
_CHANNEL: Final = 128 + RING  # in front: how many bytes were written, and at 64 how many were read
_STATE: Final = 128  # of a control block: 1 once the rank has left the group, 2 once it has given up with an error
GIVEN_UP: Final = 2
_BEGUN, _ASKED, _TOLD = 17, 18, 19  # numbers of a control block: collectives begun; how often it was asked where it is, and has told
_ANSWER: Final = 1.0  # seconds that who has waited in vain waits for such an answer
_SLICE: Final = 20_000_000  # nanoseconds that native code waits before Python looks after signals and ranks
_HISTORY: Final = 32

_CALL: Final = struct.Struct("=8qd6q")  # the words of a job from BYTES on
Piece = tuple[int, int]  # (address, bytes)


def _native(key: str, emit: Callable[[str], str], result: Any, *arguments: Any) -> Any:
    return ctypes.CFUNCTYPE(result, *arguments)(jit.function(key, partial(emit, key)))


class Window:
    """The shared memory of `size` ranks, seen by one of them. `name`: of the group, for messages; `ranks`: the members' global ranks.

    Each method that waits raises DistBackendError, naming ranks, when one of them has ended, does something else, or does not come in time.
    """

    on_one_machine = True

    def __init__(self, store: Store, ranks: Sequence[int], rank: int, timeout: Any, name: str) -> None:
        self.size, self.rank, self.ranks, self.name = len(ranks), rank, list(ranks), name
        self.timeout = seconds(timeout)
        self.broken: str | None = None
        self.checks = os.environ.get("FLAMBEAU_DISTRIBUTED_CHECK", "1") != "0"
        self._history: list[str] = []
        self._times = 0  # collectives
        n = self.size
        self._slots_at = (n * (LINE + _TEXT) + 4095) & -4096
        self._results_at = self._slots_at + n * 2 * SLOT
        self._channels_at = self._results_at + 2 * SLOT + n * SMALL
        nbytes = self._channels_at + n * n * _CHANNEL
        processes = self._open(store, nbytes)
        self.peers = Peers({r: pid for r, pid in enumerate(processes) if r != rank})
        self._first = ctypes.c_char.from_buffer(self.block.mapping)
        self.base = ctypes.addressof(self._first)
        self.slots = self.base + self._slots_at
        self.peer_memory = PeerMemory(self)
        self._begun = ctypes.c_int64.from_address(self.base + rank * LINE + 8 * _BEGUN)
        self._answers: flight.Answers | None = None
        if flight.answers():
            line = self.base + rank * LINE
            self._answers = flight.Answers(self.ranks[rank], line + 8 * _ASKED, line + 8 * _TOLD, self._text_at(rank), _TEXT, self.block)
        self._job = (ctypes.c_int64 * WORDS)()
        self._job_at = ctypes.addressof(self._job)
        for word, value in {
            Word.CONTROL: self.base, Word.RANKS: n, Word.RANK: rank, Word.GONE: ctypes.addressof(self.peers.word), Word.SLICE: _SLICE,
            Word.SLOTS: self.slots, Word.RESULTS: self.base + self._results_at,
        }.items():  # fmt: skip
            self._job[word] = value
        self._meet = _native("window:meet", code.emit_meet, ctypes.c_int64, ctypes.c_void_p)
        self._all_reduce = _native("window:all_reduce", code.emit_all_reduce, ctypes.c_int64, ctypes.c_void_p)
        self._await = _native("window:await", code.emit_await, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)
        self.post = _native("window:post", code.emit_post, None, ctypes.c_void_p, ctypes.c_int64)
        self._piece_at = self._job_at + 8 * Word.PIECE

    def _open(self, store: Store, nbytes: int) -> list[int]:
        """Make or open the memory, which has no name any more once all have it; the members' process ids."""
        if self.rank == 0:
            self.block = shared_memory.named(nbytes)
            store.set("window", str(self.block.name))
        else:
            path = store.get("window").decode()
            self.block = shared_memory.Block(os.open(path, os.O_RDWR | os.O_CLOEXEC), nbytes)
        processes = [int(number) for number in exchanged(store, "process", self.rank, self.size, str(os.getpid()))]
        if self.rank == 0:
            with suppress(OSError):
                os.unlink(str(self.block.name))
        return processes

    # -- meeting ------------------------------------------------------------------------------------------------------------
    def begin(self, what: str, key: int) -> None:
        """A collective begins: what it is, for messages, and the number that must be the same on all ranks."""
        if self.broken is not None:
            raise DistBackendError(f"{what}: group {self.name!r} is unusable since an earlier error: {self.broken}")
        self._job[Word.HASH] = key if self.checks else 0
        self._times += 1
        self._begun.value = self._times
        if flight.RECORDER is not None:
            flight.RECORDER.begin(self.name, self.ranks, self._times, what)
        history = self._history
        history.append(what)
        if len(history) > _HISTORY:
            del history[0]

    def meet(self, timeout: float | None = None) -> None:
        """Tell the others that this rank has come, and wait for all of them."""
        status = self._meet(self._job_at)
        if status != DONE:
            self._go_on(self._meet, status, timeout)

    def _go_on(self, function: Any, status: int, timeout: float | None) -> None:
        """A wait that has not ended yet, or has failed."""
        limit = self.timeout if timeout is None else timeout
        end = time.monotonic() + limit
        while status != DONE:
            if status == MISMATCH:
                self._disagree()
            missing = self.missing()
            gone = [r for r in missing if r in self.peers.gone or self.line(r)[_STATE // 8] == 1]
            if gone:
                self.fail(self.who_is_gone(gone))
            self.look_for_reasons(missing)
            if time.monotonic() > end:
                self.fail(self._who_is_late(missing, limit))
            if status == GONE:  # a rank that has come before it ended: wait for the others
                time.sleep(0.0005)
            status = function(self._job_at)

    def line(self, rank: int) -> Any:
        """The numbers of a rank's control block."""
        return (ctypes.c_int64 * (LINE // 8)).from_address(self.base + rank * LINE)

    def missing(self) -> list[int]:
        """Who has not come to the meeting that is waited for."""
        target = self._job[Word.TARGET] + 1
        return [r for r in range(self.size) if self.line(r)[0] < target]

    def fail(self, text: str) -> None:
        """The group is unusable from here on: DistBackendError."""
        self.broken = text
        raise DistBackendError(f"rank {self.ranks[self.rank]} in {self._history[-1]} (collective {self._times} of group {self.name!r}): {text}")

    def who(self, ranks: Sequence[int]) -> str:
        """Places in the group as ranks, for messages."""
        return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(str(self.ranks[r]) for r in ranks)

    def who_is_gone(self, gone: list[int]) -> str:
        """Which of these have died, and which have left."""
        left = [r for r in gone if self.line(r)[_STATE // 8] == 1]
        died = [r for r in gone if r not in left]
        parts = []
        if died:
            numbers = ", ".join(str(self.peers.processes[r]) for r in died)
            parts.append(f"{self.who(died)} died (process {numbers}: killed, out of memory, or crashed)")
        if left:
            parts.append(f"{self.who(left)} left the group (ended, or called destroy_process_group)")
        return " and ".join(parts) + " without taking part"

    def _who_is_late(self, missing: list[int], limit: float) -> str:
        for r in missing:
            self.line(r)[_ASKED] += 1
        end = time.monotonic() + _ANSWER
        while flight.answers() and any(self.line(r)[_ASKED] != self.line(r)[_TOLD] for r in missing) and time.monotonic() < end:
            time.sleep(0.01)
        path = flight.dump_to_file(self.ranks[self.rank])
        stand = "; ".join(self._standing(r) for r in missing)
        written = f" (flight recorder: {path})" if path else ""
        return f"Timed out waiting {round(limit * 1000)}ms for {self.who(missing)}, which did not come; all others did: {stand}{written}"

    def _standing(self, rank: int) -> str:
        """How far a rank has come, as far as its control block, the kernel, and the rank itself tell."""
        line, parts = self.line(rank), []
        behind = self._times - line[_BEGUN]
        if behind <= 0:
            parts.append("is in this collective")
        elif not line[_BEGUN]:
            parts.append(f"has begun none of these {self._times} collectives")
        elif behind < len(self._history):
            parts.append(f"is {behind} behind, its last one was {self._history[-1 - behind]}")
        else:
            parts.append(f"is {behind} collectives behind")
        state = flight.state_of(self.peers.processes[rank]) if rank in self.peers.processes else ""
        if state:
            parts.append(f"its process {self.peers.processes[rank]} is {state}")
        elif line[_TOLD] == line[_ASKED]:
            parts.append(f"it is at {flight.read_text(self._text_at(rank))}")
        return f"rank {self.ranks[rank]} " + ", ".join(parts)

    def parity(self) -> int:
        """Which of its two slots a rank fills next."""
        return self._job[Word.PARITY]

    def flip(self) -> None:
        """The slots that were filled last have been met for, and may be read until the next meeting: the next ones are the others."""
        self._job[Word.PARITY] ^= 1

    def _text_at(self, rank: int) -> int:
        return self.base + self.size * LINE + rank * _TEXT

    def _disagree(self) -> None:
        """Ranks have come for different things: each tells what, then each raises."""
        from flambeau.distributed.blame import user_line

        flight.write_text(self._text_at(self.rank), _TEXT, f"{self._history[-1]} at {user_line()}")
        self._job[Word.HASH] = 0
        status = self._meet(self._job_at)
        if status != DONE:
            self._go_on(self._meet, status, 10.0)
        texts: dict[str, list[int]] = {}
        for r in range(self.size):
            texts.setdefault(flight.read_text(self._text_at(r)), []).append(r)
        told = "; ".join(f"{self.who(ranks)}: {text}" for text, ranks in texts.items())
        self._job[Word.STAGE] = 0
        raise Disagreement(f"ranks do not agree on collective {self._times} of group {self.name!r}: {told}", told)

    # -- handing over -------------------------------------------------------------------------------------------------------
    def swap(self, sends: Sequence[Piece], total: int, receives: Sequence[tuple[int, int, int, int]], timeout: float | None = None) -> None:
        """Every rank hands out its pieces as one row of bytes; `total` is the longest row. `receives`: (rank, from which byte of its row, address, bytes)."""
        if total >= DIRECT and self.peer_memory.usable is not False and self.peer_memory.swap(sends, receives, timeout):
            return
        starts = [0, *accumulate(n for _, n in sends)]
        job, slots = self._job, self.slots
        for begin in range(0, max(total, 1), SLOT):
            at = job[Word.PARITY] * SLOT
            own = slots + self.rank * 2 * SLOT + at
            end = min(begin + SLOT, starts[-1])
            place, piece = begin, bisect_right(starts, begin) - 1
            while place < end:
                address, nbytes = sends[piece]
                inside = place - starts[piece]
                count = min(nbytes - inside, end - place)
                if count:
                    ctypes.memmove(own + place - begin, address + inside, count)
                place, piece = place + count, piece + 1
            self.meet(timeout)
            for rank, start, address, nbytes in receives:
                first, last = max(start, begin), min(start + nbytes, begin + SLOT)
                if first < last:
                    ctypes.memmove(address + first - start, slots + rank * 2 * SLOT + at + first - begin, last - first)
            job[Word.PARITY] ^= 1

    def reduce(
        self, sources: Sequence[Piece], targets: Sequence[Piece], operator: str, dtype: str, factor: float | None = None, timeout: float | None = None,
        owners: Sequence[Owner] | None = None,
    ) -> None:  # fmt: skip
        """The combination over all ranks of what lies in the sources, as one row of elements, into the targets (as many bytes).

        `owners`: of the sources, where these are the targets, too, on every rank.
        """
        sources = [piece for piece in sources if piece[1]]
        targets = [piece for piece in targets if piece[1]]
        own = (ctypes.c_int64 * (2 * len(sources)))(*[word for piece in sources for word in piece])
        other = (ctypes.c_int64 * (2 * len(targets)))(*[word for piece in targets for word in piece])
        total = sum(n for _, n in sources)
        if not total:
            self.meet(timeout)
            return
        function = adder(operator, dtype, factor is not None)
        if owners is None or not self._directly(sources, total, owners, function, factor or 0.0, timeout):
            self._reduce(total, ctypes.addressof(own), ctypes.addressof(other), function, factor or 0.0, (0, 0), timeout)

    def reduce_part(
        self, sources: Sequence[Piece], begin: int, target: Piece, operator: str, dtype: str, factor: float | None = None, timeout: float | None = None
    ) -> None:
        """`reduce`, of which this rank wants the bytes from `begin` on that go into the target."""
        memory, function = self.peer_memory, adder(operator, dtype, factor is not None)
        if sum(n for _, n in sources) < DIRECT or memory.usable is False or not memory.reduce_part(sources, begin, target, function, factor or 0.0, timeout):
            reduce_by_scratch(self, sources, begin, target, operator, dtype, factor, timeout)

    def _directly(self, pieces: Sequence[Piece], total: int, owners: Sequence[Owner], function: int, factor: float, timeout: float | None) -> bool:
        memory = self.peer_memory
        return total >= DIRECT and memory.usable is not False and memory.reduce(pieces, owners, function, factor, timeout)

    def reduce_one(self, piece: Piece, function: int, factor: float, owner: Owner) -> None:
        """`reduce` of one piece in its place; `function`: of `adder`."""
        if piece[1] >= DIRECT and self._directly([piece], piece[1], [owner], function, factor, None):
            return
        if piece[1]:
            self._reduce(piece[1], self._piece_at, self._piece_at, function, factor, piece, None)
        else:
            self.meet()

    def _reduce(self, total: int, sources: int, targets: int, function: int, factor: float, piece: Piece, timeout: float | None) -> None:
        # The words from BYTES to the job's own piece; PARITY, before them, goes on from call to call.
        _CALL.pack_into(self._job, 8 * Word.BYTES, total, 0, 0, 0, 0, 0, 0, function, factor, 0, sources, targets, *piece, piece[0])
        status = self._all_reduce(self._job_at)
        if status != DONE:
            self._go_on(self._all_reduce, status, timeout)

    # -- from one rank to another -------------------------------------------------------------------------------------------
    def channel(self, source: int, target: int) -> int:
        """The address of what is on its way from one rank to another."""
        return self.base + self._channels_at + (source * self.size + target) * _CHANNEL

    def wait_word(self, address: int, least: int, peer: int, what: str, limit: float) -> None:
        """Wait until a number in the window is at least `least`; `peer` is who changes it."""
        gone = ctypes.addressof(self.peers.word)
        status = self._await(address, least, gone, _SLICE)
        end = time.monotonic() + limit
        while status != DONE:
            if peer in self.peers.gone or self.line(peer)[_STATE // 8] == 1:
                if self._await(address, least, gone, 0) == DONE:
                    return
                raise DistBackendError(f"rank {self.ranks[self.rank]} in {what}: {self.who_is_gone([peer])}")
            if time.monotonic() > end:
                raise DistBackendError(f"rank {self.ranks[self.rank]} in {what}: Timed out waiting {round(limit * 1000)}ms for rank {self.ranks[peer]}")
            if status == GONE:
                time.sleep(0.0005)
            status = self._await(address, least, gone, _SLICE)

    def is_here(self, rank: int) -> bool:
        """Whether a rank is on this machine: all are."""
        return True

    def abandon(self) -> None:
        """Take part in nothing any more: who waits for this rank is told."""
        self.line(self.rank)[_STATE // 8] = 1

    def give_up(self, reason: str) -> None:
        """Take part in nothing any more, for this reason: who waits for this rank is told."""
        self.broken = self.broken or reason
        flight.write_text(self._text_at(self.rank), _TEXT, self.broken)
        self.line(self.rank)[_STATE // 8] = GIVEN_UP

    def look_for_reasons(self, ranks: Iterable[int]) -> None:
        """DistBackendError, with its reason, if one of these has given up."""
        for r in ranks:
            if self.line(r)[_STATE // 8] == GIVEN_UP:
                self.fail(f"{flight.read_text(self._text_at(r))} (as rank {self.ranks[r]} has found)")

    def close(self) -> None:
        """Leave the group."""
        if self._answers is not None:
            self._answers.stopped.set()
        self.abandon()
        self.peers.close()


class Reducing(Protocol):
    """A window, or a bridge of several."""

    def reduce(
        self, sources: Sequence[Piece], targets: Sequence[Piece], operator: str, dtype: str, factor: float | None = None, timeout: float | None = None
    ) -> None:
        """The combination over all ranks of what lies in the sources, as one row of elements, into the targets (as many bytes)."""


def reduce_by_scratch(
    window: Reducing, sources: Sequence[Piece], begin: int, target: Piece, operator: str, dtype: str, factor: float | None, timeout: float | None
) -> None:
    """`reduce_part` by a whole `reduce`: what is not wanted goes into memory that nobody needs."""
    total = sum(n for _, n in sources)
    address, owner = scratch(total)
    window.reduce(sources, [(address, begin), target, (address + begin, total - begin - target[1])], operator, dtype, factor, timeout)
    del owner


_adders: dict[tuple[str, str, bool], int] = {}


def adder(operator: str, dtype: str, scaled: bool) -> int:
    """The address of the function that combines slots."""
    found = _adders.get((operator, dtype, scaled))
    if found is None:
        key = f"window:{operator}:{dtype}:{scaled}"
        found = _adders[operator, dtype, scaled] = jit.function(key, lambda: window_sums.emit_reduce(key, operator, dtype, scaled))
    return found
