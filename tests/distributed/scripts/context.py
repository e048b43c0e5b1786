"""Context parallel attention: results and gradients beside one process's on the whole sequence; writes down the largest differences."""

import os
import pickle

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed import _functional_collectives as fc
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import _cp_options, context_parallel_unshard, set_rotate_method

dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]))
size = dist.get_world_size()
mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("cp",))
found = {}


def case(causal, balance, rotate, dtype, heads, seed):
    torch.manual_seed(seed)
    length = 4 * size * 3
    q, k, v = (torch.randn(2, h, length, 8, dtype=dtype) for h in (4, heads, heads))
    weight = torch.randn(2, 4, length, 8, dtype=dtype)
    options = {"is_causal": causal, "enable_gqa": heads != 4}
    whole = [x.clone().requires_grad_() for x in (q, k, v)]
    y = F.scaled_dot_product_attention(*whole, **options)
    (y * weight).sum().backward()
    _cp_options.enable_load_balance = balance
    set_rotate_method(rotate)
    with context_parallel(mesh, buffers=[q, k, v, weight], buffer_seq_dims=[2] * 4, no_restore_buffers={q}):
        parts = [x.detach().clone().requires_grad_() for x in (q, k, v)]
        mine = F.scaled_dot_product_attention(*parts, **options)
        (mine * weight).sum().backward()
        results = context_parallel_unshard(mesh, [mine, *(p.grad for p in parts)], [2] * 4)
    assert q.shape[2] == length // size and k.shape[2] == length and torch.equal(k, whole[1].detach())
    return max((a - b).abs().max().item() for a, b in zip(results, [y, *(w.grad for w in whole)], strict=True))


for causal, balance in ((True, True), (True, False), (False, False)):
    for rotate in ("allgather", "alltoall"):
        for dtype in (torch.float64, torch.float32):
            for heads in (4, 2):
                found[str((causal, balance, rotate, str(dtype), heads))] = case(causal, balance, rotate, dtype, heads, 3)


class Block(nn.Module):
    """A block of a GPT, whose positions say where a token stands."""

    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(11, 16), nn.Embedding(64, 16)
        self.qkv, self.out, self.head = nn.Linear(16, 48), nn.Linear(16, 16), nn.Linear(16, 11)

    def forward(self, tokens, places):
        x = self.embed(tokens) + self.place(places)
        q, k, v = (t.unflatten(-1, (2, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        return self.head(x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)))


_cp_options.enable_load_balance = True
torch.manual_seed(0)
alone, spread = Block().double(), Block().double()
spread.load_state_dict(alone.state_dict())
tokens = torch.randint(0, 11, (2, 8 * size))
targets, places = tokens.roll(-1, 1), torch.arange(8 * size).repeat(2, 1)
losses = []
for model, parallel in ((alone, False), (spread, True)):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        if parallel:
            with context_parallel(mesh, buffers=[tokens, targets, places], buffer_seq_dims=[1, 1, 1]):
                loss = F.cross_entropy(model(tokens, places).flatten(0, 1), targets.flatten())
                loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad, dist.ReduceOp.AVG)
        else:
            loss = F.cross_entropy(model(tokens, places).flatten(0, 1), targets.flatten())
            loss.backward()
        optimizer.step()
found["training"] = max((a - b).abs().max().item() for a, b in zip(alone.parameters(), spread.parameters(), strict=True))
errors = []
q = torch.randn(1, 1, 4, 8)
with context_parallel(mesh):
    for options in ({"is_causal": False}, {"is_causal": True, "dropout_p": 0.5}, {"attn_mask": torch.ones(4, 4, dtype=torch.bool)}):
        try:
            F.scaled_dot_product_attention(q, q, q, **options)
        except (RuntimeError, NotImplementedError) as error:
            errors.append(type(error).__name__)
found["errors"] = errors
x, group = torch.arange(2.0 * size) + dist.get_rank(), mesh.get_group()
every, total = fc.all_gather_single(x, 0, group), sum(torch.arange(2.0 * size) + r for r in range(size))
(reduced,), (gathered,) = fc.all_reduce_coalesced([x], "sum", group), fc.all_gather_into_tensor_coalesced([x], group)
(part,) = fc.reduce_scatter_single_coalesced([x], "sum", [0], group)
found["functional"] = bool(
    torch.equal(every, torch.cat([torch.arange(2.0 * size) + r for r in range(size)])) and torch.equal(gathered, every) and torch.equal(reduced, total)
    and torch.equal(part, total.chunk(size)[dist.get_rank()])
)  # fmt: skip
F.scaled_dot_product_attention(q, q, q)  # behind the block all is as before
dist.barrier()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump(found, file)
