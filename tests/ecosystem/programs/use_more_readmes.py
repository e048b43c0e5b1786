"""geoopt, entmax, pytorch-crf, linformer, lion-pytorch, higher, torch-hd, julius, rtdl-revisiting-models: a line of each README."""

import json

import higher
import julius
import torch
import torchhd
from entmax import SparsemaxLoss, entmax15, entmax_bisect, sparsemax
from geoopt import ManifoldParameter, PoincareBall, Sphere
from geoopt.optim import RiemannianAdam, RiemannianSGD
from linformer import Linformer
from lion_pytorch import Lion
from rtdl_revisiting_models import FTTransformer
from torchcrf import CRF

found = {}


def size(t):
    return t.detach().double().abs().mean().item()


def trained(parameters, loss, optimizer=None):
    optimizer = optimizer or torch.optim.Adam(parameters, lr=0.01)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        now = loss()
        now.backward()
        optimizer.step()
        losses.append(now.item())
    return losses


torch.manual_seed(0)
ball = PoincareBall()
p, t = ManifoldParameter(ball.random_normal(5, 3, std=0.1), manifold=ball), ball.random_normal(5, 3, std=0.2)
found["geoopt, in a ball"] = trained([p], lambda: ball.dist(p, t).pow(2).sum(), RiemannianAdam([p], lr=0.01))
q = ManifoldParameter(Sphere().random_uniform(4, 3))
found["geoopt, on a sphere"] = trained([q], lambda: q.sum(1).pow(2).sum(), RiemannianSGD([q], lr=0.1, momentum=0.9))
x = torch.randn(4, 6, requires_grad=True)
for name, f in (("sparsemax", sparsemax), ("entmax15", entmax15), ("entmax_bisect", lambda v, dim: entmax_bisect(v, alpha=1.3, dim=dim))):
    y = f(x, dim=-1)
    found[name] = [size(y), size(torch.autograd.grad((y * torch.arange(6.0)).sum(), x)[0])]
found["SparsemaxLoss"] = SparsemaxLoss()(x, torch.arange(4)).item()
crf, emissions, tags = CRF(5, batch_first=True), torch.randn(3, 7, 5), torch.randint(0, 5, (3, 7))
mask = torch.arange(7) < torch.tensor([[7], [4], [7]])
found["pytorch-crf"] = trained(crf.parameters(), lambda: -crf(emissions, tags, mask=mask)) + [tag for way in crf.decode(emissions, mask) for tag in way]
model, x = Linformer(dim=16, seq_len=32, depth=2, heads=2, k=8, one_kv_head=True, share_kv=True), torch.randn(1, 32, 16)
found["linformer"] = trained(model.parameters(), lambda: model(x).square().mean())
linear, x = torch.nn.Linear(4, 4), torch.randn(3, 4)
found["lion-pytorch"] = trained([], lambda: linear(x).square().mean(), Lion(linear.parameters(), lr=0.01, weight_decay=0.01))
with higher.innerloop_ctx(linear, torch.optim.SGD(linear.parameters(), lr=0.1, momentum=0.9), copy_initial_weights=False) as (inner, steps):
    for _ in range(3):
        steps.step(inner(x).square().mean())
    outer = inner(x).mean()
    found["higher"] = [outer.item(), size(torch.autograd.grad(outer, linear.weight)[0])]
a, b, c = torchhd.random(3, 512)
found["torch-hd"] = [size(torchhd.bind(a, b)), size(torchhd.bundle(a, c)), torchhd.cosine_similarity(torchhd.bind(a, b), a).item()]
x = torch.randn(2, 1000)
found["julius"] = [size(julius.resample_frac(x, 4, 3)), size(julius.lowpass_filter(x, 0.1)), size(julius.split_bands(x, 16000, n_bands=3))]
table = FTTransformer(
    n_cont_features=3, cat_cardinalities=[4, 5], d_out=1, n_blocks=1, d_block=8, attention_n_heads=2, attention_dropout=0.0, ffn_d_hidden=None,
    ffn_d_hidden_multiplier=2.0, ffn_dropout=0.0, residual_dropout=0.0,
)  # fmt: skip
numbers, kinds = torch.randn(8, 3), torch.randint(0, 4, (8, 2))
found["rtdl-revisiting-models"] = trained(table.parameters(), lambda: table(numbers, kinds).square().mean())
print(json.dumps(found))
