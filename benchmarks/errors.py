"""Errors of float32 results against float64, flambeau's beside PyTorch's on the same inputs: `python -m benchmarks.errors`
prints the table of docs/performance.md. It needs PyTorch.

Every case is written once, for either module. The referee is PyTorch in float64 on the same (float32) numbers. An error is
measured in units of 2^-24 times the largest value of the result: its root mean square over all elements, and the worst one.
A second table has functions of single numbers, whose errors are in units in the last place of each exact result.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

UNIT = 2.0**-24


class Case(NamedTuple):
    """`work(torch, *tensors)` gives a tensor; `shapes` are those of its inputs, standard normal numbers."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    work: Callable[..., Any]
    positive: bool = False  # uniform in [0, 1) instead: nothing cancels


def _gradient(forward: Callable[..., Any], of: int) -> Callable[..., Any]:
    """The gradient with respect to input `of`, for an outer gradient that is the last input."""

    def work(torch: Any, *tensors: Any) -> Any:
        x = [t.requires_grad_(i == of) for i, t in enumerate(tensors[:-1])]
        (gradient,) = torch.autograd.grad(forward(torch, *x), x[of], tensors[-1])
        return gradient

    return work


def _matmul(torch: Any, a: Any, b: Any) -> Any:
    return a @ b


def _convolution(torch: Any, x: Any, w: Any) -> Any:
    return torch.nn.functional.conv2d(x, w, padding=1)


def _attention(torch: Any, q: Any, k: Any, v: Any) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def _layer_norm(torch: Any, x: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (x.shape[-1],))


def _softmax(torch: Any, x: Any) -> Any:
    return torch.softmax(3 * x, -1)


def _batch_norm(torch: Any, x: Any) -> Any:
    return torch.nn.functional.batch_norm(x, None, None, training=True)


def _group_norm(torch: Any, x: Any) -> Any:
    return torch.nn.functional.group_norm(x, 8)


def _far(of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Of the same numbers around a mean of 100, rounded to float32."""
    return lambda torch, x: of(torch, (x.to(torch.float32) + 100).to(x.dtype))


def _gelu(torch: Any, x: Any) -> Any:
    return torch.nn.functional.gelu(x)


IMAGES, KERNELS = (8, 64, 28, 28), (64, 64, 3, 3)
MANY_IMAGES, MANY_KERNELS = (32, 256, 8, 8), (256, 256, 3, 3)
HEADS = (4, 8, 256, 64)
CASES = (
    Case("matmul 1024", ((1024, 1024), (1024, 1024)), _matmul),
    Case("matmul 1024, positive", ((1024, 1024), (1024, 1024)), _matmul, True),
    Case("matmul 64 x 4096 x 64", ((64, 4096), (4096, 64)), _matmul),
    Case("matmul 300 x 7 x 300", ((300, 7), (7, 300)), _matmul),
    Case("matrix-vector 4096", ((4096, 4096), (4096,)), _matmul),
    Case("convolution 3x3", (IMAGES, KERNELS), _convolution),
    Case("convolution 3x3, positive", (IMAGES, KERNELS), _convolution, True),
    Case("its input's gradient", (IMAGES, KERNELS, IMAGES), _gradient(_convolution, 0)),
    Case("its weight's gradient", (IMAGES, KERNELS, IMAGES), _gradient(_convolution, 1)),
    Case("convolution of 32 images of 8 x 8", (MANY_IMAGES, MANY_KERNELS), _convolution),
    Case("convolution of 32 images of 8 x 8, positive", (MANY_IMAGES, MANY_KERNELS), _convolution, True),
    Case("its input's gradient", (MANY_IMAGES, MANY_KERNELS, MANY_IMAGES), _gradient(_convolution, 0)),
    Case("its weight's gradient", (MANY_IMAGES, MANY_KERNELS, MANY_IMAGES), _gradient(_convolution, 1)),
    Case("causal attention", (HEADS,) * 3, _attention),
    Case("its query's gradient", (HEADS,) * 4, _gradient(_attention, 0)),
    Case("its key's gradient", (HEADS,) * 4, _gradient(_attention, 1)),
    Case("its value's gradient", (HEADS,) * 4, _gradient(_attention, 2)),
    Case("softmax", ((512, 4096),), _softmax),
    Case("its gradient", ((512, 4096),) * 2, _gradient(_softmax, 0)),
    Case("log-softmax", ((512, 4096),), lambda torch, x: torch.log_softmax(3 * x, -1)),
    Case("layer norm", ((512, 4096),), _layer_norm),
    Case("its gradient", ((512, 4096),) * 2, _gradient(_layer_norm, 0)),
    Case("batch norm in training", (IMAGES,), _batch_norm),
    Case("its gradient", (IMAGES,) * 2, _gradient(_batch_norm, 0)),
    Case("batch norm, means of 100", (IMAGES,), _far(_batch_norm)),
    Case("group norm", (IMAGES,), _group_norm),
    Case("gelu", ((512, 4096),), _gelu),
    Case("its gradient", ((512, 4096),) * 2, _gradient(_gelu, 0)),
    Case("sum of 2^22", ((1 << 22,),), lambda torch, x: x.sum()),
    Case("sum of 2^22, positive", ((1 << 22,),), lambda torch, x: x.sum(), True),
    Case("column sums", ((4096, 512),), lambda torch, x: x.sum(0)),
    Case("variance", ((64, 65536),), lambda torch, x: x.var(-1)),
    Case("cumsum", ((64, 65536),), lambda torch, x: x.cumsum(-1)),
    Case("logsumexp", ((512, 4096),), lambda torch, x: torch.logsumexp(x, -1)),
    Case("exp", ((1 << 20,),), lambda torch, x: x.exp()),
    Case("tanh", ((1 << 20,),), lambda torch, x: x.tanh()),
    Case("sigmoid", ((1 << 20,),), lambda torch, x: x.sigmoid()),
    Case("erf", ((1 << 20,),), lambda torch, x: torch.erf(x)),
)  # fmt: skip


def _unary(name: str) -> Callable[..., Any]:
    return lambda torch, x: getattr(torch, name)(x)


def _activation(name: str, **options: Any) -> Callable[..., Any]:
    return lambda torch, x: getattr(torch.nn.functional, name)(x, **options)


# By domain: what a number of any size and sign becomes.
DOMAINS: dict[str, Callable[[Any], Any]] = {
    "real": lambda x: x, "positive": np.abs, "unit": lambda x: np.where(np.abs(x) < 1, x, 1 / (1.25 + np.abs(x))),
    "above -1": lambda x: np.where(x > -1, x, -x), "above 1": lambda x: 1 + np.abs(x),
}  # fmt: skip
FUNCTIONS: dict[str, tuple[str, Callable[..., Any]]] = {
    **{name: ("real", _unary(name)) for name in ("exp exp2 expm1 sigmoid sinh cosh tanh sin cos tan atan asinh erf erfc lgamma".split())},
    **{name: ("positive", _unary(name)) for name in ("log log2 log10 sqrt rsqrt".split())},
    **{name: ("unit", _unary(name)) for name in ("asin acos atanh erfinv".split())},
    "log1p": ("above -1", _unary("log1p")),
    "acosh": ("above 1", _unary("acosh")),
    **{name: ("real", _activation(name)) for name in ("softplus logsigmoid elu silu mish".split())},
    "gradient of elu": ("real", lambda torch, x: _gradient(lambda t, y: t.nn.functional.elu(y), 0)(torch, x, torch.ones_like(x))),
    "pow(x, 2.5)": ("positive", lambda torch, x: torch.pow(x, 2.5)),
    "special.i0e": ("real", lambda torch, x: torch.special.i0e(x)),
    "special.ndtri": ("unit", lambda torch, x: torch.special.ndtri(x.abs())),
}  # fmt: skip


def numbers(count: int, seed: int = 0) -> Any:
    """float32 numbers of many sizes: normal ones, up to 12, up to 80, near 1, and magnitudes from 1e-30 to 1 evenly by their logarithms."""
    random = np.random.default_rng(seed)
    part = count // 5
    sizes = np.exp(random.uniform(np.log(1e-30), 0, part)) * random.choice([-1, 1], part)
    parts = random.standard_normal(part), random.uniform(-12, 12, part), random.uniform(-80, 80, part), random.uniform(0.7, 1.4, part), sizes
    return np.concatenate(parts).astype(np.float32)


def places(result: Any, exact: Any) -> Any:
    """Errors in units in the last place that the exact (float64) results have as float32; 0 where both overflow alike."""
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.maximum(np.abs(exact), 2.0**-126))[1]
        error = np.abs(result.astype(np.float64) - exact) / np.ldexp(1.0, exponent - 24)
        return np.where(result == exact.astype(np.float32), np.where(np.isfinite(result), error, 0), error)


def function_errors(name: str, count: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """(root mean square, worst) of each module, in places of each result."""
    domain, work = FUNCTIONS[name]
    x = DOMAINS[domain](numbers(count, seed)).astype(np.float32)
    referee = importlib.import_module("torch")
    exact = work(referee, referee.from_numpy(x.astype(np.float64))).detach().numpy()
    found = {}
    for module in (importlib.import_module("flambeau"), referee):
        error = places(work(module, module.from_numpy(x.copy())).detach().numpy(), exact)
        found[module.__name__] = float(np.sqrt(np.mean(error**2))), float(error.max())
    return found


def errors(case: Case) -> dict[str, tuple[float, float]]:
    """(root mean square, worst) of each module."""
    random = np.random.default_rng(0)
    inputs = [(random.random(s) if case.positive else random.standard_normal(s)).astype(np.float32) for s in case.shapes]
    referee = importlib.import_module("torch")
    exact = case.work(referee, *[referee.from_numpy(x.astype(np.float64)) for x in inputs]).detach().numpy()
    unit = UNIT * np.abs(exact).max()
    found = {}
    for name in ("flambeau", "torch"):
        module = importlib.import_module(name)
        result = case.work(module, *[module.from_numpy(x.copy()) for x in inputs]).detach().numpy()
        error = np.abs(result.astype(np.float64) - exact) / unit
        found[name] = float(np.sqrt(np.mean(error**2))), float(error.max())
    return found


def _print(what: str, rows: Iterable[tuple[str, dict[str, tuple[float, float]]]]) -> None:
    print(f"| {what} | flambeau, rms | PyTorch, rms | flambeau, worst | PyTorch, worst |\n|---|---|---|---|---|")
    for name, found in rows:
        (a, c), (b, d) = found["flambeau"], found["torch"]
        print(f"| {name} | {a:.3g} | {b:.3g} | {c:.3g} | {d:.3g} |", flush=True)


def main() -> None:
    """Print the tables."""
    _print("case", ((case.name, errors(case)) for case in CASES))
    print()
    _print("function", ((name, function_errors(name, 1 << 20)) for name in FUNCTIONS))


if __name__ == "__main__":
    main()
