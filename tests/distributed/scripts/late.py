"""Ranks that end at different times: the rank that the first argument names, long after the others."""

import os
import pickle
import sys
import time

import torch
import torch.distributed as dist

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
x = torch.ones(2)
dist.all_reduce(x)
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(x.tolist(), file)
if rank == int(sys.argv[1]):
    time.sleep(7)
