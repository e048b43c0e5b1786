"""What `flambeau bench` measures: each case written once against a module (flambeau, or the PyTorch it is compared with).

A case is (name, floor, wanted, make): `make(torch)` prepares and returns a function of no arguments that does the work once and
ends with everything computed; `floor` and `wanted` are the ratios, PyTorch's time over ours, that the project asks of itself now
and in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau.cli import cases_networks as networks
from flambeau.cli.cases_networks import Work, finish

LARGE = 4096


class Case(NamedTuple):
    """One line of the table."""

    name: str
    floor: float
    wanted: float
    make: Callable[[Any], Work]


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
        finish(torch, a.grad)

    return work


def _forward(shapes: tuple[tuple[int, ...], ...], function: Callable[..., Any], dtype: str = "float32") -> Callable[[Any], Work]:
    """A function of random tensors, without gradients."""

    def make(torch: Any) -> Work:
        inputs = [torch.randn(*shape).to(getattr(torch, dtype)) for shape in shapes]

        def work() -> None:
            with torch.no_grad():
                finish(torch, function(torch, *inputs))

        return work

    return make


def _both_ways(shapes: tuple[tuple[int, ...], ...], function: Callable[..., Any]) -> Callable[[Any], Work]:
    """A function of random tensors, and the gradients of its sum of squares."""

    def make(torch: Any) -> Work:
        inputs = [torch.randn(*shape).requires_grad_() for shape in shapes]

        def work() -> None:
            for t in inputs:
                t.grad = None
            function(torch, *inputs).square().sum().backward()
            for t in inputs:
                finish(torch, t.grad)

        return work

    return make


def _pointwise(torch: Any, x: Any) -> Any:
    return ((x * 2 + 1) * x - 3).abs().sqrt() * 0.5 + x


def _large(function: Callable[[Any, Any], Any]) -> Callable[[Any], Work]:
    return _forward(((LARGE, LARGE),), function)


def _matmul(m: int, k: int, n: int, dtype: str = "float32") -> Callable[[Any], Work]:
    return _forward(((m, k), (k, n)), lambda torch, a, b: a @ b, dtype)


def _convolution(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> Callable[[Any], Work]:
    return _forward((x, w), lambda torch, a, b: torch.nn.functional.conv2d(a, b, **options))


def _attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _linear_gelu(torch: Any, x: Any, w: Any, b: Any) -> Any:
    return torch.nn.functional.gelu(torch.nn.functional.linear(x, w, b))


_HEADS = ((4, 8, 512, 64),) * 3

CASES: tuple[Case, ...] = (
    Case("100 dependent operations on 8 elements, one read", 1.5, 3, _chain),
    Case("one operation on 8 elements, read at once", 0.7, 1.5, _single),
    Case("10 multiplications of 8 elements, forward and backward", 2, 4, _small_backward),
    Case("X + X, 4096 x 4096", 2.5, 3.3, _large(lambda torch, x: x + x)),
    Case("8 pointwise operations, 4096 x 4096", 25, 45, _large(_pointwise)),
    Case("gelu, 4096 x 4096", 3, 6, _large(lambda torch, x: torch.nn.functional.gelu(x))),
    Case("softmax, 4096 x 4096", 3, 5, _large(lambda torch, x: torch.softmax(x, -1))),
    Case("layer norm, 4096 x 4096", 3, 5, _large(lambda torch, x: torch.nn.functional.layer_norm(x, (LARGE,)))),
    Case("sum, 4096 x 4096", 1, 1, _large(lambda torch, x: x.sum())),
    Case("sum(0), 4096 x 4096", 1, 1.3, _large(lambda torch, x: x.sum(0))),
    Case("X.t() + X, 4096 x 4096", 1, 12, _large(lambda torch, x: x.t() + x)),
    Case("f32 matmul 128", 1, 1.3, _matmul(128, 128, 128)),
    Case("f32 matmul 512", 1.5, 1.9, _matmul(512, 512, 512)),
    Case("f32 matmul 1024", 1.5, 1.9, _matmul(1024, 1024, 1024)),
    Case("f32 matmul 2048", 1.5, 1.9, _matmul(2048, 2048, 2048)),
    Case("bf16 matmul 1024", 1, 1.05, _matmul(1024, 1024, 1024, "bfloat16")),
    Case("f64 matmul 512", 1, 1.9, _matmul(512, 512, 512, "float64")),
    Case("gelu(linear), 768 rows, 768 to 3072", 1, 2.5, _forward(((768, 768), (3072, 768), (3072,)), _linear_gelu)),
    Case("convolution 3x3, 64 channels, 56 x 56, batch 32", 1, 1.8, _convolution((32, 64, 56, 56), (64, 64, 3, 3), padding=1)),
    Case("convolution 3x3, 256 channels, 14 x 14, batch 32", 1, 1.05, _convolution((32, 256, 14, 14), (256, 256, 3, 3), padding=1)),
    Case("convolution 1x1, 256 to 64 channels, 56 x 56, batch 32", 1, 5, _convolution((32, 256, 56, 56), (64, 256, 1, 1))),
    Case("convolution 7x7 / 2, 3 channels, 224 x 224, batch 32", 1, 3,
         _convolution((32, 3, 224, 224), (64, 3, 7, 7), stride=2, padding=3)),
    Case("depthwise 3x3, 128 channels, 56 x 56, batch 32", 1, 6,
         _convolution((32, 128, 56, 56), (128, 1, 3, 3), padding=1, groups=128)),
    Case("causal attention, batch 4, 8 heads, 512, 64", 1, 2, _forward(_HEADS, _attention)),
    Case("MLP 784-256-128-10, Adam step, batch 1", 3, 4, networks.mlp(1)),
    Case("MLP 784-256-128-10, Adam step, batch 32", 2, 4, networks.mlp(32)),
    Case("MLP 784-256-128-10, Adam step, batch 256", 1.3, 2, networks.mlp(256)),
    Case("MNIST example network, batch 64, SGD step", 1.0, 1.7, networks.mnist_step),
    Case("ResNet-18 (CIFAR), batch 32, SGD step", 1, 1.5, networks.resnet_step),
    Case("ResNet-18, 224 x 224, batch 8, inference", 1, 1.8, networks.resnet_inference),
    Case("GPT 4 x 128, 64 tokens, batch 12, AdamW step", 1.3, 2.2, networks.gpt(4, 128, 4, 64, 12)),
    Case("GPT 6 x 384, 256 tokens, batch 8, AdamW step", 1, 2, networks.gpt(6, 384, 6, 256, 8)),
    Case("GPT 6 x 384, the same under bf16 autocast", 1, 1.5, networks.gpt(6, 384, 6, 256, 8, mixed=True)),
    Case("LSTM 128 to 256, 64 steps, batch 32, SGD step", 1, 2, networks.lstm_step),
)  # fmt: skip

# Sizes that nobody listed: `flambeau bench --sweep`. Each should be level with PyTorch at least.
SWEEP: tuple[Case, ...] = tuple(
    Case(f"sweep: {name}", 1, 1, make)
    for name, make in (
        ("matmul 1000 x 770 x 333", _matmul(1000, 770, 333)),
        ("matmul 17 x 4096 x 4096", _matmul(17, 4096, 4096)),
        ("matmul 4096 x 64 x 4096", _matmul(4096, 64, 4096)),
        ("matmul 4096 x 4096 x 8", _matmul(4096, 4096, 8)),
        ("matrix-vector 4096", _forward(((LARGE, LARGE), (LARGE,)), lambda torch, a, b: a @ b)),
        ("vector-matrix 4096", _forward(((LARGE,), (LARGE, LARGE)), lambda torch, a, b: a @ b)),
        ("bmm 96 x 64 x 32 x 64", _forward(((96, 64, 32), (96, 32, 64)), lambda torch, a, b: a @ b)),
        ("bmm 1000 x 4 x 4 x 4", _forward(((1000, 4, 4), (1000, 4, 4)), lambda torch, a, b: a @ b)),
        ("a.t() @ b, 700 x 900 x 500", _forward(((900, 700), (900, 500)), lambda torch, a, b: a.t() @ b)),
        ("f64 matmul 333", _matmul(333, 333, 333, "float64")),
        ("convolution 3x3, 512 channels, 7 x 7, batch 8", _convolution((8, 512, 7, 7), (512, 512, 3, 3), padding=1)),
        ("convolution 1x5, 32 channels, 33 x 47, batch 4", _convolution((4, 32, 33, 47), (48, 32, 1, 5))),
        ("convolution 5x5, 16 channels, 28 x 28, batch 64", _convolution((64, 16, 28, 28), (32, 16, 5, 5))),
        ("convolution 3x3 in 4 groups, 64 channels, 28 x 28", _convolution((16, 64, 28, 28), (64, 16, 3, 3), padding=1, groups=4)),
        ("convolution 3x3 dilated by 2, 32 channels, 40 x 40", _convolution((8, 32, 40, 40), (32, 32, 3, 3), dilation=2)),
        ("transposed convolution 4x4 / 2, 64 channels, 16 x 16",
         _forward(((16, 64, 16, 16), (64, 32, 4, 4)),
                  lambda torch, a, b: torch.nn.functional.conv_transpose2d(a, b, stride=2, padding=1))),
        ("convolution 3x3, 64 channels, both ways",
         _both_ways(((16, 64, 28, 28), (64, 64, 3, 3)), lambda torch, a, b: torch.nn.functional.conv2d(a, b, padding=1))),
        ("attention, 17 heads, length 300, both ways", _both_ways(((2, 17, 300, 40),) * 3, _attention)),
        ("softmax, rows of 10", _forward(((100_000, 10),), lambda torch, x: torch.softmax(x, -1))),
        ("softmax, rows of 100000", _forward(((64, 100_000),), lambda torch, x: torch.softmax(x, -1))),
        ("layer norm of 768, both ways",
         _both_ways(((4096, 768), (768,), (768,)), lambda torch, x, w, b: torch.nn.functional.layer_norm(x, (768,), w, b))),
        ("mean over the middle axis, 64 x 300 x 257", _forward(((64, 300, 257),), lambda torch, x: x.mean(1))),
        ("max over the first axis, 3000 x 1000", _forward(((3000, 1000),), lambda torch, x: x.amax(0))),
        ("f64 pointwise, 2000 x 2000", _forward(((2000, 2000),), _pointwise, "float64")),
        ("cumsum, 1000 x 1000", _forward(((1000, 1000),), lambda torch, x: x.cumsum(1))),
        ("sort, 200 x 5000", _forward(((200, 5000),), lambda torch, x: x.sort(-1)[0])),
        ("batch norm in training, both ways",
         _both_ways(((32, 64, 28, 28), (64,), (64,)),
                    lambda torch, x, w, b: torch.nn.functional.batch_norm(x, None, None, w, b, training=True))),
        ("max pool 3 / 2, 64 channels, 56 x 56", _forward(((16, 64, 56, 56),), lambda torch, x: torch.nn.functional.max_pool2d(x, 3, 2))),
        ("grid_sample, 3 channels, 256 x 256, batch 4",
         _forward(((4, 3, 256, 256), (4, 256, 256, 2)), lambda torch, x, g: torch.nn.functional.grid_sample(x, g, align_corners=False))),
        *[(f"fft, {' x '.join(map(str, shape))}", _forward((shape,), lambda torch, x: torch.fft.fft(x), "complex64"))
          for shape in ((512, 1024), (64, 4096), (1, 1 << 20), (512, 1000), (512, 1009))],
        ("fft along the first dim, 1024 x 512", _forward(((1024, 512),), lambda torch, x: torch.fft.fft(x, dim=0), "complex64")),
        ("fftn, 64 x 64 x 64", _forward(((64, 64, 64),), lambda torch, x: torch.fft.fftn(x), "complex64")),
        ("rfft, 512 x 1024", _forward(((512, 1024),), lambda torch, x: torch.fft.rfft(x))),
        ("irfft, 512 x 513", _forward(((512, 513),), lambda torch, x: torch.fft.irfft(x), "complex64")),
    )
)  # fmt: skip
