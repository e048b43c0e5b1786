"""Shared windows of ranks (distributed/window.py): meeting, and the pipeline of all_reduce.

The words of a job (`Word`) are 64-bit integers in memory that the caller owns. What waits for other ranks gives up after a slice of time and
says so; called again it goes on where it was. So Python looks after signals, dead ranks and timeouts in between.
"""

from __future__ import annotations

import platform
from enum import IntEnum
from typing import Final

from flambeau.compiler.emit.builder import module
from flambeau.compiler.emit.code import Array, Code
from flambeau.compiler.emit.lanes import Lanes
from flambeau.runtime.jit import symbol
from flambeau.runtime.native import spin_hint
from flambeau.runtime.target import Target

# -- layout -----------------------------------------------------------------------------------------------------------------
LINE: Final = 256  # bytes of a rank's control block; in it: arrivals, and the hash of what it came for at even and at odd meetings
HASH_AT: Final = 64
SLOT: Final = 1 << 20  # bytes of a slot; a rank has two, and the window two for results
SMALL: Final = 1 << 14  # bytes up to which each rank adds everything itself: one meeting instead of two

DONE, NOT_YET, GONE, MISMATCH = range(4)  # what `meet` and `all_reduce` answer
_SPINS: Final = 2000  # looks before a rank asks for the time
_YIELD: Final = 200_000  # nanoseconds before it sleeps


class Word(IntEnum):
    """The words of a job."""

    CONTROL = 0  # address of the control blocks
    RANKS = 1
    RANK = 2
    TARGET = 3  # how many meetings there have been
    HASH = 4
    GONE = 5  # address of a word that is not 0 once a rank is known to be gone
    SLICE = 6  # nanoseconds that a wait may take
    SLOTS = 7  # address of rank 0's slots
    RESULTS = 8  # address of the slots of results
    PARITY = 9  # which slot is written next
    BYTES = 10  # of what is reduced
    SOURCE_AT = 13  # bytes of the current source that have been read
    TARGET_AT = 14
    CHUNK = 15  # the next chunk that is reduced
    STAGE = 16  # 0: before the first meeting of the call; 1: a meeting has begun
    REDUCE = 17  # address of the function that adds slots
    FACTOR = 18  # a float64: what each term is multiplied with
    MET = 19  # whether this rank's arrival has been told
    SOURCE_PIECE = 20  # address of the current source's (address, bytes)
    TARGET_PIECE = 21
    PIECE = 22  # an (address, bytes) pair of the job's own, for what is one piece
    DIRECT = 24  # the address of what is one piece, of which the rank's own share is added and stored where it lies; else 0


WORDS: Final = 25


def _acquire(word: Array) -> Lanes:
    """A number that another rank sets, and all that it wrote before."""
    return Lanes(word.c.b, "i64", 1, word.c.b.op(f"load atomic i64, ptr {word.pointer} acquire, align 8"))


def _release(word: Array, number: Lanes) -> None:
    """Set a number that others wait for, after all that was written before."""
    word.c.b.emit(f"store atomic i64 {number.name}, ptr {word.pointer} release, align 8")


def _await(c: Code, line: Array, target: Lanes, gone: Array, time: Lanes) -> Lanes:
    """DONE once the number at `line` is at least `target`, NOT_YET after `time`, GONE if it is not and a rank is gone."""
    b = c.b
    hint, declaration = spin_hint(platform.machine())
    b.declarations.update(text for text in (declaration,) if text)
    moment = c.local_array("i64", 2)
    answer, spins, start = c.cell("i64", DONE), c.cell("i64"), c.cell("i64")
    with c.while_(lambda: _acquire(line).compare("ult", target) & answer.get().eq(DONE)):
        spins.add(1)
        with c.if_(spins.get().lt(_SPINS)):
            b.emit(hint)
        with c.else_():
            with c.if_(_acquire(gone).ne(0)):
                answer.set(_acquire(line).compare("ult", target).select(c.i64(GONE), DONE))
            with c.else_():
                b.call("i32", "clock_gettime", [("i32", "1"), ("ptr", moment.pointer)])
                now = moment[0] * 1_000_000_000 + moment[1]
                start.set(start.get().eq(0).select(now, start.get()))
                since = now - start.get()
                with c.if_(since.compare("ugt", time)):
                    answer.set(NOT_YET)
                with c.else_():
                    with c.if_(since.lt(_YIELD)):
                        b.call("i32", "sched_yield", [])
                    with c.else_():
                        moment.store(0, 0)
                        moment.store(1, c.min(since.logical_right(4), 1_000_000))
                        b.call("i32", "nanosleep", [("ptr", moment.pointer), ("ptr", "null")])
    return answer.get()


class _Job:
    """The body of a function of a job."""

    def __init__(self) -> None:
        self.c = Code([], Target.host())
        self.words = Array(self.c, "%job", "i64")
        self.ranks, self.rank = self.words[Word.RANKS], self.words[Word.RANK]
        self.bytes = self.words[Word.BYTES]

    def at(self, word: Word, element: str = "i8") -> Array:
        """The memory whose address a word holds."""
        return Array(self.c, self.c.b.load("ptr", self.words.address(word), 8), element)

    def function(self, key: str, answer: Lanes) -> str:
        text = self.c.b.function(f"define i64 @{symbol(key)}(ptr %job) #0", f"ret i64 {answer.name}")
        return module([text], self.c.b.declarations, self.c.b.target)

    # -- meeting --------------------------------------------------------------------------------------------------
    def meet(self) -> Lanes:
        """Tell the others that this rank has come, and wait for them."""
        c, words = self.c, self.words
        control, gone = self.at(Word.CONTROL), self.at(Word.GONE)
        target, own_hash = words[Word.TARGET] + 1, words[Word.HASH]
        hash_at = (target & 1) + HASH_AT // 8
        with c.if_(words[Word.MET].eq(0)):
            mine = control.at(self.rank * LINE, "i64")
            mine.store(hash_at, own_hash)
            _release(mine, target)
            words.store(Word.MET, 1)
        answer, rank, agree = c.cell("i64", DONE), c.cell("i64"), c.cell("i1", 1)
        with c.while_(lambda: rank.get().lt(self.ranks) & answer.get().eq(DONE)):
            line = control.at(rank.get() * LINE, "i64")
            answer.set(_await(c, line, target, gone, words[Word.SLICE]))
            with c.if_(answer.get().eq(DONE)):
                agree.set(agree.get() & line[hash_at].eq(own_hash))
                rank.add(1)
        with c.if_(answer.get().eq(DONE)):
            words.store(Word.TARGET, target)
            words.store(Word.MET, 0)
            answer.set(agree.get().select(c.i64(DONE), MISMATCH))
        return answer.get()

    # -- moving -----------------------------------------------------------------------------------------------------
    def move(self, slot: Array, count: Lanes, inwards: bool) -> None:
        """From pieces of the own memory to a slot, or back. The cursor (piece, bytes of it) is in the job."""
        c, words = self.c, self.words
        cursor, piece = (Word.SOURCE_AT, Word.SOURCE_PIECE) if inwards else (Word.TARGET_AT, Word.TARGET_PIECE)
        done = c.cell("i64")
        with c.while_(lambda: done.get().ne(count)):
            pair, at = self.at(piece, "i64"), words[cursor]
            size = pair[1]
            n = c.min(size - at, count - done.get())
            own = Array(c, c.b.load("ptr", pair.pointer, 8), "i8").at(at)
            self.copy(own, slot.at(done.get()), n, inwards)
            done.add(n)
            full = (at + n).ge(size)
            words.store(cursor, full.select(0, at + n))
            following = c.b.op(f"select i1 {full.name}, ptr {pair.address(2)}, ptr {pair.pointer}")
            c.b.store("ptr", following, words.address(piece), 8)

    def copy(self, own: Array, shared: Array, count: Lanes, inwards: bool) -> None:
        self.c.copy_bytes(*((shared, own) if inwards else (own, shared)), count)

    def share_begin(self, count: Lanes, rank: Lanes) -> Lanes:
        """Where the share of a rank begins in a chunk of `count` bytes."""
        each = (self.c.divide(count + self.ranks - 1, self.ranks) + 63) & -64
        return self.c.min(rank * each, (count + 63) & -64)

    def chunk_bytes(self, chunk: Lanes) -> Lanes:
        return self.c.min(self.bytes - chunk * SLOT, SLOT)

    def direct(self, chunk: Lanes) -> tuple[Lanes, Array]:
        """Whether a chunk is one piece of whole vectors, and where it lies then. A rank's own share of it is neither brought nor given: it is added and
        stored where it lies."""
        whole = (self.chunk_bytes(chunk) & 63).eq(0) & self.bytes.gt(SMALL) & self.words[Word.DIRECT].ne(0)
        return whole, self.at(Word.DIRECT).at(chunk * SLOT)

    def move_chunk(self, chunk: Lanes, slot: Array, inwards: bool) -> None:
        """A chunk between the own memory and the shared."""
        c, cursor = self.c, Word.SOURCE_AT if inwards else Word.TARGET_AT
        count = self.chunk_bytes(chunk)
        is_direct, own = self.direct(chunk)
        with c.if_(is_direct):
            begin, end = self.share_begin(count, self.rank), self.share_begin(count, self.rank + 1)
            self.copy(own, slot, begin, inwards)
            self.copy(own.at(end), slot.at(end), count - end, inwards)
            self.words.store(cursor, self.words[cursor] + count)
        with c.else_():
            self.move(slot, count, inwards)

    # -- adding -----------------------------------------------------------------------------------------------------
    def reduce(self, out: Array, slots: Array, span: tuple[Lanes, Lanes], own: str, second: str) -> None:
        """A span of bytes of all ranks' slots, added (window_sums.py)."""
        factor = self.c.b.load("double", self.words.address(Word.FACTOR), 8)
        self.c.b.call_address(self.at(Word.REDUCE).pointer, [
            ("ptr", out.pointer), ("ptr", slots.pointer), ("i64", str(2 * SLOT)), ("i64", self.ranks.name), ("i64", span[0].name), ("i64", span[1].name),
            ("double", factor), ("ptr", own), ("i64", self.rank.name), ("ptr", second),
        ])  # fmt: skip

    def all_reduce(self) -> Lanes:
        """Chunk k is reduced, and chunk k + 1 brought in, between two meetings: one meeting a chunk, and one more at the beginning."""
        c, b, words = self.c, self.c.b, self.words
        slots, results = self.at(Word.SLOTS), self.at(Word.RESULTS)
        own = slots.at(self.rank * (2 * SLOT))
        with c.if_(words[Word.STAGE].eq(0)):
            self.move_chunk(c.i64(0), own.at(words[Word.PARITY] * SLOT), inwards=True)
            words.store(Word.STAGE, 1)
        answer = c.cell("i64", -1)
        with c.while_(lambda: answer.get().lt(0)):
            met = self.meet()
            with c.if_(met.ne(DONE)):
                answer.set(met)
            with c.else_():
                # In stage 1 slots of the chunk are there, in stage 2 also the result of the chunk before.
                chunk, parity = words[Word.CHUNK], words[Word.PARITY]
                with c.if_(words[Word.STAGE].eq(2)):
                    self.move_chunk(chunk - 1, results.at((parity ^ 1) * SLOT), inwards=False)
                with c.if_((chunk * SLOT).lt(self.bytes)):
                    count, slot_at = self.chunk_bytes(chunk), parity * SLOT
                    words.store(Word.PARITY, parity ^ 1)
                    own_slot = own.address(slot_at)
                    with c.if_(self.bytes.le(SMALL)):
                        private = results.at(self.rank * SMALL + 2 * SLOT)
                        self.reduce(private, slots.at(slot_at), (c.i64(0), (count + 63) & -64), own_slot, private.pointer)
                        self.move(private, count, inwards=False)
                        words.store(Word.STAGE, 0)
                        answer.set(DONE)
                    with c.else_():
                        span = self.share_begin(count, self.rank), self.share_begin(count, self.rank + 1)
                        result = results.at(slot_at)
                        is_direct, there = self.direct(chunk)
                        term, second = (b.op(f"select i1 {is_direct.name}, ptr {there.pointer}, ptr {other}") for other in (own_slot, result.pointer))
                        self.reduce(result, slots.at(slot_at), span, term, second)
                        words.store(Word.CHUNK, chunk + 1)
                        words.store(Word.STAGE, 2)
                        with c.if_(((chunk + 1) * SLOT).lt(self.bytes)):
                            self.move_chunk(chunk + 1, own.at((parity ^ 1) * SLOT), inwards=True)
                with c.else_():
                    words.store(Word.STAGE, 0)
                    answer.set(DONE)
        return answer.get()


def emit_meet(key: str) -> str:
    """`i64 meet(job)`: tell the others that this rank has come, and wait for them."""
    job = _Job()
    return job.function(key, job.meet())


def emit_all_reduce(key: str) -> str:
    """`i64 all_reduce(job)`: the sum over all ranks of what the job's sources hold, into its targets."""
    job = _Job()
    return job.function(key, job.all_reduce())


def emit_await(key: str) -> str:
    """`i64 await(address, least, address of the gone word, nanoseconds)`: wait until the number at an address is at least `least`."""
    c = Code([], Target.host())
    answer = _await(c, Array(c, "%line", "i64"), c.named("i64", "%target"), Array(c, "%gone", "i64"), c.named("i64", "%time"))
    text = c.b.function(f"define i64 @{symbol(key)}(ptr %line, i64 %target, ptr %gone, i64 %time) #0", f"ret i64 {answer.name}")
    return module([text], c.b.declarations, c.b.target)


def emit_post(key: str) -> str:
    """`void post(address, number)`: set a number that others wait for, after all that was written before."""
    c = Code([], Target.host())
    _release(Array(c, "%word", "i64"), c.named("i64", "%number"))
    return module([c.b.function(f"define void @{symbol(key)}(ptr %word, i64 %number) #0")], c.b.declarations, c.b.target)
