"""Pointwise results of tensors without elements, in every order of their dims: PyTorch's strides."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import flambeau
from flambeau.ops.pointwise_names import POINTWISE

torch = pytest.importorskip("torch")

LAYOUTS = [(shape, order, gap) for shape in ((0, 3), (2, 0, 3)) for order in itertools.permutations(range(len(shape))) for gap in (False, True)]
# docs/differences.md; and what PyTorch refuses only where there is something to draw.
LEFT_OUT = {"deg2rad", "rad2deg", "normal", "randn_like"}


def strides(m: Any, name: str, dtype: str, shape: tuple[int, ...], order: tuple[int, ...], gap: bool) -> Any:
    """Those of the function's result, or None where it does not take a tensor of this dtype (or two)."""
    x = m.empty((*shape, 2), dtype=getattr(m, dtype))[..., 0] if gap else m.empty(shape, dtype=getattr(m, dtype))
    x = x.permute(order)
    for operands in ((x,), (x, x)):
        try:
            result = getattr(m, name)(*operands)
        except (TypeError, RuntimeError, ValueError):
            continue
        return getattr(result, "stride", lambda: None)()
    return None


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64", "bool"])
def test_strides(dtype: str) -> None:
    wrong = []
    for name in sorted(POINTWISE - LEFT_OUT):
        if hasattr(torch, name):
            for layout in LAYOUTS:
                expected = strides(torch, name, dtype, *layout)
                if expected is not None and (found := strides(flambeau, name, dtype, *layout)) != expected:
                    wrong.append((name, layout, found, expected))
    assert not wrong
