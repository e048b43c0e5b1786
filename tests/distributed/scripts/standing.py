"""Rank 1 does not come to a collective; the others write what they are told."""

import datetime
import os
import pickle
import signal
import sys
import time

import torch
import torch.distributed as dist

rank, size, how = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1]
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size, timeout=datetime.timedelta(seconds=3))
dist.barrier()
dist.all_reduce(torch.ones(3))


def busy():
    end = time.monotonic() + 8
    while time.monotonic() < end:  # the line that rank 1 is at
        pass


told, level = None, dist.get_debug_level().name
if rank == 1:
    if how == "stop":
        print("stops", flush=True)
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        busy()
else:
    try:
        dist.broadcast(torch.ones(2), 0)
        dist.all_gather([torch.ones(2)] * size, torch.ones(2))
    except RuntimeError as error:
        told = str(error)
    with open(os.environ["OUT"], "wb") as file:
        pickle.dump([told, level], file)
