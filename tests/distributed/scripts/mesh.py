"""DeviceMesh: coordinates, groups and slices; writes what each rank sees of them."""

import os
import pickle
import warnings

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
from torch.distributed.device_mesh import DeviceMesh, _mesh_resources, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor._collective_utils import mesh_broadcast, mesh_scatter, unpad_tensor
from torch.distributed.tensor.placement_types import _StridedShard

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
    seen("flattened and plain", cube["pp", "dptp"])
    cube["pp", "dp"]._flatten("ppdp")
    seen("flattened first", cube["ppdp", "tp"])
    seen("part of both", cube["ppdp", "tp"]["ppdp"])
    found["root"] = cube["ppdp", "tp"]._get_root_mesh() == cube
found["submeshes"] = [m.mesh.tolist() for m in grid._get_all_submeshes("tp")]
with grid, grid["tp"] as inner:
    found["current"] = (_mesh_resources.get_current_mesh() == inner, len(_mesh_resources.mesh_stack))

with grid:
    found["in the current mesh"] = distribute_tensor(torch.arange(12.0).reshape(4, 3), placements=[Replicate(), Shard(0)]).to_local().tolist()
some = DeviceMesh("cpu", [0, size - 1])
parts = DTensor.from_local(torch.full((2, 3), float(rank)), some, [Shard(0)])
found["not in the mesh"] = (parts.to_local().tolist(), parts.redistribute(placements=[Replicate()]).to_local().tolist(), tuple(parts.shape))
found["distributed"] = distribute_tensor(torch.arange(6.0).reshape(3, 2), some, [Shard(0)]).to_local().tolist()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    line = distribute_tensor(torch.arange(8.0), init_device_mesh("cpu", (size,)), [Shard(0)])
    found["one number"] = ((line + torch.tensor([2.0])).to_local().tolist(), any("non-scalar tensor with numel=1" in str(w.message) for w in told))

for number, given in enumerate(((grid, 1), grid["dp"], (grid["tp"], 0), grid["tp"].get_group())):
    found["functional", number] = funcol.all_reduce(torch.tensor([10.0**rank]), "sum", given).tolist()
for factor in (1, 2, 3):
    for padded in (True, False):
        pieces, pads = _StridedShard(0, split_factor=factor)._split_tensor(torch.arange(22.0).reshape(11, 2), size, with_padding=padded)
        found["strided", factor, padded] = ([piece.tolist() for piece in pieces], pads)
for number, mesh in enumerate((grid, grid["tp"])):
    for d in range(mesh.ndim):
        whole = torch.arange(10.0).reshape(5, 2) + 100 * rank
        parts, pads = Shard(0)._split_tensor(whole, mesh.size(d), with_padding=True)
        plain, none = Shard(0)._split_tensor(whole, mesh.size(d), with_padding=False, contiguous=False)
        part = torch.empty_like(parts[0])
        mesh_scatter(part, parts, mesh, mesh_dim=d)
        part = unpad_tensor(part, 0, pads[mesh.get_local_rank(d)])
        shared = torch.full((2,), float(rank))
        mesh_broadcast(shared, mesh, mesh_dim=d, group_src=mesh.size(d) - 1)
        found["parts", number, d] = (part.tolist(), pads, [p.tolist() for p in plain], none, shared.tolist())
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
    error(lambda: _mesh_resources.get_current_mesh()),
    error(lambda: grid.get_group()),
    error(lambda: init_device_mesh("cpu:0", (size,))),
]
duplicates = error(lambda: DeviceMesh("cpu", [0, 0])) if "flambeau" in torch.__version__ else "ValueError"  # PyTorch's answer differs by rank and size
found["duplicates"] = duplicates
dist.barrier()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
dist.destroy_process_group()
