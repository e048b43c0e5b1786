"""LLVM IR of the runtime's own native code: the runner of plans, and the loop in which worker threads live.

All structures are arrays of 8-byte words.

    program:    [relocations, their address, dynamics, their address, phases, their address, address of the tasks,
                 of the words, of the io block, number of io words]
    relocation: [word, io index, bytes]          words[word] = io[index] + bytes
    dynamic:    [word, io index, multiplier]     words[word] += io[index] * multiplier
    phase:      [first task, tasks, lanes, chunks, address of lanes + 1 chunk numbers]; 1 lane: the caller runs it
    task:       [function, arguments, units, units a chunk, first chunk of the phase]

A parallel phase is a number of chunks. Lane i owns the chunks from bounds[i] to bounds[i + 1], so that the same thread
touches the same data in each phase; a thread that has finished its own takes from the next lane. Nobody waits for a
worker that has not come: a phase is over when its chunks are done, so a busy processor slows us in proportion only.

The team's memory has the fields below, 64 bytes a lane [epoch << 32 | next chunk, end], and 64 bytes a thread
[1 if asleep, -, sem_t]. Thread 0 is the caller. Every phase has a new epoch. A chunk is taken by compare-and-exchange
of a word that has the epoch in it: a worker that wakes late cannot take one of another phase, and reads nothing but
the team's memory before it has one. A phase cannot end while somebody has a chunk, so what he reads of the program
then stays there.
"""

from __future__ import annotations

from string import Template
from typing import Final

MOST_LANES: Final = 64
# Byte offsets in the team's memory. What different threads write is 64 bytes apart (a cache line).
FIELDS: Final = {
    "EPOCH": 0,  # number of the newest phase
    "TASKS": 64, "FIRST": 72, "COUNT": 80, "LANES": 88,  # that phase
    "UNDONE": 128,  # its chunks that are not finished
    "ERROR": 192,  # least number of a failing task; all ones: none
    "BUSY": 256,  # 1 while a caller has the team
    "STOP": 320,  # 1: the workers shall leave
    "SPINS": 328,  # spin-wait hints before a thread sleeps
    "LIMIT": 336,  # threads that may work, the caller included
    "LANES_AT": 512,
    "THREADS_AT": 512 + 64 * MOST_LANES,
}  # fmt: skip
TEAM_BYTES: Final = 512 + 2 * 64 * MOST_LANES
SEMAPHORE: Final = 16  # offset in a thread's 64 bytes; a sem_t has 32 (glibc and musl, 64-bit)


def spin_hint(machine: str) -> tuple[str, str]:
    """The instruction of a thread that looks at memory again and again, and its declaration, for an architecture (platform.machine())."""
    if machine in ("x86_64", "AMD64"):
        return "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"
    if machine in ("aarch64", "arm64"):  # isb waits as long as x86's pause; yield does not wait at all
        return "call void @llvm.aarch64.isb(i32 15)", "declare void @llvm.aarch64.isb(i32)"
    return "", ""


def text(symbol: str, machine: str) -> str:
    """The module for an architecture (platform.machine()). It defines `symbol`: (ptr call) -> i64.

    `call` is [program, team, io words ...]; one argument, because each costs a caller in Python 70 ns. The io words are
    copied into the program's own io block. The result is 0, or 1 + the number of the task that failed.
    team null: the caller runs everything alone.
    program null: a worker's whole life, the io word being its lane; ends when STOP is set.
    """
    hint, declaration = spin_hint(machine)
    values = {name: str(offset) for name, offset in FIELDS.items()}
    return Template(_TEXT).substitute(values, RUN=symbol, HINT=hint, DECLARATION=declaration, SEMAPHORE=str(SEMAPHORE))


_TEXT: Final = r"""
define internal void @relocate(ptr %program, ptr %io) #0 {
entry:
  %n = load i64, ptr %program
  %rp = getelementptr i64, ptr %program, i64 1
  %r = load ptr, ptr %rp
  %dnp = getelementptr i64, ptr %program, i64 2
  %dn = load i64, ptr %dnp
  %dp = getelementptr i64, ptr %program, i64 3
  %d = load ptr, ptr %dp
  %wp = getelementptr i64, ptr %program, i64 7
  %words = load ptr, ptr %wp
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %plain, label %second
plain:
  %i = phi i64 [0, %entry], [%i1, %plain]
  %p0 = getelementptr [3 x i64], ptr %r, i64 %i
  %p1 = getelementptr i64, ptr %p0, i64 1
  %p2 = getelementptr i64, ptr %p0, i64 2
  %word = load i64, ptr %p0
  %index = load i64, ptr %p1
  %bytes = load i64, ptr %p2
  %iop = getelementptr i64, ptr %io, i64 %index
  %base = load i64, ptr %iop
  %address = add i64 %base, %bytes
  %to = getelementptr i64, ptr %words, i64 %word
  store i64 %address, ptr %to
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %plain, label %second
second:
  %dany = icmp sgt i64 %dn, 0
  br i1 %dany, label %dynamic, label %done
dynamic:
  %j = phi i64 [0, %second], [%j1, %dynamic]
  %q0 = getelementptr [3 x i64], ptr %d, i64 %j
  %q1 = getelementptr i64, ptr %q0, i64 1
  %q2 = getelementptr i64, ptr %q0, i64 2
  %dword = load i64, ptr %q0
  %dindex = load i64, ptr %q1
  %mult = load i64, ptr %q2
  %dio = getelementptr i64, ptr %io, i64 %dindex
  %value = load i64, ptr %dio
  %scaled = mul i64 %value, %mult
  %dto = getelementptr i64, ptr %words, i64 %dword
  %old = load i64, ptr %dto
  %new = add i64 %old, %scaled
  store i64 %new, ptr %dto
  %j1 = add i64 %j, 1
  %dmore = icmp slt i64 %j1, %dn
  br i1 %dmore, label %dynamic, label %done
done:
  ret void
}

; Run one chunk: find its task by bisection, call the kernel on its units. Returns 0, or 1 + the task's number.
define internal i64 @chunk(ptr %tasks, i64 %first, i64 %count, i64 %chunk, i64 %lane) #0 {
entry:
  br label %search
search:
  %low = phi i64 [0, %entry], [%low1, %look]
  %high = phi i64 [%count, %entry], [%high1, %look]
  %width = sub i64 %high, %low
  %one = icmp sle i64 %width, 1
  br i1 %one, label %found, label %look
look:
  %half = lshr i64 %width, 1
  %middle = add i64 %low, %half
  %m = add i64 %first, %middle
  %mp = getelementptr [5 x i64], ptr %tasks, i64 %m, i64 4
  %begins = load i64, ptr %mp
  %before = icmp slt i64 %chunk, %begins
  %low1 = select i1 %before, i64 %low, i64 %middle
  %high1 = select i1 %before, i64 %middle, i64 %high
  br label %search
found:
  %t = add i64 %first, %low
  %p = getelementptr [5 x i64], ptr %tasks, i64 %t
  %f = load ptr, ptr %p
  %ap = getelementptr i64, ptr %p, i64 1
  %args = load ptr, ptr %ap
  %up = getelementptr i64, ptr %p, i64 2
  %units = load i64, ptr %up
  %cp = getelementptr i64, ptr %p, i64 3
  %size = load i64, ptr %cp
  %sp = getelementptr i64, ptr %p, i64 4
  %start = load i64, ptr %sp
  %within = sub i64 %chunk, %start
  %begin = mul i64 %within, %size
  %end0 = add i64 %begin, %size
  %end = call i64 @llvm.smin.i64(i64 %end0, i64 %units)
  %status = call i64 %f(ptr %args, i64 %begin, i64 %end, i64 %lane)
  %bad = icmp ne i64 %status, 0
  %number = add i64 %t, 1
  %result = select i1 %bad, i64 %number, i64 0
  ret i64 %result
}

; Wake a thread if it sleeps.
define internal void @rouse(ptr %team, i64 %thread) #0 {
entry:
  %asleep = getelementptr [64 x i8], ptr %team, i64 %thread, i64 $THREADS_AT
  %now = load atomic i64, ptr %asleep seq_cst, align 8
  %sleeps = icmp ne i64 %now, 0
  br i1 %sleeps, label %try, label %done
try:
  %was = atomicrmw xchg ptr %asleep, i64 0 seq_cst, align 8
  %mine = icmp ne i64 %was, 0
  br i1 %mine, label %post, label %done
post:
  %semaphore = getelementptr i8, ptr %asleep, i64 $SEMAPHORE
  %ignored = call i32 @sem_post(ptr %semaphore)
  br label %done
done:
  ret void
}

; Wake the threads 2 i + 1 and 2 i + 2 that have a part in the phase: waking spreads as a tree.
define internal void @wake(ptr %team, i64 %thread) #0 {
entry:
  %lanesp = getelementptr i8, ptr %team, i64 $LANES
  %lanes = load atomic i64, ptr %lanesp monotonic, align 8
  %limitp = getelementptr i8, ptr %team, i64 $LIMIT
  %limit = load atomic i64, ptr %limitp monotonic, align 8
  %threads = call i64 @llvm.smin.i64(i64 %lanes, i64 %limit)
  %double = shl i64 %thread, 1
  %left = add i64 %double, 1
  %right = add i64 %double, 2
  %one = icmp slt i64 %left, %threads
  br i1 %one, label %first, label %done
first:
  call void @rouse(ptr %team, i64 %left)
  %two = icmp slt i64 %right, %threads
  br i1 %two, label %second, label %done
second:
  call void @rouse(ptr %team, i64 %right)
  br label %done
done:
  ret void
}

; Sleep if `watched` is (`equal`) or is not (else) `value`, unless STOP is set. May return early.
define internal void @sleep_while(ptr %team, i64 %thread, ptr %watched, i64 %value, i1 %equal) #0 {
entry:
  %asleep = getelementptr [64 x i8], ptr %team, i64 %thread, i64 $THREADS_AT
  store atomic i64 1, ptr %asleep seq_cst, align 8
  %now = load atomic i64, ptr %watched seq_cst, align 8
  %same = icmp eq i64 %now, %value
  %still = icmp eq i1 %same, %equal
  %stopp = getelementptr i8, ptr %team, i64 $STOP
  %stop = load atomic i64, ptr %stopp seq_cst, align 8
  %stays = icmp eq i64 %stop, 0
  %bed = and i1 %still, %stays
  br i1 %bed, label %sleep, label %up
up:
  %was = atomicrmw xchg ptr %asleep, i64 0 seq_cst, align 8
  %nobody = icmp ne i64 %was, 0
  br i1 %nobody, label %done, label %sleep
sleep:
  %semaphore = getelementptr i8, ptr %asleep, i64 $SEMAPHORE
  %ignored = call i32 @sem_wait(ptr %semaphore)
  br label %done
done:
  ret void
}

; Take chunks of a phase, from one's own lane first, until none is left or the phase is over.
define internal void @work(ptr %team, i64 %epoch, i64 %lane) #0 {
entry:
  %tag = shl i64 %epoch, 32
  %tasksp = getelementptr i8, ptr %team, i64 $TASKS
  %tasks = load atomic ptr, ptr %tasksp monotonic, align 8
  %firstp = getelementptr i8, ptr %team, i64 $FIRST
  %first = load atomic i64, ptr %firstp monotonic, align 8
  %countp = getelementptr i8, ptr %team, i64 $COUNT
  %count = load atomic i64, ptr %countp monotonic, align 8
  %lanesp = getelementptr i8, ptr %team, i64 $LANES
  %lanes = load atomic i64, ptr %lanesp monotonic, align 8
  %undone = getelementptr i8, ptr %team, i64 $UNDONE
  %errorp = getelementptr i8, ptr %team, i64 $ERROR
  br label %visit
visit:
  %v = phi i64 [0, %entry], [%v1, %leave]
  %l0 = add i64 %lane, %v
  %l = urem i64 %l0, %lanes
  %nextp = getelementptr [64 x i8], ptr %team, i64 %l, i64 $LANES_AT
  %endp = getelementptr i64, ptr %nextp, i64 1
  %end = load atomic i64, ptr %endp acquire, align 8
  br label %look
look:
  %c = load atomic i64, ptr %nextp monotonic, align 8
  %chunk = and i64 %c, 4294967295
  %high = xor i64 %c, %chunk
  %current = icmp eq i64 %high, %tag
  br i1 %current, label %any, label %done
any:
  %some = icmp slt i64 %chunk, %end
  br i1 %some, label %take, label %leave
take:
  %c1 = add i64 %c, 1
  %pair = cmpxchg ptr %nextp, i64 %c, i64 %c1 seq_cst monotonic, align 8
  %mine = extractvalue { i64, i1 } %pair, 1
  br i1 %mine, label %run, label %look
run:
  %status = call i64 @chunk(ptr %tasks, i64 %first, i64 %count, i64 %chunk, i64 %lane)
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %fail, label %finished
fail:
  %ignored = atomicrmw umin ptr %errorp, i64 %status seq_cst, align 8
  br label %finished
finished:
  %left = atomicrmw sub ptr %undone, i64 1 seq_cst, align 8
  %last = icmp eq i64 %left, 1
  br i1 %last, label %tell, label %look
tell:
  call void @rouse(ptr %team, i64 0)
  br label %done
leave:
  %v1 = add i64 %v, 1
  %more = icmp slt i64 %v1, %lanes
  br i1 %more, label %visit, label %done
done:
  ret void
}

; A phase by the whole team. The next chunk, with the new epoch, is written before the end, and the end is read before
; the next: a late worker that sees the new end sees the new epoch too.
define internal void @parallel(ptr %team, ptr %tasks, ptr %phase) #0 {
entry:
  %first = load i64, ptr %phase
  %cp = getelementptr i64, ptr %phase, i64 1
  %count = load i64, ptr %cp
  %lp = getelementptr i64, ptr %phase, i64 2
  %lanes = load i64, ptr %lp
  %kp = getelementptr i64, ptr %phase, i64 3
  %chunks = load i64, ptr %kp
  %bp = getelementptr i64, ptr %phase, i64 4
  %bounds = load ptr, ptr %bp
  %before = load atomic i64, ptr %team monotonic, align 8
  %epoch = add i64 %before, 1
  %tag = shl i64 %epoch, 32
  %tasksp = getelementptr i8, ptr %team, i64 $TASKS
  store atomic ptr %tasks, ptr %tasksp monotonic, align 8
  %firstp = getelementptr i8, ptr %team, i64 $FIRST
  store atomic i64 %first, ptr %firstp monotonic, align 8
  %countp = getelementptr i8, ptr %team, i64 $COUNT
  store atomic i64 %count, ptr %countp monotonic, align 8
  %lanesp = getelementptr i8, ptr %team, i64 $LANES
  store atomic i64 %lanes, ptr %lanesp monotonic, align 8
  %undone = getelementptr i8, ptr %team, i64 $UNDONE
  store atomic i64 %chunks, ptr %undone monotonic, align 8
  br label %split
split:
  %l = phi i64 [0, %entry], [%l1, %split]
  %l1 = add i64 %l, 1
  %fromp = getelementptr i64, ptr %bounds, i64 %l
  %from = load i64, ptr %fromp
  %top = getelementptr i64, ptr %bounds, i64 %l1
  %to = load i64, ptr %top
  %nextp = getelementptr [64 x i8], ptr %team, i64 %l, i64 $LANES_AT
  %endp = getelementptr i64, ptr %nextp, i64 1
  %start = or i64 %tag, %from
  store atomic i64 %start, ptr %nextp monotonic, align 8
  store atomic i64 %to, ptr %endp release, align 8
  %more = icmp slt i64 %l1, %lanes
  br i1 %more, label %split, label %publish
publish:
  store atomic i64 %epoch, ptr %team seq_cst, align 8
  call void @wake(ptr %team, i64 0)
  call void @work(ptr %team, i64 %epoch, i64 0)
  %spinsp = getelementptr i8, ptr %team, i64 $SPINS
  %limit = load atomic i64, ptr %spinsp monotonic, align 8
  br label %wait
wait:
  %k = phi i64 [0, %publish], [%k1, %pause], [0, %sleep]
  %left = load atomic i64, ptr %undone acquire, align 8
  %over = icmp eq i64 %left, 0
  br i1 %over, label %done, label %longer
longer:
  %k1 = add i64 %k, 1
  %tired = icmp sgt i64 %k1, %limit
  br i1 %tired, label %sleep, label %pause
pause:
  call void @hint()
  br label %wait
sleep:
  call void @sleep_while(ptr %team, i64 0, ptr %undone, i64 0, i1 false)
  br label %wait
done:
  ret void
}

define internal i64 @alone(ptr %tasks, i64 %first, i64 %count) #0 {
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%k1, %next]
  %t = add i64 %first, %k
  %p = getelementptr [5 x i64], ptr %tasks, i64 %t
  %f = load ptr, ptr %p
  %ap = getelementptr i64, ptr %p, i64 1
  %args = load ptr, ptr %ap
  %up = getelementptr i64, ptr %p, i64 2
  %units = load i64, ptr %up
  %status = call i64 %f(ptr %args, i64 0, i64 %units, i64 0)
  %bad = icmp ne i64 %status, 0
  %k1 = add i64 %k, 1
  br i1 %bad, label %fail, label %next
next:
  %more = icmp slt i64 %k1, %count
  br i1 %more, label %loop, label %done
fail:
  %number = add i64 %t, 1
  ret i64 %number
done:
  ret i64 0
}

; Where a worker lives: wait for a new phase (spin, then sleep), help with it, wait again.
define internal void @live(ptr %team, i64 %lane) #0 {
entry:
  %stopp = getelementptr i8, ptr %team, i64 $STOP
  %spinsp = getelementptr i8, ptr %team, i64 $SPINS
  %lanesp = getelementptr i8, ptr %team, i64 $LANES
  %limitp = getelementptr i8, ptr %team, i64 $LIMIT
  br label %wait
wait:
  %seen = phi i64 [0, %entry], [%now, %enter], [%now, %help]
  %spins = load atomic i64, ptr %spinsp monotonic, align 8
  br label %spin
spin:
  %k = phi i64 [0, %wait], [%k1, %pause], [0, %sleep]
  %now = load atomic i64, ptr %team seq_cst, align 8
  %new = icmp ne i64 %now, %seen
  br i1 %new, label %enter, label %idle
idle:
  %stop = load atomic i64, ptr %stopp monotonic, align 8
  %leave = icmp ne i64 %stop, 0
  br i1 %leave, label %out, label %longer
longer:
  %k1 = add i64 %k, 1
  %tired = icmp sgt i64 %k1, %spins
  br i1 %tired, label %sleep, label %pause
pause:
  call void @hint()
  br label %spin
sleep:
  call void @sleep_while(ptr %team, i64 %lane, ptr %team, i64 %seen, i1 true)
  br label %spin
enter:
  %lanes = load atomic i64, ptr %lanesp monotonic, align 8
  %limit = load atomic i64, ptr %limitp monotonic, align 8
  %threads = call i64 @llvm.smin.i64(i64 %lanes, i64 %limit)
  %mine = icmp slt i64 %lane, %threads
  br i1 %mine, label %help, label %wait
help:
  call void @wake(ptr %team, i64 %lane)
  call void @work(ptr %team, i64 %now, i64 %lane)
  br label %wait
out:
  ret void
}

define i64 @$RUN(ptr %call) #0 {
entry:
  %teamp = getelementptr i64, ptr %call, i64 1
  %io = getelementptr i64, ptr %call, i64 2
  %program = load ptr, ptr %call
  %team = load ptr, ptr %teamp
  %is_worker = icmp eq ptr %program, null
  br i1 %is_worker, label %worker, label %start
worker:
  %own_lane = load i64, ptr %io
  call void @live(ptr %team, i64 %own_lane)
  ret i64 0
start:
  %blockp = getelementptr i64, ptr %program, i64 8
  %block = load ptr, ptr %blockp
  %wordsp = getelementptr i64, ptr %program, i64 9
  %words = load i64, ptr %wordsp
  %bytes = shl i64 %words, 3
  call void @llvm.memcpy.p0.p0.i64(ptr %block, ptr %io, i64 %bytes, i1 false)
  call void @relocate(ptr %program, ptr %block)
  %np = getelementptr i64, ptr %program, i64 4
  %n = load i64, ptr %np
  %pp = getelementptr i64, ptr %program, i64 5
  %phases = load ptr, ptr %pp
  %tp = getelementptr i64, ptr %program, i64 6
  %tasks = load ptr, ptr %tp
  %there = icmp ne ptr %team, null
  %busyp = getelementptr i8, ptr %team, i64 $BUSY
  %errorp = getelementptr i8, ptr %team, i64 $ERROR
  br i1 %there, label %claim, label %go
claim:
  %pair = cmpxchg ptr %busyp, i64 0, i64 1 seq_cst seq_cst, align 8
  %free = extractvalue { i64, i1 } %pair, 1
  br i1 %free, label %fresh, label %go
fresh:
  store atomic i64 -1, ptr %errorp monotonic, align 8
  br label %go
go:
  %ours = phi i1 [false, %start], [false, %claim], [true, %fresh]
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %finish
loop:
  %i = phi i64 [0, %go], [%i1, %next]
  %p = getelementptr [5 x i64], ptr %phases, i64 %i
  %lp = getelementptr i64, ptr %p, i64 2
  %lanes = load i64, ptr %lp
  %wide = icmp sgt i64 %lanes, 1
  %together = and i1 %wide, %ours
  br i1 %together, label %many, label %one
many:
  call void @parallel(ptr %team, ptr %tasks, ptr %p)
  %least = load atomic i64, ptr %errorp seq_cst, align 8
  %none = icmp eq i64 %least, -1
  %e1 = select i1 %none, i64 0, i64 %least
  br label %check
one:
  %first = load i64, ptr %p
  %cp = getelementptr i64, ptr %p, i64 1
  %count = load i64, ptr %cp
  %e2 = call i64 @alone(ptr %tasks, i64 %first, i64 %count)
  br label %check
check:
  %error = phi i64 [%e1, %many], [%e2, %one]
  %bad = icmp ne i64 %error, 0
  br i1 %bad, label %finish, label %next
next:
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %finish
finish:
  %status = phi i64 [0, %go], [%error, %check], [0, %next]
  br i1 %ours, label %release, label %out
release:
  store atomic i64 0, ptr %busyp release, align 8
  br label %out
out:
  ret i64 %status
}

define internal void @hint() #0 {
  $HINT
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare i32 @sem_post(ptr)
declare i32 @sem_wait(ptr)
$DECLARATION
attributes #0 = { nounwind }
"""
