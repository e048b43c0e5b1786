"""demucs: a small HTDemucs and a small Demucs: a training step, sources of a mixture in overlapping pieces."""

import json

import torch
import warm
from demucs.apply import apply_model
from demucs.demucs import Demucs
from demucs.htdemucs import HTDemucs

found = {}
torch.manual_seed(0)
mixture = torch.randn(1, 2, 12000) * 0.1
model = HTDemucs(["drums", "other"], channels=8, depth=3, nfft=512, t_layers=1, t_heads=2, samplerate=8000, segment=1, dconv_mode=1, bottom_channels=16)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []
for _ in range(2):
    optimizer.zero_grad()
    loss = (model(mixture[..., :8000]) - mixture[:, None, :, :8000]).abs().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
found["htdemucs"] = losses
with torch.no_grad():
    found["sources"] = apply_model(model.eval(), mixture, shifts=0, split=True, overlap=0.25)[0, :, 0, 3000].tolist()
torch.manual_seed(0)
wave = Demucs(["a", "b"], channels=8, depth=3, lstm_layers=1, samplerate=8000).eval()
with torch.no_grad():
    found["demucs"] = wave(mixture[..., :4000])[0, :, 0, 1000].tolist()
print(json.dumps(found))
model.train()


def step():
    optimizer.zero_grad()
    loss = (model(mixture[..., :8000]) - mixture[:, None, :, :8000]).abs().mean()
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("HTDemucs: training step", step)
with torch.no_grad():
    warm.measure("Demucs: inference", lambda: wave(mixture[..., :4000]).sum().item())
