"""DistributedDataParallel on four models; writes losses, gradients, parameters and buffers after some steps."""

import copy
import os
import pickle
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
found = {}


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(29, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 29)

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.head(self.blocks(self.embed(x), mask=mask)).transpose(1, 2)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.out = nn.LSTM(6, 12, 2, batch_first=True), nn.Linear(12, 3)

    def forward(self, x):
        return self.out(self.lstm(x)[0][:, -1])


class Partly(nn.Module):
    """Of two branches each rank uses one; nobody uses the third."""

    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(nn.Linear(5, 3) for _ in range(3))

    def forward(self, x):
        return self.branches[0](x) if rank == 0 else self.branches[0](x) + self.branches[1](x)


def cnn(norm=nn.BatchNorm2d):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), norm(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(72, 4))


def whole_batch(name, model, inputs, targets, loss, steps):
    """The same in one process, on the batches of all ranks as one."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        generators = [torch.Generator().manual_seed(1000 * step + r) for r in range(size)]
        x = torch.cat([inputs(g) for g in generators])
        optimizer.zero_grad()
        loss(model(x), torch.cat([targets(g) for g in generators])).backward()
        optimizer.step()
    found[name]["whole"] = {f"module.{k}": v.double().tolist() for k, v in model.state_dict().items()}


def train(name, model, inputs, targets, loss, steps=4, pause=1, whole=None, **options):
    ddp = DDP(model, **options)
    alone = copy.deepcopy(ddp.module)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(1000 * step + rank)
        x, y = inputs(generator), targets(generator)
        if (step + 1) % pause:
            with ddp.no_sync():
                loss(ddp(x), y).backward()
            continue
        value = loss(ddp(x), y)
        value.backward()
        losses.append(value.item())
        gradients = [None if p.grad is None else p.grad.clone() for p in ddp.parameters()]
        optimizer.step()
        optimizer.zero_grad()
    state = {k: v.double().tolist() for k, v in ddp.state_dict().items()}
    found[name] = {"losses": losses, "gradients": [None if g is None else g.double().tolist() for g in gradients], "state": state}
    if whole is not None:
        whole.load_state_dict(alone.state_dict())
        whole_batch(name, whole, inputs, targets, loss, steps)


def images(g):
    return torch.randn(6, 3, 10, 10, generator=g)


def four(g):
    return torch.randint(0, 4, (6,), generator=g)


cross = nn.CrossEntropyLoss()
torch.manual_seed(rank)  # parameters become rank 0's
mlp = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4))
train("mlp", mlp, lambda g: torch.randn(6, 5, generator=g), four, cross, whole=copy.deepcopy(mlp))
train("cnn", cnn(), images, four, cross)
words = lambda g: torch.randint(0, 29, (3, 9), generator=g)
train("gpt", GPT(), words, words, cross, whole=GPT())
train("lstm", Recurrent(), lambda g: torch.randn(4, 7, 6, generator=g), lambda g: torch.randint(0, 3, (4,), generator=g), cross, whole=Recurrent())
train("double", nn.Linear(5, 4).double(), lambda g: torch.randn(6, 5, generator=g).double(), four, cross, whole=nn.Linear(5, 4).double())
train("accumulated", nn.Linear(5, 4), lambda g: torch.randn(6, 5, generator=g), four, cross, pause=2)
three = lambda g: torch.randint(0, 3, (6,), generator=g)
train("unused", Partly(), lambda g: torch.randn(6, 5, generator=g), three, cross, find_unused_parameters=True)
train("static", cnn(), images, four, cross, static_graph=True, gradient_as_bucket_view=True)
if "synchronised" in sys.argv:  # PyTorch has SyncBatchNorm for GPUs only
    train("synchronised", nn.SyncBatchNorm.convert_sync_batchnorm(cnn()), images, four, cross, whole=cnn())

for hook in ("allreduce_hook", "fp16_compress_hook", "bf16_compress_hook"):
    if hook.startswith("bf16") and "mine" not in sys.argv:  # PyTorch has it for GPUs only
        continue
    torch.manual_seed(3)
    model = DDP(nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4)))
    model.register_comm_hook(None, getattr(default_hooks, hook))
    generator = torch.Generator().manual_seed(rank)
    cross(model(torch.randn(6, 5, generator=generator)), four(generator)).backward()
    found[hook] = [p.grad.double().tolist() for p in model.parameters()]


def fut(state, bucket):
    """A hook of one's own: the mean by two steps."""
    return dist.group.WORLD.allreduce([bucket.buffer()]).get_future().then(lambda done: done.value()[0] / size)


for own in (False, True):  # gradients of tables stay sparse, also where a rank has not used one
    torch.manual_seed(5)
    model = DDP(nn.ModuleList([nn.EmbeddingBag(10, 3, sparse=True), nn.Linear(3, 4), nn.Embedding(7, 3, sparse=True)]), find_unused_parameters=True)
    model.module.forward = lambda x, m=model.module: m[1](m[0](x) + m[2](x[:, 0]))
    if own:
        model.register_comm_hook(None, fut)
    optimizers = [torch.optim.SparseAdam([model.module[0].weight, model.module[2].weight], lr=0.1), torch.optim.SGD(model.module[1].parameters(), lr=0.1)]
    generator = torch.Generator().manual_seed(rank)
    for _ in range(3):
        model.zero_grad()
        cross(model(torch.randint(0, 7, (6, 2), generator=generator)), four(generator)).backward()
        assert model.module[0].weight.grad.is_sparse and model.module[2].weight.grad.is_sparse
        for optimizer in optimizers:
            optimizer.step()
    if "mine" in sys.argv:  # PyTorch wants one of each rank
        model.zero_grad()
        model.module.forward = lambda x, m=model.module: m[0](x) if rank == 0 else m[1](m[2](x[:, 0]))
        model(torch.ones(2, 2, dtype=torch.int64)).sum().backward()
        gradient = model.module[0].weight.grad
        assert gradient.is_sparse and torch.equal(gradient.to_dense()[1], torch.full((3,), 2.0 / size)), gradient
    found[f"sparse, own hook {own}"] = [p.double().tolist() for p in model.parameters()]


def wrong_bucket(state, bucket: int):
    """A hook that says that it takes something else."""


def wrong_result(state, bucket: dist.GradBucket) -> int:
    """A hook that says that it returns something else."""


for hook in (3, wrong_bucket, wrong_result):
    try:
        DDP(nn.Linear(2, 2)).register_comm_hook(None, hook)
    except (TypeError, ValueError) as error:
        found[f"hook {hook if hook == 3 else hook.__name__}"] = f"{type(error).__name__} {str(error)[:45]}"

for evenly in (True, False):
    torch.manual_seed(4)
    model = DDP(nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join(divide_by_initial_world_size=evenly):
        for step in range(3 + 2 * rank):
            model(torch.full((2, 2), 1.0 + step + rank)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    found[f"join {evenly}"] = [p.tolist() for p in model.parameters()]


class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.used(x)


model = DDP(Half())
model(torch.ones(2, 2))  # a forward pass without a backward pass is no error
model(torch.ones(2, 2)).sum().backward()
try:
    model(torch.ones(2, 2))
except RuntimeError as error:
    found["unfinished"] = "Expected to have finished reduction in the prior iteration" in str(error)
    if "mine" in sys.argv:
        found["names"] = str(error)
dist.barrier()
dist.destroy_process_group()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
