"""Losses of inputs without classes or samples beside PyTorch: targets that are ignored, and ones that are not, in all reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")
SHAPES = [(0,), (3, 0), (0, 0), (0, 3), (3, 0, 4), (3, 0, 0), (0, 0, 4), (3, 2, 0), (3, 0, 2, 2), (2, 0, 1, 1, 2)]


def outcome(m: Any, name: str, shape: tuple[int, ...], target: int | None, options: dict[str, Any]) -> Any:
    """The loss and its gradient, or the error. `target`: one class for all, or None for probabilities."""
    axis = min(len(shape) - 1, 1)
    x = m.zeros(shape, dtype=m.float64, requires_grad=True)
    y = m.zeros(shape, dtype=m.float64) if target is None else m.full((*shape[:axis], *shape[axis + 1 :]), target)
    given = {**options, "weight": m.ones(shape[axis], dtype=m.float64)} if options.get("weight") else options
    try:
        loss = getattr(m.nn.functional, name)(x, y, **given)
        (gradient,) = m.autograd.grad(loss.sum(), x)
        return np.asarray(loss.tolist()).reshape(tuple(loss.shape)), tuple(gradient.shape)
    except IndexError:
        return IndexError
    except RuntimeError:
        return RuntimeError


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["nll_loss", "cross_entropy"])
def test_as_pytorch(name: str, shape: tuple[int, ...]) -> None:
    for reduction in ("mean", "sum", "none"):
        for target in (-100, 1) if name == "nll_loss" else (-100, 1, None):
            for more in ({}, {"weight": True}, *([{"label_smoothing": 0.3}, {"label_smoothing": 1.0, "weight": True}] if name == "cross_entropy" else [])):
                ours, theirs = (outcome(m, name, shape, target, {"reduction": reduction, "weight": None, **more}) for m in (flambeau, torch))
                if isinstance(theirs, type) or isinstance(ours, type):
                    assert ours is theirs, (reduction, target, more)
                else:
                    np.testing.assert_array_equal(ours[0], theirs[0], err_msg=str((reduction, target, more)))
                    assert ours[1] == theirs[1]


def test_words() -> None:
    with pytest.raises(IndexError, match=r"nll_loss\(\): index 1 is out of bounds"):  # of targets that are computed first
        flambeau.nn.functional.nll_loss(flambeau.zeros(2, 0), flambeau.ones(2).long()).item()
    with pytest.raises(IndexError, match=r"Target 1 is out of bounds for dimension 1 with size 0"):
        flambeau.nn.functional.nll_loss(flambeau.zeros(2, 0), flambeau.tensor([-100, 1]))
    with pytest.raises(RuntimeError, match=r"cross_entropy: size mismatch: an input of shape \(2, 0, 3\) has no classes for 6 targets"):
        flambeau.nn.functional.cross_entropy(flambeau.zeros(2, 0, 3), flambeau.full((2, 3), -100))
