"""Splits groups, trains, loses a rank, shrinks the group, and trains on with what is in memory; writes what each rank has seen."""

import os
import pickle
import signal
import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
victim = int(sys.argv[1])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size, timeout=timedelta(seconds=60))
found = {}


def total(group):
    x = torch.tensor([1.0 + dist.get_rank()])
    dist.all_reduce(x, group=group)
    return x.item()


whole = dist.group.WORLD
part = dist.split_group(whole, [[0], list(range(size - 1, 0, -1))])
found["split"] = (part.ranks, part.rank(), total(part), dist.get_group_rank(part, rank), part.group_desc)
again = dist.split_group(part, [[part.size() - 1]], group_desc="last")
found["again"] = None if again is None else (again.ranks, total(again), again.group_desc)
none = dist.split_group(whole, [[0, 1]], timeout=timedelta(seconds=30), backend="cpu:gloo")
found["none"] = None if none is None else (none.ranks, none.timeout.total_seconds(), total(none))

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).double()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
wrapped = DistributedDataParallel(model)
losses, step = [], 0
while step < 8:
    if step == 4 and dist.get_world_size() == size and rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    data = torch.Generator().manual_seed(100 * step + dist.get_rank())
    optimizer.zero_grad()
    loss = wrapped(torch.randn(6, 8, generator=data, dtype=torch.float64)).square().mean()
    try:
        loss.backward()
    except dist.DistBackendError as error:
        found["told"] = str(error)
        if size - 1 < 2:
            break
        dist.shrink_group([victim])
        wrapped = DistributedDataParallel(model)
        continue
    optimizer.step()
    losses.append(loss.item())
    step += 1
found["after"] = (dist.get_rank(), dist.get_world_size(), total(None), dist.group.WORLD.group_desc)
found["losses"], found["parameters"] = losses, [p.detach().tolist() for p in model.parameters()]
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
