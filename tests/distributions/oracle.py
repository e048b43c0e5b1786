"""Runs an expression with flambeau's distributions and with PyTorch's, on equal parameters and after equal seeds, and compares."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import flambeau as ft
import flambeau.distributions  # a submodule that loads on first use

torch = pytest.importorskip("torch")

PACKAGES = (ft, torch)


def tensors(t: Any, arrays: Sequence[np.ndarray], gradients: bool = False) -> list[Any]:
    """The arrays as tensors of a package; floating ones with `requires_grad` on request."""
    made = [t.tensor(a) for a in arrays]
    return [x.requires_grad_() if gradients and x.dtype.is_floating_point else x for x in made]


def outcome(function: Callable[[], Any]) -> Any:
    """What a call returns, or the error that it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function()
        except (NotImplementedError, ValueError, RuntimeError, AttributeError, TypeError, AssertionError, IndexError) as error:
            return error


def same(ours: Any, theirs: Any, tolerance: float = 1e-9, what: str = "") -> None:
    """Equal types of errors; or tensors of one dtype and shape, and values within the (relative and absolute) tolerance."""
    if isinstance(theirs, Exception):
        assert isinstance(ours, type(theirs)), f"{what}: {ours!r}, PyTorch: {theirs!r}"
        return
    assert not isinstance(ours, Exception), f"{what}: {ours!r}, PyTorch: {theirs!r}"
    if not isinstance(theirs, torch.Tensor):
        assert ours == theirs, f"{what}: {ours!r}, PyTorch: {theirs!r}"
        return
    assert str(ours.dtype) == str(theirs.dtype), f"{what}: {ours.dtype}, PyTorch: {theirs.dtype}"
    assert tuple(ours.shape) == tuple(theirs.shape), f"{what}: {tuple(ours.shape)}, PyTorch: {tuple(theirs.shape)}"
    got, expected = ours.detach().numpy(), theirs.detach().numpy()
    np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance, equal_nan=True, err_msg=what)


def both(function: Callable[[Any], Any], tolerance: float = 1e-9, what: str = "") -> tuple[Any, Any]:
    """`function(package)` of both, after one seed, compared."""
    found = []
    for t in PACKAGES:
        t.manual_seed(7)
        found.append(outcome(lambda t=t: function(t)))  # type: ignore[misc]
    same(found[0], found[1], tolerance, what)
    return found[0], found[1]


def gradients(t: Any, value: Any, inputs: Sequence[Any]) -> list[Any]:
    """Gradients of a weighted sum of `value`; zeros where an input has none."""
    weights = t.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    found = t.autograd.grad((value * weights).sum(), list(inputs), allow_unused=True)
    return [t.zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]
