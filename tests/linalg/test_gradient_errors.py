"""Gradients whose terms cancel have float32 errors of PyTorch's size: means over many random inputs, against float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
COUNT = 400


def _spread(m: Any, x: Any) -> Any:
    """Its eigenvalues are apart, and positive: a symmetric matrix of it."""
    n = x.shape[-1]
    return x @ x.mT + m.diag(m.arange(1, n + 1, dtype=x.dtype)) * 9


Function = Callable[[Any, Any], Any]
MATRICES: dict[str, Function] = {
    "qr: Q": lambda m, x: m.linalg.qr(x)[0], "qr: R": lambda m, x: m.linalg.qr(x)[1],
    "qr: Q R": lambda m, x: (lambda r: r[0] @ (r[1] * r[1]))(m.linalg.qr(x)),
    "svdvals": lambda m, x: m.linalg.svdvals(x), "pinv": lambda m, x: m.linalg.pinv(x), "nuclear norm": lambda m, x: m.linalg.matrix_norm(x, "nuc"),
    "lu": lambda m, x: m.linalg.lu_factor(x)[0], "lstsq": lambda m, x: m.linalg.lstsq(x, x.sum(-1, keepdim=True) + 1)[0],
}  # fmt: skip
SQUARE: dict[str, Function] = {
    "inv": lambda m, x: m.linalg.inv(x), "solve": lambda m, x: m.linalg.solve(x, x[..., :1] * 2), "det": lambda m, x: m.linalg.det(x),
    "slogdet": lambda m, x: m.linalg.slogdet(x)[1], "matrix_exp": lambda m, x: m.matrix_exp(x / 4),
    "cholesky": lambda m, x: m.linalg.cholesky(_spread(m, x)), "eigh": lambda m, x: m.linalg.eigh(_spread(m, x))[1] ** 2,
    "eigvalsh": lambda m, x: m.linalg.eigvalsh(_spread(m, x)), "solve_triangular": lambda m, x: m.linalg.solve_triangular(x, x * 2, upper=True),
}  # fmt: skip
VECTORS: dict[str, Function] = {
    "softmin": lambda m, x: m.nn.functional.softmin(x, -1), "softmax": lambda m, x: m.softmax(x, -1), "log_softmax": lambda m, x: m.log_softmax(x, -1),
    "layer_norm": lambda m, x: m.nn.functional.layer_norm(x, x.shape[-1:]), "logsumexp": lambda m, x: x.logsumexp(-1), "std": lambda m, x: x.std(-1),
    "normalize": lambda m, x: m.nn.functional.normalize(x, dim=-1), "normalize 1.2": lambda m, x: m.nn.functional.normalize(x, p=1.2, dim=-1),
    "normalize 3": lambda m, x: m.nn.functional.normalize(x, p=3.0, dim=-1), "cov": lambda m, x: m.stack([m.cov(r) for r in x[:40].unflatten(-1, (1, -1))]),
    "cosine_similarity": lambda m, x: m.nn.functional.cosine_similarity(x, x.flip(-1) ** 2, dim=-1),
}  # fmt: skip
CASES = [
    *[(name, f, shape) for name, f in MATRICES.items() for shape in ((2, 5), (5, 5), (5, 2)) if not (name == "lstsq" and shape[0] < shape[1])],
    *[(name, f, (5, 5)) for name, f in SQUARE.items()], *[(name, f, (n,)) for name, f in VECTORS.items() for n in (5, 100)],
]  # fmt: skip


def _gradient(m: Any, function: Function, x: np.ndarray[Any, Any], weight: float, dtype: str) -> np.ndarray[Any, Any]:
    t = m.from_numpy(x.astype(dtype)).requires_grad_()
    y = function(m, t)
    factors = m.arange(1, y[0].numel() + 1, dtype=y.dtype).mul(weight).sin().view(y[0].shape)
    (y * factors).sum().backward()
    return np.asarray(t.grad.numpy(), np.float64).reshape(len(x), -1)


def _errors(function: Function, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Ours and PyTorch's of each input, in parts of the gradient's greatest element."""
    x = np.random.default_rng(seed).uniform(-9, 9, (COUNT, *shape)).astype(np.float32)
    exact = _gradient(torch, function, x, 0.7, "float64")
    scale = np.maximum(np.abs(exact).max(-1), 1e-3)
    ours, theirs = (np.abs(_gradient(m, function, x, 0.7, "float32") - exact).max(-1) / scale for m in (ft, torch))
    return ours, theirs


@pytest.mark.parametrize(("name", "function", "shape"), CASES, ids=[f"{name} {shape}" for name, _, shape in CASES])
def test_errors_are_of_the_size_of_pytorchs(name: str, function: Function, shape: tuple[int, ...]) -> None:
    ours, theirs = _errors(function, shape, 3)
    for measure in (np.mean, np.median, lambda e: np.quantile(e, 0.95)):
        assert measure(ours) <= 2 * measure(theirs) + 2**-23, (measure(ours), measure(theirs))
