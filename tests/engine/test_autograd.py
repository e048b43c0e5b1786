"""Autograd as PyTorch does it: each program runs with both, as it is, with every marked value looked at as soon as it is made,
and with it shared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.engine import autograd_functions, autograd_programs, autograd_writes

torch = pytest.importorskip("torch")

PROGRAMS = {**autograd_programs.PROGRAMS, **autograd_writes.PROGRAMS, **autograd_functions.PROGRAMS}


def look(t: Any) -> Any:
    """Read the values."""
    t.detach().tolist()
    return t


def plain(result: Any) -> Any:
    """Numbers, strings and lists of a program's answer."""
    if isinstance(result, (tuple, list)):
        return [plain(r) for r in result]
    if hasattr(result, "tolist"):
        return [str(result.dtype), list(result.shape), bool(result.requires_grad), np.asarray(result.detach().tolist())]
    return result


def same(a: Any, b: Any) -> None:
    """Equal in everything; numbers to rounding."""
    if isinstance(b, list):
        assert isinstance(a, list) and len(a) == len(b), (a, b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(b, (float, np.ndarray)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    else:
        assert a == b, (a, b)


@pytest.mark.parametrize("seen", ["pending", "observed", "shared"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, seen: str) -> None:
    """`shared`: NumPy holds every marked value, so that nothing that follows from it may wait."""
    arrays: list[Any] = []

    def share(t: Any) -> Any:
        arrays.append(t.detach().numpy())
        return t

    see = {"pending": lambda t: t, "observed": look, "shared": share}[seen]
    expected = plain(PROGRAMS[name](torch, see))
    for _ in range(3):  # the second and third time on known edges, with plans that exist
        same(plain(PROGRAMS[name](ft, see)), expected)


def test_leaf_shared_with_numpy() -> None:
    """Every call on it ends the trace, also those of the backward pass."""
    array, outer = np.linspace(-1, 1, 12).reshape(3, 4), np.arange(12.0).reshape(3, 4)

    def run(m: Any) -> Any:
        x, g = m.from_numpy(array.copy()).requires_grad_(), m.from_numpy(outer.copy())
        middle = (3 * x).exp()
        y = middle.softmax(-1) * x
        first = m.autograd.grad(y, [x, middle], g, create_graph=True)
        second = m.autograd.grad(first[0].square().sum(), x)
        y = (x * x).exp()
        y.backward(g)
        return [*first, *second, x.grad, (x.grad * 2).sum()]

    for _ in range(3):
        same(plain(run(ft)), plain(run(torch)))
