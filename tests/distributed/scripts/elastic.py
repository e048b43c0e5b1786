"""Trains until a file says that it is enough; rank 0 writes down each step with the number of ranks, and a checkpoint of it."""

import json
import os
import sys
import time

import torch
import torch.distributed as dist

folder = sys.argv[1]
dist.init_process_group("gloo")
path = os.path.join(folder, "checkpoint.pt")
start = torch.load(path)["step"] if os.path.exists(path) else 0
end = torch.zeros(1)
step = start
while True:
    time.sleep(0.1)
    end[0] = os.path.exists(os.path.join(folder, "stop"))
    dist.all_reduce(end)
    if end.item():
        break
    if dist.get_rank() == 0:
        torch.save({"step": step + 1}, path + ".new")
        entry = {"step": step, "world": dist.get_world_size(), "restarts": os.environ["TORCHELASTIC_RESTART_COUNT"]}
        with open(os.path.join(folder, "steps"), "a") as file:
            file.write(json.dumps(entry) + "\n")
        os.replace(path + ".new", path)
    step += 1
dist.destroy_process_group()
