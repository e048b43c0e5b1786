"""Autograd as PyTorch does it: each program runs with both, as it is and with every marked value looked at as soon as it is made."""

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


@pytest.mark.parametrize("seen", [False, True], ids=["pending", "observed"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, seen: bool) -> None:
    see = look if seen else (lambda t: t)
    expected = plain(PROGRAMS[name](torch, see))
    for _ in range(3):  # the second and third time on known edges, with plans that exist
        same(plain(PROGRAMS[name](ft, see)), expected)
