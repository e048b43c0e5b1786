"""Gradients where several elements are the extreme, the middle or equal: shared or given to one as in PyTorch; and reductions of no elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

NAN, INF = float("nan"), float("inf")
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "median": lambda m, x: m.median(x), "nanmedian": lambda m, x: m.nanmedian(x), "median of rows": lambda m, x: m.median(x, -1)[0],
    "nanmedian of rows": lambda m, x: m.nanmedian(x, -1)[0], "max": lambda m, x: m.max(x), "min": lambda m, x: m.min(x),
    "max of rows": lambda m, x: m.max(x, -1)[0], "amax": lambda m, x: m.amax(x), "amin of rows": lambda m, x: m.amin(x, -1),
    "aminmax": lambda m, x: sum(m.aminmax(x)), "mode": lambda m, x: m.mode(x, -1)[0], "kthvalue": lambda m, x: m.kthvalue(x, 2, -1)[0],
    "cummax": lambda m, x: m.cummax(x, -1)[0], "topk": lambda m, x: m.topk(x, 2, -1, sorted=True)[0], "quantile": lambda m, x: m.quantile(x, 0.4),
    "maximum": lambda m, x: m.maximum(x, x.flip(-1)), "fmin": lambda m, x: m.fmin(x, x.flip(-1)), "sort": lambda m, x: m.sort(x, dim=-1, stable=True)[0] * 2,
    "infinity norm": lambda m, x: m.linalg.vector_norm(x, INF), "max_pool1d": lambda m, x: m.nn.functional.max_pool1d(x.reshape(1, 1, -1), 2),
}  # fmt: skip
# topk and mode may take another one of equal elements in PyTorch; their gradients then differ in place, not in amount.
MAY_CHOOSE = ("topk", "mode", "kthvalue", "median of rows", "nanmedian of rows")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients(name: str) -> None:
    values = [list(v) for v in itertools.product((0.0, 1.0, -INF, NAN), repeat=3)] + [[[1.0, 2.0], [2.0, 2.0]], [[-INF, -INF], [3.0, -INF]], [INF] * 4]
    for given in values:
        if NAN in given and name in (*MAY_CHOOSE, "quantile", "aminmax", "infinity norm", "amax", "amin of rows"):
            continue
        found = []
        for m in (torch, flambeau):
            x = m.tensor(given, dtype=m.float64, requires_grad=True)
            y = FUNCTIONS[name](m, x)
            y.sum().backward()
            found.append((y.detach().reshape(-1).tolist(), x.grad.reshape(-1).tolist()))
        (value, grad), (our_value, our_grad) = found
        assert our_value == pytest.approx(value, nan_ok=True), given
        if name in MAY_CHOOSE:
            grad, our_grad = sorted(grad), sorted(our_grad)
        assert our_grad == pytest.approx(grad, nan_ok=True), given


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_middle_of_nothing(name: str, dtype: str) -> None:
    theirs, ours = (getattr(m, name)(m.empty(0, dtype=getattr(m, dtype))) for m in (torch, flambeau))
    assert ours.item() == theirs.item() or (ours.item() != ours.item() and theirs.item() != theirs.item())
    x = flambeau.empty(0, requires_grad=True)
    assert getattr(flambeau, name)(x).requires_grad
