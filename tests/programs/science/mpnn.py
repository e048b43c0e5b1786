"""Message passing with index_add_ and scatter_add_ as in PyTorch Geometric's utilities: an edge network, a GRU update, Set2Set read-out."""

import torch
from torch import nn, Tensor
from torch.nn import functional as F


def scatter_sum(src: Tensor, index: Tensor, dim: int = 0, dim_size: int = None) -> Tensor:
    size = list(src.size())
    size[dim] = int(index.max()) + 1 if dim_size is None else dim_size
    shape = [1] * src.dim()
    shape[dim] = -1
    return src.new_zeros(size).scatter_add_(dim, index.view(shape).expand_as(src), src)


def scatter_mean(src, index, dim=0, dim_size=None):
    total = scatter_sum(src, index, dim, dim_size)
    count = scatter_sum(torch.ones_like(src[:, :1]), index, dim, total.size(dim))
    return total / count.clamp_(min=1)


def softmax(src, index, num_nodes):
    src_max = src.new_full((num_nodes, src.size(1)), float('-inf')).scatter_reduce_(
        0, index.view(-1, 1).expand_as(src), src.detach(), reduce='amax', include_self=False)
    out = (src - src_max.index_select(0, index)).exp()
    out_sum = scatter_sum(out, index, 0, num_nodes) + 1e-16
    return out / out_sum.index_select(0, index)


class NNConv(nn.Module):
    def __init__(self, channels, edge_network, aggr='add'):
        super().__init__()
        self.channels = channels
        self.nn = edge_network
        self.root = nn.Parameter(torch.empty(channels, channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.aggr = aggr
        nn.init.kaiming_uniform_(self.root, a=5 ** 0.5)

    def forward(self, x, edge_index, edge_attr):
        row, col = edge_index
        weight = self.nn(edge_attr).view(-1, self.channels, self.channels)
        message = torch.matmul(x[row].unsqueeze(1), weight).squeeze(1)
        if self.aggr == 'add':
            out = torch.zeros_like(x).index_add_(0, col, message)
        else:
            out = scatter_mean(message, col, 0, x.size(0))
        return out + torch.mm(x, self.root) + self.bias


class Set2Set(nn.Module):
    def __init__(self, in_channels, processing_steps):
        super().__init__()
        self.in_channels = in_channels
        self.processing_steps = processing_steps
        self.lstm = nn.LSTM(2 * in_channels, in_channels, 1)

    def forward(self, x, batch):
        batch_size = batch.max().item() + 1
        h = (x.new_zeros((1, batch_size, self.in_channels)), x.new_zeros((1, batch_size, self.in_channels)))
        q_star = x.new_zeros(batch_size, 2 * self.in_channels)
        for i in range(self.processing_steps):
            q, h = self.lstm(q_star.unsqueeze(0), h)
            q = q.view(batch_size, self.in_channels)
            e = (x * q[batch]).sum(dim=-1, keepdim=True)
            a = softmax(e, batch, num_nodes=batch_size)
            r = scatter_sum(a * x, batch, 0, batch_size)
            q_star = torch.cat([q, r], dim=-1)
        return q_star


class Net(nn.Module):
    def __init__(self, features, edge_features, dim):
        super().__init__()
        self.lin0 = nn.Linear(features, dim)
        self.conv = NNConv(dim, nn.Sequential(nn.Linear(edge_features, 16), nn.ReLU(), nn.Linear(16, dim * dim)))
        self.mean = NNConv(dim, nn.Linear(edge_features, dim * dim), aggr='mean')
        self.gru = nn.GRU(dim, dim)
        self.set2set = Set2Set(dim, processing_steps=2)
        self.lin1 = nn.Linear(2 * dim, dim)
        self.lin2 = nn.Linear(dim, 1)

    def forward(self, x, edge_index, edge_attr, batch):
        out = F.relu(self.lin0(x))
        h = out.unsqueeze(0)
        for i in range(3):
            m = F.relu(self.conv(out, edge_index, edge_attr))
            out, h = self.gru(m.unsqueeze(0), h)
            out = out.squeeze(0)
        out = F.relu(self.mean(out, edge_index, edge_attr))
        out = self.set2set(out, batch)
        out = F.relu(self.lin1(out))
        return self.lin2(out).view(-1)


def collate(graphs):
    offset, xs, edges, attrs, batch = 0, [], [], [], []
    for i, (x, edge_index, edge_attr) in enumerate(graphs):
        xs.append(x)
        edges.append(edge_index + offset)
        attrs.append(edge_attr)
        batch.append(torch.full((x.size(0),), i, dtype=torch.long))
        offset += x.size(0)
    return torch.cat(xs), torch.cat(edges, dim=1), torch.cat(attrs), torch.cat(batch)


def program():
    graphs = []
    for n in (3, 5, 4):
        graphs.append((torch.randn(n, 5), torch.randint(0, n, (2, 3 * n)), torch.rand(3 * n, 2)))
    x, edge_index, edge_attr, batch = collate(graphs)
    y = torch.randn(3)
    model = Net(5, 2, 8)
    yield "initial", model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode='min', factor=0.7, patience=0, min_lr=0.00001)
    for step in range(4):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x, edge_index, edge_attr, batch), y)
        loss.backward()
        if step == 0:
            yield "gradients", model
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step(loss)
        print(f'{step} loss {loss.item():.5f} lr {optimizer.param_groups[0]["lr"]:.6f}')
    degree = torch.zeros(x.size(0)).scatter_add_(0, edge_index[1], torch.ones(edge_index.size(1)))
    yield "degree", degree
    yield "output", model(x, edge_index, edge_attr, batch)
