"""Where a gradient that comes in is NaN, what leaves a function is NaN where it is in PyTorch: steps and dead zones give 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

VALUES = [-2.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 2.0, 3.5]
FUNCTIONS = (
    "abs", "angle", "asinh", "atan", "ceil", "cos", "cosh", "cumprod:0", "cumsum:0", "deg2rad", "digamma", "erf", "erfc", "exp", "exp2", "expm1", "fix",
    "floor", "frac", "i0", "lgamma", "log1p", "logit", "nan_to_num", "neg", "positive", "rad2deg", "reciprocal", "relu", "round", "sigmoid", "sign", "sin",
    "sinh", "sqrt", "square", "tan", "tanh", "trunc", "nn.functional.celu", "nn.functional.elu", "nn.functional.gelu", "nn.functional.hardshrink",
    "nn.functional.hardsigmoid", "nn.functional.hardswish", "nn.functional.hardtanh", "nn.functional.leaky_relu", "nn.functional.logsigmoid",
    "nn.functional.mish", "nn.functional.relu6", "nn.functional.selu", "nn.functional.silu", "nn.functional.softplus", "nn.functional.softshrink",
    "nn.functional.softsign", "nn.functional.tanhshrink",
)  # fmt: skip


def _is_nan(m: Any, name: str) -> list[bool]:
    path, _, dim = name.partition(":")
    function = m
    for part in path.split("."):
        function = getattr(function, part)
    x = m.tensor(VALUES, requires_grad=True)
    y = function(x, *([int(dim)] if dim else []))
    y.backward(m.full((len(VALUES),), float("nan")))
    return [v != v for v in x.grad.tolist()]


def test_sinc_keeps_a_nan() -> None:
    """As docs/differences.md says: also at 0, where PyTorch gives 0; elsewhere the same."""
    ours, theirs = _is_nan(ft, "sinc"), _is_nan(torch, "sinc")
    assert ours == [True] * len(VALUES)
    assert theirs == [x != 0 for x in VALUES]
    page = Path(__file__).parents[2] / "docs/differences.md"
    assert "A NaN that arrives at `sinc` of 0 is its gradient there (PyTorch gives 0)" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nan_gradients(name: str) -> None:
    assert _is_nan(ft, name) == _is_nan(torch, name)
