"""Ranks of Open MPI's mpiexec go on without one that is killed, by ULFM: the example of docs/distributed.md.

mpiexec --with-ft ulfm -n 3 flambeau run tests/distributed/scripts/ulfm.py FOLDER
"""

import os
import signal
import sys

import mpi4py
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

mpi4py.rc.finalize = False  # Open MPI now and then waits for the dead at its end

from mpi4py import MPI  # noqa: E402

everybody = MPI.COMM_WORLD
everybody.Set_errhandler(MPI.ERRORS_RETURN)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)


def meet(ranks):
    dist.init_process_group("mpi", init_method=f"file://{sys.argv[1]}/{ranks.size}", rank=ranks.rank, world_size=ranks.size)
    return DistributedDataParallel(model)


wrapped, step = meet(everybody), 0
while step < 20:
    if step == 3 and everybody.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    data = torch.Generator().manual_seed(100 * step + dist.get_rank())
    optimizer.zero_grad()
    try:
        wrapped(torch.randn(6, 8, generator=data)).square().mean().backward()
    except dist.DistBackendError as error:
        print(f"rank {everybody.rank} goes on: {error}", flush=True)
        dist.destroy_process_group()
        wrapped = meet(everybody.Shrink())
        continue
    optimizer.step()
    step += 1
same = [None] * dist.get_world_size()
dist.all_gather_object(same, [p.tolist() for p in model.parameters()])
print(f"rank {everybody.rank} is rank {dist.get_rank()} of {dist.get_world_size()}, parameters alike: {all(s == same[0] for s in same)}", flush=True)
