"""Functions of DTensors in all placements: what differs from the same of whole tensors, and the results for comparison with PyTorch's."""

import os
import pickle

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

F = nn.functional
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo", init_method=os.environ["INIT"], rank=rank, world_size=size)
line = init_device_mesh("cpu", (size,))
meshes = {1: line}
if size % 2 == 0:
    meshes[2] = init_device_mesh("cpu", (2, size // 2))
torch.manual_seed(0)
wrong, refused, found, expectations = [], {}, {}, {}
EACH, asked = {2: 1, 3: 2, 4: 5}[size], [0]  # on more ranks every second or fifth case: they share the processors


def lay(like, t, places=None):
    """A plain tensor beside another: spread as said where the other is."""
    return distribute_tensor(t, like.device_mesh, places or [Replicate()] * like.device_mesh.ndim) if isinstance(like, DTensor) else t


def expectation(function, shapes):
    """Whole tensors, and a function's result and gradients of them; the gradient of the result, which is any, too."""
    wholes = [torch.randn(*s, dtype=torch.float64) for s in shapes]
    a = [x.clone().requires_grad_() for x in wholes]
    u = function(*a)
    w = torch.randn(u.shape, dtype=torch.float64)
    (u * w).sum().backward()
    return wholes, w, u.detach(), [u.detach(), *[x.grad for x in a]]


def check(name, function, shapes, *places, mesh=line):
    """Compare results and gradients with those of whole tensors."""
    asked[0] += 1
    if asked[0] % EACH:
        return
    if (name, *shapes) not in expectations:  # the same for all placements
        expectations[name, *shapes] = expectation(function, shapes)
    wholes, w, u, expected = expectations[name, *shapes]
    name = f"{name} {places}"
    try:
        b = [distribute_tensor(x.clone().requires_grad_(), mesh, p if isinstance(p, tuple) else [p]) for x, p in zip(wholes, places, strict=True)]
        v = function(*b)
        (v * lay(v, w)).sum().backward()
        full = v.full_tensor()
        parts = [full.detach(), *[y.grad.full_tensor() for y in b]]
    except Exception as error:
        refused[name] = f"{type(error).__name__}: {error}"
        return
    for i, (x, y) in enumerate(zip(parts, expected, strict=True)):
        if tuple(x.shape) != tuple(y.shape) or not torch.allclose(x, y, rtol=1e-9, atol=1e-9):
            wrong.append(f"{name}: {'result' if i == 0 else f'gradient {i - 1}'}")
    if tuple(v.shape) != tuple(u.shape) or v.numel() != u.numel() or v.stride() != v.stride():
        wrong.append(f"{name}: shape {tuple(v.shape)} and not {tuple(u.shape)}")
    found[name] = [x.tolist() for x in parts]


R, S = Replicate(), Shard
ALL = (R, S(0), S(1))
for p in ALL:
    for q in ALL:
        check("matmul", lambda x, y: x @ y, [(5, 6), (6, 7)], p, q)
        check("add", lambda x, y: x + 2 * y, [(5, 6), (5, 6)], p, q)
        check("mse_loss", F.mse_loss, [(5, 6), (5, 6)], p, q)
        check("addmm", torch.addmm, [(7,), (5, 6), (6, 7)], R, p, q)
        check("cat", lambda x, y: torch.cat([x, y], 1), [(5, 6), (5, 3)], p, q)
        check("bmm", torch.bmm, [(4, 5, 6), (4, 6, 3)], p, q)
check("broadcast", lambda x, y: x * y + y, [(5, 6), (6,)], S(0), R)
check("broadcast", lambda x, y: x - y, [(5, 6), (5, 1)], S(0), R)
check("linear", F.linear, [(4, 3, 6), (8, 6), (8,)], S(0), R, R)
check("linear", F.linear, [(4, 3, 6), (8, 6), (8,)], R, S(0), S(0))
check("linear", F.linear, [(4, 3, 6), (8, 6), (8,)], S(2), S(1), R)
check("layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), [(5, 4, 6), (6,), (6,)], S(0), R, R)
check("layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), [(5, 4, 6), (6,), (6,)], S(1), R, R)
check("layer_norm", lambda x, w, b: F.layer_norm(x, (6,), w, b), [(5, 4, 6), (6,), (6,)], S(2), R, R)
places, row = torch.tensor([[0, 3, 2], [4, 1, 1]]), torch.tensor([[1, 0, 4, 3]])
for p in ALL:
    for q in ALL:
        at = [lambda x, q=q, i=i: lay(x, i, [q]) for i in (places, row)]
        check(f"gather by {q}", lambda x, at=at: x.gather(0, at[0](x)), [(6, 5)], p)
        check(f"gather one by {q}", lambda x, at=at: x.gather(0, at[1](x)), [(6, 5)], p)
        check(f"scatter by {q}", lambda x, y, at=at: x.scatter(0, at[0](x), y), [(6, 5), (2, 3)], p, q)
        check(f"scatter_add by {q}", lambda x, y, at=at: x.scatter_add(1, at[0](x), y), [(6, 5), (2, 3)], q, p)
        check(f"scatter_reduce by {q}", lambda x, y, at=at: x.scatter_reduce(1, at[0](x), y, "mean"), [(6, 5), (2, 3)], p, R)
        check("index_add", lambda x, y: x.index_add(0, lay(x, row[0]), y, alpha=2), [(6, 5), (4, 5)], p, q)
        check("index_copy", lambda x, y: x.index_copy(1, lay(x, row[0, 1:]), y), [(5, 6), (5, 3)], p, q)
ONE = {
    "scatter of a number": lambda x: x.scatter(1, lay(x, places.T), 2.0), "index_fill": lambda x: x.index_fill(0, lay(x, row[0, :2]), 3.0),
    "indices": lambda x: x[lay(x, row[0])], "masked_scatter": lambda x: x.masked_scatter(x > 0, x * 2),
    "softmax": lambda x: F.softmax(x, -1), "log_softmax": lambda x: F.log_softmax(x, 0), "sum": lambda x: x.sum(), "mean": lambda x: x.mean(),
    "sum 0": lambda x: x.sum(0), "mean 1": lambda x: x.mean(-1, keepdim=True), "max": lambda x: x.max(), "amax": lambda x: x.amax(1),
    "norm": lambda x: x.norm(), "norm 1": lambda x: x.norm(1, dim=0), "var": lambda x: x.var(0), "view": lambda x: x.view(3, 2, 2, 3),
    "flatten": lambda x: x.flatten(), "split": lambda x: x.split(2, 1)[1], "chunk": lambda x: torch.cat(x.chunk(3, -1)[::-1], 0),
    "getitem": lambda x: x[1:3, :, None] * 2, "select": lambda x: x[:, 1], "T": lambda x: x.T.contiguous(),
    "expand": lambda x: x.unsqueeze(1).expand(-1, 3, -1), "stack": lambda x: torch.stack([x, x * 2], 1), "repeat": lambda x: x.repeat(1, 2),
    "cumsum": lambda x: x.cumsum(0), "gelu": F.gelu, "where": lambda x: torch.where(x > 0, x, x * 2), "masked_fill": lambda x: x.masked_fill(x > 0, 1.0),
    "cast": lambda x: x.float().double(), "einsum": lambda x: torch.einsum("ij,kj->ik", x, x), "logsumexp": lambda x: x.logsumexp(0),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(), "tril": lambda x: x.tril(), "in place": lambda x: x.clone().mul_(2).add_(x), "prod": lambda x: x.prod(0),
    "operators": lambda x: 1 - x / 3 + 2**x, "pad": lambda x: F.pad(x, (1, 2)), "topk": lambda x: x.topk(2, dim=1).values,
    "gather": lambda x: x.gather(1, lay(x, torch.zeros(6, 6, dtype=torch.int64))), "index_select": lambda x: x.index_select(0, lay(x, torch.tensor([3, 0]))),
    "cross_entropy": lambda x: F.cross_entropy(x, lay(x, torch.tensor([0, 3, 2, -100, 1, 5])), label_smoothing=0.1),
    "nll_loss": lambda x: F.nll_loss(x, lay(x, torch.tensor([0, 3, 2, -100, 1, 5])), reduction="sum"),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, x.detach().sigmoid()), "eval dropout": lambda x: F.dropout(x, 0.5, False),
    "rms_norm": lambda x: F.rms_norm(x, (6,)), "partial": lambda x: (x @ x.T).sum(0) * 2 - (x @ x.T).sum(0), "movedim": lambda x: x.movedim(0, 1),
    "flip": lambda x: x.flip(0), "unbind": lambda x: x.unbind(1)[2], "detach": lambda x: x * x.detach(), "abs max": lambda x: x.abs().max(dim=1).values,
}  # fmt: skip
for name, function in ONE.items():
    for p in ALL:
        check(name, function, [(6, 6)], p)
        if name not in ("view", "cross_entropy", "nll_loss", "gather", "squeeze"):
            check(name + ", uneven", function, [(5, 6)] if name not in ("flip",) else [(5, 4)], p)
    for p in ((S(0), R), (S(0), S(0)), (R, S(1)), (S(1), S(0))):
        if 2 in meshes:
            check(name, function, [(6, 6)], p, mesh=meshes[2])
for p in (*ALL, S(2)):
    check("attention, causal", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), [(4, 2, 5, 8)], p)
    check("attention", lambda q: F.scaled_dot_product_attention(q, q, q), [(4, 2, 5, 8)], p)
    check("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), [(3, 4, 6, 6), (6, 4, 3, 3), (6,)], p, R, R)
    check("max_pool2d", lambda x: F.max_pool2d(x, 2), [(3, 4, 6, 6)], p)
    check("batch_norm", lambda x: F.batch_norm(x, None, None, training=True), [(3, 4, 6, 6)], p)
    check("group_norm", lambda x: F.group_norm(x, 2), [(3, 4, 6, 6)], p)
check("conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), [(3, 4, 6, 6), (6, 4, 3, 3), (6,)], R, S(0), S(0))
for p in (S(0), S(1), R):  # matrices as a whole: batches stay cut, matrices do not
    check("svdvals", torch.linalg.svdvals, [(3, 4, 4)], p)
    check("inv", lambda x: torch.linalg.inv(x @ x.mT + lay(x, 4 * torch.eye(4, dtype=x.dtype))), [(3, 4, 4)], p)
    check("eigvalsh", lambda x: torch.linalg.eigvalsh(x + x.mT), [(4, 4)], p)
    check("solve", lambda x, y: torch.linalg.solve(x + lay(x, 9 * torch.eye(4, dtype=x.dtype)), y), [(3, 4, 4), (3, 4, 2)], p, R)
for p in ALL:
    for q in ALL:
        check(f"embedding of {q}", lambda w, q=q: F.embedding(lay(w, torch.tensor([[0, 3, 2], [4, 1, 1], [2, 2, 0]]), [q]), w, padding_idx=1), [(5, 6)], p)

# -- the class itself -----------------------------------------------------------------------------------------------------
whole = torch.arange(30.0).view(5, 6)
for p in ALL:
    for q in ALL:
        x = distribute_tensor(whole.clone().requires_grad_(), line, [p])
        y = x.redistribute(line, [q])
        (y.full_tensor() * whole).sum().backward()
        if y.placements != (q,) or not torch.equal(y.full_tensor(), whole) or not torch.equal(x.grad.full_tensor(), whole):
            wrong.append(f"redistribute {p} to {q}")
local = torch.ones(2, 3, requires_grad=True)
partial = DTensor.from_local(local, line, [S(1)]) * 2
found["from_local"] = [tuple(partial.shape), partial.to_local().tolist()]
partial.sum().backward()
found["gradient of from_local"] = local.grad.tolist()


def error(function):
    """The type of what is raised."""
    try:
        function()
    except Exception as e:
        return type(e).__name__


found["errors"] = " ".join([
    error(lambda: distribute_tensor(whole, line, [S(0), R])), error(lambda: distribute_tensor(whole, line, [R]) + whole),
    error(lambda: DTensor.from_local(whole, line, [S(0)]).redistribute(line)),
])  # fmt: skip
for p in ALL:
    for q in ALL:
        x, out = distribute_tensor(whole.clone(), line, [p]), distribute_tensor(whole.clone(), line, [q])
        if torch.add(x, 3, out=out) is not out or out.placements != (q,) or not torch.equal(out.full_tensor(), whole + 3):
            wrong.append(f"out of {p} in {q}")
for p in ALL[1:]:  # where a dim must be whole it becomes so, and is not cut along another
    for name, function in {"softmax": lambda x, d: x.softmax(d), "topk": lambda x, d: x.topk(2, d).values, "slice": lambda x, d: x.narrow(d, 1, 3)}.items():
        if function(distribute_tensor(whole, line, [p]), p.dim).placements != (R,):
            wrong.append(f"{name} along the dim that is cut")
local = torch.randn(4, 3, requires_grad=True)
x = DTensor.from_local(local, line, [S(0)])
if not torch.equal(x.fill_(2.0).to_local(), torch.full((4, 3), 2.0)) or not torch.equal(local, x.to_local()):
    wrong.append("a write to what a leaf became")
for other in ({"dtype": torch.float64}, {"requires_grad": True}):
    try:
        DTensor.from_local(torch.ones(3, 3, **(other if rank == 0 else {})), line, [S(0)], run_check=True)
        wrong.append(f"run_check: {other}")
    except ValueError as error:
        assert "Inconsistent tensor metadata" in str(error)
part = init_device_mesh("cpu", (1,))  # of the first process alone
x = DTensor.from_local(torch.ones(3, 4), part, [S(0)])
inside = rank == 0
if [tuple(u.to_local().shape) for u in x.split([2, 2], 1)] != ([(3, 2)] if inside else [(0,)]) * 2 or x.sum().to_local().item() != 12.0 * inside:
    wrong.append("who is not in the mesh")
about = distribute_tensor(whole.double(), line, [S(0)])._spec
if (tuple(about.tensor_meta.shape), about.tensor_meta.stride, about.tensor_meta.dtype, about.dim_map) != ((5, 6), (6, 1), torch.float64, [0, -1]):
    wrong.append(f"_spec: {about}")
x = distribute_tensor(whole.clone(), line, [S(0)])
for name, function in {"zeros_like": torch.zeros_like, "ones_like": torch.ones_like}.items():
    found[name] = [function(x).full_tensor().tolist(), tuple(function(x).to_local().shape)]
model = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))
model.load_state_dict({k: torch.linspace(-1, 1, v.numel()).view(v.shape) for k, v in model.state_dict().items()})
distributed = torch.distributed.tensor.distribute_module(
    model, line, lambda name, m, mesh: [
        m.register_parameter(k, nn.Parameter(distribute_tensor(p.data, mesh, [S(0)]))) for k, p in list(m.named_parameters(recurse=False))
    ],
)  # fmt: skip
optimizer = torch.optim.AdamW(distributed.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    (distributed(distribute_tensor(whole, line, [S(0)])) ** 2).mean().backward()
    norm = nn.utils.clip_grad_norm_(distributed.parameters(), 0.5)
    optimizer.step()
found["norm"] = (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()
found["trained"] = [p.full_tensor().tolist() for p in distributed.parameters()]
found["state"] = [optimizer.state[p]["exp_avg"].full_tensor().tolist() for p in distributed.parameters()]
dist.barrier()
with open(os.environ["OUT"], "wb") as file:
    pickle.dump({"wrong": wrong, "refused": refused, "found": found}, file)
dist.destroy_process_group()
