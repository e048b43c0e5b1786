"""scaled_dot_product_attention: values, layout, gradients of both orders, dropout, numerics; against PyTorch and float64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.compiler.graph import ATTENTION
from flambeau.trace import evaluate
from tests.nn.oracle import compare, torch

SDPA = ft.nn.functional.scaled_dot_product_attention
THEIRS = torch.nn.functional.scaled_dot_product_attention
MASKS: dict[str, Any] = {
    "none": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.3},
    "bool": {"attn_mask": torch.rand(2, 1, 33, 40, generator=torch.Generator().manual_seed(1)) < 0.7},
    "added": {"attn_mask": torch.randn(33, 40, generator=torch.Generator().manual_seed(2))},
    "padding": {"attn_mask": torch.rand(2, 1, 1, 40, generator=torch.Generator().manual_seed(3)) < 0.7},
}


def operands(*shapes: tuple[int, ...], dtype: Any = torch.float32) -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(s, generator=generator).to(dtype).requires_grad_() for s in shapes]


@pytest.fixture
def ran() -> Iterator[list[str]]:
    """The attention kernels of all plans made meanwhile."""
    found: list[str] = []

    def note(plan: Any, reason: str) -> None:
        found.extend(plan.plan.graph.nodes[i].op for step in plan.plan.steps for i in step.nodes[:1])

    evaluate.OBSERVERS.append(note)
    yield found
    evaluate.OBSERVERS.remove(note)


@pytest.mark.parametrize("kind", MASKS)
def test_masks(kind: str) -> None:
    compare(SDPA, THEIRS, *operands((2, 3, 33, 16), (2, 3, 40, 16), (2, 3, 40, 8)), **MASKS[kind])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 5e-2), (torch.float16, 5e-3)])
def test_dtypes(dtype: Any, tolerance: float) -> None:
    shapes = ((1, 17, 30, 20),) * 3
    compare(SDPA, THEIRS, *operands(*shapes, dtype=dtype), is_causal=True, tolerance=tolerance)


@pytest.mark.parametrize("shapes", [((20, 16), (33, 16), (33, 8)), ((3, 20, 16), (3, 33, 16), (3, 33, 8)),
                                    ((2, 2, 2, 9, 4),) * 3, ((2, 3, 9, 4), (1, 3, 9, 4), (2, 1, 9, 4))])  # fmt: skip
def test_batches(shapes: Any) -> None:
    compare(SDPA, THEIRS, *operands(*shapes))


@pytest.mark.parametrize("mask", [{}, {"is_causal": True}, {"attn_mask": torch.ones(2, 4, 9, 9, dtype=torch.bool).tril()}])
def test_grouped_heads(mask: dict[str, Any]) -> None:
    compare(SDPA, THEIRS, *operands((2, 4, 9, 8), (2, 2, 9, 8), (2, 2, 9, 6)), enable_gqa=True, **mask)


def test_a_query_without_keys_is_zero() -> None:
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    compare(SDPA, THEIRS, *operands((2, 2, 6, 8), (2, 2, 6, 8), (2, 2, 6, 8)), attn_mask=mask)


def test_one_projection_is_not_copied(ran: list[str]) -> None:
    """q, k and v are views of one product; the result lies as the next layer wants it, as PyTorch's does."""
    x = ft.randn(2, 10, 3 * 24).requires_grad_()
    parts = [p.view(2, 10, 3, 8).transpose(1, 2) for p in x.split(24, 2)]
    y = SDPA(*parts, is_causal=True)
    assert y.stride() == (240, 8, 24, 1)
    y.tolist()
    assert ran == ["attention"]
    ran.clear()
    y.square().sum().backward()
    assert x.grad is not None
    x.grad.tolist()
    assert set(ran) & ATTENTION == {"attention_gradient"}
    assert "gather" not in ran and "copy" not in ran


@pytest.mark.parametrize("kind", ["none", "causal", "bool", "added"])
def test_gradients_of_both_orders(kind: str) -> None:
    ft.manual_seed(0)
    q, k, v = (ft.randn(s, dtype=ft.float64).requires_grad_() for s in ((2, 2, 5, 4), (2, 2, 5, 4), (2, 2, 5, 3)))
    masks: dict[str, Any] = {"none": {}, "causal": {"is_causal": True}, "bool": {"attn_mask": ft.rand(5, 5) < 0.7},
                             "added": {"attn_mask": ft.randn(2, 1, 5, 5, dtype=ft.float64)}}  # fmt: skip

    def attention(*args: Any) -> Any:
        return SDPA(*args, **masks[kind])

    assert ft.autograd.gradcheck(attention, (q, k, v))
    assert ft.autograd.gradgradcheck(attention, (q, k, v))


def test_gradient_of_a_mask() -> None:
    q, k, v = operands((2, 2, 5, 4), (2, 2, 6, 4), (2, 2, 6, 3))
    mask = torch.randn(5, 6).requires_grad_()
    compare(SDPA, THEIRS, q, k, v, mask)


def test_dropout() -> None:
    """Reproducible; keeps 1 - p of the weights; the gradients belong to the same choice."""
    q, k = ft.zeros(2, 4, 64, 8, dtype=ft.float64), ft.zeros(2, 4, 64, 8, dtype=ft.float64)
    v = ft.eye(64, dtype=ft.float64).expand(2, 4, 64, 64)
    ft.manual_seed(5)
    weights = SDPA(q, k, v, dropout_p=0.25)
    ft.manual_seed(5)
    assert ft.equal(SDPA(q, k, v, dropout_p=0.25), weights)
    assert not ft.equal(SDPA(q, k, v, dropout_p=0.25), weights)
    kept = (weights != 0).double().mean().item()
    assert abs(kept - 0.75) < 0.01
    np.testing.assert_allclose(weights[weights != 0].numpy(), 1 / 64 / 0.75, rtol=1e-12)

    def attention(*args: Any) -> Any:
        ft.manual_seed(7)
        return SDPA(*args, dropout_p=0.25)

    some = tuple(ft.randn(2, 5, 4, dtype=ft.float64).requires_grad_() for _ in range(3))
    assert ft.autograd.gradcheck(attention, some)
    assert ft.autograd.gradgradcheck(attention, some)


def test_same_bits_on_one_and_two_threads() -> None:
    before = ft.get_num_threads()
    q, k, v, g = (ft.randn(2, 3, 200, 32) for _ in range(4))

    def gradients() -> list[Any]:
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        y = SDPA(*leaves, is_causal=True)
        return [y, *ft.autograd.grad(y, leaves, g)]

    found = []
    try:
        for count in (1, 2):
            ft.set_num_threads(count)
            found.append([x.detach().numpy().tobytes() for x in gradients()])
    finally:
        ft.set_num_threads(before)
    assert found[0] == found[1]


def test_errors_are_no_larger_than_those_of_pytorch() -> None:
    """Root mean square error against float64, of the values and of the three gradients."""
    exact = operands((2, 4, 300, 64), (2, 4, 300, 64), (2, 4, 300, 64), (2, 4, 300, 64), dtype=torch.float64)
    exact = [x.detach().float().double().requires_grad_() for x in exact]

    def all_of(module: Any, inputs: list[Any]) -> list[Any]:
        *leaves, g = inputs
        y = module.nn.functional.scaled_dot_product_attention(*leaves, is_causal=True)
        return [np.asarray(x.detach().numpy(), np.float64) for x in (y, *module.autograd.grad(y, leaves, g))]

    single = [x.detach().float() for x in exact]
    theirs = all_of(torch, [x.requires_grad_() for x in single])
    mine = all_of(ft, [ft.tensor(x.detach().numpy()).requires_grad_() for x in single])
    for want, a, b in zip(all_of(torch, exact), mine, theirs, strict=True):
        error, bound = (np.sqrt(((x - want) ** 2).mean()) for x in (a, b))
        assert error <= 1.1 * bound


def test_hooks_of_the_result_see_no_second_gradient() -> None:
    """A gradient that is differentiated again leads to the inputs past the result, whose hook is called for its own gradient alone (in PyTorch, too)."""
    found = []
    for m in (torch, ft):
        q = m.linspace(-1, 1, 12, dtype=m.float64).reshape(1, 4, 3).requires_grad_()
        result = m.nn.functional.scaled_dot_product_attention(q, q * 0.5, q, dropout_p=0.0)
        result.register_hook(lambda g: g * 0.5)
        (first,) = m.autograd.grad((result.abs() + 0.5).sqrt().sum(), q, create_graph=True)
        (second,) = m.autograd.grad(first.sin().sum() + result.sum(), q)
        found.append((first.tolist(), second.tolist()))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-10)
