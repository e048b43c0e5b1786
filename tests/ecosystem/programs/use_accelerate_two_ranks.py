"""accelerate: two ranks: a prepared loop with accumulated gradients and clipping, gathered losses, reduced, padded and gathered tensors and objects."""

import json
import os
import subprocess
import sys

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from torch.utils.data import DataLoader, TensorDataset

if "RANK" not in os.environ:
    sys.exit(subprocess.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", __file__], check=False).returncode)
set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
x = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
data = TensorDataset(x, x.sum(1, keepdim=True))
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4, shuffle=True))
losses = []
for _ in range(2):
    for a, b in loader:
        with accelerator.accumulate(model):
            loss = torch.nn.functional.mse_loss(model(a), b)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach()).mean().item())
rank = accelerator.process_index
found = {
    "wrapper": type(model).__name__, "ranks": accelerator.num_processes, "kind": str(accelerator.distributed_type), "losses": losses,
    "reduced": accelerator.reduce(torch.ones(2) * (rank + 1), "mean").tolist(), "objects": gather_object([rank, "x" * rank]),
    "padded": accelerator.gather(accelerator.pad_across_processes(torch.ones(rank + 1))).tolist(),
    "weight": accelerator.unwrap_model(model)[0].weight.tolist(),
}  # fmt: skip
accelerator.wait_for_everyone()
if accelerator.is_main_process:
    print(json.dumps(found))
accelerator.end_training()
