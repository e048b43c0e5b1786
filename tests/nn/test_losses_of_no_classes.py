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


@pytest.mark.parametrize("shape", [*SHAPES, (4, 2, 3), (4, 2)])
def test_bytes(shape: tuple[int, ...]) -> None:
    """With dims of their own they are refused, but for none of them that are reduced."""

    def taken(m: Any, name: str, reduction: str) -> bool:
        axis = min(len(shape) - 1, 1)
        y = m.ones((*shape[:axis], *shape[axis + 1 :]), dtype=m.uint8)
        try:
            getattr(m.nn.functional, name)(m.zeros(shape), y, ignore_index=1, reduction=reduction)
        except RuntimeError:
            return False
        return True

    for name in ("nll_loss", "cross_entropy"):
        if name == "nll_loss" or shape != (0,):
            for reduction in ("mean", "sum", "none"):
                assert taken(flambeau, name, reduction) == taken(torch, name, reduction), (name, reduction)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_second_slopes_of_binary_cross_entropy_at_the_ends(dtype: str) -> None:
    def slopes(m: Any) -> list[Any]:
        d = getattr(m, dtype)
        x = m.tensor([0.0, 1.0, 0.0, 1.0, 0.5], dtype=d, requires_grad=True)
        loss = m.nn.functional.binary_cross_entropy(x, m.tensor([0.2, 0.3, 0.0, 1.0, 0.5], dtype=d), reduction="none")
        (first,) = m.autograd.grad(loss.sum(), x, create_graph=True)
        (second,) = m.autograd.grad(first.sum(), x)
        return [*loss.tolist(), *first.tolist(), *second.tolist()]

    np.testing.assert_allclose(slopes(flambeau), slopes(torch), rtol=1e-5 if dtype == "float32" else 1e-8, atol=1e-6)  # its 1e-12 is a float


@pytest.mark.parametrize("shape", [(3, 0), (0,), (0, 0), (3, 0, 2, 2)])
def test_the_dispatchers_forms(shape: tuple[int, ...]) -> None:
    def outcome(m: Any, target: int, weight: bool, reduction: int) -> Any:
        axis, name = min(len(shape) - 1, 1), "nll_loss2d" if len(shape) == 4 else "nll_loss"
        x, y = m.zeros(shape), m.full((*shape[:axis], *shape[axis + 1 :]), target)
        given = [x, y, m.ones(0) if weight else None, reduction, -100]
        try:
            loss, total = getattr(m.ops.aten, f"{name}_forward")(*given)
            gradient = getattr(m.ops.aten, f"{name}_backward")(m.ones_like(loss), *given, total)
            return str((loss + 0.0).tolist()), total.item(), tuple(gradient.shape)
        except IndexError:
            return IndexError

    for target in (-100, 1):
        for weight in (False, True):
            for reduction in (0, 1, 2):
                assert outcome(flambeau, target, weight, reduction) == outcome(torch, target, weight, reduction), (target, weight, reduction)


def test_a_weight_without_dims() -> None:
    """Of one class it is taken beside targets with dims of their own, but not with smoothing."""
    for m in (flambeau, torch):
        x, y = m.zeros(2, 1, 2), m.zeros(2, 2, dtype=m.int64)
        assert m.nn.functional.cross_entropy(x, y, m.ones(())).item() == 0
        with pytest.raises(IndexError):
            m.nn.functional.cross_entropy(x, y, m.ones(()), label_smoothing=0.3)


def test_words() -> None:
    with pytest.raises(IndexError, match=r"nll_loss\(\): (index|Target) 1 is out of bounds"):  # of targets that are computed, now or when the loss is
        flambeau.nn.functional.nll_loss(flambeau.zeros(2, 0), flambeau.ones(2).long()).item()
    with pytest.raises(IndexError, match=r"Target 1 is out of bounds for dimension 1 with size 0"):
        flambeau.nn.functional.nll_loss(flambeau.zeros(2, 0), flambeau.tensor([-100, 1]))
    with pytest.raises(RuntimeError, match=r"cross_entropy: size mismatch: an input of shape \(2, 0, 3\) has no classes for 6 targets"):
        flambeau.nn.functional.cross_entropy(flambeau.zeros(2, 0, 3), flambeau.full((2, 3), -100))
