"""What CommDebugMode counts, what DTensorSpec says, files of DTensors, collectives as operators: rank 1 of a group that has no others."""

import io
import os
import pickle

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.distributed._tools.mod_tracker import ModTracker
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor._api import _shard_tensor
from torch.distributed.tensor._collective_utils import shard_dim_alltoall
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
mesh = init_device_mesh("cpu", (2,))
mode = CommDebugMode()
found = {}


def counts():
    return {str(name): n for name, n in mode.get_comm_counts().items() if n}


def by_module():
    return {
        name: {way: {str(operator): n for operator, n in each.items() if n} for way, each in ways.items()} for name, ways in mode.comm_module_counts.items()
    }


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1, self.relu, self.net2 = nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Perceptron(), Perceptron()

    def forward(self, x):
        return self.second(self.first(x))


# -- modules: a layer cut by rows adds up its results once, and its gradients need nothing ------------------------------------------------
plan = {f"{each}.{name}": style() for each in ("first", "second") for name, style in (("net1", ColwiseParallel), ("net2", RowwiseParallel))}
net = parallelize_module(Two(), mesh, plan)
with mode:
    out = net(torch.randn(3, 4, requires_grad=True))
found["forward"] = by_module()
found["sharding"] = {name: str(placements) for name, placements in mode.get_sharding_info().items()}
found["parameters"] = {name: list(each) for name, each in mode.get_parameter_info().items()}
found["depths"] = {name: about["depth"] for name, about in mode.advanced_module_tracker.module_helper_dict.items()}
table = mode.generate_comm_debug_tracing_table(noise_level=0)
found["table"] = [line for line in table.splitlines() if "FORWARD" not in line and "BACKWARD" not in line]
with mode:
    net(torch.randn(3, 4, requires_grad=True)).sum().backward()
found["both"] = counts()
found["total"], found["shown"] = mode.get_total_counts(), repr(mode)

# -- DTensors ----------------------------------------------------------------------------------------------------------------------------
for name, have, want in (("gather", Shard(0), Replicate()), ("cut", Replicate(), Shard(0)), ("sum", Partial(), Replicate()), ("sum part", Partial(), Shard(1))):
    t = DTensor.from_local(torch.ones(4, 4), mesh, [have])
    with mode:
        t.redistribute(placements=[want])
    found[name] = counts()
t = DTensor.from_local(torch.ones(4, 4, requires_grad=True), mesh, [Shard(0)])
with mode:
    t.redistribute(placements=[Replicate()]).to_local().sum().backward()
found["gradient"] = counts()

# -- collectives -------------------------------------------------------------------------------------------------------------------------
own, rows = torch.ones(4), [torch.ones(4), torch.ones(4)]
calls = {
    "all_reduce": lambda: dist.all_reduce(own), "all_gather": lambda: dist.all_gather(rows, own), "broadcast": lambda: dist.broadcast(own, 0),
    "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(torch.empty(8), own), "reduce": lambda: dist.reduce(own, 0),
    "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(torch.empty(2), own), "all_to_all_single": lambda: dist.all_to_all_single(own, own.clone()),
    "functional all_reduce": lambda: functional.all_reduce(own, "sum", dist.group.WORLD), "barrier": dist.barrier,
    "functional all_gather": lambda: functional.all_gather_tensor(own, 0, dist.group.WORLD),
    "functional reduce_scatter": lambda: functional.reduce_scatter_tensor(own, "sum", 0, dist.group.WORLD),
    "functional coalesced": lambda: functional.all_reduce_coalesced([own, own], "sum", dist.group.WORLD),
    "functional all_to_all": lambda: functional.all_to_all_single(own, [2, 2], [2, 2], dist.group.WORLD),
}  # fmt: skip
for name, call in calls.items():
    with mode:
        call()
    found[name] = counts()
name = dist.group.WORLD.group_name
ops = torch.ops._c10d_functional
found["operators"] = [
    tuple(ops.wait_tensor(ops.all_reduce(own, "sum", name)).shape), tuple(ops.wait_tensor(ops.all_gather_into_tensor(own, 2, name)).shape),
    tuple(ops.wait_tensor(ops.reduce_scatter_tensor(own, "sum", 2, name)).shape), tuple(ops.wait_tensor(ops.broadcast(own, 0, name)).shape),
]  # fmt: skip
meta = torch.empty(4, 6, device="meta")
found["exchanged"] = [tuple(shard_dim_alltoall(x, 0, 1, mesh, 0).shape) for x in (torch.ones(4, 6), meta)]

# -- modules that are under way ----------------------------------------------------------------------------------------------------------
seen = []
tracker = ModTracker()
tracker.register_user_hooks(
    lambda module, _: seen.append(("forward", tracker.get_known_fqn(module), sorted(tracker.parents), tracker.is_bw)), None,
    lambda module, _: seen.append(("backward", tracker.get_known_fqn(module), sorted(tracker.parents), tracker.is_bw)), None,
)  # fmt: skip
plain = Two()
with tracker:
    plain(torch.randn(3, 4, requires_grad=True)).sum().backward()
    found["under way at the end"] = sorted(tracker.parents)
found["under way"] = seen
try:
    tracker.register_user_hooks(lambda module, _: None)
except AssertionError:
    found["one hook"] = True

# -- what a spec says ----------------------------------------------------------------------------------------------------------------------
square = init_device_mesh("cpu", (1, 2))
spec = DTensorSpec(square, (Replicate(), Shard(1)), tensor_meta=TensorMeta(torch.Size([4, 6]), (6, 1), torch.float32))
again = DTensorSpec.from_dim_map(square, [-1, 1], [0], tensor_meta=spec.tensor_meta)
found["spec"] = (spec.dim_map, spec.num_shards, spec.num_shards_map, spec.sums, tuple(spec.shape), spec.stride, spec.ndim, spec.is_sharded(),
                 spec.is_replicated(), again.sums, [str(p) for p in again.placements])  # fmt: skip
laid = DTensor(torch.ones(4, 3), spec, requires_grad=True)
found["laid"] = (tuple(laid.shape), laid.requires_grad, [str(p) for p in laid.placements])
for wrong in ([1, 1], [0, -1]):
    try:
        DTensorSpec.from_dim_map(square, wrong, [0] if wrong[0] == 0 else [])
    except RuntimeError as error:
        found[f"wrong {wrong}"] = str(error)
found["shard_tensor"] = _shard_tensor(torch.arange(8.0).reshape(4, 2), [Shard(0)], mesh).to_local().tolist()


# -- functions with gradients of their own -------------------------------------------------------------------------------------------------
class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        seen.append(type(gradient).__name__)
        return gradient * 2 * ctx.saved_tensors[0]


seen.clear()
t = DTensor.from_local(torch.full((2, 2), 3.0), mesh, [Shard(0)]).detach().requires_grad_()
doubled = Doubled.apply(t)
doubled.to_local().sum().backward()
found["custom function"] = (type(doubled).__name__, seen[:], type(t.grad).__name__, t.grad.to_local().tolist())
layer = nn.Linear(2, 2)
layer.register_full_backward_hook(lambda module, inputs, outputs: None)
parallelize_module(layer, mesh, ColwiseParallel(use_local_output=False))
found["hooked"] = (type(layer(t)).__name__, tuple(layer(t).shape))

# -- files -----------------------------------------------------------------------------------------------------------------------------------
file = io.BytesIO()
torch.save({"t": laid, "p": nn.Parameter(laid.detach())}, file)
file.seek(0)
read = torch.load(file, weights_only=True)
found["file"] = [(type(each).__name__, tuple(each.shape), each.requires_grad, [str(p) for p in each.placements], each.to_local().tolist()) for each in (
    read["t"], read["p"])]  # fmt: skip
with open(os.environ["OUT"], "wb") as out_file:
    pickle.dump(found, out_file)
