"""Tensor parallel plans on a block of a transformer, against the same in one process."""

import copy
import os
import pickle

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module
from transformer import MEGATRON, SEQUENCE, Block

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
found = {}

tokens = torch.randint(0, 30, (2, 12), generator=torch.Generator().manual_seed(0))
for name, plan in (("megatron", MEGATRON), ("sequence", SEQUENCE)):
    torch.manual_seed(0)
    model = Block().double()
    other = copy.deepcopy(model)
    parallelize_module(model, mesh, plan)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01, foreach=False) for m in (model, other)]
    differences = []
    for _ in range(3):
        losses = []
        for m, optimizer in zip((model, other), optimizers, strict=True):
            loss = F.cross_entropy(m(tokens).flatten(0, 1), tokens.flatten())
            losses.append(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        differences.append(abs(losses[0].item() - losses[1].item()))
    whole = [p.full_tensor() if isinstance(p, DTensor) else p.detach() for p in model.parameters()]
    differences.append(max((p - q).abs().max().item() for p, q in zip(whole, other.parameters(), strict=True)))
    local = [tuple(p.to_local().shape) for p in model.parameters() if isinstance(p, DTensor)]
    found[name] = {"differences": max(differences), "values": [p.tolist() for p in whole], "local": local}
dist.barrier()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
dist.destroy_process_group()
