"""LLVM IR of the runtime's own native code: the runner of plans and the loop in which worker threads live.

All structures are arrays of 8-byte words.

    program: [n relocations, relocations, n dynamic, dynamic, n phases, phases, tasks, words]
    relocation: [word, io index, bytes]          words[word] = io[index] + bytes
    dynamic:    [word, io index, multiplier]     words[word] += io[index] * multiplier
    phase:      [first task, n tasks, lanes, n chunks]      lanes 1: the caller runs it alone
    task:       [function, arguments, units, units a chunk, first chunk of the phase]

    team: [0 phase number | 8 sleepers wanted | 16 program | 24 phase | 32 open | 40 active | 48 error | 56 stop | 64 busy |
           72 unfinished chunks | 80 spins before sleep | 88 lanes], then from 512 on 64 bytes a lane:
           [next chunk, end chunk], and from 512 + 64 * 64 on 64 bytes a worker: [asleep, address of its semaphore]

A parallel phase is a number of chunks. Every lane owns a contiguous range of them, so that the same thread touches the same
data in each phase; who has finished his own helps the next lane. Nobody waits for a worker that has not come: a phase is
over when all its chunks are done, so a busy processor slows us in proportion only.
"""

from __future__ import annotations

from typing import Final

LANES_AT: Final = 512
WORKERS_AT: Final = 512 + 64 * 64
TEAM_BYTES: Final = 512 + 2 * 64 * 64

KEY: Final = "flambeau runner 3"


def text(symbol: str) -> str:
    """The module; `symbol` is the runner, `symbol`_worker the worker's loop."""
    return _TEXT.replace("@RUN", "@" + symbol)


_TEXT = r"""
define internal void @relocate(ptr %program, ptr %io) #0 {
entry:
  %n = load i64, ptr %program
  %rp = getelementptr i64, ptr %program, i64 1
  %r = load ptr, ptr %rp
  %wp = getelementptr i64, ptr %program, i64 7
  %words = load ptr, ptr %wp
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %second
loop:
  %i = phi i64 [0, %entry], [%i1, %loop]
  %o = mul i64 %i, 3
  %p0 = getelementptr i64, ptr %r, i64 %o
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
  br i1 %more, label %loop, label %second
second:
  %dnp = getelementptr i64, ptr %program, i64 2
  %dn = load i64, ptr %dnp
  %dpp = getelementptr i64, ptr %program, i64 3
  %d = load ptr, ptr %dpp
  %dany = icmp sgt i64 %dn, 0
  br i1 %dany, label %dloop, label %done
dloop:
  %j = phi i64 [0, %second], [%j1, %dloop]
  %q = mul i64 %j, 3
  %q0 = getelementptr i64, ptr %d, i64 %q
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
  br i1 %dmore, label %dloop, label %done
done:
  ret void
}

; Run one chunk: find its task, call the kernel on its units. Returns 0 or 1 + the task's number.
define internal i64 @chunk(ptr %tasks, i64 %first, i64 %count, i64 %chunk, i64 %lane) #0 {
entry:
  %last = sub i64 %count, 1
  br label %search
search:
  %k = phi i64 [0, %entry], [%k1, %next]
  %at_last = icmp eq i64 %k, %last
  br i1 %at_last, label %found, label %look
look:
  %k1 = add i64 %k, 1
  %t1 = add i64 %first, %k1
  %o1 = mul i64 %t1, 5
  %o1c = add i64 %o1, 4
  %p1 = getelementptr i64, ptr %tasks, i64 %o1c
  %begins = load i64, ptr %p1
  %before = icmp slt i64 %chunk, %begins
  br i1 %before, label %found, label %next
next:
  br label %search
found:
  %t = add i64 %first, %k
  %o = mul i64 %t, 5
  %p = getelementptr i64, ptr %tasks, i64 %o
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

; Take chunks from the lanes, one's own first, until none is left.
define internal void @work(ptr %team, ptr %tasks, i64 %first, i64 %count, i64 %lanes, i64 %lane) #0 {
entry:
  %undone = getelementptr i8, ptr %team, i64 72
  %errorp = getelementptr i8, ptr %team, i64 48
  br label %lane_loop
lane_loop:
  %v = phi i64 [0, %entry], [%v1, %lane_next]
  %l0 = add i64 %lane, %v
  %l = urem i64 %l0, %lanes
  %lo = mul i64 %l, 64
  %lb = add i64 %lo, 512
  %np = getelementptr i8, ptr %team, i64 %lb
  %ep = getelementptr i64, ptr %np, i64 1
  %end = load atomic i64, ptr %ep monotonic, align 8
  br label %take
take:
  %c = atomicrmw add ptr %np, i64 1 acq_rel, align 8
  %ok = icmp slt i64 %c, %end
  br i1 %ok, label %run, label %lane_next
run:
  %status = call i64 @chunk(ptr %tasks, i64 %first, i64 %count, i64 %c, i64 %lane)
  %bad = icmp ne i64 %status, 0
  br i1 %bad, label %fail, label %finished
fail:
  store atomic i64 %status, ptr %errorp release, align 8
  br label %finished
finished:
  %left = atomicrmw sub ptr %undone, i64 1 acq_rel, align 8
  br label %take
lane_next:
  %v1 = add i64 %v, 1
  %more = icmp slt i64 %v1, %lanes
  br i1 %more, label %lane_loop, label %done
done:
  ret void
}

; Wake the sleeping workers of lanes 1 .. lanes - 1.
define internal void @wake(ptr %team, i64 %lanes) #0 {
entry:
  %any = icmp sgt i64 %lanes, 1
  br i1 %any, label %loop, label %done
loop:
  %w = phi i64 [1, %entry], [%w1, %next]
  %o = mul i64 %w, 64
  %b = add i64 %o, 4608
  %ap = getelementptr i8, ptr %team, i64 %b
  %asleep = load atomic i64, ptr %ap seq_cst, align 8
  %is = icmp ne i64 %asleep, 0
  br i1 %is, label %try, label %next
try:
  %was = atomicrmw xchg ptr %ap, i64 0 seq_cst, align 8
  %really = icmp ne i64 %was, 0
  br i1 %really, label %post, label %next
post:
  %spp = getelementptr i64, ptr %ap, i64 1
  %sem = load ptr, ptr %spp
  %ignored = call i32 @sem_post(ptr %sem)
  br label %next
next:
  %w1 = add i64 %w, 1
  %more = icmp slt i64 %w1, %lanes
  br i1 %more, label %loop, label %done
done:
  ret void
}

define internal i64 @parallel(ptr %team, ptr %tasks, i64 %first, i64 %count, i64 %lanes, i64 %chunks) #0 {
entry:
  br label %split
split:
  %l = phi i64 [0, %entry], [%l1, %split]
  %a0 = mul i64 %l, %chunks
  %a = sdiv i64 %a0, %lanes
  %l1 = add i64 %l, 1
  %z0 = mul i64 %l1, %chunks
  %z = sdiv i64 %z0, %lanes
  %o = mul i64 %l, 64
  %ob = add i64 %o, 512
  %np = getelementptr i8, ptr %team, i64 %ob
  %ep = getelementptr i64, ptr %np, i64 1
  store atomic i64 %z, ptr %ep monotonic, align 8
  store atomic i64 %a, ptr %np monotonic, align 8
  %more = icmp slt i64 %l1, %lanes
  br i1 %more, label %split, label %publish
publish:
  %p_tasks = getelementptr i8, ptr %team, i64 16
  store ptr %tasks, ptr %p_tasks
  %p_first = getelementptr i8, ptr %team, i64 24
  store i64 %first, ptr %p_first
  %p_count = getelementptr i8, ptr %team, i64 96
  store i64 %count, ptr %p_count
  %p_lanes = getelementptr i8, ptr %team, i64 88
  store i64 %lanes, ptr %p_lanes
  %undone = getelementptr i8, ptr %team, i64 72
  store atomic i64 %chunks, ptr %undone monotonic, align 8
  %open = getelementptr i8, ptr %team, i64 32
  store atomic i64 1, ptr %open seq_cst, align 8
  %epoch = atomicrmw add ptr %team, i64 1 seq_cst, align 8
  call void @wake(ptr %team, i64 %lanes)
  call void @work(ptr %team, ptr %tasks, i64 %first, i64 %count, i64 %lanes, i64 0)
  br label %wait
wait:
  %spins = phi i64 [0, %publish], [%spins1, %spin]
  %left = load atomic i64, ptr %undone acquire, align 8
  %over = icmp sle i64 %left, 0
  br i1 %over, label %close, label %pause
pause:
  %spins1 = add i64 %spins, 1
  %long = icmp sgt i64 %spins1, 200
  br i1 %long, label %give_way, label %breathe
give_way:
  %y = call i32 @sched_yield()
  br label %spin
breathe:
  call void @pause_hint()
  br label %spin
spin:
  br label %wait
close:
  store atomic i64 0, ptr %open seq_cst, align 8
  %active = getelementptr i8, ptr %team, i64 40
  br label %drain
drain:
  %busy = load atomic i64, ptr %active seq_cst, align 8
  %none = icmp eq i64 %busy, 0
  br i1 %none, label %end, label %again
again:
  call void @pause_hint()
  br label %drain
end:
  %errorp = getelementptr i8, ptr %team, i64 48
  %error = load atomic i64, ptr %errorp acquire, align 8
  ret i64 %error
}

define internal i64 @alone(ptr %tasks, i64 %first, i64 %count) #0 {
entry:
  br label %loop
loop:
  %k = phi i64 [0, %entry], [%k1, %next]
  %t = add i64 %first, %k
  %o = mul i64 %t, 5
  %p = getelementptr i64, ptr %tasks, i64 %o
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

define i64 @RUN(ptr %program, ptr %io, ptr %team) #0 {
entry:
  call void @relocate(ptr %program, ptr %io)
  %np = getelementptr i64, ptr %program, i64 4
  %n = load i64, ptr %np
  %pp = getelementptr i64, ptr %program, i64 5
  %phases = load ptr, ptr %pp
  %tp = getelementptr i64, ptr %program, i64 6
  %tasks = load ptr, ptr %tp
  %there = icmp ne ptr %team, null
  br i1 %there, label %claim, label %go
claim:
  %busyp = getelementptr i8, ptr %team, i64 64
  %pair = cmpxchg ptr %busyp, i64 0, i64 1 seq_cst seq_cst, align 8
  %mine0 = extractvalue { i64, i1 } %pair, 1
  br i1 %mine0, label %fresh, label %go
fresh:
  %errorp = getelementptr i8, ptr %team, i64 48
  store atomic i64 0, ptr %errorp monotonic, align 8
  br label %go
go:
  %mine = phi i1 [false, %entry], [false, %claim], [true, %fresh]
  %any = icmp sgt i64 %n, 0
  br i1 %any, label %loop, label %finish
loop:
  %i = phi i64 [0, %go], [%i1, %next]
  %o = mul i64 %i, 4
  %p = getelementptr i64, ptr %phases, i64 %o
  %first = load i64, ptr %p
  %cp = getelementptr i64, ptr %p, i64 1
  %count = load i64, ptr %cp
  %lp = getelementptr i64, ptr %p, i64 2
  %lanes = load i64, ptr %lp
  %kp = getelementptr i64, ptr %p, i64 3
  %chunks = load i64, ptr %kp
  %wide = icmp sgt i64 %lanes, 1
  %par = and i1 %wide, %mine
  br i1 %par, label %many, label %one
many:
  %e1 = call i64 @parallel(ptr %team, ptr %tasks, i64 %first, i64 %count, i64 %lanes, i64 %chunks)
  br label %check
one:
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
  br i1 %mine, label %release, label %out
release:
  %bp = getelementptr i8, ptr %team, i64 64
  store atomic i64 0, ptr %bp release, align 8
  br label %out
out:
  ret i64 %status
}

; Where a worker lives: wait for a new phase (spin, then sleep), help with it, wait again.
define void @RUN_worker(ptr %team, i64 %lane) #0 {
entry:
  %o = mul i64 %lane, 64
  %b = add i64 %o, 4608
  %asleep = getelementptr i8, ptr %team, i64 %b
  %spp = getelementptr i64, ptr %asleep, i64 1
  %sem = load ptr, ptr %spp
  %stopp = getelementptr i8, ptr %team, i64 56
  %openp = getelementptr i8, ptr %team, i64 32
  %activep = getelementptr i8, ptr %team, i64 40
  %limitp = getelementptr i8, ptr %team, i64 80
  br label %wait
wait:
  %seen = phi i64 [0, %entry], [%now, %after]
  %limit = load atomic i64, ptr %limitp monotonic, align 8
  br label %spin
spin:
  %k = phi i64 [0, %wait], [%k1, %still], [0, %slept]
  %now = load atomic i64, ptr %team seq_cst, align 8
  %new = icmp ne i64 %now, %seen
  br i1 %new, label %enter, label %idle
idle:
  %stop = load atomic i64, ptr %stopp seq_cst, align 8
  %leave = icmp ne i64 %stop, 0
  br i1 %leave, label %out, label %longer
longer:
  %k1 = add i64 %k, 1
  %tired = icmp sgt i64 %k1, %limit
  br i1 %tired, label %bed, label %still
still:
  call void @pause_hint()
  br label %spin
bed:
  store atomic i64 1, ptr %asleep seq_cst, align 8
  %recheck = load atomic i64, ptr %team seq_cst, align 8
  %changed = icmp ne i64 %recheck, %seen
  %stop2 = load atomic i64, ptr %stopp seq_cst, align 8
  %stopping = icmp ne i64 %stop2, 0
  %up = or i1 %changed, %stopping
  br i1 %up, label %rise, label %sleep
rise:
  %was = atomicrmw xchg ptr %asleep, i64 0 seq_cst, align 8
  %nobody = icmp ne i64 %was, 0
  br i1 %nobody, label %slept, label %sleep
sleep:
  %r = call i32 @sem_wait(ptr %sem)
  br label %slept
slept:
  br label %spin
enter:
  %in = atomicrmw add ptr %activep, i64 1 seq_cst, align 8
  %open = load atomic i64, ptr %openp seq_cst, align 8
  %is_open = icmp ne i64 %open, 0
  br i1 %is_open, label %help, label %after
help:
  %p_tasks = getelementptr i8, ptr %team, i64 16
  %tasks = load ptr, ptr %p_tasks
  %p_first = getelementptr i8, ptr %team, i64 24
  %first = load i64, ptr %p_first
  %p_count = getelementptr i8, ptr %team, i64 96
  %count = load i64, ptr %p_count
  %p_lanes = getelementptr i8, ptr %team, i64 88
  %lanes = load i64, ptr %p_lanes
  %mine = icmp slt i64 %lane, %lanes
  br i1 %mine, label %do, label %after
do:
  call void @work(ptr %team, ptr %tasks, i64 %first, i64 %count, i64 %lanes, i64 %lane)
  br label %after
after:
  %left = atomicrmw sub ptr %activep, i64 1 seq_cst, align 8
  br label %wait
out:
  ret void
}

define internal void @pause_hint() #0 {
  PAUSE
  ret void
}

; Fill with zeros: args [address, bytes], units are bytes.
define i64 @RUN_zero(ptr %args, i64 %begin, i64 %end, i64 %worker) #0 {
entry:
  %p = load ptr, ptr %args
  %from = getelementptr i8, ptr %p, i64 %begin
  %n = sub i64 %end, %begin
  call void @llvm.memset.p0.i64(ptr %from, i8 0, i64 %n, i1 false)
  ret i64 0
}

declare i64 @llvm.smin.i64(i64, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i32 @sem_post(ptr)
declare i32 @sem_wait(ptr)
declare i32 @sched_yield()
attributes #0 = { nounwind }
"""


def pause_instruction(machine: str) -> tuple[str, str]:
    """The spin-wait hint of the architecture: (the call, its declaration)."""
    if machine in ("x86_64", "AMD64", "i686"):
        return "call void @llvm.x86.sse2.pause()", "declare void @llvm.x86.sse2.pause()"
    if machine in ("aarch64", "arm64"):
        return "call void @llvm.aarch64.hint(i32 1)", "declare void @llvm.aarch64.hint(i32)"
    return "", ""
