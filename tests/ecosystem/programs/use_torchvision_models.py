"""torchvision: every classification model: a forward pass (over 30 million parameters: on the device meta), and three for segmentation trained for a step."""

import json

import torch
from torchvision import models

found = {}
for name in models.list_models(module=models):
    options = {"image_size": 224} if name.startswith("vit") else {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    with torch.device("cpu" if name.startswith("regnet") else "meta"):  # RegNet reads widths that it computes from tensors
        model = models.get_model(name, weights=None, num_classes=5, **options).eval()
    count = sum(p.numel() for p in model.parameters())
    size = 299 if name == "inception_v3" else 224 if name.startswith(("vit", "swin", "maxvit")) else 64
    if count > 30_000_000:
        made = model.to("meta")(torch.empty(1, 3, size, size, device="meta"))
        found[name] = [count, *made.shape]
        continue
    torch.manual_seed(0)
    model = models.get_model(name, weights=None, num_classes=5, **options).eval()
    with torch.no_grad():
        found[name] = [count, *model(torch.randn(1, 3, size, size))[0].tolist()]
for name in ("fcn_resnet50", "deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large"):
    torch.manual_seed(0)
    model = models.get_model(name, weights=None, weights_backbone=None, num_classes=3).double()
    made = model(torch.randn(2, 3, 64, 64).double())["out"]
    loss = torch.nn.functional.cross_entropy(made, torch.randint(0, 3, (2, 64, 64)))
    loss.backward()
    found[name] = [loss.item(), *made[0, :, 5, 7].tolist(), sum(p.grad.abs().sum().item() for p in model.parameters())]
print(json.dumps(found))
