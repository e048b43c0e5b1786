"""e3nn: spherical harmonics, a tensor product and a gated layer trained for two steps; what it gives turns with its input."""

import json

import torch
import warm
from e3nn import o3
from e3nn.nn import FullyConnectedNet, Gate

torch.manual_seed(0)
x = torch.randn(6, 3)
harmonics = o3.spherical_harmonics("0e + 1o + 2e", x, normalize=True, normalization="component")
gate = Gate("4x0e", [torch.relu], "2x0e", [torch.sigmoid], "2x1o")
product = o3.FullyConnectedTensorProduct("1x0e + 1x1o + 1x2e", "2x0e + 1x1o", gate.irreps_in, shared_weights=False)
weights = FullyConnectedNet([3, 8, product.weight_numel], torch.relu)
linear = o3.Linear(gate.irreps_out, "1x0e + 1x1o")
node = torch.randn(6, 5)


def forward(x, node):
    sh = o3.spherical_harmonics("0e + 1o + 2e", x, normalize=True, normalization="component")
    return linear(gate(product(sh, node, weights(x.norm(dim=1, keepdim=True).expand(-1, 3)))))


optimizer = torch.optim.Adam([*weights.parameters(), *linear.parameters()], lr=0.01)
losses = []
for _ in range(2):
    optimizer.zero_grad()
    loss = forward(x, node).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
turn = o3.rand_matrix()
inner = o3.Irreps("2x0e + 1x1o").D_from_matrix(turn)
turned = forward(x @ turn.T, node @ inner.T) - forward(x, node) @ o3.Irreps("1x0e + 1x1o").D_from_matrix(turn).T
found = {"harmonics": harmonics[0].tolist(), "losses": losses, "made": forward(x, node)[0].tolist(), "equivariant": bool(turned.abs().max() < 1e-4)}
found["wigner"] = o3.wigner_3j(1, 1, 2).flatten()[:6].tolist()
print(json.dumps(found))


def step():
    optimizer.zero_grad()
    loss = forward(x, node).square().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("training step", step)
