"""Groups that are made by themselves, collectives as their methods, backends of one's own, `replicate`; writes what each rank has, and what is refused."""

import os
import pickle

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._composable.replicate import replicate

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
place = os.environ["INIT"].removeprefix("file://")
found = {}


def store(name):
    return dist.FileStore(f"{place}-{name}", size)


def numbers(count, start=0):
    return [torch.arange(4, dtype=torch.int64) + 10 * rank + i + start for i in range(count)]


def plain(value):
    return value.tolist() if isinstance(value, torch.Tensor) else [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def keep(name, value):
    found[name] = plain(value)


def refused(name, call):
    try:
        call()
    except Exception as error:
        text = str(error).splitlines()[0].partition(" at index")[0].partition(": requires")  # PyTorch counts from the second tensor
        found[f"refused {name}"] = (type(error).__name__, text[0], text[2].split()[:2])
    else:
        found[f"refused {name}"] = None


def options(kind, **values):
    made = kind()
    for name, value in values.items():
        setattr(made, name, value)
    return made


chosen = dist.ProcessGroupGloo._Options()
chosen._timeout = 50.0
chosen._devices = [dist.ProcessGroupGloo.create_device(interface="lo")]
group = dist.ProcessGroupGloo(store("own"), rank, size, chosen)
keep("whom", [group.rank(), group.size(), str(group.options._timeout)])
for op in ("SUM", "PRODUCT", "MIN", "MAX", "BXOR"):
    for count in (1, 2, 3):
        tensors = numbers(count)
        work = group.allreduce(tensors, options(dist.AllreduceOptions, reduceOp=getattr(dist.ReduceOp, op)))
        keep(f"allreduce {op} {count}", (work.get_future().wait(), tensors))
for root in range(size):
    for which in (0, 1):
        tensors = numbers(2)
        group.broadcast(tensors, options(dist.BroadcastOptions, rootRank=root, rootTensor=which)).wait()
        keep(f"broadcast {root} {which}", tensors)
    tensors, lists = numbers(1), [torch.zeros(4, dtype=torch.int64) for _ in range(size)]
    future = group.gather([lists] if rank == root else [], tensors, options(dist.GatherOptions, rootRank=root)).get_future()
    future.wait()
    keep(f"gather {root}", lists)
    tensors = numbers(1)
    group.scatter(tensors, [numbers(size, 100)] if rank == root else [], options(dist.ScatterOptions, rootRank=root)).wait()
    keep(f"scatter {root}", tensors)
    tensors = numbers(1)
    group.reduce(tensors, options(dist.ReduceOptions, rootRank=root)).wait()
    if rank == root:
        keep(f"reduce {root}", tensors)
for count in (1, 2):
    outputs = [[torch.zeros(4, dtype=torch.int64) for _ in range(count * size)] for _ in range(count)]
    keep(f"allgather {count}", group.allgather(outputs, numbers(count)).get_future().wait())
tensors = [numbers(1)[0] for _ in range(2)]
keep("coalesced", group.allreduce_coalesced(tensors, dist.AllreduceCoalescedOptions()).get_future().wait())
got = torch.zeros(4, dtype=torch.int64)
works = [group.send([numbers(1)[0]], (rank + 1) % size, 3), group.recv([got], (rank - 1) % size, 3)]
for work in works:
    work.wait()
keep("message", got)
group.barrier().wait()

one, other, long = torch.zeros(1), torch.zeros(1, dtype=torch.float64), torch.zeros(2)
for name, call in {
    "broadcast root": lambda: group.broadcast([one], options(dist.BroadcastOptions, rootRank=-1)),
    "broadcast tensor": lambda: group.broadcast([one], options(dist.BroadcastOptions, rootRank=rank, rootTensor=1)),
    "broadcast kinds": lambda: group.broadcast([one, other], options(dist.BroadcastOptions, rootRank=rank)),
    "allreduce none": lambda: group.allreduce([], dist.AllreduceOptions()),
    "allreduce kinds": lambda: group.allreduce([one, other], dist.AllreduceOptions()),
    "allreduce sizes": lambda: group.allreduce([one, long], dist.AllreduceOptions()),
    "gather list": lambda: group.gather([[one] * (size + 1)], [one], options(dist.GatherOptions, rootRank=rank)),
    "gather other root": lambda: group.gather([[one] * size], [one], options(dist.GatherOptions, rootRank=(rank + 1) % size)),
    "scatter kinds": lambda: group.scatter([one], [[other] * size], options(dist.ScatterOptions, rootRank=rank)),
    "scatter none": lambda: group.scatter([one], [], options(dist.ScatterOptions, rootRank=rank)),
    "allgather none": lambda: group.allgather([], []),
    "allgather lists": lambda: group.allgather([[one] * (size + 1)], [one]),
    "reduce two": lambda: group.reduce([one, one], options(dist.ReduceOptions, rootRank=0)),
}.items():
    refused(name, call)

dist.init_process_group("gloo", store=store("world"), rank=rank, world_size=size)
outputs = [torch.zeros(size * 2, 3), torch.zeros(size, 2)]
dist.group.WORLD.allgather_into_tensor_coalesced(outputs, [torch.full((2, 3), rank + 1.0), torch.full((1, 2), rank + 5.0)]).wait()
keep("into tensors", outputs)
outputs = [torch.zeros(2, 3), torch.zeros(1, 2)]
dist.group.WORLD.reduce_scatter_tensor_coalesced(outputs, [torch.full((size * 2, 3), rank + 1.0), torch.full((size, 2), rank + 5.0)]).wait()
keep("scattered tensors", outputs)
others = [r for r in range(size) if r != rank]
found["not in it"] = dist.new_group(others, use_local_synchronization=True) is None if size > 2 else True

# replicate: the names stay, and gradients become the mean
torch.manual_seed(rank)
model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Embedding(5, 2), nn.Linear(4, 2)).double()
names = list(model.state_dict())


def step(inputs):
    model(inputs).sum().backward()


model.forward = lambda x: model[3](model[1](model[0](x))).sum() + model[2](torch.tensor([rank])).sum()
replicate(model, find_unused_parameters=True)
step(torch.full((2, 3), rank + 1.0, dtype=torch.float64))
found["replicate names"] = list(model.state_dict()) == names
found["replicate"] = [(p.grad * 1e10).round().tolist() for p in model.parameters()]
found["replicate class"] = [type(model).__name__, type(model[0]).__name__]
dist.destroy_process_group()


class Work(dist._Work):
    def wait(self, timeout=None):
        return True


class Marked(dist.ProcessGroup):
    """Adds numbers of its own, and sends nothing."""

    def getBackendName(self):
        return "Marked"

    def allreduce(self, tensors, opts=None):
        for t in tensors:
            t.add_(2)
        return Work()

    def broadcast(self, tensors, opts=None):
        for t in tensors:
            t.add_(opts.rootRank)
        return Work()

    def allgather(self, output_lists, inputs, opts=None):
        for outputs, t in zip(output_lists, inputs, strict=True):
            for output in outputs:
                output.copy_(t)
        return Work()

    def send(self, tensors, peer, tag=0):
        tensors[0].add_(peer)
        return Work()

    def recv(self, tensors, peer, tag=0):
        tensors[0].mul_(tag)
        return Work()

    def barrier(self, opts=None):
        return Work()


dist.Backend.register_backend("marked", lambda store, rank, size, timeout: Marked(rank, size), devices=["cpu"])
dist.init_process_group("marked", store=store("marked"), rank=rank, world_size=size)
x = torch.ones(3)
dist.all_reduce(x)
dist.broadcast(x, 1)
dist.send(x, (rank + 1) % size)
dist.recv(x, (rank + 1) % size, tag=5)
rows = [torch.zeros(3) for _ in range(size)]
dist.all_gather(rows, x, async_op=True).wait()
dist.barrier()
keep("own backend", [x, *rows])
keep("own names", [Marked(0, 1).name(), str(dist.get_backend()), dist.is_backend_available("marked"), str(dist.BackendConfig(dist.Backend("marked")))])
refused("own backend has none", lambda: dist.reduce_scatter(torch.zeros(1), [torch.zeros(1)] * size))
dist.destroy_process_group()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
