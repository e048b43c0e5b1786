"""Runs one expression with flambeau and with PyTorch on the same inputs and compares everything that can be seen of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

Expression = Callable[..., Any]


def arrays(*shapes: tuple[int, ...], seed: int = 0, dtype: str = "float64", low: float = -2.0, high: float = 2.0) -> list[np.ndarray]:
    """Reproducible inputs: uniform numbers, integers where the dtype is one."""
    generator = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return [generator.integers(int(low), int(high) + 1, s).astype(dtype) for s in shapes]
    if dtype == "bool":
        return [generator.integers(0, 2, s).astype(bool) for s in shapes]
    return [generator.uniform(low, high, s).astype(dtype) for s in shapes]


def flat(result: Any) -> list[Any]:
    """The tensors of a result, in order."""
    if isinstance(result, (tuple, list)):
        return [t for part in result for t in flat(part)]
    return [result]


def compare(ours: Any, theirs: Any, tolerance: float = 1e-9, strides: bool = True) -> None:
    """Equal dtype, shape, strides (where a tensor has more than one element) and values."""
    a, b = flat(ours), flat(theirs)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        if not isinstance(y, torch.Tensor):
            assert x == y or (x != x and y != y) or str(x) == str(y), (x, y)
            continue
        assert str(x.dtype) == str(y.dtype), (x.dtype, y.dtype)
        assert tuple(x.shape) == tuple(y.shape), (x.shape, y.shape)
        if strides and y.numel() > 1:
            real = [(s, t) for s, t, n in zip(x.stride(), y.stride(), y.shape, strict=True) if n > 1]
            assert all(s == t for s, t in real), (x.stride(), y.stride(), tuple(y.shape))
        got, expected = (x.detach().float().numpy(), y.detach().float().numpy()) if str(y.dtype) == "torch.bfloat16" else (
            x.detach().resolve_conj().resolve_neg().numpy(), y.detach().resolve_conj().resolve_neg().numpy()
        )  # fmt: skip
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def check(expression: Expression, inputs: list[np.ndarray], grad: bool = True, tolerance: float = 1e-9, second: bool = True,
          strides: bool = True) -> None:  # fmt: skip
    """Values, then gradients and gradients of gradients with respect to every floating input."""
    ours, theirs = [ft.tensor(a) for a in inputs], [torch.tensor(a) for a in inputs]
    compare(expression(ft, *ours), expression(torch, *theirs), tolerance, strides)
    if not grad:
        return
    ours = [ft.tensor(a).requires_grad_() if a.dtype.kind in "fc" else ft.tensor(a) for a in inputs]
    theirs = [torch.tensor(a).requires_grad_() if a.dtype.kind in "fc" else torch.tensor(a) for a in inputs]
    found = []
    for module, xs in ((ft, ours), (torch, theirs)):
        outs = [t for t in flat(expression(module, *xs)) if hasattr(t, "requires_grad") and t.requires_grad]
        wanted = [x for x in xs if x.requires_grad]
        if not outs or not wanted:
            found.append([])
            continue
        total = sum((weigh(module, o) for o in outs), start=module.zeros((), dtype=module.float64))
        first = module.autograd.grad(total, wanted, create_graph=second, allow_unused=True)
        result = list(first)
        if second:
            usable = [g for g in first if g is not None and g.requires_grad]
            usable = [g for g in usable if g.numel()]
            if usable:
                total = sum((weigh(module, g) for g in usable), start=module.zeros((), dtype=module.float64))
                result += list(module.autograd.grad(total, wanted, allow_unused=True))
            else:
                result += [None] * len(wanted)
        found.append(result)
    assert len(found[0]) == len(found[1]), "gradients exist on one side only"
    for a, b in zip(*found, strict=True):
        if a is None and b is None:
            continue
        got = np.zeros(tuple(b.shape)) if a is None else a.detach().numpy()
        expected = np.zeros(tuple(a.shape)) if b is None else b.detach().numpy(force=True)
        np.testing.assert_allclose(got, expected, rtol=max(tolerance * 10, 1e-7), atol=max(tolerance * 10, 1e-7), equal_nan=True)


def weigh(module: Any, t: Any) -> Any:
    """A scalar that depends on every element, with different weights."""
    n = t.numel()
    weights = module.linspace(0.5, 1.5, max(n, 1), dtype=module.float64)[:n].reshape(t.shape)
    if t.is_complex():
        return (t.real * weights).sum() + (t.imag * weights).sum() * 0.7
    return (t.to(module.float64) * weights).sum()
