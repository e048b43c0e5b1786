"""Programs in PyTorch that torch.jit scripts and traces: what TorchScript archives hold. Only for tests that have PyTorch."""

import enum
from typing import NamedTuple

import torch
from torch import nn


class Color(enum.Enum):
    """An attribute of a program."""

    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    """A result of a program."""

    tensor: torch.Tensor
    number: int


class Counter:
    """A class that TorchScript compiles."""

    def __init__(self, n: int):
        self.n = n

    def add(self, k: int) -> int:
        self.n += k
        return self.n


class Language(nn.Module):
    """What TorchScript's language has: containers, texts, classes, loops, futures, contexts, attributes that change."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("ones", torch.ones(3), persistent=False)
        self.color = Color.RED
        self.table = {"a": 1, "b": 2}
        self.names = ["a"]
        self.mixed = (1, 2.0, "x")
        self.calls: int = 0
        self.empty = torch.jit.Attribute([], list[int])
        self.nested = torch.jit.Attribute({"k": [torch.ones(2)]}, dict[str, list[torch.Tensor]])
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.huge = float("inf")
        self.z = 1 + 2j
        self.device = torch.device("cpu")

    def forward(self, x: torch.Tensor, scale: float = 1.0, numbers: list[int] | None = None):
        counter = Counter(2)
        counter.add(3)
        self.calls += 1
        if self.color == Color.RED and self.color.value == 1:
            x = x + len(self.color.name)
        pair = Pair(x, 3)
        text = "héllo\n\t'\"\\"
        with torch.no_grad():
            y = x * 2
        r: list[int] = []
        for i in range(2, 10, 3):
            r.append(i)
        for _k, v in self.table.items():
            r.append(v)
        r.sort(reverse=True)
        future = torch.jit.fork(self.helper, x)
        made = torch.jit.wait(future)
        for i, t in enumerate([t * 2 for t in [x, y]]):
            made = made + t * i
        if torch.jit.isinstance(numbers, list[int]):
            r = numbers
        assert x.dim() == 2, f"bad {x.dim()}"
        parts: list[float] = x[0].tolist()
        shown = "a,b".split(",")[0].upper() + "%d %s" % (3, 0.1) + str(4.5) + text[0:3] + "{} and {} {}".format(r, scale, [0.1])  # noqa: UP031, UP032
        sign = float("inf") if scale > 100 else -scale
        made[:, 0] = 3.0
        made = made.to(torch.float64).to(x.device).masked_fill(made > 2, float("-inf"))
        del r[0]
        found = {"q": x}
        if "q" in found:
            found["w"] = found["q"]
        values, indices = x.max(dim=1)
        n = 0
        while True:
            n += 1
            if n * n > r[0] + 20:
                break
        if n == 77:
            n = self.calls
        number = 7 // 2 + 7 % 2 + int(7 / 2) + abs(-n) + min(n, 2) + max([n, 2]) + round(n / 2.5) + n**3
        whole = [x.size(0) % 2, n << 2, n & 3, -n // 2, -n % 3]
        rest = x[..., None, 1:2], x[indices > 0], whole, self.z * 2, self.calls
        return pair, made, r, shown, sign, parts, counter.n, found, values, number, rest

    def helper(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)

    @torch.jit.export
    def twice(self, x: torch.Tensor) -> torch.Tensor:
        return self.helper(x) * 2


class Block(nn.Module):
    """A residual block."""

    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 2 * channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(2 * channels)
        self.conv2 = nn.Conv2d(2 * channels, 2 * channels, 3, 1, 1, groups=2)
        self.bn2 = nn.BatchNorm2d(2 * channels)
        self.relu = nn.ReLU(inplace=True)
        self.down: nn.Module | None = nn.Sequential(nn.Conv2d(channels, 2 * channels, 1, stride), nn.BatchNorm2d(2 * channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + (self.down(x) if self.down is not None else x))


class ResNet(nn.Module):
    """A small residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.layers = nn.Sequential(Block(4, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.drop = nn.Dropout(0.3)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(torch.flatten(self.pool(self.layers(self.stem(x))), 1)))


class MobileBlock(nn.Module):
    """An inverted residual with squeeze and excitation, as MobileNet's."""

    def __init__(self) -> None:
        super().__init__()
        self.expand = nn.Sequential(nn.Conv2d(4, 12, 1, bias=False), nn.BatchNorm2d(12), nn.Hardswish(inplace=True))
        self.depth = nn.Sequential(nn.Conv2d(12, 12, 3, 1, 1, groups=12, bias=False), nn.BatchNorm2d(12), nn.ReLU6(inplace=True))
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(12, 3, 1), nn.SiLU(), nn.Conv2d(3, 12, 1), nn.Hardsigmoid())
        self.project = nn.Sequential(nn.Conv2d(12, 4, 1, bias=False), nn.GroupNorm(2, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.depth(self.expand(x))
        return x + self.project(y * self.squeeze(y))


class Recurrent(nn.Module):
    """Embedding, a bidirectional LSTM and a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(10, 4, padding_idx=0)
        self.lstm = nn.LSTM(4, 3, num_layers=2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(6, 3, batch_first=True)
        self.head = nn.Linear(3, 10)
        self.head.bias.requires_grad_(False)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, (h, _) = self.lstm(self.embed(ids))
        y, _ = self.gru(x)
        return self.head(y), h


class Encoder(nn.Module):
    """A layer of a transformer's encoder with a mask, and a decoder whose weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layers = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True) for _ in range(1)])
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        n = ids.size(1)
        mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


class Detector(nn.Module):
    """Boxes by a loop whose length depends on values: suppression of overlaps, sorted by score."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(4, 1)
        self.threshold = 0.3

    def overlap(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        low, high = torch.max(a[:2], b[:2]), torch.min(a[2:], b[2:])
        inside = (high - low).clamp(min=0).prod()
        areas = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod()
        return inside / (areas - inside)

    def forward(self, boxes: torch.Tensor) -> dict[str, torch.Tensor]:
        scores = torch.sigmoid(self.score(boxes)).squeeze(1)
        order = torch.argsort(scores, descending=True)
        kept: list[int] = []
        for i in range(order.size(0)):
            candidate = int(order[i])
            good = True
            for k in kept:
                if bool(self.overlap(boxes[candidate], boxes[k]) > self.threshold):
                    good = False
                    break
            if good:
                kept.append(candidate)
        if len(kept) == 0:
            raise ValueError("no boxes")
        index = torch.tensor(kept, dtype=torch.int64)
        return {"boxes": boxes[index], "scores": scores[index], "kept": index}


class Raises(nn.Module):
    """Errors of the program's own."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.size(0) == 3:
            raise ValueError("three")
        return x @ x


def sizes(x: torch.Tensor) -> torch.Tensor:
    """Arithmetic with sizes, which a trace keeps as tensors."""
    b, c, h, w = x.shape
    x = x.view(b, c * 2, h // 2, w)
    x = torch.cat([x, x.flip(3)], dim=3).permute(0, 3, 1, 2)
    x = nn.functional.interpolate(nn.functional.pad(x, [1, 1, 0, 1]), scale_factor=2.0, mode="nearest")
    a, b2 = x.chunk(2, dim=1)
    x = torch.where(a > b2, a, b2).reshape(x.shape[0], -1).to(torch.float64)[:, None, ::2]
    return x + torch.zeros(b, 1, 1) + torch.arange(x.size(1))[0]
