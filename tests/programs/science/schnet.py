"""SchNet as in PyTorch Geometric: Gaussian smearing, cosine cutoff, shifted softplus; forces by autograd.grad(create_graph=True)."""

from math import pi as PI

import torch
import torch.nn.functional as F
from torch.nn import Embedding, Linear, ModuleList, Sequential


class GaussianSmearing(torch.nn.Module):
    def __init__(self, start: float = 0.0, stop: float = 5.0, num_gaussians: int = 50):
        super().__init__()
        offset = torch.linspace(start, stop, num_gaussians)
        self.coeff = -0.5 / (offset[1] - offset[0]).item()**2
        self.register_buffer('offset', offset)

    def forward(self, dist: torch.Tensor) -> torch.Tensor:
        dist = dist.view(-1, 1) - self.offset.view(1, -1)
        return torch.exp(self.coeff * torch.pow(dist, 2))


class ShiftedSoftplus(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.shift = torch.log(torch.tensor(2.0)).item()

    def forward(self, x):
        return F.softplus(x) - self.shift


class CFConv(torch.nn.Module):
    def __init__(self, in_channels, out_channels, num_filters, nn, cutoff):
        super().__init__()
        self.lin1 = Linear(in_channels, num_filters, bias=False)
        self.lin2 = Linear(num_filters, out_channels)
        self.nn = nn
        self.cutoff = cutoff
        self.reset_parameters()

    def reset_parameters(self):
        torch.nn.init.xavier_uniform_(self.lin1.weight)
        torch.nn.init.xavier_uniform_(self.lin2.weight)
        self.lin2.bias.data.fill_(0)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        C = 0.5 * (torch.cos(edge_weight * PI / self.cutoff) + 1.0)
        W = self.nn(edge_attr) * C.view(-1, 1)

        x = self.lin1(x)
        x = torch.zeros_like(x).index_add(0, edge_index[1], x[edge_index[0]] * W)
        x = self.lin2(x)
        return x


class InteractionBlock(torch.nn.Module):
    def __init__(self, hidden_channels, num_gaussians, num_filters, cutoff):
        super().__init__()
        self.mlp = Sequential(
            Linear(num_gaussians, num_filters),
            ShiftedSoftplus(),
            Linear(num_filters, num_filters),
        )
        self.conv = CFConv(hidden_channels, hidden_channels, num_filters, self.mlp, cutoff)
        self.act = ShiftedSoftplus()
        self.lin = Linear(hidden_channels, hidden_channels)

        self.reset_parameters()

    def reset_parameters(self):
        torch.nn.init.xavier_uniform_(self.mlp[0].weight)
        self.mlp[0].bias.data.fill_(0)
        torch.nn.init.xavier_uniform_(self.mlp[2].weight)
        self.mlp[2].bias.data.fill_(0)
        self.conv.reset_parameters()
        torch.nn.init.xavier_uniform_(self.lin.weight)
        self.lin.bias.data.fill_(0)

    def forward(self, x, edge_index, edge_weight, edge_attr):
        x = self.conv(x, edge_index, edge_weight, edge_attr)
        x = self.act(x)
        x = self.lin(x)
        return x


class SchNet(torch.nn.Module):
    def __init__(self, hidden_channels=8, num_filters=8, num_interactions=2, num_gaussians=10, cutoff=3.0):
        super().__init__()
        self.cutoff = cutoff
        self.embedding = Embedding(20, hidden_channels, padding_idx=0)
        self.distance_expansion = GaussianSmearing(0.0, cutoff, num_gaussians)
        self.interactions = ModuleList([InteractionBlock(hidden_channels, num_gaussians, num_filters, cutoff) for _ in range(num_interactions)])
        self.lin1 = Linear(hidden_channels, hidden_channels // 2)
        self.act = ShiftedSoftplus()
        self.lin2 = Linear(hidden_channels // 2, 1)

    def forward(self, z, pos, batch):
        h = self.embedding(z)
        dist = torch.cdist(pos.detach(), pos.detach())
        mask = (dist < self.cutoff) & (batch[:, None] == batch[None, :]) & ~torch.eye(len(z), dtype=torch.bool)
        edge_index = mask.nonzero(as_tuple=False).t()
        row, col = edge_index
        edge_weight = (pos[row] - pos[col]).norm(dim=-1)
        edge_attr = self.distance_expansion(edge_weight)

        for interaction in self.interactions:
            h = h + interaction(h, edge_index, edge_weight, edge_attr)

        h = self.lin1(h)
        h = self.act(h)
        h = self.lin2(h)
        out = h.new_zeros(int(batch.max()) + 1, 1)
        return out.index_add_(0, batch, h)


def program():
    z = torch.tensor([8, 1, 1, 6, 1, 1, 1, 1])
    batch = torch.tensor([0, 0, 0, 1, 1, 1, 1, 1])
    pos = torch.randn(8, 3)
    energy = torch.tensor([[-1.0], [-2.0]])
    force = torch.randn(8, 3) * 0.1
    model = SchNet()
    yield "initial", model
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4, amsgrad=True)
    for step in range(3):
        pos.requires_grad_(True)
        optimizer.zero_grad()
        E = model(z, pos, batch)
        forces = -torch.autograd.grad(E, pos, grad_outputs=torch.ones_like(E), create_graph=True, retain_graph=True)[0]
        loss = F.l1_loss(E, energy) + 10 * F.mse_loss(forces, force)
        loss.backward()
        if step == 0:
            yield "forces", forces
            yield "gradients", model
        optimizer.step()
        print("step %d loss %.5f" % (step, loss.item()))
    yield "energy", E
