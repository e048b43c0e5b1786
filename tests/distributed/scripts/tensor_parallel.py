"""Tensor parallel plans on a block of a transformer, against the same in one process."""

import copy
import os
import pickle

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel, SequenceParallel, parallelize_module

F = nn.functional
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("tp",))
found = {}


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        q, k, v = (m(x).unflatten(-1, (-1, 4)).transpose(1, 2) for m in (self.q, self.k, self.v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(30, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.head = nn.Linear(width, 30)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.attention(self.norm1(x))
        return self.head(x + self.down(F.gelu(self.up(self.norm2(x)))))


MEGATRON = {
    "embed": RowwiseParallel(input_layouts=Replicate()), "attention.q": ColwiseParallel(), "attention.k": ColwiseParallel(), "attention.v": ColwiseParallel(),
    "attention.out": RowwiseParallel(), "up": ColwiseParallel(), "down": RowwiseParallel(), "head": ColwiseParallel(output_layouts=Replicate()),
}  # fmt: skip
SEQUENCE = {
    "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1), use_local_output=False), "norm1": SequenceParallel(),
    "attention": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)), "attention.[qkv]": ColwiseParallel(),
    "attention.out": RowwiseParallel(output_layouts=Shard(1), use_local_output=False), "norm2": SequenceParallel(),
    "up": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
    "down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
    "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
}  # fmt: skip

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
