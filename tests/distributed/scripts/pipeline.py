"""Models in stages by every schedule; writes losses, results and gradients, and those of one process on the whole batch."""

import copy
import os
import pickle
import sys
import warnings
from functools import cache

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleDualPipeV,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleLoopedBFS,
    ScheduleZBVZeroBubble,
    SplitPoint,
    pipe_split,
    pipeline,
)  # fmt: skip
from torch.distributed.pipelining.microbatch import TensorChunkSpec, merge_chunks, split_args_kwargs_into_chunks
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.nn.parallel import DistributedDataParallel as DDP

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
found, mine = {}, "mine" in sys.argv
cpu = torch.device("cpu")
cross = nn.CrossEntropyLoss()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        return x + torch.tanh(self.out(self.norm(x)))


def layers(count):
    torch.manual_seed(7)
    parts = [nn.Linear(5, 8), *(Block() for _ in range(2 * count - 2)), nn.Linear(8, 4)]
    return [nn.Sequential(*parts[i : i + 2]).double() for i in range(0, 2 * count, 2)]


def batch(step, count=8):
    g = torch.Generator().manual_seed(step)
    return torch.randn(count, 5, generator=g).double(), torch.randint(0, 4, (count,), generator=g)


def numbers(module):
    return {name: p.grad.tolist() for name, p in module.named_parameters()}


@cache
def whole(count, steps):
    """Losses, gradients of the last step, and parameters, in one process: the same for all schedules."""
    stages = layers(count)
    model = nn.Sequential(*stages)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        loss = cross(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [numbers(stage) for stage in stages]


def train(name, kind, per_rank, microbatches, v=False, steps=3, **options):
    count = per_rank * size
    modules = layers(count)
    own = [i for i in range(count) if (i if not v or i < size else count - 1 - i) % size == rank]
    stages = [PipelineStage(modules[i], i, count, cpu) for i in own]
    schedule = kind(stages[0] if per_rank == 1 and kind in (ScheduleGPipe, Schedule1F1B) else stages, microbatches, loss_fn=cross, **options)
    optimizer = torch.optim.SGD([p for i in own for p in modules[i].parameters()], lr=0.1)
    results = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        losses = []
        output = schedule.step(*([x] if 0 in own else []), **({"target": y, "losses": losses} if count - 1 in own else {}))
        optimizer.step()
        if losses:
            results.append([sum(loss.item() for loss in losses) / microbatches, len(losses), output.tolist()])
    found[name] = {"losses": results, "gradients": {str(i): numbers(modules[i]) for i in own}}
    alone, gradients = whole(count, steps)
    found[name]["whole"] = {"losses": alone, "gradients": {str(i): gradients[i] for i in own}}
    if v and not mine:  # PyTorch's hangs up here
        return
    x, y = batch(9)
    with torch.no_grad():
        output = schedule.eval(*([x] if 0 in own else []), **({"target": y} if count - 1 in own else {}))
        found[name]["eval"] = None if output is None else output.tolist()


train("GPipe", ScheduleGPipe, 1, 4)
train("GPipe of one", ScheduleGPipe, 1, 1)
train("1F1B", Schedule1F1B, 1, 4)
train("LoopedBFS", ScheduleLoopedBFS, 2, 4)
train("Interleaved1F1B", ScheduleInterleaved1F1B, 2, 4)
train("Interleaved1F1B 3", ScheduleInterleaved1F1B, 3, 8)
train("InterleavedZeroBubble", ScheduleInterleavedZeroBubble, 2, 4)
train("ZBVZeroBubble", ScheduleZBVZeroBubble, 2, 4, v=True)
train("DualPipeV", ScheduleDualPipeV, 2, 8, v=True)
train("ZBVZeroBubble of 8", ScheduleZBVZeroBubble, 2, 8, v=True)
found["name"] = " ".join(get_schedule_class(name).__name__ for name in ("1f1b", "GPIPE", "ZBVZeroBubble"))

# -- several tensors, arguments by name, chunks along another dim, sums of gradients -------------------------------------------------------


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 3), nn.Linear(5, 4)

    def forward(self, x, scale=1.0):
        return self.a(x) * scale, self.b(x)


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.e = nn.Linear(3, 4), nn.Linear(4, 4)

    def forward(self, a, b):
        return self.c(a) + self.e(b)


class Between(nn.Module):
    def __init__(self):
        super().__init__()
        self.d = nn.Linear(3, 3)

    def forward(self, a, b):
        return self.d(a), b


torch.manual_seed(11)
chain = [First(), *(Between() for _ in range(size - 2)), Last()]
model = copy.deepcopy(chain[rank])
schedule = ScheduleGPipe(PipelineStage(model, rank, size, cpu), 2, loss_fn=nn.CrossEntropyLoss(reduction="sum"), scale_grads=False)
x, y = batch(4)
x = x.float()
schedule.step(*([x] if rank == 0 else []), **({"scale": 0.5} if rank == 0 else {"target": y} if rank == size - 1 else {}))
found["tuples"] = numbers(model)
values = chain[0](x, 0.5)
for part in chain[1:-1]:
    values = part(*values)
nn.CrossEntropyLoss(reduction="sum")(chain[-1](*values), y).backward()
found["tuples"]["whole"] = numbers(chain[rank])
pieces, names = split_args_kwargs_into_chunks(
    (torch.arange(12.0).view(2, 6),), {"k": torch.arange(3)}, 3, (TensorChunkSpec(1),), {"k": TensorChunkSpec(0)}
)  # fmt: skip
found["chunks"] = [[piece[0].tolist() for piece in pieces], [name["k"].tolist() for name in names]]
found["merged"] = merge_chunks([torch.ones(2), torch.zeros(1)], None).tolist()

# -- models that are cut by names and by calls ------------------------------------------------------------------------------------------------


class Skips(nn.Module):
    """The inputs of the first block are used in the last stage, too."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls
        self.first, self.blocks, self.last = nn.Linear(5, 8), nn.ModuleList(Block() for _ in range(4)), nn.Linear(8, 4)

    def forward(self, x, mask=None):
        x = self.first(x)
        kept = x
        for i, block in enumerate(self.blocks):
            if self.calls and i and i % (4 // size) == 0:
                pipe_split()
            x = block(x)
        if mask is not None:
            x = x * mask
        return self.last(x + kept)


for way in ("names", "calls"):
    torch.manual_seed(3)
    model = Skips(way == "calls")
    example = (batch(0, 2)[0].float(),)
    spec = {f"blocks.{i}": SplitPoint.BEGINNING for i in range(4 // size, 4, 4 // size)}
    pipe = pipeline(copy.deepcopy(model), example, split_spec=spec if way == "names" else None)
    assert pipe.num_stages == size, pipe
    x, y = batch(5)
    x = x.float()
    result = pipe(x[:2])
    close = torch.allclose(result[0], model(x[:2]), atol=1e-5)
    stage = pipe.build_stage(rank, cpu)
    schedule = ScheduleGPipe(stage, 4, loss_fn=cross)
    schedule.step(*([x] if rank == 0 else []), **({"target": y} if rank == size - 1 else {}))
    cross(model(x), y).backward()
    of_whole = numbers(model)
    got = numbers(stage.submod)
    found[f"cut by {way}"] = {"close": close, "gradients": got}
    found[f"cut by {way}"]["whole"] = {name: of_whole[name] for name in got}
    found[f"cut by {way}"]["names"] = " ".join(sorted(got))

# -- pipelines whose stages are replicated --------------------------------------------------------------------------------------------------------
if size == 4:
    down, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    across, _ = dist.new_subgroups_by_enumeration([[0, 1], [2, 3]])
    place, half = rank // 2, rank % 2
    modules = layers(2)
    stage = PipelineStage(DDP(modules[place], process_group=across), place, 2, cpu, group=down)
    schedule = Schedule1F1B(stage, 2, loss_fn=cross)
    x, y = batch(0)
    x, y = x[half::2], y[half::2]
    schedule.step(*([x] if place == 0 else []), **({"target": y} if place else {}))
    found["replicated"] = {"gradients": numbers(modules[place]), "whole": whole(2, 1)[1][place]}

if mine:
    errors = {}

    def error_of(name, function):
        try:
            function()
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"

    module = nn.Linear(2, 2)
    error_of("index", lambda: PipelineStage(module, 5, 4, cpu))
    error_of("few stages", lambda: PipelineStage(module, 0, size - 1, cpu))
    error_of("few microbatches", lambda: Schedule1F1B(PipelineStage(module, rank, size, cpu), size - 1))
    error_of("foreign", lambda: ScheduleGPipe(PipelineStage(module, (rank + 1) % size, size, cpu), 2))
    error_of("rounds", lambda: ScheduleInterleaved1F1B([PipelineStage(module, rank + i * size, 2 * size, cpu) for i in (0, 1)], 2 * size + 1))
    error_of("small batch", lambda: split_args_kwargs_into_chunks((torch.ones(2),), {}, 3))
    error_of("no such name", lambda: pipeline(nn.Sequential(nn.Linear(2, 2)), (torch.ones(1, 2),), split_spec={"7": SplitPoint.END}))
    tied = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    tied[2].weight = tied[0].weight
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipe = pipeline(tied, (torch.ones(1, 2),), split_spec={"1": SplitPoint.END})
        errors["tied"] = str(caught[-1].message) if torch.equal(pipe(torch.ones(1, 2))[0], tied(torch.ones(1, 2))) else "other numbers"
    error_of("schedule", lambda: get_schedule_class("no such"))
    found["errors"] = errors
dist.barrier()
dist.destroy_process_group()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
