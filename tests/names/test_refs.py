"""torch._refs: every name that PyTorch has there and that is a public function here is that function, and computes the same."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def _inner(module: Any, path: str) -> Any:
    for part in path.split("."):
        module = getattr(module, part)
    return module


@pytest.mark.parametrize("path", ["_refs", "_refs.nn.functional", "_refs.special", "_refs.linalg", "_refs.fft", "_refs._conversions"])
def test_names(path: str) -> None:
    __import__(f"torch.{path}")
    theirs, ours = _inner(torch, path), _inner(ft, path)
    public = ft.Tensor if path.endswith("_conversions") else _inner(ft, path.removeprefix("_refs").lstrip(".")) if "." in path else ft
    names = theirs.__all__
    there = [name for name in names if callable(getattr(public, name, None))]
    assert len(there) > 0.7 * len(names)
    for name in there:
        assert getattr(ours, name) is getattr(public, name)
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        _ = ours.no_such_name


def test_values() -> None:
    x = ft.tensor([0.5, -1.5, 2.0])
    assert ft._refs.abs(x).tolist() == [0.5, 1.5, 2.0]
    assert ft._refs.nn.functional.relu(x).tolist() == [0.5, 0.0, 2.0]
    assert ft._refs._conversions.long(x).tolist() == [0, -1, 2]
    assert ft._refs.linalg.vector_norm(x).item() == ft.linalg.vector_norm(x).item()
