"""Large sums and exchanges of ranks on one machine without copies in and out of the window: each rank has the kernel read and write the others' memory.

Each tells the others where its row of bytes lies. In an exchange it reads what it wants from their memory into its own. In a sum it reads its share of the
row from every other rank, adds, and keeps the sum or writes it to all (process_vm_readv and process_vm_writev of Linux, by which MPI libraries hand over large
messages, too). Tensors lie wherever they lie, so a program of one process pays nothing, and a forked process sees nothing of it.
Where the kernel does not allow it (other users, a container's rules, another system), all ranks take the way through the window.

Nobody may write to memory whose owner has gone on, nor believe what was read there. A rank that goes on with an error says so first (`give_up`), others look
before each block and after the last, and it waits for those that write. One that does not end to (it is stopped) may write a block when it wakes up: the
tensors' memory is set aside, for good.
"""

from __future__ import annotations

import ctypes
import os
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

from flambeau.compiler.kernels.window import LINE, SLOT
from flambeau.distributed.errors import Disagreement

if TYPE_CHECKING:
    from flambeau.distributed.window import Piece, Window

DIRECT: Final = 1 << 17  # bytes from which on it is faster than the window, wherever the cores lie
_BLOCK: Final = 1 << 19  # bytes of a step; half of them in a core's cache of the second level
_READ: Final = 1 << 22  # bytes of a step of an exchange, after which it is looked who is there
_PIECES: Final = 512  # of a step; the kernel takes 1,024
_MOST: Final = SLOT // 16 - 1  # pieces of which a slot can tell
_STATE, _WRITING, _REACHED, _PROBE = 16, 20, 21, 22
# numbers of a control block: 1 once the rank has left; whether it writes; whether it reaches all (1) or not (2); where others try whether they reach it
_PATIENCE: Final = 0.2  # seconds that a rank which leaves waits for those that write
_TELLING: Final = 0.5  # seconds in which it is told that a rank has died, after its memory is gone
_SET_PTRACER: Final = 0x59616D61  # prctl of the Yama module: whose children may look into this process

REDUCE: Final = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_double, ctypes.c_void_p, ctypes.c_int64,
    ctypes.c_void_p,
)  # fmt: skip


class Owner(Protocol):
    """What the pieces of memory belong to."""

    def set_aside(self) -> None:
        """This memory is never used again, as somebody may still write to it."""


class _Vector(ctypes.Structure):
    _fields_ = (("address", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


@cache
def _calls() -> tuple[Any, Any] | None:
    """The two calls of the C library; None where it has none, or where they are not wanted."""
    if os.environ.get("FLAMBEAU_DISTRIBUTED_PEER_MEMORY", "1") == "0":
        return None
    library = ctypes.CDLL(None, use_errno=True)
    try:
        found = library.process_vm_readv, library.process_vm_writev
    except AttributeError:
        return None
    for call in found:
        call.restype = ctypes.c_ssize_t
        call.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]
    with suppress(OSError), open("/proc/sys/kernel/yama/ptrace_scope") as file:
        if file.read().strip() == "1":  # a process may look into its children only, unless they allow more: here what the launcher has started
            library.prctl(_SET_PTRACER, ctypes.c_ulong(os.getppid()), 0, 0, 0)
    return found


def _vectors(pieces: Sequence[Piece]) -> Any:
    return (_Vector * len(pieces))(*[_Vector(*piece) for piece in pieces])


def _move(call: Any, process: int, own: Sequence[Piece], theirs: Sequence[Piece]) -> None:
    total = sum(n for _, n in own)
    done = call(process, _vectors(own), len(own), _vectors(theirs), len(theirs), 0)
    if done != total:
        raise OSError(ctypes.get_errno() if done < 0 else 0, os.strerror(ctypes.get_errno()) if done < 0 else f"{done} of {total} bytes")


class _Row:
    """Pieces of memory as one row of bytes."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces
        self.starts = [0, *accumulate(n for _, n in pieces)]

    def within(self, begin: int, end: int) -> list[Piece]:
        """The pieces of a stretch of the row."""
        found, i = [], bisect_right(self.starts, begin) - 1
        while begin < end:
            inside = begin - self.starts[i]
            count = min(self.starts[i + 1], end) - begin
            found.append((self.pieces[i][0] + inside, count))
            begin, i = begin + count, i + 1
        return found

    def steps(self, begin: int, end: int, size: int = _BLOCK) -> Iterator[tuple[int, int]]:
        """A stretch in steps, which end where a large piece does."""
        while begin < end:
            i = bisect_right(self.starts, begin) - 1
            stop = min(begin + size, end, self.starts[min(i + _PIECES, len(self.pieces))])
            if self.starts[i + 1] - begin >= _BLOCK // 8:
                stop = min(stop, self.starts[i + 1])
            yield begin, stop
            begin = stop


def _apart(pieces: Sequence[Piece], targets: Sequence[Piece]) -> bool:
    """Whether no target shares a byte with a piece."""
    ordered = sorted(pieces)
    starts, ends = [address for address, _ in ordered], list(accumulate((address + n for address, n in ordered), max))
    for address, n in targets:
        before = bisect_left(starts, address + n)  # pieces that begin before the target ends
        if n and before and ends[before - 1] > address:
            return False
    return True


def _move_here(sources: Sequence[Piece], target: int) -> None:
    for address, n in sources:
        if address != target:
            ctypes.memmove(target, address, n)
        target += n


_Calls = tuple[Any, Any]  # the kernel's that read, and that write


class PeerMemory:
    """The memory of a window's other ranks, seen by one of them. What its methods return is the same on all ranks: False where it cannot be done so."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.usable: bool | None = None  # once it was tried, on all ranks the same
        self._writing = ctypes.c_int64.from_address(window.base + window.rank * LINE + 8 * _WRITING)
        self._blocks: Any = None

    def reduce(self, pieces: Sequence[Piece], owners: Sequence[Owner], function: int, factor: float, timeout: float | None) -> bool:
        """The combination over all ranks of what lies in the pieces (on each rank as many bytes), into them."""

        def add(rows: Sequence[_Row], calls: _Calls) -> None:
            rank, n, total = self.window.rank, self.window.size, rows[0].starts[-1]
            each = (-(-total // n) + 63) & -64
            self._add(rows, calls, REDUCE(function), factor, min(rank * each, total), min((rank + 1) * each, total), None)

        return self._together(pieces, True, owners, timeout, add)

    def reduce_part(self, pieces: Sequence[Piece], begin: int, target: Piece, function: int, factor: float, timeout: float | None) -> bool:
        """The same, of which this rank wants the bytes from `begin` on, as many as the target has, and these there."""
        end = begin + target[1]
        pieces = [piece for piece in pieces if piece[1]]
        safe = _Row(pieces).within(begin, end) == [target] or _apart(pieces, [target])
        return self._together(
            pieces, safe, (), timeout, lambda rows, calls: self._add(rows, calls, REDUCE(function), factor, begin, end, target[0])
        )  # fmt: skip

    def swap(self, sends: Sequence[Piece], receives: Sequence[tuple[int, int, int, int]], timeout: float | None) -> bool:
        """Every rank hands out its pieces as one row of bytes. `receives`: (rank, from which byte of its row, address, bytes)."""
        rank, n = self.window.rank, self.window.size
        sends, receives = [piece for piece in sends if piece[1]], [part for part in receives if part[3]]
        row = _Row(sends)
        in_place = [part for part in receives if part[0] == rank and row.within(part[1], part[1] + part[3]) == [part[2:]]]
        others = sorted([part for part in receives if part not in in_place], key=lambda part: (part[0] - rank) % n)
        return self._together(sends, _apart(sends, [part[2:] for part in others]), (), timeout, lambda rows, calls: self._read(rows, calls, others))

    def _together(
        self, pieces: Sequence[Piece], safe: bool, owners: Sequence[Owner], timeout: float | None, work: Callable[[Sequence[_Row], _Calls], None]
    ) -> bool:
        """All ranks tell each other their pieces, work, and go on when all have ended. `safe`: whether others may read these while this rank works."""
        window, calls = self.window, _calls()
        self._tell(pieces if calls is not None and safe and len(pieces) <= _MOST else None)
        try:
            window.meet(timeout)
            told = [self._told(rank) for rank in range(window.size)]
            window.flip()
            rows = [_Row(found) for found in told if found is not None]
            if calls is None or len(rows) < window.size or not self._tried(calls, timeout):
                return False
            self._writing.value = 1
            try:
                work(rows, calls)
                self._look()  # else what was read may be what an owner that has gone on has put there
            finally:
                self._writing.value = 0
            window.meet(timeout)
        except Disagreement:  # nobody has come to read or write, and the group goes on
            raise
        except BaseException as error:
            self._leave(owners, error)
            raise
        return True

    def _slot(self, rank: int) -> int:
        window = self.window
        return int(window.slots + rank * 2 * SLOT + window.parity() * SLOT)

    def _tell(self, pieces: Sequence[Piece] | None) -> None:
        """The pieces, or that it cannot be done so this time."""
        given = pieces or ()
        words = (ctypes.c_int64 * (1 + 2 * len(given))).from_address(self._slot(self.window.rank))
        words[:] = [-1 if pieces is None else len(given), *[word for piece in given for word in piece]]

    def _told(self, rank: int) -> list[Piece] | None:
        at = self._slot(rank)
        count = ctypes.c_int64.from_address(at).value
        if count < 0:
            return None
        words = (ctypes.c_int64 * (2 * count)).from_address(at + 8)[:]
        return list(zip(words[::2], words[1::2], strict=True))

    def _tried(self, calls: _Calls, timeout: float | None) -> bool:
        """Whether all ranks reach all others' memory; they try once."""
        if self.usable is None:
            window, reached, word, probe = self.window, 1, ctypes.c_int64(), ctypes.c_int64(1)
            line = window.line(window.rank)
            line[_PROBE] = ctypes.addressof(probe)
            window.meet(timeout)
            for rank, process in window.peers.processes.items():
                try:
                    _move(calls[0], process, [(ctypes.addressof(word), 8)], [(window.line(rank)[_PROBE], 8)])
                except OSError:
                    reached = 2
            line[_REACHED] = reached
            window.meet(timeout)
            self.usable = all(window.line(rank)[_REACHED] == 1 for rank in range(window.size))
        return self.usable

    def _add(self, rows: Sequence[_Row], calls: _Calls, function: Any, factor: float, begin: int, end: int, target: int | None) -> None:
        """The sum of a stretch of the rows: to the target of this rank, or, without one, into its place on all ranks."""
        window = self.window
        if self._blocks is None:
            self._blocks = ctypes.create_string_buffer((window.size + 1) * _BLOCK + 64)
        blocks = (ctypes.addressof(self._blocks) + 63) & -64
        own, n = rows[window.rank], window.size
        others = [(rank, process) for rank, process in window.peers.processes.items()]
        for first, last in own.steps(begin, end):
            self._look()
            count = last - first
            mine = own.within(first, last)
            place = mine[0][0]
            if len(mine) > 1 or count % 64:  # whole vectors are added: not where the tensor lies
                place = blocks + n * _BLOCK
                _move_here(mine, place)
            for rank, process in others:
                self._to_or_from(calls[0], rank, process, [(blocks + rank * _BLOCK, count)], rows[rank].within(first, last))
            total = place if target is None or count % 64 else target + first - begin
            function(total, blocks, _BLOCK, n, 0, count, factor, place, window.rank, total)
            if target is not None:
                _move_here([(total, count)], target + first - begin)
                continue
            for rank, process in others:
                self._to_or_from(calls[1], rank, process, [(total, count)], rows[rank].within(first, last))
            for address, nbytes in mine:
                _move_here([(total, nbytes)], address)
                total += nbytes

    def _read(self, rows: Sequence[_Row], calls: _Calls, receives: Sequence[tuple[int, int, int, int]]) -> None:
        """What this rank wants of the rows; parts that follow each other in a row are read together."""
        window, done = self.window, 0
        while done < len(receives):
            rank, begin, address, nbytes = receives[done]
            parts, end, done = [(address, nbytes)], begin + nbytes, done + 1
            while done < len(receives) and receives[done][:2] == (rank, end):
                parts.append(receives[done][2:])
                end, done = end + receives[done][3], done + 1
            row, target = rows[rank], _Row(parts)
            for first, last in row.steps(begin, end, _READ):
                self._look()
                for a, b in target.steps(first - begin, last - begin, _READ):
                    theirs, mine = row.within(begin + a, begin + b), target.within(a, b)
                    if rank != window.rank:
                        self._to_or_from(calls[0], rank, window.peers.processes[rank], mine, theirs)
                        continue
                    at = begin + a
                    for place, count in mine:
                        _move_here(row.within(at, at + count), place)
                        at += count

    def _look(self) -> None:
        """DistBackendError if a rank has left."""
        window = self.window
        left = [rank for rank in window.peers.processes if window.line(rank)[_STATE] == 1 or rank in window.peers.gone]
        if left:
            window.fail(window.who_is_gone(left))
        window.look_for_reasons(window.peers.processes)

    def _to_or_from(self, call: Any, rank: int, process: int, own: Sequence[Piece], theirs: Sequence[Piece]) -> None:
        try:
            _move(call, process, own, theirs)
        except OSError as error:
            end = time.monotonic() + _TELLING
            while time.monotonic() < end:
                self._look()
                time.sleep(0.002)
            self.window.fail(f"the memory of {self.window.who([rank])} cannot be reached any more: {error.strerror}")

    def _leave(self, owners: Sequence[Owner], error: BaseException) -> None:
        """This rank goes on with an error: nobody writes to its tensors after this."""
        window = self.window
        window.give_up(str(error) or type(error).__name__)
        end = time.monotonic() + _PATIENCE
        while True:
            time.sleep(0.001)  # also until what was said and what they say is seen
            writing = [rank for rank in window.peers.processes if rank not in window.peers.gone and window.line(rank)[_WRITING]]
            if not writing:
                return
            if time.monotonic() > end:
                break
        for owner in owners:
            owner.set_aside()
