"""torchvision: a ResNet's training step, Faster R-CNN's losses and detections, transforms v2, nms, roi_align, deform_conv2d."""

import json

import torch
import torchvision
from torchvision.transforms import v2

found = {}
torch.manual_seed(0)
model = torchvision.models.resnet18(num_classes=4)
x = torch.randn(2, 3, 32, 32)
loss = torch.nn.functional.cross_entropy(model(x), torch.tensor([1, 3]))
loss.backward()
found["resnet18"] = [loss.item(), model.fc.weight.grad.abs().sum().item(), model.conv1.weight.grad.abs().sum().item()]
boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 11.0, 11.0], [20.0, 20.0, 30.0, 30.0]])
found["nms"] = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist()
image = torch.randn(1, 4, 16, 16, requires_grad=True)
pooled = torchvision.ops.roi_align(image, [boxes / 3], output_size=3, spatial_scale=1.0, sampling_ratio=-1, aligned=True)
pooled.square().sum().backward()
found["roi_align"] = [pooled.sum().item(), image.grad.abs().sum().item()]
found["roi_pool"] = torchvision.ops.roi_pool(image.detach(), [boxes / 3], output_size=2).sum().item()
deform = torchvision.ops.DeformConv2d(4, 4, 3, padding=1)
found["deform_conv2d"] = deform(image.detach(), torch.randn(1, 18, 16, 16), torch.rand(1, 9, 16, 16)).abs().sum().item()
transform = v2.Compose([v2.RandomHorizontalFlip(p=1.0), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.5] * 3), v2.CenterCrop(12)])
found["transforms"] = transform(torch.arange(3 * 16 * 16, dtype=torch.uint8).reshape(3, 16, 16)).sum().item()
torch.manual_seed(0)
detector = torchvision.models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=3, min_size=64, max_size=64)
target = [{"boxes": torch.tensor([[5.0, 5.0, 40.0, 40.0]]), "labels": torch.tensor([1])}]
losses = detector([torch.rand(3, 64, 64)], target)
sum(losses.values()).backward()
found["detector losses"] = [losses[name].item() for name in sorted(losses)]
detector.eval()
with torch.no_grad():
    found["detections"] = len(detector([torch.rand(3, 64, 64)])[0]["boxes"])
print(json.dumps(found))
