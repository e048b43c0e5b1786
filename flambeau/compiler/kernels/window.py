"""Shared windows of ranks (distributed/window.py): meeting, and the pipeline of all_reduce.

The words of a job (`Word`) are 64-bit integers in memory that the caller owns. What waits for other ranks gives up after a slice of time and
says so; called again it goes on where it was. So Python looks after signals, dead ranks and timeouts in between.
"""

from __future__ import annotations

import platform
from enum import IntEnum
from string import Template
from typing import Final

from flambeau.runtime.jit import symbol
from flambeau.runtime.native import spin_hint

# -- layout -----------------------------------------------------------------------------------------------------------------
LINE: Final = 256  # bytes of a rank's control block; in it: arrivals, and the hash of what it came for at even and at odd meetings
HASH_AT: Final = 64
SLOT: Final = 1 << 20  # bytes of a slot; a rank has two, and the window two for results
SMALL: Final = 1 << 14  # bytes up to which each rank adds everything itself: one meeting instead of two

DONE, NOT_YET, GONE, MISMATCH = range(4)  # what `meet` and `all_reduce` answer


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

_MEET: Final = """
declare i32 @sched_yield()
declare i32 @nanosleep(ptr, ptr)
declare i32 @clock_gettime(i32, ptr)
$DECLARATION

define internal i64 @now() {
  %t = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 1, ptr %t)
  %s = load i64, ptr %t
  %np = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %np
  %a = mul i64 %s, 1000000000
  %b = add i64 %a, %n
  ret i64 %b
}

; 0: the number at %line is at least %target; 1: not within the slice; 2: it is not, and a rank is gone
define internal i64 @await(ptr %line, i64 %target, ptr %gone, i64 %slice) {
entry:
  %sleep = alloca [2 x i64]
  br label %look
look:
  %spins = phi i64 [0, %entry], [%spins1, %again]
  %start = phi i64 [0, %entry], [%start1, %again]
  %seen = load atomic i64, ptr %line acquire, align 8
  %there = icmp uge i64 %seen, %target
  br i1 %there, label %came, label %wait
wait:
  %spins1 = add i64 %spins, 1
  %few = icmp ult i64 %spins1, $SPINS
  br i1 %few, label %spin, label %patient
spin:
  $HINT
  br label %again
patient:
  %dead = load atomic i64, ptr %gone acquire, align 8
  %is_dead = icmp ne i64 %dead, 0
  br i1 %is_dead, label %lost, label %clock
clock:
  %time = call i64 @now()
  %unset = icmp eq i64 %start, 0
  %start2 = select i1 %unset, i64 %time, i64 %start
  %since = sub i64 %time, %start2
  %over = icmp ugt i64 %since, %slice
  br i1 %over, label %late, label %rest
rest:
  %soon = icmp ult i64 %since, $YIELD
  br i1 %soon, label %yield, label %nap
yield:
  %y = call i32 @sched_yield()
  br label %again
nap:
  store i64 0, ptr %sleep
  %lp = getelementptr i64, ptr %sleep, i64 1
  %long0 = lshr i64 %since, 4
  %long = call i64 @llvm.umin.i64(i64 %long0, i64 1000000)
  store i64 %long, ptr %lp
  %z = call i32 @nanosleep(ptr %sleep, ptr null)
  br label %again
again:
  %start1 = phi i64 [%start, %spin], [%start2, %yield], [%start2, %nap]
  br label %look
came:
  ret i64 0
late:
  ret i64 1
lost:
  %last = load atomic i64, ptr %line acquire, align 8
  %after = icmp uge i64 %last, %target
  %answer = select i1 %after, i64 0, i64 2
  ret i64 %answer
}

define internal i64 @$MEET(ptr %job) {
entry:
  %control = load ptr, ptr %job
  %np = getelementptr i64, ptr %job, i64 1
  %n = load i64, ptr %np
  %rp = getelementptr i64, ptr %job, i64 2
  %rank = load i64, ptr %rp
  %tp = getelementptr i64, ptr %job, i64 3
  %before = load i64, ptr %tp
  %target = add i64 %before, 1
  %hp = getelementptr i64, ptr %job, i64 4
  %hash = load i64, ptr %hp
  %gp = getelementptr i64, ptr %job, i64 5
  %gone = load ptr, ptr %gp
  %sp = getelementptr i64, ptr %job, i64 6
  %slice = load i64, ptr %sp
  %mp = getelementptr i64, ptr %job, i64 19
  %met = load i64, ptr %mp
  %parity = and i64 %target, 1
  %hw = add i64 %parity, $HASH_WORD
  %told = icmp ne i64 %met, 0
  br i1 %told, label %begin, label %tell
tell:
  %mb = mul i64 %rank, $LINE
  %mine = getelementptr i8, ptr %control, i64 %mb
  %mh = getelementptr i64, ptr %mine, i64 %hw
  store i64 %hash, ptr %mh
  store atomic i64 %target, ptr %mine release, align 8
  store i64 1, ptr %mp
  br label %begin
begin:
  br label %each
each:
  %i = phi i64 [0, %begin], [%i1, %came]
  %same = phi i64 [1, %begin], [%same1, %came]
  %ib = mul i64 %i, $LINE
  %line = getelementptr i8, ptr %control, i64 %ib
  %status = call i64 @await(ptr %line, i64 %target, ptr %gone, i64 %slice)
  %here = icmp eq i64 %status, 0
  br i1 %here, label %came, label %not
came:
  %oh = getelementptr i64, ptr %line, i64 %hw
  %other = load i64, ptr %oh
  %equal = icmp eq i64 %other, %hash
  %equal1 = zext i1 %equal to i64
  %same1 = and i64 %same, %equal1
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %each, label %all
all:
  store i64 %target, ptr %tp
  store i64 0, ptr %mp
  %agree = icmp eq i64 %same1, 1
  %answer = select i1 %agree, i64 0, i64 3
  ret i64 %answer
not:
  ret i64 %status
}
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""

# `in`: pieces -> slot; else slot -> pieces. The cursor (piece, bytes of it) is in the job at words `AT` and `PIECE`.
_MOVE: Final = """
define internal void @$NAME(ptr %job, ptr %slot, i64 %count) {
entry:
  %ap = getelementptr i64, ptr %job, i64 $AT
  %pp = getelementptr i64, ptr %job, i64 $PIECE
  br label %loop
loop:
  %done = phi i64 [0, %entry], [%done1, %next]
  %left = sub i64 %count, %done
  %empty = icmp eq i64 %left, 0
  br i1 %empty, label %end, label %piece
piece:
  %pair = load ptr, ptr %pp
  %at = load i64, ptr %ap
  %address = load ptr, ptr %pair
  %bp = getelementptr i64, ptr %pair, i64 1
  %bytes = load i64, ptr %bp
  %rest = sub i64 %bytes, %at
  %n = call i64 @llvm.umin.i64(i64 %rest, i64 %left)
  %own = getelementptr i8, ptr %address, i64 %at
  %shared = getelementptr i8, ptr %slot, i64 %done
  call void @llvm.memcpy.p0.p0.i64(ptr $TO, ptr $FROM, i64 %n, i1 false)
  %done1 = add i64 %done, %n
  %at1 = add i64 %at, %n
  %full = icmp uge i64 %at1, %bytes
  br i1 %full, label %finish, label %keep
finish:
  %following = getelementptr i64, ptr %pair, i64 2
  store ptr %following, ptr %pp
  store i64 0, ptr %ap
  br label %next
keep:
  store i64 %at1, ptr %ap
  br label %next
next:
  br label %loop
end:
  ret void
}
"""

# Where a chunk is one piece of whole vectors, a rank's own share of it is neither brought nor given: it is added and stored where it lies.
_SHARES: Final = """
; where the share of a rank begins in a chunk of `count` bytes
define internal i64 @share_begin(i64 %count, i64 %n, i64 %rank) {
  %a = add i64 %count, %n
  %b = sub i64 %a, 1
  %c = udiv i64 %b, %n
  %d = add i64 %c, 63
  %each = and i64 %d, -64
  %e = add i64 %count, 63
  %padded = and i64 %e, -64
  %f = mul i64 %rank, %each
  %begin = call i64 @llvm.umin.i64(i64 %f, i64 %padded)
  ret i64 %begin
}

define internal i64 @chunk_bytes(ptr %job, i64 %chunk) {
  %bp = getelementptr i64, ptr %job, i64 10
  %bytes = load i64, ptr %bp
  %at = mul i64 %chunk, $SLOT
  %left = sub i64 %bytes, %at
  %count = call i64 @llvm.umin.i64(i64 %left, i64 $SLOT)
  ret i64 %count
}

; the address of a chunk that is one piece of whole vectors, else null
define internal ptr @direct_at(ptr %job, i64 %chunk) {
  %dp = getelementptr i64, ptr %job, i64 24
  %direct = load ptr, ptr %dp
  %count = call i64 @chunk_bytes(ptr %job, i64 %chunk)
  %rest = and i64 %count, 63
  %whole = icmp eq i64 %rest, 0
  %bp = getelementptr i64, ptr %job, i64 10
  %bytes = load i64, ptr %bp
  %large = icmp ugt i64 %bytes, $SMALL
  %one = icmp ne ptr %direct, null
  %both = and i1 %whole, %large
  %can = and i1 %both, %one
  %at = mul i64 %chunk, $SLOT
  %address = getelementptr i8, ptr %direct, i64 %at
  %result = select i1 %can, ptr %address, ptr null
  ret ptr %result
}

define internal void @around(ptr %job, ptr %to, ptr %from, i64 %count) {
  %np = getelementptr i64, ptr %job, i64 1
  %n = load i64, ptr %np
  %rp = getelementptr i64, ptr %job, i64 2
  %rank = load i64, ptr %rp
  %rank1 = add i64 %rank, 1
  %begin = call i64 @share_begin(i64 %count, i64 %n, i64 %rank)
  %end = call i64 @share_begin(i64 %count, i64 %n, i64 %rank1)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %begin, i1 false)
  %to1 = getelementptr i8, ptr %to, i64 %end
  %from1 = getelementptr i8, ptr %from, i64 %end
  %rest = sub i64 %count, %end
  call void @llvm.memcpy.p0.p0.i64(ptr %to1, ptr %from1, i64 %rest, i1 false)
  ret void
}
"""

# `bring_chunk`, `give_chunk`: a chunk between the own memory and the shared.
_MOVE_CHUNK: Final = """
define internal void @${NAME}_chunk(ptr %job, i64 %chunk, ptr %slot) {
  %count = call i64 @chunk_bytes(ptr %job, i64 %chunk)
  %address = call ptr @direct_at(ptr %job, i64 %chunk)
  %direct = icmp ne ptr %address, null
  %ap = getelementptr i64, ptr %job, i64 $AT
  br i1 %direct, label %share, label %pieces
share:
  call void @around(ptr %job, ptr $TO, ptr $FROM, i64 %count)
  %at = load i64, ptr %ap
  %at1 = add i64 %at, %count
  store i64 %at1, ptr %ap
  ret void
pieces:
  call void @$NAME(ptr %job, ptr %slot, i64 %count)
  ret void
}
"""

# Chunk k is reduced, and chunk k + 1 brought in, between two meetings: one meeting a chunk, and one more at the beginning.
_ALL_REDUCE: Final = """
define i64 @$NAME(ptr %job) {
entry:
  %np = getelementptr i64, ptr %job, i64 1
  %n = load i64, ptr %np
  %rp = getelementptr i64, ptr %job, i64 2
  %rank = load i64, ptr %rp
  %slots_p = getelementptr i64, ptr %job, i64 7
  %slots = load ptr, ptr %slots_p
  %results_p = getelementptr i64, ptr %job, i64 8
  %results = load ptr, ptr %results_p
  %pp = getelementptr i64, ptr %job, i64 9
  %bp = getelementptr i64, ptr %job, i64 10
  %bytes = load i64, ptr %bp
  %cp = getelementptr i64, ptr %job, i64 15
  %stage_p = getelementptr i64, ptr %job, i64 16
  %stage = load i64, ptr %stage_p
  %fp = getelementptr i64, ptr %job, i64 17
  %reduce = load ptr, ptr %fp
  %xp = getelementptr i64, ptr %job, i64 18
  %factor = load double, ptr %xp
  %stride = mul i64 $SLOT, 2
  %own_at = mul i64 %rank, %stride
  %own = getelementptr i8, ptr %slots, i64 %own_at
  %begun = icmp ne i64 %stage, 0
  br i1 %begun, label %meet, label %first
first:
  %parity0 = load i64, ptr %pp
  %at0 = mul i64 %parity0, $SLOT
  %slot0 = getelementptr i8, ptr %own, i64 %at0
  call void @bring_chunk(ptr %job, i64 0, ptr %slot0)
  store i64 1, ptr %stage_p
  br label %meet
meet:
  %status = call i64 @$MEET(ptr %job)
  %ok = icmp eq i64 %status, 0
  br i1 %ok, label %reduced, label %out
out:
  ret i64 %status
reduced:
  %chunk = load i64, ptr %cp
  %stage1 = load i64, ptr %stage_p
  %parity = load i64, ptr %pp
  ; stage 1: slots of the chunk are there. stage 2: also the result of the chunk before.
  %later = icmp eq i64 %stage1, 2
  br i1 %later, label %take, label %which
take:
  %previous = sub i64 %chunk, 1
  %pparity = xor i64 %parity, 1
  %pslot_at = mul i64 %pparity, $SLOT
  %pslot = getelementptr i8, ptr %results, i64 %pslot_at
  call void @give_chunk(ptr %job, i64 %previous, ptr %pslot)
  br label %which
which:
  %at = mul i64 %chunk, $SLOT
  %more = icmp ult i64 %at, %bytes
  br i1 %more, label %add, label %end
add:
  %left = sub i64 %bytes, %at
  %count = call i64 @llvm.umin.i64(i64 %left, i64 $SLOT)
  %slot_at = mul i64 %parity, $SLOT
  %slot = getelementptr i8, ptr %slots, i64 %slot_at
  %result = getelementptr i8, ptr %results, i64 %slot_at
  %small = icmp ule i64 %bytes, $SMALL
  br i1 %small, label %alone, label %share
alone:
  %whole = add i64 %count, 63
  %whole1 = and i64 %whole, -64
  %private_at = mul i64 %rank, $SMALL
  %private0 = getelementptr i8, ptr %results, i64 $RESULTS
  %private = getelementptr i8, ptr %private0, i64 %private_at
  %own_slot0 = getelementptr i8, ptr %own, i64 %slot_at
  call void %reduce(ptr %private, ptr %slot, i64 %stride, i64 %n, i64 0, i64 %whole1, double %factor, ptr %own_slot0, i64 %rank, ptr %private)
  call void @give(ptr %job, ptr %private, i64 %count)
  %flip = xor i64 %parity, 1
  store i64 %flip, ptr %pp
  store i64 0, ptr %stage_p
  ret i64 0
share:
  %from = call i64 @share_begin(i64 %count, i64 %n, i64 %rank)
  %rank1 = add i64 %rank, 1
  %to = call i64 @share_begin(i64 %count, i64 %n, i64 %rank1)
  %private2 = call ptr @direct_at(ptr %job, i64 %chunk)
  %is_direct = icmp ne ptr %private2, null
  %own_slot = getelementptr i8, ptr %own, i64 %slot_at
  %term = select i1 %is_direct, ptr %private2, ptr %own_slot
  %second = select i1 %is_direct, ptr %private2, ptr %result
  call void %reduce(ptr %result, ptr %slot, i64 %stride, i64 %n, i64 %from, i64 %to, double %factor, ptr %term, i64 %rank, ptr %second)
  %next = add i64 %chunk, 1
  store i64 %next, ptr %cp
  %nparity = xor i64 %parity, 1
  store i64 %nparity, ptr %pp
  store i64 2, ptr %stage_p
  %nat = mul i64 %next, $SLOT
  %again = icmp ult i64 %nat, %bytes
  br i1 %again, label %prefetch, label %meet
prefetch:
  %nslot_at = mul i64 %nparity, $SLOT
  %nslot = getelementptr i8, ptr %own, i64 %nslot_at
  call void @bring_chunk(ptr %job, i64 %next, ptr %nslot)
  br label %meet
end:
  store i64 0, ptr %stage_p
  ret i64 0
}
"""


def _fill(text: str, **names: object) -> str:
    hint, declaration = spin_hint(platform.machine())
    sizes: dict[str, object] = {
        "HINT": hint, "DECLARATION": declaration, "LINE": LINE, "HASH_WORD": HASH_AT // 8, "SLOT": SLOT, "SMALL": SMALL, "SPINS": 2000, "YIELD": 200_000,
        "RESULTS": 2 * SLOT,
    }  # fmt: skip
    return Template(text).substitute(**{**sizes, **names})


def emit_meet(key: str) -> str:
    """`i64 meet(job)`: tell the others that this rank has come, and wait for them."""
    return _fill(_MEET, MEET="meet") + f"define i64 @{symbol(key)}(ptr %job) {{\n  %r = call i64 @meet(ptr %job)\n  ret i64 %r\n}}\n"


def emit_await(key: str) -> str:
    """`i64 await(address, least, address of the gone word, nanoseconds)`: wait until the number at an address is at least `least`."""
    head = f"define i64 @{symbol(key)}(ptr %line, i64 %target, ptr %gone, i64 %slice) {{\n"
    return _fill(_MEET, MEET="meet") + head + "  %r = call i64 @await(ptr %line, i64 %target, ptr %gone, i64 %slice)\n  ret i64 %r\n}\n"


def emit_post(key: str) -> str:
    """`void post(address, number)`: set a number that others wait for, after all that was written before."""
    return f"define void @{symbol(key)}(ptr %word, i64 %number) {{\n  store atomic i64 %number, ptr %word release, align 8\n  ret void\n}}\n"


def emit_all_reduce(key: str) -> str:
    """`i64 all_reduce(job)`: the sum over all ranks of what the job's sources hold, into its targets."""
    parts = [
        _fill(_MEET, MEET="meet"),
        _fill(_MOVE, NAME="bring", AT=Word.SOURCE_AT.value, PIECE=Word.SOURCE_PIECE.value, TO="%shared", FROM="%own"),
        _fill(_MOVE, NAME="give", AT=Word.TARGET_AT.value, PIECE=Word.TARGET_PIECE.value, TO="%own", FROM="%shared"),
        _fill(_SHARES),
        _fill(_MOVE_CHUNK, NAME="bring", AT=Word.SOURCE_AT.value, TO="%slot", FROM="%address"),
        _fill(_MOVE_CHUNK, NAME="give", AT=Word.TARGET_AT.value, TO="%address", FROM="%slot"),
        _fill(_ALL_REDUCE, NAME=symbol(key), MEET="meet"),
    ]
    return "\n".join(parts)
