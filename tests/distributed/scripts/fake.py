"""The backend "fake": one process as rank 2 of 4; writes what collectives give and what stays as it is."""

import os
import pickle

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=2, world_size=4)
own = torch.arange(3.0)
found = {"group": (dist.get_rank(), dist.get_world_size(), str(dist.get_backend()), dist.get_world_size(dist.new_group([1, 2])))}

total = own.clone()
dist.all_reduce(total)
found["all_reduce"] = total.tolist()
rows = [torch.full((3,), -1.0) for _ in range(4)]
dist.all_gather(rows, own)
found["all_gather"] = [row.tolist() for row in rows]
whole = torch.full((12,), -1.0)
dist.all_gather_into_tensor(whole, own, async_op=True).wait()
found["all_gather_into_tensor"] = whole.tolist()
told = own.clone()
dist.broadcast(told, src=0)
found["broadcast"] = told.tolist()
dist.barrier()
dist.send(own, dst=0)
got = own.clone()
dist.recv(got, src=1)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, own, 3), dist.P2POp(dist.irecv, got, 1)]):
    work.wait()
found["recv"] = got.tolist()
part = torch.empty(3)
dist.reduce_scatter_tensor(part, whole)
row = torch.empty(8)
dist.all_to_all_single(row, torch.arange(6.0), [1, 2, 2, 3], [2, 2, 1, 1])  # of other sizes than the others' would be
found["shapes"] = (tuple(part.shape), tuple(row.shape))

mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
found["mesh"] = (mesh.get_coordinate(), mesh["tp"].mesh.tolist(), dist.get_process_group_ranks(mesh["dp"].get_group()))

if "flambeau" in torch.__version__:  # PyTorch's DistributedDataParallel fails over a fake group
    model = DistributedDataParallel(nn.Linear(3, 2))
    model(own).sum().backward()
    assert [p.grad.tolist() for p in model.parameters()] == [[[0.0, 1.0, 2.0]] * 2, [1.0] * 2]
dist.destroy_process_group()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
