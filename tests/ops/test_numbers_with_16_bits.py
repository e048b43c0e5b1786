"""16-bit tensors with Python numbers: PyTorch computes in float32, with the number unrounded or rounded, and rounds once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "mul": lambda m, a, b: a * 0.1,
    "mul from the left": lambda m, a, b: 0.1 * a,
    "mul_": lambda m, a, b: a.clone().mul_(0.1),
    "div": lambda m, a, b: a / 0.3,
    "add": lambda m, a, b: a + 0.1,
    "sub": lambda m, a, b: a - 0.1,
    "from a number": lambda m, a, b: 0.1 - a,
    "alpha": lambda m, a, b: m.add(a, b, alpha=0.3),
    "sub alpha": lambda m, a, b: m.sub(a, b, alpha=0.3),
    "lerp": lambda m, a, b: m.lerp(a, b, 0.3),
    "lerp of a tensor": lambda m, a, b: m.lerp(a, b, a),
    "addcmul": lambda m, a, b: m.addcmul(a, b, b, value=0.3),
    "addcdiv": lambda m, a, b: m.addcdiv(a, b, b + 9, value=0.3),
    "a tensor of no dimensions": lambda m, a, b: a * m.tensor(0.1),
}


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CALLS)
def test_values_are_pytorchs(name: str, kind: str) -> None:
    x = np.linspace(-3, 3, 1001, dtype=np.float32)
    results = []
    for m in (ft, torch):
        a, b = (m.from_numpy(y.copy()).to(getattr(m, kind)) for y in (x, x * np.float32(1.7) + np.float32(0.3)))
        result = CALLS[name](m, a, b)
        assert result.dtype is getattr(m, kind)
        results.append(result.float().numpy())
    assert (results[0] != results[1]).mean() <= 0.001  # alpha * b + a may be fused or not


@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_whole_quotients(kind: str) -> None:
    """Over one number 16 bits are divided in float32, by the number as it is; over several they are rounded before the quotient is."""
    calls: dict[str, Any] = {
        "floor": lambda m, a, b: m.div(a, b, rounding_mode="floor"), "trunc": lambda m, a, b: m.div(a, b, rounding_mode="trunc"), "//": lambda m, a, b: a // b,
        "in place": lambda m, a, b: a.clone().div_(b, rounding_mode="trunc"),
    }  # fmt: skip
    divisors: dict[str, Any] = {
        "number": lambda m, d: 0.3, "another": lambda m, d: -0.9453125, "no dims": lambda m, d: m.tensor(-0.9453125, dtype=d), "zero": lambda m, d: 0.0,
        "one dim": lambda m, d: m.tensor([0.3], dtype=d), "wide": lambda m, d: m.tensor(0.3, dtype=m.float64),
        "several": lambda m, d: m.full((2000,), -0.9453125, dtype=d), "itself": lambda m, d: (m.arange(1.0, 2001.0) * 0.11).cos().to(d),
    }  # fmt: skip
    for how, call in calls.items():
        for what, divisor in divisors.items():
            found, expected = [
                call(m, ((m.arange(1.0, 2001.0) * 0.37).sin() * 9).to(getattr(m, kind)), divisor(m, getattr(m, kind))).float().tolist() for m in (ft, torch)
            ]
            assert found == pytest.approx(expected, abs=0, nan_ok=True), (how, what)
