"""Results of empty inputs require gradients where PyTorch's do, and are refused where PyTorch's are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
SHAPES = ((0,), (2,), (0, 3), (2, 3), (2, 0), (0, 0))
FUNCTIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "cat": lambda m, a, b: m.cat([a, b]), "cat of the last dim": lambda m, a, b: m.cat([a, b], -1), "hstack": lambda m, a, b: m.hstack([a, b]),
    "vstack": lambda m, a, b: m.vstack([a, b]), "dstack": lambda m, a, b: m.dstack([a, b]), "column_stack": lambda m, a, b: m.column_stack([a, b]),
    "block_diag": lambda m, a, b: m.block_diag(a, b), "stack": lambda m, a, b: m.stack([a, b]), "add": lambda m, a, b: a + b, "mm": lambda m, a, b: a @ b,
    "outer": lambda m, a, b: m.outer(a, b), "kron": lambda m, a, b: m.kron(a, b), "dot": lambda m, a, b: m.dot(a, b), "lerp": lambda m, a, b: m.lerp(a, b, 0.5),
    "addmm": lambda m, a, b: m.addmm(a, b, b.mT), "baddbmm": lambda m, a, b: m.baddbmm(a, b[None], b.mT[None]), "cdist": lambda m, a, b: m.cdist(a, b),
    "einsum": lambda m, a, b: m.einsum("ij,ij->i", a, b), "tensordot": lambda m, a, b: m.tensordot(a, b, 1),
    "where": lambda m, a, b: m.where(m.tensor(True), a, b),
    "linear": lambda m, a, b: m.nn.functional.linear(a, b), "mse_loss": lambda m, a, b: m.nn.functional.mse_loss(a, b),
    "expand": lambda m, a, b: a.expand_as(b) * 1,
    "cosine_similarity": lambda m, a, b: m.nn.functional.cosine_similarity(a, b), "copy_": lambda m, a, b: a.clone().copy_(b),
    "slice_scatter": lambda m, a, b: a.slice_scatter(b), "multi_dot": lambda m, a, b: m.linalg.multi_dot([a, b]), "maximum": lambda m, a, b: m.maximum(a, b),
    "gather": lambda m, a, b: a.gather(0, m.zeros(b.shape, dtype=m.int64)), "huber_loss": lambda m, a, b: m.nn.functional.huber_loss(a, b),
    "layer_norm": lambda m, a, b: m.nn.functional.layer_norm(a, a.shape[-1:], b), "cross_entropy": lambda m, a, b: m.nn.functional.cross_entropy(a, b),
}  # fmt: skip


def outcome(m: Any, name: str, shapes: tuple[Any, Any], first: bool) -> Any:
    """The result's shape, whether it requires gradients, and the shape of the gradient that the one input that requires one then gets."""
    a, b = m.ones(shapes[0], requires_grad=first), m.ones(shapes[1], requires_grad=not first)
    try:
        r = FUNCTIONS[name](m, a, b)
        (g,) = m.autograd.grad(r.sum(), [a if first else b], allow_unused=True) if r.requires_grad else (None,)
    except (RuntimeError, IndexError, ValueError):
        return "refused"
    return tuple(r.shape), r.requires_grad, None if g is None else tuple(g.shape)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_empty_inputs(name: str) -> None:
    for shapes, first in itertools.product(itertools.product(SHAPES, SHAPES), (True, False)):
        assert outcome(ft, name, shapes, first) == outcome(torch, name, shapes, first), (shapes, first)


@pytest.mark.filterwarnings("ignore")
def test_attention_of_no_keys() -> None:
    for m in (ft, torch):
        q, k, v = m.ones(2, 3, requires_grad=True), m.ones(0, 3), m.ones(0, 4)
        y = m.nn.functional.scaled_dot_product_attention(q, k, v)
        y.sum().backward()
        assert y.tolist() == [[0.0] * 4] * 2 and q.grad.tolist() == [[0.0] * 3] * 2


def test_cat_of_empty_ones_has_the_common_dtype() -> None:
    for m in (ft, torch):
        assert m.cat([m.ones(0), m.ones(0, dtype=m.float64)]).dtype is m.float64


def second(m: Any, name: str, shapes: Any, first: bool) -> Any:
    """Whether the gradient of a call has gradients itself, and of which inputs."""
    try:
        a, b = (m.ones(*s, requires_grad=True) for s in shapes)
        (g,) = m.autograd.grad(FUNCTIONS[name](m, a, b).sum(), [a if first else b], allow_unused=True, create_graph=True)
        if g is None or not g.requires_grad:
            return None if g is None else "a constant"
        return [t is not None for t in m.autograd.grad(g.sum(), [a, b], allow_unused=True)]
    except (RuntimeError, IndexError, ValueError, TypeError):
        return "refused"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - {"cdist"}))  # PyTorch's cdist has no second gradient
def test_second_gradients_of_empty_inputs(name: str) -> None:
    for shapes, first in itertools.product(itertools.product(SHAPES, SHAPES), (True, False)):
        assert second(ft, name, shapes, first) == second(torch, name, shapes, first), (shapes, first)
