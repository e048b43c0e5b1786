"""Communication hooks, model averaging and ZeroRedundancyOptimizer; writes parameters after some steps."""

import os
import pickle
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, powerSGD_hook, quantization_hooks, register_ddp_comm_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging import averagers, hierarchical_model_averager, utils
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
found = {}
cross = nn.CrossEntropyLoss()


def network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 24), nn.Tanh(), nn.Linear(24, 4))


def batch(step, of=rank):
    g = torch.Generator().manual_seed(1000 * step + of)
    return torch.randn(6, 12, generator=g), torch.randint(0, 4, (6,), generator=g)


def numbers(model):
    return {k: v.double().tolist() for k, v in model.state_dict().items()}


def train(model, optimizer, steps=6):
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        cross(model(x), y).backward()
        optimizer.step()


def with_hook(name, register, steps=6):
    model = DDP(network())
    register(model)
    train(model, torch.optim.SGD(model.parameters(), lr=0.1), steps)
    found[name] = numbers(model)


# -- hooks ------------------------------------------------------------------------------------------------------------------------
def gradient(hook, by_name=None):
    """The gradients of the first step, as one row."""
    model = DDP(network())
    if by_name is not None:
        register_ddp_comm_hook(by_name, model, dist.group.WORLD)
    elif hook is not None:
        model.register_comm_hook(dist.group.WORLD, hook)
    x, y = batch(0)
    cross(model(x), y).backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()]).double().tolist()


if "mine" in sys.argv:  # PyTorch's quantization hooks fail with gloo: the mean is what they must come near to
    own = network()
    x, y = batch(0)
    cross(own(x), y).backward()
    # In the order of buckets, the last parameter first.
    found["own"] = torch.cat([p.grad.reshape(-1) for p in reversed(list(own.parameters()))]).double().tolist()
    found["sizes"] = [p.numel() for p in own.parameters()]
    found["quantized"] = gradient(quantization_hooks.quantization_pertensor_hook)
    found["by rows of 64"] = gradient(lambda group, bucket: quantization_hooks.quantization_perchannel_hook(group, bucket, 64))
    found["by name"] = gradient(None, DDPCommHookType.QUANTIZE_PER_TENSOR)
    found["nothing sent"] = gradient(None, DDPCommHookType.NOOP)
found["mean"] = gradient(None)
for name, options in {
    "rank 1": {}, "rank 2": {"matrix_approximation_rank": 2}, "rank 3": {"matrix_approximation_rank": 3, "min_compression_rate": 1},
    "forgets": {"use_error_feedback": False, "warm_start": False}, "together": {"batch_tensors_with_same_shape": True, "min_compression_rate": 1},
    "seed": {"random_seed": 3, "warm_start": False},
}.items():  # fmt: skip
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, **options)
    with_hook(f"PowerSGD {name}", lambda m, state=state: m.register_comm_hook(state, powerSGD_hook.powerSGD_hook))
    found[f"PowerSGD {name}"]["stats"] = list(state.compression_stats())
if "mine" in sys.argv:  # PyTorch's asserts that matrices come in batches, and hands over none
    with_hook("no hook", lambda m: None)
    for columns in (2, 32):  # 1,012 elements are a matrix of 32 x 32, of which 32 columns are all
        state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, matrix_approximation_rank=columns)
        with_hook(f"batched PowerSGD {columns}", lambda m, state=state: m.register_comm_hook(state, powerSGD_hook.batched_powerSGD_hook))
        found[f"batched PowerSGD {columns}"]["stats"] = list(state.compression_stats())
again = pickle.loads(pickle.dumps(powerSGD_hook.PowerSGDState(dist.group.WORLD, 3, 5)))
found["pickled"] = [again.iter, again.matrix_approximation_rank, again.process_group is dist.group.WORLD]
try:
    powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=1)
except ValueError as error:
    found["too early"] = "Expect `start_powerSGD_iter` > 1" in str(error)


def twice(state, bucket):
    """A hook whose callback waits for a second collective."""

    def again(future):
        flat = future.value()[0].div_(size)
        return dist.all_reduce(flat, async_op=True).get_future().then(lambda f: f.value()[0] / size).wait()

    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(again)


with_hook("callback that waits", lambda m: m.register_comm_hook(None, twice))

# -- averaged models ------------------------------------------------------------------------------------------------------------------
for name, averages in (("neighbours", True), ("alone", False)):
    model = DDP(network())
    alone, _ = dist.new_subgroups(1)
    model.register_comm_hook(PostLocalSGDState(None, alone, 2, averages), post_localSGD_hook)
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = PostLocalSGDOptimizer(inner, averagers.PeriodicModelAverager(period=3, warmup_steps=2))
    train(model, optimizer, 7)
    found[f"post-local {name}"] = numbers(model)
    saved = optimizer.state_dict()
    other = PostLocalSGDOptimizer(torch.optim.SGD(network().parameters(), lr=0.5, momentum=0.9), averagers.PeriodicModelAverager(period=3, warmup_steps=2))
    other.load_state_dict(saved)
    rate = other.optim.param_groups[0]["lr"]
    found[f"post-local {name} saved"] = [saved["step"], other.averager.step, rate, sorted(saved) == ["param_groups", "state", "step"]]
if size == 4:
    model = network()
    averager = hierarchical_model_averager.HierarchicalModelAverager({2: 2, 4: 4}, warmup_steps=1)
    optimizer = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), averager)
    for steps in range(5):
        x, y = batch(steps)
        optimizer.zero_grad()
        cross(model(x), y).backward()
        optimizer.step()
        found[f"hierarchy {steps}"] = numbers(model)
model = network()
with torch.no_grad():
    for p in model.parameters():
        p += rank
model[0].weight.grad = torch.zeros_like(model[0].weight)
utils.average_parameters_or_parameter_groups(model.parameters(), None)
found["with gradients only"] = numbers(model)

# -- ZeroRedundancyOptimizer ------------------------------------------------------------------------------------------------------------
for name, kind, options in (
    ("SGD", torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), ("Adam", torch.optim.Adam, {"lr": 0.01}), ("AdamW", torch.optim.AdamW, {"lr": 0.01}),
    ("views", torch.optim.RMSprop, {"lr": 0.01, "parameters_as_bucket_view": True}),
):  # fmt: skip
    model = DDP(network())
    groups = [{"params": list(model.module[0].parameters())}, {"params": list(model.module[2].parameters()), "lr": 0.003}]
    zero = ZeroRedundancyOptimizer(groups, kind, **options)
    zero.add_param_group({"params": list(model.module[4].parameters()), "lr": 0.02})
    schedule = torch.optim.lr_scheduler.StepLR(zero, 2, 0.5)
    for _ in range(3):
        train(model, zero, 2)
        schedule.step()
    found[f"zero {name}"] = numbers(model)
    owned = sum(p.numel() for group in zero.optim.param_groups for p in group["params"])
    kept = sum(v.numel() for state in zero.optim.state.values() for v in state.values() if isinstance(v, torch.Tensor) and v.ndim)
    found[f"zero {name} share"] = [owned, kept]
    zero.consolidate_state_dict(to=1)
    if rank == 1:
        saved = zero.state_dict()
        found[f"zero {name} state"] = {
            str(i): {k: v.double().tolist() if isinstance(v, torch.Tensor) else v for k, v in state.items()} for i, state in saved["state"].items()
        }
        found[f"zero {name} groups"] = [[group["lr"], *group["params"]] for group in saved["param_groups"]]
    else:
        try:
            zero.state_dict()
        except RuntimeError as error:
            found[f"zero {name} state"] = "Optimizer state has not been consolidated on this rank" in str(error)
    box = [saved if rank == 1 else None]
    dist.broadcast_object_list(box, 1)
    # A plain optimizer takes the saved state, and so does another ZeroRedundancyOptimizer: all go on alike.
    for which in ("plain", "zero"):
        twin = network()
        twin.load_state_dict(model.module.state_dict())
        groups = [{"params": list(twin[i].parameters())} for i in (0, 2, 4)]
        options = {k: v for k, v in options.items() if k != "parameters_as_bucket_view"}
        other = ZeroRedundancyOptimizer(groups, kind, **options) if which == "zero" else kind(groups, **options)
        other.load_state_dict(pickle.loads(pickle.dumps(box[0])))
        twin = DDP(twin)
        train(twin, other, 2)
        found[f"zero {name} goes on {which}"] = numbers(twin)

if "mine" in sys.argv:  # PyTorch's rank without inputs steps with old gradients
    model = DDP(network())
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.01)
    with Join([model, zero]):
        for step in range(2 + 2 * rank):
            x, y = batch(step)
            zero.zero_grad()
            cross(model(x), y).backward()
            zero.step()
    found["zero join"] = numbers(model.module)
    model, said = DDP(network()), ""
    try:
        with model.join(throw_on_early_termination=True):
            for step in range(2 + rank):
                x, y = batch(step)
                cross(model(x), y).backward()
    except RuntimeError as error:
        said = str(error)
    expected = "Rank 0 exhausted all inputs." if dist.get_rank() == 0 else "Detected at least one rank that exhausted inputs. Throwing across all ranks."
    assert said.startswith(expected), said
    alone = network()
    optimizer = torch.optim.Adam(alone.parameters(), lr=0.01)
    for step in range(2 * size):
        optimizer.zero_grad()
        for of in range(step // 2, size):
            x, y = batch(step, of)
            (cross(alone(x), y) / size).backward()
        optimizer.step()
    found["alone"] = numbers(alone)


def error_of(function):
    try:
        function()
    except Exception as error:
        return type(error).__name__
    return None


ends = [
    lambda: ZeroRedundancyOptimizer([], torch.optim.SGD, lr=0.1),
    lambda: ZeroRedundancyOptimizer(torch.ones(2), torch.optim.SGD, lr=0.1),
    lambda: ZeroRedundancyOptimizer([torch.ones(2), torch.ones(2).double()], torch.optim.SGD, lr=0.1),
    lambda: ZeroRedundancyOptimizer([{"lr": 1.0}], torch.optim.SGD, lr=0.1),
    lambda: ZeroRedundancyOptimizer(1, torch.optim.SGD, lr=0.1),
    lambda: averagers.PeriodicModelAverager(period=0),
    lambda: hierarchical_model_averager.HierarchicalModelAverager({}),
    lambda: hierarchical_model_averager.HierarchicalModelAverager({2: size + 1}),
]
found["errors"] = " ".join(str(error_of(end)) for end in ends)
dist.barrier()
dist.destroy_process_group()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
