"""timm: a ResNet and a ViT from a seed: forward pass, a training step with its optimizer, features."""

import json

import timm
import torch
import warm
from timm.optim import create_optimizer_v2

found = {}
for name, options in (("resnet18", {}), ("vit_tiny_patch16_224", {"img_size": 64})):
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=4, **options)
    x = torch.randn(8, 3, 64, 64)
    optimizer = create_optimizer_v2(model, opt="sgd", lr=1e-2, momentum=0.9)
    losses = []
    for _ in range(2):
        loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 3] * 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        found[name] = [*losses, *model(x)[0].tolist()]
        found[f"{name} features"] = list(model.forward_features(x).shape)
print(json.dumps(found))


def step():
    model.train()
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 3] * 4))
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("ViT: training step", step)
model.eval()
with torch.no_grad():
    warm.measure("ViT: inference", lambda: model(x).sum().item())
