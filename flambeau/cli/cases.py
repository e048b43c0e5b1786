"""What `flambeau bench` measures: each case written once against a module (flambeau, or the PyTorch it is compared with).

A case is (name, floor, make): `make(torch)` prepares and returns a function of no arguments that does the work once and ends
with everything computed; `floor` is the ratio, PyTorch's time over ours, that the project asks of itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Work = Callable[[], Any]
LARGE = 4096


class Case(NamedTuple):
    """One line of the table."""

    name: str
    floor: float
    make: Callable[[Any], Work]


def _finish(torch: Any, t: Any) -> None:
    """Have the values of `t` computed (PyTorch's CPU results always are)."""
    if hasattr(torch, "stats"):
        t.data_ptr()


def _chain(torch: Any) -> Work:
    a, b = torch.rand(8), torch.rand(8)

    def work() -> Any:
        y = a
        for _ in range(100):
            y = y * b
        return y.tolist()

    return work


def _single(torch: Any) -> Work:
    a, b = torch.rand(8), torch.rand(8)
    return lambda: (a + b)[0].item()


def _small_backward(torch: Any) -> Work:
    a, b = torch.rand(8).requires_grad_(), torch.rand(8)

    def work() -> None:
        y = a
        for _ in range(10):
            y = y * b
        a.grad = None
        y.sum().backward()
        _finish(torch, a.grad)

    return work


def _large(function: Callable[[Any, Any], Any]) -> Callable[[Any], Work]:
    def make(torch: Any) -> Work:
        x = torch.randn(LARGE, LARGE)
        with_grad_off = torch.no_grad()

        def work() -> None:
            with with_grad_off:
                _finish(torch, function(torch, x))

        return work

    return make


def _pointwise(torch: Any, x: Any) -> Any:
    return ((x * 2 + 1) * x - 3).abs().sqrt() * 0.5 + x


def _matmul(n: int) -> Callable[[Any], Work]:
    def make(torch: Any) -> Work:
        a, b = torch.randn(n, n), torch.randn(n, n)
        return lambda: _finish(torch, a @ b)

    return make


def _training(torch: Any, model: Any, optimizer: Any, x: Any, y: Any) -> Work:
    functional = torch.nn.functional

    def work() -> None:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        _finish(torch, loss)

    return work


def _mlp(batch: int) -> Callable[[Any], Work]:
    def make(torch: Any) -> Work:
        nn = torch.nn
        model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
        x, y = torch.randn(batch, 784), torch.randint(0, 10, (batch,))
        return _training(torch, model, torch.optim.Adam(model.parameters(), lr=1e-3), x, y)

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
    return _training(torch, model, optimizer, torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))


def _gpt(torch: Any) -> Work:
    nn, functional = torch.nn, torch.nn.functional
    vocabulary, width, heads, layers, length, batch = 65, 128, 4, 4, 64, 12

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
    return _training(torch, model, torch.optim.AdamW(model.parameters(), lr=1e-3), x, y)


CASES: tuple[Case, ...] = (
    Case("100 dependent operations on 8 elements, one read", 1.5, _chain),
    Case("one operation on 8 elements, read at once", 0.7, _single),
    Case("10 multiplications of 8 elements, forward and backward", 2, _small_backward),
    Case("X + X, 4096 x 4096", 2.5, _large(lambda torch, x: x + x)),
    Case("8 pointwise operations, 4096 x 4096", 25, _large(_pointwise)),
    Case("softmax, 4096 x 4096", 3, _large(lambda torch, x: torch.softmax(x, -1))),
    Case("layer norm, 4096 x 4096", 3, _large(lambda torch, x: torch.nn.functional.layer_norm(x, (LARGE,)))),
    Case("gelu, 4096 x 4096", 3, _large(lambda torch, x: torch.nn.functional.gelu(x))),
    Case("f32 matmul 512", 1.5, _matmul(512)),
    Case("f32 matmul 1024", 1.5, _matmul(1024)),
    Case("f32 matmul 2048", 1.5, _matmul(2048)),
    Case("MLP 784-256-128-10, Adam step, batch 1", 3, _mlp(1)),
    Case("MLP 784-256-128-10, Adam step, batch 32", 2, _mlp(32)),
    Case("MLP 784-256-128-10, Adam step, batch 256", 1.3, _mlp(256)),
    Case("MNIST example network, batch 64, SGD step", 1.0, mnist_step),
    Case("GPT 4 x 128, 64 tokens, batch 12, AdamW step", 1.3, _gpt),
)
