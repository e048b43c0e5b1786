"""Functions of two tensors of different dtypes, one of them float64, beside PyTorch at the precision of double: neither goes through float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    name: lambda m, a, b, name=name: getattr(m, name)(a, b)
    for name in (
        "add sub mul div atan2 hypot copysign fmod remainder floor_divide maximum minimum fmax fmin pow float_power xlogy logaddexp logaddexp2 "
        "eq lt true_divide rsub"
    ).split()
} | {
    "alpha": lambda m, a, b: m.add(a, b, alpha=0.1), "where": lambda m, a, b: m.where(a > b, a, b), "lerp": lambda m, a, b: m.add(a, (b - a) * 0.1),
    "cosine_similarity": lambda m, a, b: m.nn.functional.cosine_similarity(a, b), "mse_loss": lambda m, a, b: m.nn.functional.mse_loss(a, b),
    "smooth_l1_loss": lambda m, a, b: m.nn.functional.smooth_l1_loss(a, b, beta=0.3), "l1_loss": lambda m, a, b: m.nn.functional.l1_loss(a, b),
    "poisson_nll_loss": lambda m, a, b: m.nn.functional.poisson_nll_loss(a, b), "clamp": lambda m, a, b: m.clamp(a, max=b),
    "addr": lambda m, a, b: m.addr(a, a[:, 0], b[0]), "cat": lambda m, a, b: m.cat([a, b]), "stack": lambda m, a, b: m.stack([a, b]),
    "addcmul": lambda m, a, b: m.addcmul(a, a, b, value=0.1), "addcdiv": lambda m, a, b: m.addcdiv(a, a, b, value=0.1),
    "isclose": lambda m, a, b: m.isclose(a.double(), b.double(), rtol=0.1), "outer": lambda m, a, b: m.outer(a[0], b[0]),
    "kron": lambda m, a, b: m.kron(a, b), "cross": lambda m, a, b: m.nn.functional.pairwise_distance(a, b, 2.3),
    "embedding loss": lambda m, a, b: m.nn.functional.cosine_embedding_loss(a, b, m.tensor([1, -1]), margin=0.1),
    "logits": lambda m, a, b: m.nn.functional.binary_cross_entropy_with_logits(a, b), "zero-dim": lambda m, a, b: a * b.sum() + b * a.sum(),
}  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
def test_two_dtypes(name: str) -> None:
    values = np.array([[1, 3, 2], [5, 4, 7]]), np.array([[0.3, 1.7, -0.9], [2.1, 0.7, 1.1]])
    compared = 0
    for kinds in (("int64", "float64"), ("float64", "int64"), ("uint8", "float64"), ("int32", "complex128"), ("float64", "complex128")):
        found = []
        for m in (ft, torch):
            a, b = (m.tensor(v).to(getattr(m, kind)) for v, kind in zip(values, kinds, strict=True))
            try:
                found.append(FUNCTIONS[name](m, a, b))
            except (RuntimeError, ValueError, TypeError, NotImplementedError):
                found.append(None)
        ours, theirs = found
        if theirs is None:
            continue
        assert ours is not None and str(ours.dtype) == str(theirs.dtype), (kinds, theirs.dtype)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-14, atol=1e-14, equal_nan=True)
        compared += 1
    assert compared
