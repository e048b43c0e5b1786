"""ShardedTensors in checkpoints, cut anew; gradients of DTensors that accumulate: on two ranks."""

import os
import pickle

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.metadata import ShardMetadata
from torch.distributed._shard.sharding_spec import ChunkShardingSpec, EnumerableShardingSpec
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Partial, Replicate, Shard, distribute_tensor

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
folder = os.path.join(os.path.dirname(os.environ["OUT"]), f"sharded-{'flambeau' in torch.__version__}")
found = {}
rows = ChunkShardingSpec(dim=0, placements=["rank:0", "rank:1"])
columns = ChunkShardingSpec(dim=1, placements=["rank:1/cpu", "rank:0/cpu", "rank:1/cpu"])
boxes = EnumerableShardingSpec([ShardMetadata([0, 0], [2, 7], "rank:1"), ShardMetadata([2, 0], [3, 4], "rank:0"), ShardMetadata([2, 4], [3, 3], "rank:1")])
whole = torch.arange(35.0).reshape(5, 7)


def filled(spec):
    """A ShardedTensor of a whole tensor's parts."""
    made = sharded_tensor.zeros(spec, 5, 7)
    for shard in made.local_shards():
        (a, b), (n, m) = shard.metadata.shard_offsets, shard.metadata.shard_sizes
        shard.tensor.copy_(whole[a : a + n, b : b + m])
    return made


def together(t):
    out = torch.zeros(5, 7) if rank == 0 else None
    t.gather(dst=0, out=out)
    return None if out is None else out.tolist()


class Holder(nn.Module):
    def __init__(self, t):
        super().__init__()
        self.own, self.plain = t, nn.Linear(2, 2)
        self._register_state_dict_hook(sharded_tensor.state_dict_hook)


for name, spec in (("rows", rows), ("columns", columns), ("boxes", boxes)):
    t = filled(spec)
    found[name] = [(s.metadata.shard_offsets, s.metadata.shard_sizes, s.tensor.tolist()) for s in t.local_shards()]
    found[f"{name} whole"] = together(t)
    found[f"{name} says"] = (tuple(t.size()), t.dim(), str(t.dtype).rpartition(".")[2], t.requires_grad, len(t.metadata().shards_metadata))
    dcp.save({"model": Holder(t).state_dict(), "step": 3}, checkpoint_id=f"{folder}-{name}")
    for other, target in (("rows", rows), ("columns", columns), ("boxes", boxes)):
        read = {"model": Holder(sharded_tensor.zeros(target, 5, 7)).state_dict(), "step": 0}
        dcp.load(read, checkpoint_id=f"{folder}-{name}")
        found[f"{name} as {other}"] = (together(read["model"]["own"]), read["step"])
mesh = init_device_mesh("cpu", (2,))
spread = {"model": {"own": distribute_tensor(torch.zeros(5, 7), mesh, [Shard(0)])}}
dcp.load(spread, checkpoint_id=f"{folder}-boxes")  # what a ShardedTensor has saved, as a DTensor
found["as a DTensor"] = spread["model"]["own"].full_tensor().tolist()
part = sharded_tensor.Shard.from_tensor_and_offsets(torch.full((2,), float(rank)), [2 * rank], rank)
found["of parts"] = [list(s.shard_offsets) for s in sharded_tensor.init_from_local_shards([part], 4).metadata().shards_metadata]
for name, refused in (
    ("a gap", lambda: EnumerableShardingSpec([ShardMetadata([0], [2], "rank:0")]).build_metadata(torch.Size([3]), None)),
    ("twice", lambda: EnumerableShardingSpec([ShardMetadata([0], [2], "rank:0"), ShardMetadata([1], [2], "rank:1")])),
    ("no such dim", lambda: ChunkShardingSpec(2, ["rank:0"]).build_metadata(torch.Size([3]), None)),
):
    try:
        refused()
    except ValueError as error:
        found[name] = type(error).__name__

# -- gradients that come to a DTensor twice; and the gradient of what was redistributed, in one redistribution -----------------------------
x = distribute_tensor(torch.ones(4, 3, requires_grad=True), mesh, [Shard(0)])
(x * 3).to_local().sum().backward()
local = x.to_local()
local.register_hook(lambda gradient: gradient * 2)
local.relu().sum().backward()
found["twice added"] = (x.grad.to_local().tolist(), type(x.grad).__name__)
x.grad = None
gathered = x.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
(gathered * (rank + 1)).sum().backward()
found["partial gradient"] = x.grad.full_tensor().tolist()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
