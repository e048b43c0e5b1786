"""torch_geometric: a two-layer GCN and a GAT trained on a small graph, pooled batches."""

import json

import torch
import warm
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

torch.manual_seed(0)
edges = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])
data = Data(x=torch.randn(4, 5), edge_index=edges, y=torch.tensor([0, 1, 0, 1]))
found = {}
for kind in (GCNConv, GATConv):
    first, second = kind(5, 8), kind(8, 2)
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.05)
    for _ in range(5):
        loss = torch.nn.functional.cross_entropy(second(first(data.x, data.edge_index).relu(), data.edge_index), data.y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    found[kind.__name__] = loss.item()
batch = Batch.from_data_list([data, data])
found["pooled"] = global_mean_pool(batch.x, batch.batch).flatten().tolist()
print(json.dumps(found))


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(second(first(data.x, data.edge_index).relu(), data.edge_index), data.y)
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("GAT: training step", step)
