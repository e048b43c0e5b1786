"""Imported ONNX models against ONNX Runtime: `python benchmarks/onnx_models.py [--threads 2] [--rounds 30] [names]`.

Ten models are made here and exported; both sides run the same file on the same inputs, in turns. Printed is the least time of each and the ratio,
flambeau's time over ONNX Runtime's: below 1 flambeau is faster.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import flambeau as torch
from flambeau import nn


def _block(n: int, m: int, stride: int) -> nn.Module:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(n, m, 3, stride, 1, bias=False), nn.Conv2d(m, m, 3, 1, 1, bias=False)
            self.na, self.nb = nn.BatchNorm2d(m), nn.BatchNorm2d(m)
            self.down = nn.Conv2d(n, m, 1, stride) if stride > 1 or n != m else nn.Identity()

        def forward(self, x: Any) -> Any:
            return torch.relu(self.nb(self.b(torch.relu(self.na(self.a(x))))) + self.down(x))

    return Block()


class _Last(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.rnn, self.out = kind(64, 128, batch_first=True), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.out(self.rnn(x)[0][:, -1])


class _GPT(nn.Module):
    def __init__(self, width: int = 256, heads: int = 8, layers: int = 4, words: int = 1000) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(128, width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(2 * layers)])
        self.qkv = nn.ModuleList([nn.Linear(width, 3 * width) for _ in range(layers)])
        self.out = nn.ModuleList([nn.Linear(width, width) for _ in range(layers)])
        self.mlp = nn.ModuleList([nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)])
        self.heads, self.last, self.head = heads, nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: Any) -> Any:
        b, t = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(t))
        for i, (qkv, out, mlp) in enumerate(zip(self.qkv, self.out, self.mlp, strict=True)):
            q, k, v = [y.view(b, t, self.heads, -1).transpose(1, 2) for y in qkv(self.norms[2 * i](x)).chunk(3, 2)]
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out(y.transpose(1, 2).reshape(b, t, -1))
            x = x + mlp(self.norms[2 * i + 1](x))
        return self.head(self.last(x))


def _separable(n: int, m: int, stride: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(n, n, 3, stride, 1, groups=n, bias=False), nn.BatchNorm2d(n), nn.ReLU6(),
                         nn.Conv2d(n, m, 1, bias=False), nn.BatchNorm2d(m), nn.ReLU6())  # fmt: skip


def models() -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """(how it is made, its input) by name."""
    conv, relu = nn.Conv2d, nn.ReLU

    def image(n: int, c: int, s: int) -> Callable[[], Any]:
        return lambda: torch.randn(n, c, s, s)

    def mlp() -> Any:
        return nn.Sequential(nn.Linear(784, 512), relu(), nn.Linear(512, 512), relu(), nn.Linear(512, 10))

    def digits() -> Any:
        return nn.Sequential(conv(1, 32, 3), relu(), conv(32, 64, 3), relu(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 128), relu(), nn.Linear(128, 10))

    def resnet() -> Any:
        stages = [_block(32, 32, 1), _block(32, 64, 2), _block(64, 128, 2), _block(128, 256, 2)]
        return nn.Sequential(conv(3, 32, 3, 1, 1), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))

    def separable() -> Any:
        stages = [_separable(16, 32, 1), _separable(32, 64, 2), _separable(64, 128, 2), _separable(128, 128, 1)]
        return nn.Sequential(conv(3, 16, 3, 2, 1), *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 100))

    def autoencoder() -> Any:
        down = [conv(3, 32, 3, 2, 1), relu(), conv(32, 64, 3, 2, 1), relu()]
        return nn.Sequential(*down, nn.ConvTranspose2d(64, 32, 4, 2, 1), relu(), nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Sigmoid())

    return {
        "MLP 784-512-512-10, batch 64": (mlp, lambda: torch.randn(64, 784)),
        "digits' network, batch 1": (digits, image(1, 1, 28)),
        "digits' network, batch 64": (digits, image(64, 1, 28)),
        "ResNet of 4 stages, 64 x 64, batch 8": (resnet, image(8, 3, 64)),
        "separable convolutions, 112 x 112, batch 1": (separable, image(1, 3, 112)),
        "autoencoder with transposed convolutions, batch 8": (autoencoder, image(8, 3, 64)),
        "LSTM 64-128, 32 steps, batch 16": (lambda: _Last(nn.LSTM), lambda: torch.randn(16, 32, 64)),
        "GRU 64-128, 32 steps, batch 16": (lambda: _Last(nn.GRU), lambda: torch.randn(16, 32, 64)),
        "GPT 4 x 256, 64 tokens, batch 1": (_GPT, lambda: torch.randint(0, 1000, (1, 64))),
        "transformer encoder 4 x 256, 32 tokens, batch 8": (
            lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True), 4), lambda: torch.randn(8, 32, 256),
        ),
    }  # fmt: skip


def _timed(run: Callable[..., Any], model: Any, x: Any) -> float:
    """Seconds a run, of three after one."""
    time.sleep(0.02)  # until the other's threads have stopped spinning
    run(model, x)
    start = time.perf_counter()
    for _ in range(3):
        run(model, x)
    return (time.perf_counter() - start) / 3


def main() -> None:
    """Print the table."""
    import onnxruntime

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = asked.threads
    ratios = []
    print("| model | flambeau, ms | ONNX Runtime, ms | ratio |\n|---|---|---|---|")
    for name, (make, inputs) in models().items():
        if asked.names and not any(n in name for n in asked.names):
            continue
        torch.manual_seed(0)
        module, x = make().eval(), inputs()
        proto = torch.onnx.export(module, (x,)).model_proto
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        imported, array, place = torch.onnx.load(proto).eval(), x.numpy(), session.get_inputs()[0].name
        with torch.inference_mode():
            np.testing.assert_allclose(imported(x).numpy(), session.run(None, {place: array})[0], rtol=1e-3, atol=1e-4)
            for _ in range(12):
                imported(x).numpy()
            ours, theirs = [], []
            for _ in range(asked.rounds):
                ours.append(_timed(lambda f, y: f(y).numpy(), imported, x))
                theirs.append(_timed(lambda f, y: f.run(None, y), session, {place: array}))
        a, b = min(ours) * 1e3, min(theirs) * 1e3
        ratios.append(a / b)
        print(f"| {name} | {a:.3g} | {b:.3g} | {a / b:.2f} |", flush=True)
    print(f"geometric mean of the ratios: {math.exp(sum([math.log(r) for r in ratios]) / len(ratios)):.2f}")


if __name__ == "__main__":
    main()
