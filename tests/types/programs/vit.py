"""A vision transformer, trained for some steps: what a checker has to understand of modules, attention, parameters and schedules."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    image: int = 16
    patch: int = 4
    width: int = 32
    heads: int = 4
    layers: int = 2
    classes: int = 10
    dropout: float = 0.1


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=False)
        self.out = nn.Linear(config.width, config.width)
        self.dropout = config.dropout

    def forward(self, x: Tensor) -> Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        out: Tensor = self.out(y.transpose(1, 2).reshape(b, n, c))
        return out


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(4 * config.width, config.width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y: Tensor = self.mlp(self.norm2(x))
        return x + y


class ViT(nn.Module):
    position: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        patches = (config.image // config.patch) ** 2
        self.embed = nn.Conv2d(3, config.width, kernel_size=config.patch, stride=config.patch)
        self.token = nn.Parameter(torch.zeros(1, 1, config.width))
        self.register_buffer("position", torch.randn(1, patches + 1, config.width) * 0.02)
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width, eps=1e-6)
        self.head = nn.Linear(config.width, config.classes)
        self.apply(self._init)

    @staticmethod
    def _init(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            if module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.size(0), -1, -1), x], dim=1) + self.position
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x)[:, 0])
        return logits


def groups(model: nn.Module, decay: float) -> list[dict[str, object]]:
    with_decay = [p for p in model.parameters() if p.ndim > 1 and p.requires_grad]
    without = [p for p in model.parameters() if p.ndim <= 1 and p.requires_grad]
    return [{"params": with_decay, "weight_decay": decay}, {"params": without, "weight_decay": 0.0}]


def main(steps: int = 3) -> None:
    torch.manual_seed(0)
    config = Config()
    model = ViT(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], milestones=[2])
    for step in range(steps):
        images, labels = torch.randn(8, 3, config.image, config.image), torch.randint(0, config.classes, (8,))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step % 2 == 1):
            loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        optimizer.step()
        schedule.step()
        rate: float = optimizer.param_groups[0]["lr"]
        print(step, loss.item(), float(norm), rate, len(groups(model, 0.05)))
    model.eval()
    with torch.inference_mode():
        probabilities = model(torch.randn(2, 3, config.image, config.image)).softmax(dim=-1)
        best, which = probabilities.max(dim=-1)
    print(best.tolist(), which.tolist())


if __name__ == "__main__":
    main()
