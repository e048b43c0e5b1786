"""kornia: filters, colours, a warp and an augmentation of a batch of images."""

import json

import kornia
import torch
import warm

torch.manual_seed(0)
image = torch.rand(2, 3, 16, 16)
found = {
    "gaussian": kornia.filters.gaussian_blur2d(image, (3, 3), (1.5, 1.5)).sum().item(), "sobel": kornia.filters.sobel(image).sum().item(),
    "lab": kornia.color.rgb_to_lab(image).abs().sum().item(), "rotated": kornia.geometry.transform.rotate(image, torch.tensor([30.0, -10.0])).sum().item(),
    "ssim": kornia.metrics.ssim(image, image.flip(-1), 5).mean().item(),
}  # fmt: skip
found["jitter"] = kornia.augmentation.ColorJiggle(0.1, 0.1, 0.1, 0.1, p=1.0)(image).sum().item()
print(json.dumps(found))
turned = torch.tensor([30.0, -10.0])
rotate = kornia.geometry.transform.rotate
warm.measure("blur and a warp", lambda: rotate(kornia.filters.gaussian_blur2d(image, (3, 3), (1.5, 1.5)), turned).sum().item())
