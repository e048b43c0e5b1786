"""Shaders of WebGPU give the answers of Python: each kind of kernel at random sizes, the digits' network and a small GPT; what is not there is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau import nn
from flambeau.deploy import BuildError, build
from flambeau.export import export
from flambeau.nn import functional as F
from tests.deploy import gpu, models

needs_gpu = pytest.mark.skipif(gpu.device() is None, reason="the package wgpu and an adapter (a software one does) are wanted")
SEEDS = st.integers(0, 1 << 20)


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *x: Any) -> Any:
        return self.function(*x)


def agree(function: Callable[..., Any], *inputs: Any, tolerance: float = 2e-6) -> None:
    """The shaders' results are the program's, up to places of float32."""
    model = function if isinstance(function, nn.Module) else Call(function)
    tensors = [torch.from_numpy(x) for x in inputs]
    with torch.no_grad():
        expected = model.eval()(*tensors)
    program = export(model.eval(), tuple(tensors))
    for found, wanted in zip(gpu.Model(program)(*inputs), expected if isinstance(expected, tuple | list) else [expected], strict=True):
        near(found, wanted.numpy(), tolerance)


def near(found: Any, wanted: Any, tolerance: float = 2e-6) -> None:
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    if found.dtype == np.float32:
        finite = np.abs(wanted[np.isfinite(wanted)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        np.testing.assert_allclose(found, wanted, rtol=20 * tolerance, atol=tolerance * scale)
    else:
        np.testing.assert_array_equal(found, wanted)


def normal(seed: int, *shape: int) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exponentials": lambda x: (x.exp(), x.exp2(), x.expm1(), (x * 1e-3).expm1(), torch.sigmoid(x), torch.tanh(x), torch.tanh(x * 1e-3)),
    "logarithms": lambda x: (x.abs().log(), x.abs().log2(), x.abs().log10(), x.abs().log1p(), (x.abs() * 1e-4).log1p(), F.logsigmoid(x)),
    "waves": lambda x: (x.sin(), x.cos(), torch.tan(x * 0.4), torch.atan(x), torch.asin(x / 5), torch.acos(x / 5), torch.atan2(x, x.flip(0))),
    "hyperbolic": lambda x: (x.sinh(), x.cosh(), x.asinh(), (x.abs() + 1.5).acosh(), (x / 5).atanh()),
    "errors": lambda x: (torch.erf(x), torch.erfc(x), torch.erf(x * 0.1), F.gelu(x), F.gelu(x, approximate="tanh")),
    "activations": lambda x: (F.silu(x), F.mish(x), F.elu(x), F.selu(x), F.softplus(x), F.hardswish(x), F.leaky_relu(x), F.hardtanh(x), F.relu6(x)),
    "roots": lambda x: (x.abs().sqrt(), x.abs().rsqrt(), x.reciprocal(), x.square(), torch.hypot(x, x.flip(0)), x.abs() ** 2.5, x**3, x**-2),
    "rounding": lambda x: (x.floor(), x.ceil(), x.trunc(), (x * 2).round(), x.frac(), x.sign(), x.clamp(-1, 0.5), x.int(), x.long() * 3),
    "divisions": lambda x: (
        x / 0.7,
        (x + 0.011) // 0.7,
        (x + 0.011) % 0.7,
        torch.fmod(x + 0.011, 0.7),
        torch.div(x + 0.011, 0.3, rounding_mode="trunc"),
        x.copysign(x.flip(0)),
    ),
    "comparisons": lambda x: (x > 0, (x < 0) | (x > 1), ~(x == 0), torch.where(x > 0, x, -x), torch.maximum(x, x.flip(0)), torch.minimum(x, x.flip(0))),
    "whole": lambda x: (
        (x * 9).long() // 4,
        (x * 9).long() % 4,
        (x * 9).int() & 5,
        (x * 9).int() ^ 3,
        (x * 9).long() << 2,
        (x * 9).int() >> 1,
        -(x * 9).long(),
        (x * 2).long() ** 3,
        (x * 9).long().clamp(-3, 3).abs(),
    ),
}


@needs_gpu
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    agree(FUNCTIONS[name], np.concatenate([np.linspace(-4.5, 4.5, 97, dtype="float32"), normal(0, 100)]), tolerance=4e-6)


@needs_gpu
def test_what_is_no_number() -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0], np.float32)
    agree(
        lambda x: (
            x.isnan(),
            torch.maximum(x, x.flip(0)),
            x.abs(),
            torch.relu(x),
            x.amax(),
            x[1:].amin(),
            x.argmax(),
            x[1:].argmax(),
            torch.where(x.isnan(), 7.0, x),
            torch.sigmoid(x[1:]),
            torch.tanh(x),
        ),
        x,
    )


@needs_gpu
@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_views_and_broadcasts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b, c = (int(n) for n in rng.integers(1, 9, 3))
    x, y = normal(seed, a, b, c), normal(seed + 1, c, 1, a)

    def function(x: Any, y: Any) -> Any:
        z = x.permute(2, 1, 0) * y - x.mean()
        return (
            z,
            z.reshape(-1, a)[::2].flip(0),
            torch.cat([z, y.expand(c, b, a) + 1], 1),
            z.transpose(0, 2).contiguous().view(-1)[1:] + 2,
            F.pad(z, (1, 2, 0, 1), value=3.0),
            torch.stack([z, -z], 1),
            z.roll(1, 0),
            torch.tril(z),
            z.unfold(1, 1, 1).squeeze(-1) + z,
            z[:, :, -1] * z[:, 0, :1],
        )

    agree(function, x, y)


@needs_gpu
@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_reductions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(n) for n in rng.choice([1, 2, 3, 5, 30, 70], 3))
    x = normal(seed, *shape)
    d = int(rng.integers(3))
    two = tuple(sorted({d, (d + 1) % 3}))
    agree(
        lambda x: (
            x.sum(d),
            x.mean(two),
            x.amax(d),
            x.amin(two, keepdim=True),
            x.argmax(d),
            x.argmin(d),
            x.argmax(),
            (x > 1).any(d),
            (x > -1).all(d),
            x.sum(),
            (x.abs() * 0.1 + 1).prod(d),
            (x * 9).long().sum(d),
            (x * 9).int().amax(d),
            (x > 0).sum(d),
            x.norm(dim=d),
            torch.logsumexp(x, d),
        ),
        x,
        tolerance=5e-6,
    )
    agree(lambda x: (torch.softmax(x, d), torch.log_softmax(x * 5, d), x / x.norm(dim=d, keepdim=True).clamp_min(1e-6), x - x.mean(two, keepdim=True)), x)
    if shape[d] > 1:
        agree(lambda x: (x.var(d), x.std(d, correction=0), torch.var_mean(x + 3, d)[0]), x, tolerance=1e-5)
    agree(lambda x: (F.layer_norm(x, x.shape[1:]), F.layer_norm(x * 3 + 2, x.shape[-1:])), x, tolerance=1e-5)
    agree(lambda x: (x.cumsum(d), (x * 9).long().cumsum(d), (x * 0.1 + 1).cumprod(d)), x, tolerance=1e-5)


@needs_gpu
@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, k = (int(v) for v in rng.choice([1, 2, 3, 7, 16, 17, 33, 65, 130], 3))
    a, b, c, bias = normal(seed, m, k), normal(seed + 1, n, k), normal(seed + 2, 3, k, n), normal(seed + 3, n)
    agree(
        lambda a, b, c, bias: (F.gelu(F.linear(a, b, bias)), a @ c, torch.bmm(c.transpose(1, 2), c), (b @ a.T).relu() * 2, a @ b[0], (a @ b.T)[:, None] + bias),
        a,
        b,
        c,
        bias,
        tolerance=1e-5,
    )


@needs_gpu
@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_convolutions(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = int(rng.choice([1, 1, 2, 4]))
    inner, outer, kernel = groups * int(rng.choice([1, 3, 8])), groups * int(rng.choice([1, 2, 9, 20])), int(rng.choice([1, 3, 5]))
    layer = nn.Conv2d(inner, outer, kernel, stride=int(rng.integers(1, 3)), padding=int(rng.integers(0, 3)), dilation=int(rng.integers(1, 3)), groups=groups)
    x = normal(seed, int(rng.integers(1, 4)), inner, int(rng.integers(9, 20)), int(rng.integers(9, 20)))
    agree(lambda x: torch.relu(layer(x)) * 2 + 1, x, tolerance=1e-5)
    agree(nn.Sequential(layer, nn.BatchNorm2d(outer), nn.SiLU()), x, tolerance=1e-5)
    if x.shape[2] > 10:
        agree(
            lambda x: (
                F.max_pool2d(x, 3, 2, 1),
                F.avg_pool2d(x, 3, 2, 1),
                F.avg_pool2d(x, 2, count_include_pad=False, ceil_mode=True),
                F.adaptive_avg_pool2d(x, 1),
                *F.max_pool2d(x, 2, return_indices=True),
            ),
            x,
        )


@needs_gpu
@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_attention(seed: int) -> None:
    rng = np.random.default_rng(seed)
    queries, keys, features = (int(n) for n in (rng.integers(1, 80), rng.integers(1, 150), rng.choice([4, 16, 72])))
    q, k, v = normal(seed, 2, 3, queries, features), normal(seed + 1, 2, 3, keys, features), normal(seed + 2, 2, 3, keys, features)
    allowed = rng.random((queries, keys)) > 0.4
    allowed[:, 0] = True
    agree(lambda q, k, v: (F.scaled_dot_product_attention(q, k, v), F.scaled_dot_product_attention(q, k, v, is_causal=True)), q, k, v, tolerance=1e-5)
    agree(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), q, k, v, allowed, tolerance=1e-5)
    agree(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), q, k, v, normal(seed, queries, keys), tolerance=1e-5)


@needs_gpu
@settings(max_examples=5, deadline=None)
@given(SEEDS)
def test_choices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, width = int(rng.integers(1, 40)), int(rng.integers(1, 20))
    x, at, places = normal(seed, rows, width), rng.integers(-rows, rows, (3, 4)), rng.integers(0, width, (rows, 5))
    agree(
        lambda x, at, places: (x[at], F.embedding(at % rows, x) * 2, x.gather(1, places), x.index_select(0, at[0] % rows), x[at[0], at[1] % width]),
        x,
        at,
        places,
    )


@needs_gpu
def test_an_index_out_of_range_is_refused() -> None:
    program = export(nn.Embedding(30, 4), (torch.tensor([1, 2]),))
    for index in (30, -1):
        with pytest.raises(IndexError, match=f"index {index} is out of bounds for dimension with size 30"):
            gpu.Model(program)(np.array([2, index]))


@needs_gpu
def test_the_digits_and_a_small_gpt() -> None:
    for program, sizes, scale in ((models.digits(), (1, 2, 7, 10, 32, 64, 256), 0), (models.gpt(), (1, 2, 5, 17, 40), 30)):
        model = gpu.Model(program)
        for n in sizes:
            rng = np.random.default_rng(n)
            x = rng.integers(0, scale, (1, n)) if scale else rng.normal(size=(n, 1, 8, 8)).astype("float32")
            with torch.no_grad():
                wanted = program.module()(torch.from_numpy(x)).numpy()
            near(model(x)[0], wanted, 2e-6)
    program = models.gpt(batches=True)
    model = gpu.Model(program)
    for batch, length in ((1, 1), (1, 9), (3, 17), (8, 40), (8, 1)):
        x = np.random.default_rng(length).integers(0, 30, (batch, length))
        with torch.no_grad():
            near(model(x)[0], program.module()(torch.from_numpy(x)).numpy(), 2e-6)


@needs_gpu
@pytest.mark.parametrize("bits", [8, 4])
def test_weights_of_8_and_4_bits(bits: int) -> None:
    program = models.coded(bits)
    model = gpu.Model(program)
    for batch in (1, 7, 8, 32):
        x = normal(batch, batch, 100)
        with torch.no_grad():
            wanted = program.module()(torch.from_numpy(x)).numpy()
        assert np.abs(model(x)[0] - wanted).max() < 1e-4 * np.abs(wanted).max()


REFUSED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sort": (lambda x: x.sort()[0], r"sort is not there in WGSL yet"),
    "fft": (lambda x: torch.fft.rfft(x).abs(), r"WGSL|complex"),
    "lgamma": (torch.lgamma, r"lgamma of torch.float32 is not there in WGSL yet"),
    "double": (lambda x: x.double() * 2, r"float64"),
    "half": (lambda x: x.half() * 2, r"float16"),
    "cummax": (lambda x: x.cummax(0)[0], r"cummax of torch.float32 is not there in WGSL yet"),
    "big": (lambda x: x.long() + (1 << 40), r"the number 1099511627776 needs more than the 32 bits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    function, message = REFUSED[name]
    with pytest.raises(BuildError, match=message):
        build(export(Call(function), (torch.randn(12),)), "webgpu", tmp_path)
    assert not list(tmp_path.iterdir())


def test_whats_written(tmp_path: Path) -> None:
    """The folder of a module; weights inside of it are refused, and a target that nobody knows is told with those there are."""
    program = models.digits()
    assert {p.name for p in build(program, "webgpu", tmp_path, name="digits")} == {"digits.mjs", "digits.d.mts", "digits.weights", "package.json"}
    with pytest.raises(BuildError, match="has its weights beside it"):
        build(program, "webgpu", tmp_path, weights_inside=True)
    with pytest.raises(ValueError, match=r"there is no target 'webgl'; .*wasm32.*, webgpu"):
        build(program, "webgl", tmp_path)
    wide = Call(lambda x: x + torch.tensor([1 << 40]))
    wide.table = torch.tensor([1 << 40])
    with pytest.raises(BuildError, match="32 bits that integers have in shaders"):
        build(export(wide, (torch.randint(0, 9, (1,)),)), "webgpu", tmp_path)
