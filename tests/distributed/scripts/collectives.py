"""Every collective on every dtype that PyTorch's gloo takes; writes what each rank has afterwards."""

import os
import pickle

import torch
import torch.distributed as dist
import torch.utils.data.distributed

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
found = {}


def keep(name, *tensors):
    found[name] = [(str(t.dtype), tuple(t.shape), t.to(torch.float64).tolist() if not t.is_complex() else t.tolist()) for t in tensors]


def data(kind, shape=(3, 5), seed=0):
    generator = torch.Generator().manual_seed(100 * seed + rank)
    # Products of four ranks' numbers are exact in bfloat16, which gloo rounds after each of them.
    numbers = torch.randint(0, 2 if kind == torch.bool else 9 if size < 4 else 5, shape, generator=generator)
    return numbers.to(kind)


REAL = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int32, torch.int64]
for kind in REAL:
    for op in ("SUM", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR"):
        if op.startswith("B") and kind.is_floating_point:
            continue
        x = data(kind)
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        keep(f"all_reduce {kind} {op}", x)
    x = data(kind, (70_001,))
    dist.all_reduce(x)
    keep(f"all_reduce long {kind}", x[::997])

z = torch.complex(data(torch.float32), data(torch.float32, seed=1))
dist.all_reduce(z)
keep("complex", z)
x = data(torch.float32, (6, 4)).t()
try:
    dist.all_reduce(x)
except (RuntimeError, ValueError):  # gloo wants contiguous tensors
    y = x.contiguous()
    dist.all_reduce(y)
    x = y
keep("strided", x)
for shape, dense in (((7,), 0), ((4, 5), 0), ((4, 5, 2), 1)):  # ranks have different numbers of places, some of them twice
    places = torch.randint(0, 4, (len(shape) - dense, 2 * rank + 1), generator=torch.Generator().manual_seed(rank))
    x = torch.sparse_coo_tensor(places, data(torch.float64, (2 * rank + 1, *shape[len(shape) - dense :])), shape)
    dist.all_reduce(x)
    found[f"sparse {shape}"] = (x.is_sparse, x.coalesce().indices().tolist(), x.coalesce().values().tolist())
ts = [data(torch.float32, (2,), i) for i in range(5)]
pending = [dist.all_reduce(t, async_op=True) for t in ts]
for work in pending:
    work.wait()
keep("async", *ts)
x = data(torch.float32)
dist.all_reduce(x, async_op=True).get_future().wait()
keep("future", x)

for kind in [*REAL, torch.bool]:
    x = data(kind, (4, 3), 2)
    dist.broadcast(x, size - 1)
    keep(f"broadcast {kind}", x)
    outs = [torch.zeros(4, 3, dtype=kind) for _ in range(size)]
    dist.all_gather(outs, data(kind, (4, 3), 3))
    keep(f"all_gather {kind}", *outs)
    outs = [torch.zeros(4, 3, dtype=kind) for _ in range(size)] if rank == 1 else None
    dist.gather(data(kind, (4, 3), 4), outs, dst=1)
    keep(f"gather {kind}", *(outs or []))
    x = torch.zeros(2, 2, dtype=kind)
    dist.scatter(x, [torch.full((2, 2), i, dtype=kind) for i in range(size)] if rank == 0 else None, src=0)
    keep(f"scatter {kind}", x)
    x = torch.zeros(4 * size, 3, dtype=kind)
    dist.all_gather_into_tensor(x, data(kind, (4, 3), 5))
    keep(f"all_gather_into_tensor {kind}", x)

big = torch.arange(300_000, dtype=torch.float32) + rank
dist.broadcast(big, 1)
keep("broadcast long", big[::9973])
x = data(torch.float32, (3,), 6)
dist.reduce(x, 1)
keep("reduce", *([x] if rank == 1 else []))
x = torch.zeros(4)
dist.reduce_scatter(x, [data(torch.float32, (4,), i) for i in range(size)])
keep("reduce_scatter", x)
x = torch.zeros(2, 3)
dist.reduce_scatter_tensor(x, data(torch.float32, (2 * size, 3), 7))
keep("reduce_scatter_tensor", x)
x = torch.zeros(2 * size)
dist.all_to_all_single(x, torch.arange(2.0 * size) + 10 * rank)
keep("all_to_all_single", x)
send = [rank + j + 1 for j in range(size)]
receive = [j + rank + 1 for j in range(size)]
x = torch.zeros(sum(receive), 2)
dist.all_to_all_single(x, torch.full((sum(send), 2), float(rank)), receive, send)
keep("all_to_all_single uneven", x)
outs = [torch.zeros(j + 1) for j in range(size)]
try:
    dist.all_to_all(outs, [torch.full((rank + 1,), 10.0 * rank + j) for j in range(size)])
    keep("all_to_all", *outs)
except RuntimeError:
    assert torch.__version__.startswith("2.13.0+cpu"), torch.__version__  # PyTorch's gloo has none

objects = [None] * size
dist.all_gather_object(objects, {"rank": rank, "text": "x" * (rank * 1000)})
found["all_gather_object"] = objects
objects = [f"from {rank}", rank, None]
dist.broadcast_object_list(objects, src=1)
found["broadcast_object_list"] = objects
objects = [None] * size if rank == 0 else None
dist.gather_object(rank * 2, objects, dst=0)
found["gather_object"] = objects
objects = [None]
dist.scatter_object_list(objects, [i * i for i in range(size)] if rank == 0 else None, src=0)
found["scatter_object_list"] = objects

right, left = (rank + 1) % size, (rank - 1) % size
x = torch.zeros(30_000)
if rank % 2 == 0 and rank != size - 1:
    dist.send(torch.full((30_000,), float(rank)), right)
elif rank % 2 == 1:
    dist.recv(x, left)
keep("send", x[::999])
a, b = torch.zeros(3), torch.zeros(3)
works = [dist.irecv(a, left, tag=1), dist.irecv(b, left, tag=2)]
works += [dist.isend(torch.full((3,), 20.0 + rank), right, tag=2), dist.isend(torch.full((3,), 10.0 + rank), right, tag=1)]
for work in works:
    work.wait()
keep("tags", a, b)
c = torch.zeros(2)
for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((2,), 1.0 + rank), right), dist.P2POp(dist.irecv, c, left)]):
    work.wait()
keep("batch", c)
if rank == 0:
    x = torch.zeros(size - 1)
    for _ in range(size - 1):
        y = torch.zeros(1)
        sender = dist.recv(y)
        assert y.item() == sender
        x[sender - 1] = y
    keep("any", x)
else:
    dist.send(torch.full((1,), float(rank)), 0)

pair = dist.new_group([0, size - 1])
found["pair"] = (dist.get_rank(pair), dist.get_world_size(pair))
if rank in (0, size - 1):
    x = torch.full((2,), float(rank))
    dist.all_reduce(x, group=pair)
    keep("pair", x)
    y = torch.full((2,), float(rank))
    dist.broadcast(y, src=size - 1, group=pair)
    keep("pair broadcast", y)
    found["pair ranks"] = dist.get_process_group_ranks(pair)
from torch.distributed import _functional_collectives as functional  # noqa: E402
from torch.distributed.collective_utils import all_gather, broadcast  # noqa: E402


def failing():
    """A function that fails on the last rank."""
    if rank == size - 1:
        raise ValueError("not here")
    return rank


world = dist.group.WORLD
found["one function for all"] = (broadcast(lambda: f"from {rank}", rank=size - 1, pg=world), all_gather(lambda: rank * 2, "stage", world), broadcast(5))
for name, call in {"all_gather": lambda: all_gather(failing, pg=world), "broadcast": lambda: broadcast(failing, rank=size - 1, pg=world)}.items():
    try:
        call()
    except Exception as error:  # PyTorch's all_gather fails with another one
        found[f"failure in {name}"] = str(error) if name == "broadcast" else "on all ranks"
keep("by the group's name", functional.wait_tensor(functional.all_reduce(torch.full((3,), rank + 1.0), "sum", world.group_name)))
sampler = torch.utils.data.distributed.DistributedSampler(list(range(11)), seed=3)
found["sampler"] = list(sampler)
dist.barrier()
dist.monitored_barrier()
found["names"] = (dist.get_rank(), dist.get_world_size(), str(dist.get_backend()))
dist.destroy_process_group()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
