"""torchvision: Faster R-CNN's losses and detections, nms, roi_align, roi_pool, ps_roi_align, ps_roi_pool, deform_conv2d."""

import json

import torch
import torchvision

found = {}
torch.manual_seed(0)
boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 11.0, 11.0], [20.0, 20.0, 30.0, 30.0]])
found["nms"] = torchvision.ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7]), 0.5).tolist()
image = torch.randn(1, 4, 16, 16, requires_grad=True)
pooled = torchvision.ops.roi_align(image, [boxes / 3], output_size=3, spatial_scale=1.0, sampling_ratio=-1, aligned=True)
pooled.square().sum().backward()
found["roi_align"] = [pooled.sum().item(), image.grad.abs().sum().item()]
found["roi_pool"] = torchvision.ops.roi_pool(image.detach(), [boxes / 3], output_size=2).sum().item()
for name, options in (("roi_pool", {}), ("ps_roi_pool", {}), ("ps_roi_align", {"sampling_ratio": 2})):
    image.grad = None
    pooled = getattr(torchvision.ops, name)(image, [boxes / 3], output_size=2, **options)
    pooled.square().sum().backward()
    found[f"{name} and its gradient"] = [pooled.sum().item(), image.grad.abs().sum().item()]
deform = torchvision.ops.DeformConv2d(4, 4, 3, padding=1)
found["deform_conv2d"] = deform(image.detach(), torch.randn(1, 18, 16, 16), torch.rand(1, 9, 16, 16)).abs().sum().item()
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
