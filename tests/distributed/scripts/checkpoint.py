"""Saves, or loads and shows, a state with DTensors in parts: arguments are what to do, and the folder."""

import os
import pickle
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
mesh = init_device_mesh("cpu", (size,))
what, folder = sys.argv[-2:]


class Counter:
    """A stateful object."""

    count = 0

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]


def state(fill, dim=0):
    """Values that tell places apart, or zeros."""
    whole = torch.arange(7 * 5, dtype=torch.float32).view(7, 5) * fill
    return {
        "model": {"weight": distribute_tensor(whole.clone(), mesh, [Shard(dim)]), "bias": distribute_tensor(whole[0].clone(), mesh, [Replicate()])},
        "plain": whole[:, 1].double().clone(), "half": whole.to(torch.bfloat16), "scalar": torch.tensor(3 * fill),
        "optimizer": {"state": {"weight": {"step": torch.tensor(2.0 * fill), "exp_avg": distribute_tensor(whole + fill, mesh, [Shard(1 - dim)])}},
                      "param_groups": [{"lr": 0.5 * fill, "betas": (0.9, 0.99 * fill), "params": ["weight"]}]},
        "epoch": 4 * fill, "name": "x" * fill,
    }  # fmt: skip


def shown(x):
    """A state as plain values."""
    if isinstance(x, dict):
        return {k: shown(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [shown(v) for v in x]
    if isinstance(x, DTensor):
        x = x.full_tensor()
    return x.float().tolist() if isinstance(x, torch.Tensor) else x


counter, found = Counter(), {}
if what.startswith("save"):
    counter.count = 5
    given = {**state(1), "counter": counter}
    if what == "save":
        dcp.save(given, checkpoint_id=folder)
    else:
        future = dcp.async_save(given, checkpoint_id=folder)
        given["model"]["weight"].to_local().zero_()
        future.result()
        dist.barrier()
    found = shown({**state(1)}) | {"counted": 5}
else:
    given = {**state(0, 1), "counter": counter}
    dcp.load(given, checkpoint_id=folder)
    given.pop("counter")
    found = shown(given) | {"counted": counter.count}
    for key, wrong in {"missing": {"nothing": torch.zeros(2)}, "size": {"plain": torch.zeros(3)}}.items():
        try:
            dcp.load(wrong, checkpoint_id=folder)
        except BaseException as error:
            assert type(error).__name__ == "CheckpointException", error
        else:
            raise AssertionError(key)
dist.barrier()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
dist.destroy_process_group()
