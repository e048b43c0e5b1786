"""Large sums of ranks on one machine without copies in and out of the window: each rank has the kernel read and write the others' memory.

A rank reads its share of the row from every other rank, adds, and writes the sum to all (process_vm_readv and process_vm_writev of Linux, by which MPI
libraries hand over large messages, too). Tensors lie wherever they lie, so a program of one process pays nothing, and a forked process sees nothing of it.
Where the kernel does not allow it (other users, a container's rules, another system), all ranks take the way through the window.

Nobody may write to memory whose owner has gone on. A rank that goes on with an error says so first (`give_up`), others look before each block, and it
waits for those that write. One that does not end to (it is stopped) may write a block when it wakes up: the tensors' memory is set aside, for good.
"""

from __future__ import annotations

import ctypes
import os
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, Protocol

from flambeau.compiler.kernels.window import LINE, SLOT

if TYPE_CHECKING:
    from flambeau.distributed.window import Piece, Window

DIRECT: Final = 1 << 17  # bytes from which on it is faster than the window, wherever the cores lie
_BLOCK: Final = 1 << 19  # bytes of a step; half of them in a core's cache of the second level
_PIECES: Final = 512  # of a step; the kernel takes 1,024
_MOST: Final = SLOT // 16 - 1  # pieces of which a slot can tell
_STATE, _WRITING, _REACHED = 16, 20, 21  # numbers of a control block: 1 once the rank has left; whether it writes; whether it reaches all (1) or not (2)
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

    def steps(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """A stretch in steps, which end where a large piece does."""
        while begin < end:
            i = bisect_right(self.starts, begin) - 1
            stop = min(begin + _BLOCK, end, self.starts[min(i + _PIECES, len(self.pieces))])
            if self.starts[i + 1] - begin >= _BLOCK // 8:
                stop = min(stop, self.starts[i + 1])
            yield begin, stop
            begin = stop


class PeerMemory:
    """The memory of a window's other ranks, seen by one of them."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.usable: bool | None = None  # once it was tried, on all ranks the same
        self._writing = ctypes.c_int64.from_address(window.base + window.rank * LINE + 8 * _WRITING)
        self._blocks: Any = None

    def reduce(self, pieces: Sequence[Piece], owners: Sequence[Owner], function: int, factor: float, timeout: float | None) -> bool:
        """The combination over all ranks of what lies in the pieces (on each rank as many bytes), into them. False, on all ranks, where that cannot be."""
        window = self.window
        calls = _calls()
        self._tell([] if calls is None or len(pieces) > _MOST else pieces)
        window.meet(timeout)
        rows = [_Row(self._told(rank)) for rank in range(window.size)]
        window.flip()
        if any(not row.pieces for row in rows) or calls is None or not self._tried(rows, calls, timeout):
            return False
        try:
            self._writing.value = 1
            try:
                self._add(rows, calls, REDUCE(function), factor)
            finally:
                self._writing.value = 0
            window.meet(timeout)
        except BaseException as error:
            self._leave(owners, error)
            raise
        return True

    def _slot(self, rank: int) -> int:
        window = self.window
        return int(window.slots + rank * 2 * SLOT + window.parity() * SLOT)

    def _tell(self, pieces: Sequence[Piece]) -> None:
        words = (ctypes.c_int64 * (1 + 2 * len(pieces))).from_address(self._slot(self.window.rank))
        words[:] = [len(pieces), *[word for piece in pieces for word in piece]]

    def _told(self, rank: int) -> list[Piece]:
        at = self._slot(rank)
        count = ctypes.c_int64.from_address(at).value
        words = (ctypes.c_int64 * (2 * count)).from_address(at + 8)[:]
        return list(zip(words[::2], words[1::2], strict=True))

    def _tried(self, rows: Sequence[_Row], calls: tuple[Any, Any], timeout: float | None) -> bool:
        """Whether all ranks reach all others' memory; they try once."""
        if self.usable is None:
            window, reached, word = self.window, 1, ctypes.c_int64()
            for rank, process in window.peers.processes.items():
                count = min(8, rows[rank].pieces[0][1])
                try:
                    _move(calls[0], process, [(ctypes.addressof(word), count)], [(rows[rank].pieces[0][0], count)])
                except OSError:
                    reached = 2
            window.line(window.rank)[_REACHED] = reached
            window.meet(timeout)
            self.usable = all(window.line(rank)[_REACHED] == 1 for rank in range(window.size))
        return self.usable

    def _add(self, rows: Sequence[_Row], calls: tuple[Any, Any], function: Any, factor: float) -> None:
        window = self.window
        if self._blocks is None:
            self._blocks = ctypes.create_string_buffer((window.size + 1) * _BLOCK + 64)
        blocks = (ctypes.addressof(self._blocks) + 63) & -64
        own, n = rows[window.rank], window.size
        total = own.starts[-1]
        each = (-(-total // n) + 63) & -64
        others = [(rank, process) for rank, process in window.peers.processes.items()]
        for begin, end in own.steps(min(window.rank * each, total), min((window.rank + 1) * each, total)):
            self._look()
            count = end - begin
            mine = own.within(begin, end)
            place = mine[0][0]
            if len(mine) > 1 or count % 64:  # whole vectors are added: not where the tensor lies
                place = at = blocks + n * _BLOCK
                for address, nbytes in mine:
                    ctypes.memmove(at, address, nbytes)
                    at += nbytes
            for rank, process in others:
                self._to_or_from(calls[0], rank, process, [(blocks + rank * _BLOCK, count)], rows[rank].within(begin, end))
            function(place, blocks, _BLOCK, n, 0, count, factor, place, window.rank, place)
            for rank, process in others:
                self._to_or_from(calls[1], rank, process, [(place, count)], rows[rank].within(begin, end))
            if place != mine[0][0]:
                at = place
                for address, nbytes in mine:
                    ctypes.memmove(address, at, nbytes)
                    at += nbytes

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
