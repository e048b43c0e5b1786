"""Networks that `flambeau bench` trains and runs: an MLP, PyTorch's MNIST example, ResNet-18, small GPTs, an LSTM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Work = Callable[[], Any]


def finish(torch: Any, t: Any) -> None:
    """Have the values of `t` computed (PyTorch's CPU results always are)."""
    if hasattr(torch, "stats"):
        t.data_ptr()


def training(torch: Any, model: Any, optimizer: Any, x: Any, y: Any, mixed: bool = False) -> Work:
    """A training step; `mixed`: under autocast to bfloat16."""
    functional = torch.nn.functional

    def loss_of() -> Any:
        return functional.cross_entropy(model(x), y)

    if mixed:
        loss_of = torch.autocast("cpu", dtype=torch.bfloat16)(loss_of)

    def work() -> None:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        finish(torch, loss)

    return work


def mlp(batch: int) -> Callable[[Any], Work]:
    def make(torch: Any) -> Work:
        nn = torch.nn
        model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
        x, y = torch.randn(batch, 784), torch.randint(0, 10, (batch,))
        return training(torch, model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y)

    return make


def mnist_network(torch: Any) -> Any:
    """PyTorch's MNIST example network."""
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, 1), nn.ReLU(), nn.Conv2d(32, 64, 3, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(),
        nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10),
    )  # fmt: skip


def mnist_step(torch: Any) -> Work:
    """One training step of that network, batch 64, SGD with momentum."""
    model = mnist_network(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return training(torch, model, optimizer, torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))


def gpt(layers: int, width: int, heads: int, length: int, batch: int, mixed: bool = False) -> Callable[[Any], Work]:
    """A training step of a GPT over 65 characters, with AdamW; `mixed`: under autocast to bfloat16."""
    return lambda torch: _gpt(torch, layers, width, heads, length, batch, mixed)


def _gpt(torch: Any, layers: int, width: int, heads: int, length: int, batch: int, mixed: bool) -> Work:
    nn, functional = torch.nn, torch.nn.functional
    vocabulary = 65

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x: Any) -> Any:
            b, t, c = x.size()
            parts = [p.view(b, t, heads, c // heads).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, dim=2)]
            y = functional.scaled_dot_product_attention(*parts, is_causal=True)
            x = x + self.projection(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.down(functional.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(layers)])
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

        def forward(self, index: Any) -> Any:
            x = self.token(index) + self.position(torch.arange(index.size(1)))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)).view(-1, vocabulary)

    model = Model()
    x = torch.randint(0, vocabulary, (batch, length))
    y = torch.randint(0, vocabulary, (batch * length,))
    return training(torch, model, torch.optim.AdamW(model.parameters(), lr=1e-3), x, y, mixed)


def resnet18(torch: Any, classes: int, small_images: bool) -> Any:
    """ResNet-18 (He et al. 2015, table 1); for images of 32 pixels the first layer is 3x3 and nothing is pooled before the blocks."""
    nn, functional = torch.nn, torch.nn.functional

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, before: int, width: int, stride: int) -> None:
            super().__init__()
            self.conv1, self.bn1 = nn.Conv2d(before, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
            self.conv2, self.bn2 = nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
            self.shortcut = nn.Sequential()
            if stride != 1 or before != width:
                self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

        def forward(self, x: Any) -> Any:
            y = functional.relu(self.bn1(self.conv1(x)))
            return functional.relu(self.bn2(self.conv2(y)) + self.shortcut(x))

    first = (
        [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()] if small_images
        else [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    )  # fmt: skip
    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    return nn.Sequential(*first, *[Block(*w) for w in widths], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, classes))


def resnet_step(torch: Any) -> Work:
    """One training step on 32 images of 32 x 32 (CIFAR), SGD with momentum."""
    model = resnet18(torch, 10, small_images=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return training(torch, model, optimizer, torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,)))


def resnet_inference(torch: Any) -> Work:
    """Eight images of 224 x 224 through the network in evaluation mode."""
    model = resnet18(torch, 1000, small_images=False).eval()
    x = torch.randn(8, 3, 224, 224)

    def work() -> None:
        with torch.no_grad():
            finish(torch, model(x))

    return work


def lstm_step(torch: Any) -> Work:
    """One training step of an LSTM 128 -> 256 over 64 time steps of 32 sequences, with SGD."""
    model = torch.nn.LSTM(128, 256)
    x, y = torch.randn(64, 32, 128), torch.randn(64, 32, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def work() -> None:
        optimizer.zero_grad()
        loss = (model(x)[0] - y).square().mean()
        loss.backward()
        optimizer.step()
        finish(torch, loss)

    return work
