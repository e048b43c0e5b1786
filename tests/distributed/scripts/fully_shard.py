"""fully_shard and FullyShardedDataParallel on a perceptron and a GPT, against the same in one process on the whole batch."""

import copy
import os
import pickle

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._common_utils import clean_tensor_name
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Shard, distribute_tensor

F = nn.functional
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
found = {}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(29, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(2))
        self.head = nn.Linear(width, 29, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def loss_of(model, x):
    return F.cross_entropy(model(x)[:, :-1].flatten(0, 1), x[:, 1:].flatten())


def batches(step):
    generator = torch.Generator().manual_seed(step)
    whole = torch.randint(0, 29, (2 * size, 9), generator=generator)
    return whole, whole[2 * rank : 2 * rank + 2]


def memory(module, optimizer):
    tensors = [p.to_local() if hasattr(p, "to_local") else p for p in module.parameters()]
    for state in optimizer.state.values():
        tensors += [t.to_local() if hasattr(t, "to_local") else t for t in state.values() if isinstance(t, torch.Tensor) and t.ndim]
    return sum(t.numel() * t.element_size() for t in tensors)


def trained(model, whole_model, accumulate=False, dtype=torch.float64):
    """Losses, norms and parameters after some steps, of both."""
    result = {"gradients": [], "norms": []}
    a, b = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, whole_model))
    for step in range(3):
        whole, own = batches(step)
        if accumulate:
            model.set_requires_gradient_sync(False)
            (loss_of(model, own) / 2).backward()
            model.set_requires_gradient_sync(True)
            (loss_of(model, own) / 2).backward()
        else:
            loss_of(model, own).backward()
        loss_of(whole_model, whole).backward()
        result["gradients"].append(
            max((p.grad.full_tensor() - q.grad).abs().max().item() for p, q in zip(model.parameters(), whole_model.parameters(), strict=True))
        )
        norms = [nn.utils.clip_grad_norm_(m.parameters(), 0.1) for m in (model, whole_model)]
        result["norms"].append(abs(norms[0].full_tensor().item() - norms[1].item()))
        for optimizer in (a, b):
            optimizer.step()
            optimizer.zero_grad()
    parameters = [p.full_tensor() for p in model.parameters()]
    result["parameters"] = max((p - q).abs().max().item() for p, q in zip(parameters, whole_model.parameters(), strict=True))
    result["values"] = [p.tolist() for p in parameters]
    result["memory"] = memory(model, a) / memory(whole_model, b)
    result["local"] = [tuple(p.to_local().shape) for p in model.parameters()]
    return result


def fresh(seed=0):
    torch.manual_seed(seed)
    model = GPT().double()
    return model, copy.deepcopy(model)


for name, reshard in (("reshard", True), ("keep", False), ("accumulate", True)):
    model, other = fresh()
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard)
    fully_shard(model, reshard_after_forward=reshard)
    found[name] = trained(model, other, name == "accumulate")
found["names"] = sorted(model.state_dict())
state = {k: v.full_tensor().clone() for k, v in model.state_dict().items()}
again, _ = fresh(1)
fully_shard(again)
again.load_state_dict({k: distribute_tensor(v, again.embed.weight.device_mesh, [Shard(0)]) for k, v in state.items()})
found["loaded"] = all(torch.equal(v.full_tensor(), state[k]) for k, v in again.state_dict().items())
if size % 2 == 0:
    model, other = fresh()
    fully_shard(model, mesh=torch.distributed.device_mesh.init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("replicate", "shard")))
    found["replicas"] = trained(model, other)
model, _ = fresh()
model.float()
fully_shard(model, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
output = model(batches(0)[1])
output.float().sum().backward()
found["mixed"] = [str(output.dtype), str(model.head.weight.dtype), str(model.head.weight.grad.dtype)]
for kind in (torch.amp.GradScaler, ShardedGradScaler):  # a step is left out everywhere if one process has an infinite gradient
    model, _ = fresh()
    fully_shard(model)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), kind("cpu", init_scale=8.0, growth_interval=1)
    steps = []
    for infinite in (False, True):
        before = [p.full_tensor().clone() for p in model.parameters()]
        scaler.scale(loss_of(model, batches(0)[1])).backward()
        if infinite and rank == size - 1:
            model.embed.weight.grad.to_local()[0, 0] = float("inf")
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        steps.append((scaler.get_scale(), max((p.full_tensor() - q).abs().max().item() for p, q in zip(model.parameters(), before, strict=True))))
    found.setdefault("scaled", []).append(steps)
if size == 2:
    model, other = fresh()
    wrapped = FullyShardedDataParallel(model, auto_wrap_policy=ModuleWrapPolicy({Block}), use_orig_params=True, device_id=torch.device("cpu"))
    a, b = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (wrapped, other))
    for step in range(2):
        whole, own = batches(step)
        for m, x, optimizer in ((wrapped, own, a), (other, whole, b)):
            loss_of(m, x).backward()
            optimizer.step()
            optimizer.zero_grad()
    whole = wrapped.state_dict()
    found["class"] = max((whole[k] - v).abs().max().item() for k, v in other.state_dict().items())
    found["class names"] = sorted(whole)
    with torch.no_grad(), FullyShardedDataParallel.summon_full_params(wrapped):  # whole parameters; what is written to them stays
        wrapped.module.head.weight.mul_(2)
    name = next(k for k in whole if k.endswith("embed.weight"))
    found["summoned"] = torch.equal(wrapped.state_dict()[name], 2 * whole[name])
    inner = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    outer = FullyShardedDataParallel(
        torch.nn.Sequential(FullyShardedDataParallel(inner, use_orig_params=True, device_id=torch.device("cpu")), torch.nn.Linear(2, 1)),
        use_orig_params=True, device_id=torch.device("cpu"),
    )  # fmt: skip
    before = {name: t.clone() for name, t in outer.state_dict().items()}
    outer(torch.ones(1, 3)).sum().backward()
    optimizer = torch.optim.Adam(outer.parameters())
    optimizer.step()
    state = FullyShardedDataParallel.optim_state_dict(outer, optimizer)
    outer.load_state_dict(before)
    back = outer.state_dict()
    found["wrapper names"] = [
        [n for n, _ in outer.named_parameters()], [n for n, _ in outer.named_modules()], list(before), sorted(state["state"]), type(outer.module[0]).__name__,
        clean_tensor_name("_fsdp_wrapped_module.0._fsdp_wrapped_module.1.weight"),
        all(torch.equal(back[n], t) for n, t in before.items()),
    ]  # fmt: skip
dist.barrier()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
dist.destroy_process_group()
