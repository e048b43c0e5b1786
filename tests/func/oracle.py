"""Runs one program over flambeau and over PyTorch and compares what it returns."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


class World:
    """A framework with the namespaces of transforms, and inputs that are the same in both."""

    def __init__(self, name: str) -> None:
        self.torch = importlib.import_module(name)
        self.func = importlib.import_module(f"{name}.func")
        self.functional = importlib.import_module(f"{name}.autograd.functional")
        self.forward = importlib.import_module(f"{name}.autograd.forward_ad")
        self.nn = importlib.import_module(f"{name}.nn")
        self.F = importlib.import_module(f"{name}.nn.functional")

    def array(self, *shape: int, seed: int = 0, dtype: str = "float64") -> Any:
        """Normal numbers."""
        return self.torch.tensor(np.random.default_rng(seed).normal(size=shape).astype(dtype))


def leaves(x: Any) -> list[Any]:
    """Tensors and other values of a result, dictionaries by key."""
    if isinstance(x, dict):
        return [t for k in sorted(x) for t in leaves(x[k])]
    if isinstance(x, (tuple, list)):
        return [t for part in x for t in leaves(part)]
    return [x]


def same(program: Callable[[World], Any], tolerance: float = 1e-9) -> None:
    """Both frameworks return equal shapes, dtypes, flags and values."""
    ours, theirs = leaves(program(World("flambeau"))), leaves(program(World("torch")))
    assert len(ours) == len(theirs)
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if not isinstance(b, torch.Tensor):
            assert a == b, (i, a, b)
            continue
        assert isinstance(a, ft.Tensor)
        assert tuple(a.shape) == tuple(b.shape), (i, a.shape, b.shape)
        assert str(a.dtype) == str(b.dtype), (i, a.dtype, b.dtype)
        assert a.requires_grad == b.requires_grad, (i, a.requires_grad, b.requires_grad)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().resolve_conj().numpy(), rtol=tolerance, atol=tolerance, err_msg=f"result {i}")


def same_error(program: Callable[[World], Any], *parts: str) -> None:
    """Both frameworks raise the same type of error; ours has these parts in its message, which are in theirs, too."""
    with pytest.raises(Exception) as theirs:
        program(World("torch"))
    with pytest.raises(type(theirs.value)) as ours:
        program(World("flambeau"))
    for part in parts:
        assert part in str(theirs.value), str(theirs.value)
        assert part in str(ours.value), str(ours.value)
