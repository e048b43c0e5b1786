"""monai: a small UNet with the Dice loss."""

import json

import torch
import warm
from monai.losses import DiceLoss
from monai.networks.nets import UNet

torch.manual_seed(0)
net = UNet(spatial_dims=2, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2), num_res_units=1)
x, y = torch.randn(1, 1, 16, 16), torch.randint(0, 2, (1, 1, 16, 16))
loss = DiceLoss(to_onehot_y=True, softmax=True)(net(x), y)
loss.backward()
print(json.dumps({"loss": loss.item(), "gradient": sum(p.grad.abs().sum().item() for p in net.parameters() if p.grad is not None)}))
optimizer = torch.optim.Adam(net.parameters())
dice = DiceLoss(to_onehot_y=True, softmax=True)


def step():
    optimizer.zero_grad()
    loss = dice(net(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("UNet: training step", step)
net.eval()
with torch.no_grad():
    warm.measure("UNet: inference", lambda: net(x).sum().item())
