"""A generative adversarial network on points of a circle: two networks, two optimizers, detached losses."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import nn, optim


def circle(batch: int, device: torch.device) -> torch.Tensor:
    angle = 2 * math.pi * torch.rand(batch, device=device)
    return torch.stack((angle.cos(), angle.sin()), dim=1) + 0.01 * torch.randn(batch, 2, device=device)


class Generator(nn.Module):
    def __init__(self, latent: int, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for n in (latent, width):
            layers += [nn.Linear(n, width), nn.BatchNorm1d(width), nn.LeakyReLU(0.2, inplace=True)]
        self.net = nn.Sequential(*layers, nn.Linear(width, 2))
        self.latent = latent

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        points: torch.Tensor = self.net(z)
        return points

    def sample(self, count: int, device: torch.device) -> torch.Tensor:
        return self.forward(torch.randn(count, self.latent, device=device))


class Discriminator(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, width)), nn.LeakyReLU(0.2), nn.Dropout(p=0.1), nn.Linear(width, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        score: torch.Tensor = self.net(x)
        return score.squeeze(1)


def batches(count: int, size: int, device: torch.device) -> Iterator[torch.Tensor]:
    for _ in range(count):
        yield circle(size, device)


def main(steps: int = 4) -> None:
    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator, judge = Generator(4, 32).to(device), Discriminator(32).to(device)
    first = optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.999))
    second = optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
    criterion = nn.BCEWithLogitsLoss()
    history: dict[str, list[float]] = {"generator": [], "judge": []}
    for real in batches(steps, 64, device):
        fake = generator.sample(real.shape[0], device)
        second.zero_grad()
        right, wrong = judge(real), judge(fake.detach())
        loss = criterion(right, torch.ones_like(right)) + criterion(wrong, torch.zeros_like(wrong))
        loss.backward()
        second.step()
        history["judge"].append(loss.item())

        first.zero_grad()
        for p in judge.parameters():
            p.requires_grad_(False)
        scores = judge(fake)
        cost = criterion(scores, torch.full_like(scores, 1.0))
        cost.backward()
        first.step()
        for p in judge.parameters():
            p.requires_grad_(True)
        history["generator"].append(float(cost))
    with torch.no_grad():
        radius = generator.eval().sample(256, device).norm(dim=1)
    print({name: round(sum(values) / len(values), 3) for name, values in history.items()}, radius.mean().item(), radius.std().item())


if __name__ == "__main__":
    main()
