"""Large sums and exchanges by the memory of other ranks, beside the same through the window; ranks that are stopped, or come after others have gone on."""

import os
import pickle
import signal
from datetime import timedelta

import torch
import torch.distributed as dist

from flambeau.distributed import peer_memory, window
from flambeau.distributed.group import member

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
own = member(None).window
found = {"differ": []}
direct, move, add = window.DIRECT, peer_memory._move, peer_memory.PeerMemory._add
used = []
peer_memory.PeerMemory._add = lambda self, *arguments: (used.append(1), add(self, *arguments))[1]


def terms(kind, lengths):
    generator = torch.Generator().manual_seed(rank)
    made = [torch.randn(n, generator=generator) * 5 for n in lengths]
    return [t.to(kind) if kind is not torch.bool else t > 0 for t in made]


for kind in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool):
    for op in ("SUM", "MAX") if kind is torch.float32 else ("SUM",):
        for lengths in ([300_001], [262_144], [7, 130_003, 1, 90_000, 64, 262_145] + [3] * 40):
            results = []
            for least in (1, 1 << 60):
                window.DIRECT = least
                ts = terms(kind, lengths)
                if len(ts) == 1:
                    dist.all_reduce(ts[0], getattr(dist.ReduceOp, op))
                else:
                    dist.all_reduce_coalesced(ts, getattr(dist.ReduceOp, op))
                results.append([t.float() if kind is torch.bfloat16 else t for t in ts])
            if not all(torch.equal(a, b) for a, b in zip(*results, strict=True)):
                found["differ"].append((kind, op, len(lengths)))
window.DIRECT = direct


def handed_over(kind):
    """What collectives make that hand over parts of tensors, or sum up into parts."""
    lengths = [70_001 + 3 * r for r in range(size)]
    whole = terms(kind, [size * 90_003])[0]
    parts = [whole.new_zeros(90_003) for _ in range(size)]
    gathered, part, swapped, flat = (torch.zeros(n, dtype=kind) for n in (whole.numel(), 90_003, whole.numel(), 90_003 * size))
    dist.all_gather_into_tensor(gathered, whole[:90_003])
    dist.all_gather_into_tensor(flat, flat[rank * 90_003 : (rank + 1) * 90_003].copy_(whole[1:90_004]))  # in its place
    dist.all_to_all_single(swapped, whole)
    uneven = terms(kind, lengths)
    received = [torch.zeros(lengths[rank], dtype=kind) for _ in range(size)]
    dist.all_to_all(received, uneven)
    dist.all_gather(parts, whole[-90_003:])
    gathers = [torch.zeros(90_003, dtype=kind) for _ in range(size)] if rank == 1 else None
    dist.gather(parts[rank], gathers, dst=1)
    mine = torch.zeros(lengths[rank], dtype=kind)
    dist.reduce_scatter(mine, [t.clone() for t in uneven])
    dist.reduce_scatter_tensor(part, whole)
    inside = whole.clone()
    dist.reduce_scatter_tensor(inside[rank * 90_003 : (rank + 1) * 90_003], inside)
    sent = whole.clone()
    dist.broadcast(sent, size - 1)
    one = whole.clone()
    dist.reduce(one, 1)
    strided = whole[: 90_000 * size].reshape(-1, 90 * size).clone()
    dist.broadcast(strided.t(), 0)
    return [gathered, flat, swapped, *received, *parts, *(gathers or []), mine, part, inside[rank * 90_003 : (rank + 1) * 90_003], sent, one, strided]


for kind in (torch.float32, torch.bfloat16, torch.int64):
    both = []
    for least in (1, 1 << 60):
        window.DIRECT = least
        both.append(handed_over(kind))
    found["differ"] += [(kind, "handed over", i) for i, (a, b) in enumerate(zip(*both, strict=True)) if not torch.equal(a, b)]
window.DIRECT = direct
x = torch.arange(600_000.0).reshape(600, 1000)
dist.all_reduce(x.t())
found["not contiguous"] = torch.equal(x, torch.arange(600_000.0).reshape(600, 1000) * size)
found["used"], found["usable"] = len(used), own.peer_memory.usable

# A rank that may not look into the others, or has no such calls: all take the way through the window.
for name in ("_move", "_calls"):
    other = dist.new_group()
    kept = getattr(peer_memory, name)

    def refused(*arguments, name=name):
        if name == "_move":
            raise OSError(1, "Operation not permitted")
        return None

    if rank == size - 1:
        setattr(peer_memory, name, refused)
    used.clear()
    x = torch.full((600_000,), 1.0 + rank)
    dist.all_reduce(x, group=other)
    found[name] = (len(used), x.unique().tolist())
    setattr(peer_memory, name, kept)

# The last rank is stopped before it writes to the others; these go on with an error, and with other values in the same tensors.
processes = [None] * size
dist.all_gather_object(processes, os.getpid())
short = dist.new_group(timeout=timedelta(milliseconds=500))
x = torch.full((600_000,), 1.0)
dist.all_reduce(x, group=short)


def stopping(call, process, mine, theirs):
    if call is peer_memory._calls()[1]:
        peer_memory._move = move
        os.kill(os.getpid(), signal.SIGSTOP)
    move(call, process, mine, theirs)


store = dist.FileStore(os.environ["INIT"][len("file://") :] + "-store", size)
if rank == size - 1:
    peer_memory._move = stopping
try:
    dist.all_reduce(x, group=short)
except RuntimeError as error:
    found["error"] = str(error)
if rank == size - 1:
    store.set("awake", "")
else:
    x.fill_(7.0)
    values = x.sum().item()
    store.add("filled", 1)
    if rank == 0:
        while store.add("filled", 0) < size - 1:
            pass
        os.kill(processes[-1], signal.SIGCONT)
    store.wait(["awake"])
    found["after"] = x.unique().tolist()

# The last rank is stopped before it reads; the others go on with an error, and change what it then reads: it must not go on with that.
reads = dist.new_group(timeout=timedelta(milliseconds=500))
given, taken = torch.full((300_000,), 1.0), torch.zeros(300_000 * size)
dist.all_gather_into_tensor(taken, given, group=reads)


def stopping_before_reading(*arguments):
    peer_memory._move = move
    os.kill(os.getpid(), signal.SIGSTOP)
    move(*arguments)


if rank == size - 1:
    peer_memory._move = stopping_before_reading
try:
    dist.all_gather_into_tensor(taken, given, group=reads)
    found["read"] = "no error"
except RuntimeError as error:
    found["read"] = str(error)
if rank != size - 1:
    given.fill_(float("nan"))
    store.add("changed", 1)
    if rank == 0:
        while store.add("changed", 0) < size - 1:
            pass
        os.kill(processes[-1], signal.SIGCONT)
dist.barrier()

# The last rank comes when the others have gone on: it writes to nobody.
late = dist.new_group(timeout=timedelta(milliseconds=300))
x = torch.full((600_000,), 1.0)
dist.all_reduce(x, group=late)
if rank == size - 1:
    store.wait(["gone on"])
try:
    dist.all_reduce(x, group=late)
    found["late"] = "no error"
except RuntimeError as error:
    found["late"] = str(error)
if rank != size - 1:
    x.fill_(9.0)
    x.sum().item()
    if store.add("went on", 1) == size - 1:
        store.set("gone on", "")
dist.barrier()
found["after late"] = x.unique().tolist()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
