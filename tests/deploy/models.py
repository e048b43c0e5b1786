"""Models that are built into libraries, as exported programs: the digits' network and a small GPT."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.cli.demo import DigitNet
from flambeau.export import Dim, ExportedProgram, export
from flambeau.nn import functional as F


def digits() -> ExportedProgram:
    """The network of `flambeau demo`, untrained, with a dynamic batch."""
    torch.manual_seed(0)
    return export(DigitNet().eval(), (torch.randn(4, 1, 8, 8),), dynamic_shapes={"x": {0: Dim("batch", min=1, max=256)}})


class Block(nn.Module):
    """Attention and a network of two layers, each added to what it is given."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).contiguous().view(b, t, c)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """The logits of the token after the last one."""

    def __init__(self, vocabulary: int = 30, width: int = 32, heads: int = 2, layers: int = 1, context: int = 40) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))[:, -1]


def gpt() -> ExportedProgram:
    """A small GPT with a dynamic length."""
    torch.manual_seed(0)
    model = GPT().eval()
    return export(model, (torch.randint(0, 30, (1, 17)),), dynamic_shapes={"tokens": {1: Dim("length", min=1, max=40)}})
