"""Trains without end; writes when and with which error a rank learns that another is gone."""

import os
import pickle
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 64)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
step = 0
try:
    while True:
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        step += 1
        if step == 3:
            print("trains", flush=True)
        if sys.argv[1:] == ["raise"] and step == 20 and rank == 1:
            raise ValueError("a mistake of rank 1")
except RuntimeError as error:
    with open(os.environ["OUT"], "wb") as file:
        pickle.dump((time.time(), step, str(error)), file)
