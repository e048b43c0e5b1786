"""accelerate: prepare, backward, clipping and a saved state of a small training loop."""

import json
import tempfile

import torch
import warm
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
accelerator = Accelerator(cpu=True)
x = torch.randn(16, 3)
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4))
losses = []
for a, b in loader:
    loss = torch.nn.functional.mse_loss(model(a), b)
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
weight = accelerator.unwrap_model(model).weight.tolist()
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    torch.nn.init.zeros_(model.weight)
    accelerator.load_state(folder)
print(json.dumps({"losses": losses, "same": accelerator.unwrap_model(model).weight.tolist() == weight, "weight": weight[0]}))


def step():
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


warm.measure("training step", step)
