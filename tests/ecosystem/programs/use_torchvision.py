"""torchvision: a ResNet's training step, transforms v2."""

import json

import torch
import torchvision
import warm
from torchvision.transforms import v2

found = {}
torch.manual_seed(0)
model = torchvision.models.resnet18(num_classes=4)
x = torch.randn(8, 3, 64, 64)
loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 3] * 4))
loss.backward()
found["resnet18"] = [loss.item(), model.fc.weight.grad.abs().sum().item(), model.conv1.weight.grad.abs().sum().item()]
transform = v2.Compose([v2.RandomHorizontalFlip(p=1.0), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3), v2.CenterCrop(12)])
found["transforms"] = transform(torch.arange(3 * 16 * 16, dtype=torch.uint8).reshape(3, 16, 16)).sum().item()
print(json.dumps(found))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 3] * 4))
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("ResNet-18: training step", step)
model.eval()
with torch.no_grad():
    warm.measure("ResNet-18: inference", lambda: model(x).sum().item())
