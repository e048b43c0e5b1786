"""A launched script, which does what its first argument says."""

import json
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

what, folder = sys.argv[1], sys.argv[2]
names = """RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_NAME TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS
TORCHELASTIC_RUN_ID""".split()
rank, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.init_process_group("gloo")
x = torch.ones(2) * (rank + 1)
dist.all_reduce(x)
with open(os.path.join(folder, f"rank-{rank}-{attempt}.json"), "w") as file:
    json.dump({"sum": x.tolist(), "pid": os.getpid(), "arguments": sys.argv[3:], **{name: os.environ.get(name) for name in names}}, file)
print(f"output of {rank}")
print(f"errors of {rank}", file=sys.stderr)
if what == "raise" and rank == 1:
    raise ValueError("a mistake of rank 1")
if what == "exit" and rank == 0:
    sys.exit(7)
if what == "kill" and rank == 1 and attempt == 0:
    os.kill(os.getpid(), signal.SIGKILL)
if what == "sleep":
    time.sleep(60)
if what == "checkpoint":  # goes on from the last checkpoint; in its first life rank 1 is killed
    path = os.path.join(folder, "checkpoint.pt")
    model = torch.nn.Linear(3, 1)
    start = 0
    torch.manual_seed(0)
    if os.path.exists(path):
        saved = torch.load(path)
        model.load_state_dict(saved["model"])
        start = saved["step"]
    else:
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    for step in range(start, 6):
        if attempt == 0 and rank == 1 and step == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        optimizer.zero_grad()
        (ddp(torch.full((2, 3), 1.0 + rank + step)) - 1).square().mean().backward()
        optimizer.step()
        if rank == 0:
            torch.save({"model": model.state_dict(), "step": step + 1}, path + ".new")
            os.replace(path + ".new", path)
        dist.barrier()
    with open(os.path.join(folder, f"end-{rank}-{attempt}.json"), "w") as file:
        json.dump([start, model.weight.tolist(), model.bias.tolist()], file)
dist.barrier()
