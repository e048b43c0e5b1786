"""torchao: layers' weights in codes of 8 bits, 4 bits and floats of one byte, a saved state, three steps of optimizers of 8 and 4 bits."""

import io
import json
import warnings

warnings.filterwarnings("ignore")

import torch  # noqa: E402
from torchao.optim import AdamW4bit, AdamW8bit  # noqa: E402
from torchao.quantization import (  # noqa: E402
    Float8WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8DynamicActivationIntxWeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)

found = {}


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)), torch.randn(4, 64)


ways = (
    Int8WeightOnlyConfig, Int8DynamicActivationInt8WeightConfig, IntxWeightOnlyConfig, Int8DynamicActivationIntxWeightConfig, Float8WeightOnlyConfig,
)  # fmt: skip
for way in ways:
    model, x = network()
    quantize_(model, way())
    found[way.__name__] = [model(x).double().sum().item(), model(x).double().abs().mean().item()]
    if way is Int8WeightOnlyConfig:
        file = io.BytesIO()
        torch.save(model.state_dict(), file)
        file.seek(0)
        other, _ = network()
        other.load_state_dict(torch.load(file, weights_only=False), assign=True)
        found["loaded"] = other(x).double().sum().item()
for kind in (AdamW8bit, AdamW4bit):
    model, x = network()
    optimizer = kind(model.parameters(), lr=1e-3)
    found[kind.__name__] = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        found[kind.__name__].append(loss.item())
print(json.dumps(found))
