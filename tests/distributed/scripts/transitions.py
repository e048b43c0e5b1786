"""Every placement of a tensor over a mesh of two dims, from every other, with gradients; sizes that cannot be cut evenly."""

import itertools
import os
import pickle

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
simple = [*itertools.product([Replicate(), Shard(0), Shard(1)], repeat=2), (_StridedShard(0, split_factor=2), Shard(0))]
wrong = []
for shape in ((5, 3),):  # parts of two, one and no element
    whole = torch.arange(float(shape[0] * shape[1]), dtype=torch.float64).reshape(shape)
    weight = whole.cos()
    for source, target in itertools.product([*simple, (Partial(), Shard(0)), (Shard(0), Partial()), (Partial(), Partial())], simple):
        given = distribute_tensor(whole, mesh, source).requires_grad_()
        moved = given.redistribute(placements=target)
        local, part = moved.to_local(), distribute_tensor(weight, mesh, target).to_local()
        sizes = tuple(part.shape) == tuple(local.shape)
        (local * part).sum().backward()
        if not (sizes and torch.equal(moved.full_tensor(), whole) and torch.equal(given.grad.full_tensor(), weight)):
            wrong.append(f"{shape}: {source} -> {target}")
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(wrong, file)
dist.destroy_process_group()
