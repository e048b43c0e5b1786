"""Large sums by the memory of other ranks, beside the same through the window; a rank that is stopped while it writes to another's memory."""

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
dist.barrier()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
