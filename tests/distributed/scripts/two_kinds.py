"""Tensor parallel plans and fully_shard at once, over a mesh of two dims: against one process on the whole batch."""

import copy
import os
import pickle

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import parallelize_module
from transformer import MEGATRON, SEQUENCE, Block

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("dp", "tp"))
place = mesh["dp"].get_local_rank()
tokens = torch.randint(0, 30, (2 * mesh["dp"].size(), 12), generator=torch.Generator().manual_seed(0))
own = tokens[2 * place : 2 * place + 2]
found = {}


def step(model, optimizer, batch):
    loss = F.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.detach()


def sharded(plan, placement=None):
    torch.manual_seed(0)
    model = Block().double()
    other = copy.deepcopy(model)
    parallelize_module(model, mesh["tp"], plan)
    for each in (model.attention, model.up):
        fully_shard(each, mesh=mesh["dp"], shard_placement_fn=placement)
    return fully_shard(model, mesh=mesh["dp"], shard_placement_fn=placement), other


for name, plan, placement in (
    ("megatron", MEGATRON, None), ("sequence", SEQUENCE, None), ("along the last dim", MEGATRON, lambda p: Shard(p.ndim - 1)),
):  # fmt: skip
    model, other = sharded(plan, placement)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01, foreach=False) for m in (model, other)]
    differences = []
    for _ in range(3):
        loss = step(model, optimizers[0], own)
        dist.all_reduce(loss, group=mesh["dp"].get_group())
        differences.append(abs(loss.item() / mesh["dp"].size() - step(other, optimizers[1], tokens).item()))
    whole = [p.full_tensor() for p in model.parameters()]
    differences.append(max((p - q).abs().max().item() for p, q in zip(whole, other.parameters(), strict=True)))
    found[name] = {
        "differences": max(differences), "values": [p.tolist() for p in whole], "local": [tuple(p.to_local().shape) for p in model.parameters()],
        "numel": sum(p.to_local().numel() for p in model.parameters()) / sum(p.numel() for p in model.parameters()),
    }  # fmt: skip
    folder = os.environ["OUT"].rsplit("-", 1)[0] + f"-{name}"
    dcp.save({"model": model.state_dict(), "optimizer": dict(enumerate(optimizers[0].state.values()))}, checkpoint_id=folder)
    again, _ = sharded(SEQUENCE if name == "megatron" else MEGATRON)
    state = {"model": again.state_dict()}
    dcp.load(state, checkpoint_id=folder)
    again.load_state_dict(state["model"])
    found[name]["loaded"] = all(torch.equal(p.full_tensor(), q) for p, q in zip(again.parameters(), whole, strict=True))
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
dist.barrier()
dist.destroy_process_group()
