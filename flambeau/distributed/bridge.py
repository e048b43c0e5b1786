"""A bridge: what a window is to the ranks of one machine, to those of several. On each machine there is a window; between machines goes MPI.

Ranks are numbered as in the group. What a machine's ranks have is combined in its window first; its first rank (its leader) exchanges that with the other
leaders. Bytes that several ranks of a machine want come to it once.
"""

from __future__ import annotations

import ctypes
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import Any, Final

from flambeau.distributed import mpi
from flambeau.distributed.errors import Disagreement, DistBackendError
from flambeau.distributed.memory import scratch
from flambeau.distributed.peer_memory import REDUCE, Owner
from flambeau.distributed.store import PrefixStore, Store, seconds
from flambeau.distributed.window import Piece, Window, adder, reduce_by_scratch

Receive = tuple[int, int, int, int]  # (rank, from which byte of its row, address, bytes)
_TEXT: Final = 4096  # bytes of what a leader says that its machine came for
_SHARE: Final = 8 << 20  # bytes of a stretch of a sum that one machine adds, at most
_TERMS: Final = 64 << 20  # bytes that one machine adds of all machines' terms, at most
_LINE: Final = 64  # shares of a sum begin at multiples of it
_GRACE: Final = 5.0  # seconds that ranks wait longer for their leader than it does for other machines


class Bridge:
    """The ranks of a group on several machines, seen by one of them. `machines`: the name of each rank's machine. The methods are those of Window."""

    on_one_machine = False

    def __init__(self, store: Store, world: Any, ranks: Sequence[int], rank: int, machines: Sequence[str], timeout: Any, name: str) -> None:
        self.size, self.rank, self.ranks, self.name = len(ranks), rank, list(ranks), name
        self.timeout = seconds(timeout)
        names = list(dict.fromkeys(machines))
        self.members = [[r for r, n in enumerate(machines) if n == own] for own in names]
        self.machine = names.index(machines[rank])
        self.here = self.members[self.machine]  # the ranks of this machine
        self.places = {r: place for place, r in enumerate(self.here)}
        self.window = Window(PrefixStore(f"machine/{self.machine}", store), [self.ranks[r] for r in self.here], self.places[rank], timeout, name)
        self.checks, self.peers = self.window.checks, self.window.peers
        tag = zlib.crc32(name.encode()) % 30_000
        comm = world.Create_group(world.group.Incl(self.ranks), tag)
        self.comm, self.messages = mpi.Communicator(comm, self._failed), mpi.Communicator(comm.Dup(), self._failed)  # for collectives; for send and recv
        self.leaders: mpi.Communicator | None = None
        if self.places[rank] == 0:
            self.leaders = mpi.Communicator(comm.Create_group(comm.group.Incl([m[0] for m in self.members]), tag), self._failed)
        self._broken: str | None = None
        self._keys = (ctypes.c_int64 * (2 * len(names)))()
        self._key = (ctypes.c_int64 * 2)()
        self._what, self._agreed = "", False
        self._kept: list[Any] = []  # memory that MPI may still write to, after a failure
        self._terms: tuple[int, Any] | None = None  # memory for terms of other machines
        self._leads = False  # whether the others here wait to be told what this rank finds out as their leader

    @property
    def broken(self) -> str | None:
        """The error since which the group cannot be used."""
        return self._broken or self.window.broken

    def _fail(self, text: str) -> DistBackendError:
        self._broken = text
        return DistBackendError(f"rank {self.ranks[self.rank]} in {self._what} (group {self.name!r}, on {len(self.members)} machines): {text}")

    def _failed(self, error: Any) -> DistBackendError:
        """MPI could not even begin with something."""
        if not self._leads:
            self.window.abandon()
        return self._fail(mpi.reason(error, self.look))

    def look(self) -> str | None:
        """Who is gone, if somebody is."""
        gone = sorted(self.peers.gone)
        return self.window.who_is_gone(gone) if gone else mpi.who_is_gone(self.ranks)

    def _wait(self, requests: Sequence[Any], what: str, limit: float | None = None) -> None:
        try:
            mpi.wait(requests, self.timeout if limit is None else limit, what, self.look)
        except DistBackendError as error:
            for request in requests:
                with suppress(Exception):  # what cannot be taken back stays
                    request.Cancel()
            self._kept.append(requests)
            if not self._leads:
                self.window.abandon()
            raise self._fail(str(error)) from None

    # -- meeting ------------------------------------------------------------------------------------------------------------
    def begin(self, what: str, key: int) -> None:
        """A collective begins: what it is, for messages, and the number that must be the same on all ranks."""
        if self._broken is not None:
            raise DistBackendError(f"{what}: group {self.name!r} is unusable since an earlier error: {self._broken}")
        self.window.begin(what, key)
        self._what, self._key[0], self._agreed = what, key if self.checks else 0, not self.checks

    def meet(self, timeout: float | None = None) -> None:
        """Wait until all ranks have come."""
        self._agree(timeout)

    def _agree(self, timeout: float | None = None) -> None:
        """All ranks have come, and for the same: first those of each machine, then the leaders."""
        limit = self.timeout if timeout is None else timeout
        told: Disagreement | None = None
        try:
            self.window.meet(timeout)
        except Disagreement as error:
            told = error
        self._agreed = True
        text = self._by_leader(lambda: self._compare(told, limit), limit)
        if text:
            raise DistBackendError(f"ranks do not agree on a collective of group {self.name!r}: {text}")

    def _compare(self, told: Disagreement | None, limit: float) -> str:
        """By leaders: nothing if all machines came for the same, else who came for what."""
        from mpi4py import MPI

        assert self.leaders is not None
        n = len(self.members)
        self._key[1] = told is not None
        missing = f"waiting for other machines, of {self._elsewhere()}"
        address, whole = ctypes.addressof(self._key), ctypes.addressof(self._keys)
        self._wait([self.leaders.Iallgather(mpi.memory(address, 16), mpi.memory(whole, 16))], missing, limit)
        if not any(self._keys[1::2]) and all(key == self._keys[0] for key in self._keys[::2]):
            return ""
        from flambeau.distributed.blame import user_line

        own = told.told if told is not None else f"{self.window.who(range(len(self.here)))}: {self._what} at {user_line()}"
        mine, texts = ctypes.create_string_buffer(own.encode()[: _TEXT - 1], _TEXT), ctypes.create_string_buffer(n * _TEXT)
        request = self.leaders.Iallgather([mine, _TEXT, MPI.BYTE], [texts, _TEXT, MPI.BYTE])
        self._wait([request], "waiting for what other machines came for", limit)
        return "; ".join(texts.raw[i * _TEXT : (i + 1) * _TEXT].rstrip(b"\0").decode(errors="replace") for i in range(n))

    def _elsewhere(self) -> str:
        names = [", ".join(str(self.ranks[r]) for r in m) for i, m in enumerate(self.members) if i != self.machine]
        return " and of ".join(f"rank {name}" if name.isdigit() else f"ranks {name}" for name in names)

    def _by_leader(self, run: Callable[[], str], limit: float) -> str:
        """What the leader finds out, on all ranks of the machine. What it fails with, all raise."""
        text, failed = "", False
        if self.leaders is not None:
            self._leads = True
            try:
                text = run()
            except DistBackendError:
                assert self._broken is not None
                text, failed = self._broken, True
            finally:
                self._leads = False
        if len(self.here) > 1:
            encoded = text.encode()
            head = (ctypes.c_int64 * 2)(len(encoded), failed)
            self.window.swap([(ctypes.addressof(head), 16)], 16, [(0, 0, ctypes.addressof(head), 16)], limit + _GRACE)
            if head[0]:
                content = ctypes.create_string_buffer(encoded, head[0] + 1)
                piece = (ctypes.addressof(content), head[0])
                self.window.swap([piece] if self.leaders is not None else [], head[0], [(0, 0, *piece)], limit + _GRACE)
                text, failed = content.value.decode(), bool(head[1])
        if failed:
            raise self._fail(text)
        return text

    # -- handing over -------------------------------------------------------------------------------------------------------
    def swap(self, sends: Sequence[Piece], total: int, receives: Sequence[Receive], timeout: float | None = None) -> None:
        """Every rank hands out its pieces as one row of bytes. `receives`: (rank, from which byte of its row, address, bytes)."""
        if not self._agreed:
            self._agree(timeout)
        sends = [piece for piece in sends if piece[1]]
        receives = [r for r in receives if r[3]]
        tables = self._tables([(r, start, n) for r, start, _, n in receives if r not in self.places], sum(n for _, n in sends))
        wanted: dict[tuple[int, int, int], list[int]] = {}  # (rank, start, bytes) of other machines -> who here wants it
        for place, (_, table) in enumerate(tables):
            for entry in table:
                takers = wanted.setdefault(entry, [])
                if place not in takers:
                    takers.append(place)
        own = self.places[self.rank]
        fetched = [(entry, takers) for entry, takers in wanted.items() if takers[entry[0] % len(takers)] == own]
        addresses = {(r, start, n): address for r, start, address, n in reversed(receives)}
        self._fetch(sends, [(*entry, addresses[entry]) for entry, _ in fetched])
        # On this machine: first each rank's own row, then what it has fetched for others, too.
        rows, begins = [length for length, _ in tables], {}
        for entry, takers in wanted.items():
            place = takers[entry[0] % len(takers)]
            if len(takers) > 1:
                begins[entry] = (place, rows[place])
                rows[place] += entry[2]
        shared = [(addresses[entry], entry[2]) for entry, takers in fetched if len(takers) > 1]
        local = []
        for r, start, address, n in receives:
            if r in self.places:
                local.append((self.places[r], start, address, n))
            elif (r, start, n) in begins and begins[r, start, n][0] != own:
                place, begin = begins[r, start, n]
                local.append((place, begin, address, n))
            elif addresses[r, start, n] != address:  # the same bytes twice
                ctypes.memmove(address, addresses[r, start, n], n)
        if len(self.here) > 1 or local:
            self.window.swap([*sends, *shared], max(rows), local, timeout)

    def _tables(self, needs: Sequence[tuple[int, int, int]], length: int) -> list[tuple[int, list[tuple[int, int, int]]]]:
        """Of each rank of this machine the length of its row, and what it needs of other machines' ranks."""
        n = len(self.here)
        if n == 1:
            return [(length, list(needs))]
        head, heads = (ctypes.c_int64 * 2)(len(needs), length), (ctypes.c_int64 * (2 * n))()
        at = ctypes.addressof(heads)
        self.window.swap([(ctypes.addressof(head), 16)], 16, [(r, 0, at + 16 * r, 16) for r in range(n)])
        counts = heads[::2]
        if not any(counts):
            return [(row, []) for row in heads[1::2]]
        own = (ctypes.c_int64 * (3 * len(needs)))(*[word for need in needs for word in need])
        found = [(ctypes.c_int64 * (3 * count))() for count in counts]
        receives = [(r, 0, ctypes.addressof(words), 24 * counts[r]) for r, words in enumerate(found) if counts[r]]
        self.window.swap([(ctypes.addressof(own), 24 * len(needs))], 24 * max(counts), receives)
        return [(heads[2 * r + 1], [(w[i], w[i + 1], w[i + 2]) for i in range(0, len(w), 3)]) for r, w in enumerate(found)]

    def _fetch(self, sends: Sequence[Piece], wanted: Sequence[tuple[int, int, int, int]]) -> None:
        """Bytes of rows of ranks elsewhere: (rank, start, bytes, address). Each rank is told what of its row is wanted, and sends it."""
        n = self.size
        by_rank: list[list[tuple[int, int, int, int]]] = [[] for _ in range(n)]
        for entry in wanted:
            by_rank[entry[0]].append(entry)
        counts, asked = (ctypes.c_int64 * n)(*map(len, by_rank)), (ctypes.c_int64 * n)()
        asked[self.rank] = counts[self.rank]
        # One by one: MPICH's Ialltoall was seen not to end on one rank while all others had ended it.
        others, sent, come = [r for r in range(n) if r != self.rank], ctypes.addressof(counts), ctypes.addressof(asked)
        requests = [self.comm.Irecv(mpi.memory(come + 8 * r, 8), r, 0) for r in others]
        requests += [self.comm.Isend(mpi.memory(sent + 8 * r, 8), r, 0) for r in others]
        self._wait(requests, "telling each other what to send")
        requests, kept = [], []
        for r, entries in enumerate(by_rank):
            if entries:
                words = (ctypes.c_int64 * (2 * len(entries)))(*[word for _, start, count, _ in entries for word in (start, count)])
                kept.append(words)
                requests.append(self.comm.Isend(mpi.memory(ctypes.addressof(words), 16 * len(entries)), r, 1))
        questions = [(r, (ctypes.c_int64 * (2 * asked[r]))()) for r in range(n) if asked[r]]
        requests += [self.comm.Irecv(mpi.memory(ctypes.addressof(words), 16 * asked[r]), r, 1) for r, words in questions]
        self._wait(requests, "telling each other what to send")
        requests = [self.comm.Irecv(mpi.memory(address, count), r, 2) for r, entries in enumerate(by_rank) for _, _, count, address in entries]
        starts = [0, *accumulate(count for _, count in sends)]
        for r, words in questions:
            for i in range(0, len(words), 2):
                address, owner = _part(sends, starts, words[i], words[i + 1])
                kept.append(owner)
                requests.append(self.comm.Isend(mpi.memory(address, words[i + 1]), r, 2))
        self._wait(requests, "handing over bytes")

    def reduce(
        self, sources: Sequence[Piece], targets: Sequence[Piece], operator: str, dtype: str, factor: float | None = None, timeout: float | None = None,
        owners: Sequence[Owner] | None = None,
    ) -> None:  # fmt: skip
        """The combination over all ranks of what lies in the sources, as one row of elements, into the targets (as many bytes).

        Terms are combined on each machine in the ranks' order and rounded to the dtype, then over the machines in their order: all ranks have the same bits.
        """
        if not self._agreed:
            self._agree(timeout)
        targets = [piece for piece in targets if piece[1]]
        total = sum(n for _, n in targets)
        if not total:
            return
        if len(self.here) > 1 or factor is not None or list(sources) != targets:
            self.window.reduce(sources, targets, operator, dtype, factor, timeout, owners)
        row, owner = targets[0][0], None
        if self.leaders is not None and len(targets) > 1:
            row, owner = scratch(total)
            _copy(targets, row, False)

        def exchange() -> str:
            self._sum(row, total, operator, dtype)
            return ""

        self._by_leader(exchange, self.timeout if timeout is None else timeout)
        if len(self.here) > 1:
            if self.leaders is not None:
                self.window.swap([(row, total)], total, [], timeout)
            else:
                receives = [(0, start, *piece) for start, piece in zip(accumulate([0, *[n for _, n in targets]]), targets, strict=False)]
                self.window.swap([], total, receives, timeout)
        if owner is not None:
            _copy(targets, row, True)

    def reduce_part(
        self, sources: Sequence[Piece], begin: int, target: Piece, operator: str, dtype: str, factor: float | None = None, timeout: float | None = None
    ) -> None:
        """`reduce`, of which this rank wants the bytes from `begin` on that go into the target."""
        reduce_by_scratch(self, sources, begin, target, operator, dtype, factor, timeout)

    def _sum(self, row: int, total: int, operator: str, dtype: str) -> None:
        """By leaders: each combines its share of every stretch of the row over all machines, and sends the result to the others."""
        k, own = len(self.members), self.machine
        each = min(_SHARE, _TERMS // k & -_LINE, -(-total // (k * _LINE)) * _LINE)
        if self._terms is None or self._terms[1].nbytes < 2 * (k + 1) * each:
            self._terms = scratch(2 * (k + 1) * each)  # for two stretches, of each machine a term, and the result
        function = REDUCE(adder(operator, dtype, False))
        stretches = [[min(begin + i * each, total) for i in range(k + 1)] for begin in range(0, total, k * each)]
        what = f"adding over machines, with those of {self._elsewhere()}"
        coming, results = self._send_terms(row, stretches[0], 0, each), []
        for number, begins in enumerate(stretches):
            going = self._send_terms(row, stretches[number + 1], number + 1, each) if number + 1 < len(stretches) else []
            self._wait(coming, what)
            coming = going
            terms = self._terms[0] + number % 2 * (k + 1) * each
            first, length = row + begins[own], begins[own + 1] - begins[own]
            if length % _LINE:  # the last share: whole lines would go beyond it
                ctypes.memmove(terms + own * each, first, length)
                result = terms + k * each
                function(result, terms, each, k, 0, -(-length // _LINE) * _LINE, 0.0, terms + own * each, own, result)
                ctypes.memmove(first, result, length)
            elif length:
                function(first, terms, each, k, 0, length, 0.0, first, own, first)
            results += self._exchange([(row + begins[own], length)] * k, [(row + begins[i], begins[i + 1] - begins[i]) for i in range(k)], 4)
        self._wait(results, what)

    def _send_terms(self, row: int, begins: Sequence[int], number: int, each: int) -> list[Any]:
        """By leaders: each other's share of a stretch goes to it, and its terms of this one's share come."""
        assert self._terms is not None
        k, own = len(self.members), self.machine
        length = begins[own + 1] - begins[own]
        terms = self._terms[0] + number % 2 * (k + 1) * each
        return self._exchange([(row + begins[i], begins[i + 1] - begins[i]) for i in range(k)], [(terms + i * each, length) for i in range(k)], 3)

    def _exchange(self, sends: Sequence[Piece], receives: Sequence[Piece], tag: int) -> list[Any]:
        """By leaders: bytes to each other machine, and bytes from it."""
        assert self.leaders is not None
        others = [i for i in range(len(self.members)) if i != self.machine]
        requests = [self.leaders.Irecv(mpi.memory(*receives[i]), i, tag) for i in others if receives[i][1]]
        return requests + [self.leaders.Isend(mpi.memory(*sends[i]), i, tag) for i in others if sends[i][1]]

    # -- from one rank to another of this machine ---------------------------------------------------------------------------
    def is_here(self, rank: int) -> bool:
        """Whether a rank is on this machine."""
        return rank in self.places

    def channel(self, source: int, target: int) -> int:
        """The address of what is on its way from one rank to another of this machine."""
        return self.window.channel(self.places[source], self.places[target])

    def wait_word(self, address: int, least: int, peer: int, what: str, limit: float) -> None:
        """Wait until a number in the window is at least `least`; `peer` is who changes it."""
        self.window.wait_word(address, least, self.places[peer], what, limit)

    def post(self, address: int, value: int) -> None:
        """Set a number in the window."""
        self.window.post(address, value)

    def close(self) -> None:
        """Leave the group."""
        self.window.close()


def _copy(pieces: Sequence[Piece], row: int, back: bool) -> None:
    """Pieces into one row of bytes, or back."""
    for address, count in pieces:
        ctypes.memmove(address if back else row, row if back else address, count)
        row += count


def _part(pieces: Sequence[Piece], starts: Sequence[int], start: int, count: int) -> tuple[int, Any]:
    """(address, owner) of some bytes of a row: where they lie, if that is in one piece, else a copy."""
    piece = bisect_right(starts, start) - 1
    inside = start - starts[piece]
    if inside + count <= pieces[piece][1]:
        return pieces[piece][0] + inside, None
    address, owner = scratch(count)
    done = 0
    while done < count:
        n = min(pieces[piece][1] - inside, count - done)
        ctypes.memmove(address + done, pieces[piece][0] + inside, n)
        done, piece, inside = done + n, piece + 1, 0
    return address, owner
