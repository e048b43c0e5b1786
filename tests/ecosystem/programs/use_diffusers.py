"""diffusers: a small UNet and a DDIM scheduler: a training step, three denoising steps."""

import json

import torch
import warm
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

torch.manual_seed(0)
unet = UNet2DModel(
    sample_size=8, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
    down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
)  # fmt: skip
noise, image, step = torch.randn(2, 1, 8, 8), torch.randn(2, 1, 8, 8), torch.tensor([3, 70])
noisy = DDPMScheduler(num_train_timesteps=100).add_noise(image, noise, step)
loss = torch.nn.functional.mse_loss(unet(noisy, step).sample, noise)
loss.backward()
scheduler = DDIMScheduler(num_train_timesteps=100)
scheduler.set_timesteps(3)
sample = torch.randn(1, 1, 8, 8)
with torch.no_grad():
    for t in scheduler.timesteps:
        sample = scheduler.step(unet(sample, t).sample, t, sample).prev_sample
print(json.dumps({"loss": loss.item(), "sample": sample.flatten()[:6].tolist()}))
optimizer = torch.optim.AdamW(unet.parameters(), lr=1e-4)


def train():
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(unet(noisy, step).sample, noise)
    loss.backward()
    optimizer.step()
    return loss.item()


warm.measure("UNet: training step", train)
with torch.no_grad():
    warm.measure("denoising step", lambda: scheduler.step(unet(sample, 3).sample, scheduler.timesteps[0], sample).prev_sample.sum().item())
