"""Trains until the file `enough` is there, or up to a step; keeps a checkpoint of every tenth step, and goes on from the last one.

    faulty.py FOLDER [LAST]

In FOLDER each rank writes its process (`process-RANK`), and with each start a line of `starts`: from which step it goes on.
"""

import json
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

folder, last = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None
rank = int(os.environ["RANK"])
with open(f"{folder}/process-{rank}.new", "w") as file:
    file.write(str(os.getpid()))
os.replace(f"{folder}/process-{rank}.new", f"{folder}/process-{rank}")
dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ.get("FAULTS_TIMEOUT", "10"))))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
path, step = f"{folder}/checkpoint.pt", 0
if os.path.exists(path):
    saved = torch.load(path)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
ddp = DistributedDataParallel(model)
if rank == 0:
    with open(f"{folder}/starts", "a") as file:
        file.write(json.dumps({"at": time.time(), "step": step}) + "\n")
while True:
    generator = torch.Generator().manual_seed(2 * step + rank)
    optimizer.zero_grad()
    ddp(torch.randn(8, 32, generator=generator)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % 10 == 0:
        ends = torch.tensor(int(step == last or (last is None and os.path.exists(f"{folder}/enough"))))
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
            os.replace(path + ".new", path)
            with open(f"{folder}/step.new", "w") as file:
                file.write(str(step))
            os.replace(f"{folder}/step.new", f"{folder}/step")
        dist.broadcast(ends, 0)
        if ends.item():
            break
with open(f"{folder}/end-{rank}.json", "w") as file:
    json.dump([step, [p.tolist() for p in model.parameters()]], file)
