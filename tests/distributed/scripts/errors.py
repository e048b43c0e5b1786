"""Calls on which ranks do not agree, ranks that do not come, and what is left usable; writes each error's text."""

import os
import pickle
from datetime import timedelta

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
found = {}


def told(name, call):
    try:
        call()
        found[name] = None
    except Exception as error:
        found[name] = (type(error).__mro__[-4].__name__, str(error))


told("shape", lambda: dist.all_reduce(torch.ones(3 + (rank == 1))))
told("dtype", lambda: dist.all_reduce(torch.ones(3, dtype=torch.float64 if rank == 1 else torch.float32)))
told("operator", lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX if rank == 1 else dist.ReduceOp.SUM))
told("operation", lambda: dist.barrier() if rank == 1 else dist.broadcast(torch.ones(2), 0))
told("split", lambda: dist.all_to_all_single(torch.zeros(size), torch.zeros(size + 1), None, [2] + [1] * (size - 1)))
told("bitwise", lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND))
told("no tensor", lambda: dist.all_reduce([1.0]))
told("list", lambda: dist.all_gather([torch.ones(1)], torch.ones(1)))
told("self", lambda: dist.send(torch.ones(1), rank))
told("twice", lambda: dist.init_process_group("gloo"))
told("backend", lambda: dist.new_group([0, 0]))
told("message", lambda: dist.send(torch.ones(2), 1) if rank == 0 else dist.recv(torch.ones(3), 0) if rank == 1 else None)
x = torch.ones(2)
dist.all_reduce(x)
found["usable"] = x.tolist()
short = dist.new_group(timeout=timedelta(milliseconds=300))
if rank != 1:
    told("late", lambda: dist.all_reduce(torch.ones(2), group=short))
    told("broken", lambda: dist.barrier(group=short))
dist.barrier()
told("monitored", lambda: dist.monitored_barrier(timeout=timedelta(milliseconds=300)) if rank == 0 else None)
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
