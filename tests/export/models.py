"""Models for tests of export, written once and made of either package: `models(torch)` and `models(flambeau)` have the same classes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def models(torch: Any) -> Any:
    """The classes over one package."""
    nn, F = torch.nn, torch.nn.functional

    class MLP(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5))

        def forward(self, x: Any) -> Any:
            return self.layers(x)

    class CNN(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3)
            self.norm, self.dropout = nn.BatchNorm2d(8), nn.Dropout(0.25)
            self.out = nn.Linear(16 * 2 * 2, 10)

        def forward(self, x: Any) -> Any:
            x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
            x = self.dropout(F.relu(self.conv2(x)))
            return F.log_softmax(self.out(torch.flatten(x, 1)), dim=1)

    class Block(nn.Module):
        def __init__(self, n: int, m: int, stride: int) -> None:
            super().__init__()
            self.c1, self.b1 = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.BatchNorm2d(m)
            self.c2, self.b2 = nn.Conv2d(m, m, 3, 1, 1, bias=False), nn.BatchNorm2d(m)
            self.relu = nn.ReLU(inplace=True)
            self.down = nn.Sequential(nn.Conv2d(n, m, 1, stride, bias=False), nn.BatchNorm2d(m)) if stride != 1 else None

        def forward(self, x: Any) -> Any:
            same = x if self.down is None else self.down(x)
            x = self.b2(self.c2(self.relu(self.b1(self.c1(x)))))
            x += same
            return self.relu(x)

    class ResNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 8, 3, 1, 1)
            self.blocks = nn.Sequential(Block(8, 8, 1), Block(8, 16, 2))
            self.pool, self.out = nn.AdaptiveAvgPool2d(1), nn.Linear(16, 4)

        def forward(self, x: Any) -> Any:
            return self.out(self.pool(self.blocks(self.stem(x))).flatten(1))

    class LSTM(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.rnn = nn.Embedding(20, 6), nn.LSTM(6, 7, num_layers=2, batch_first=True, bidirectional=True)
            self.gru, self.out = nn.GRU(14, 5, batch_first=True), nn.Linear(5, 3)

        def forward(self, ids: Any) -> Any:
            x, (h, c) = self.rnn(self.embed(ids))
            y, last = self.gru(x)
            return self.out(y[:, -1]), h.sum() + c.mean(), last

    class Attention(nn.Module):
        def __init__(self, n: int, heads: int) -> None:
            super().__init__()
            self.heads, self.qkv, self.out = heads, nn.Linear(n, 3 * n), nn.Linear(n, n)

        def forward(self, x: Any) -> Any:
            b, t, n = x.shape
            q, k, v = self.qkv(x).split(n, dim=2)
            q, k, v = [a.view(b, t, self.heads, n // self.heads).transpose(1, 2) for a in (q, k, v)]
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).contiguous().view(b, t, n))

    class Layer(nn.Module):
        def __init__(self, n: int) -> None:
            super().__init__()
            self.ln1, self.attention, self.ln2 = nn.LayerNorm(n), Attention(n, 2), nn.LayerNorm(n)
            self.mlp = nn.Sequential(nn.Linear(n, 4 * n), nn.GELU(approximate="tanh"), nn.Linear(4 * n, n), nn.Dropout(0.1))

        def forward(self, x: Any) -> Any:
            x = x + self.attention(self.ln1(x))
            return x + self.mlp(self.ln2(x))

    class GPT(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tokens, self.places = nn.Embedding(30, 16), nn.Embedding(24, 16)
            self.layers = nn.ModuleList([Layer(16) for _ in range(2)])
            self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 30, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids: Any, targets: Any = None) -> Any:
            place = torch.arange(ids.shape[1], device=ids.device)
            x = self.tokens(ids) + self.places(place)
            for layer in self.layers:
                x = layer(x)
            logits = self.head(self.norm(x))
            if targets is None:
                return logits
            return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-1)

    class Tour(nn.Module):
        """Keyword and nested inputs, buffers that change, constants, indexing, sizes as results."""

        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.linspace(-1, 1, 16).view(4, 4))
            self.register_buffer("count", torch.zeros(4))
            self.register_buffer("hidden", torch.ones(4), persistent=False)
            self.constant = torch.arange(4.0)

        def forward(self, x: Any, y: Any, *, k: Any) -> Any:
            self.count.add_(1)
            a, b = x[1:, 0], x[:, None, ::2]
            c, d = x.split([1, 3], 1)
            e = torch.cat([d, c], -1).masked_fill(x > 0.5, -1.0) + torch.where(x > 0, x, 0.0) + torch.where(x > 1, 0.25, -0.5)
            g = x.clone()
            g[0] = 1
            g[:, 1] = x[:, 2]
            g += 1
            mask = torch.tril(torch.ones(4, 4)).bool()
            s = (x @ self.w).masked_fill(~mask[0], float("-inf")).softmax(-1)
            t = torch.tensor([1.0, 2.0, 3.0, 4.0]) * k + self.hidden + self.constant
            values, places = x.topk(2, dim=-1)
            n = 1 / (x.abs() + 1) + 2 - x + x**2 / 3 - x.norm() + x.std(dim=1, keepdim=True) + x.T.T + (x.max(1)[0] - x.min()).unsqueeze(1)
            m = torch.einsum("ij,kj->ik", x, x).diagonal() + torch.zeros(x.shape[0])
            z = F.pad(x.reshape(-1, 2), (1, 1)).permute(1, 0).sum((0, 1)) + x.double().float().mean() + torch.stack([x, x]).prod(0).sum()
            p = F.interpolate(x[None, None], scale_factor=2, mode="bilinear").amax(dim=(2, 3)) + F.normalize(x).sum() + x.cumsum(1)[0, 0]
            return {"out": (a.sum() + b.sum(), e, g, s, t), "rest": [n, m, z, p, values, places.float(), y["a"][0] * 2], "size": x.shape[0] * 2 + 1}

    return SimpleNamespace(MLP=MLP, CNN=CNN, ResNet=ResNet, LSTM=LSTM, GPT=GPT, Tour=Tour)
