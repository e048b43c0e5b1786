"""torch.sparse.to_sparse_semi_structured against dense products, in both forms; what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft
from flambeau.sparse import semi_structured

F = ft.nn.functional


def pruned(rows: int, count: int, dtype: Any = ft.float32) -> Any:
    """A matrix with the two greatest of each four; some groups have fewer."""
    g = ft.Generator().manual_seed(rows)
    w = ft.randn(rows, count, generator=g)
    keep = ft.zeros(rows, count // 4, 4).scatter(-1, w.abs().view(rows, -1, 4).topk(2, -1).indices, 1.0).view(rows, count)
    return (w * keep * (ft.rand(rows, count, generator=g) > 0.1)).to(dtype)


@pytest.mark.parametrize("dtype", [ft.float32, ft.bfloat16, ft.float16])
@pytest.mark.parametrize(("rows", "count", "m"), [(7, 16, 1), (130, 48, 5), (64, 272, 16), (33, 64, 80)])
def test_products(rows: int, count: int, m: int, dtype: Any) -> None:
    w = pruned(rows, count, dtype)
    s = ft.sparse.to_sparse_semi_structured(w)
    assert s.shape == w.shape and s.dtype is dtype and ft.equal(s.to_dense(), w) and ft.equal(s.t().to_dense(), w.t())
    x, bias = ft.randn(m, count).to(dtype), ft.randn(rows).to(dtype)
    wanted = x.double() @ w.double().t()
    close = {ft.float32: 1e-5, ft.bfloat16: 2e-2, ft.float16: 3e-3}[dtype] * float(x.double().abs().mul(1).max() * w.double().abs().sum(1).max())
    assert (F.linear(x, s).double() - wanted).abs().max() < close
    assert (F.linear(x, s, bias).double() - (wanted + bias.double())).abs().max() < close
    assert ((x @ s.t()).double() - wanted).abs().max() < close and (ft.mm(s, x.t()).double() - wanted.t()).abs().max() < close
    assert (ft.addmm(bias, x, s.t()).double() - (wanted + bias.double())).abs().max() < close


def test_both_forms_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    s, x = ft.sparse.to_sparse_semi_structured(pruned(20, 96)), ft.randn(6, 96)
    by_values = F.linear(x, s)
    monkeypatch.setattr(semi_structured, "FEW_ROWS", 0)
    assert (by_values - F.linear(x, s)).abs().max() < 1e-5


def test_bits_do_not_depend_on_threads_or_rows() -> None:
    s, x = ft.sparse.to_sparse_semi_structured(pruned(301, 272)), ft.randn(7, 272)
    whole, before = F.linear(x, s), ft.get_num_threads()
    try:
        ft.set_num_threads(1)
        assert ft.equal(whole, ft.cat([F.linear(x[i : i + 1], s) for i in range(7)]))
    finally:
        ft.set_num_threads(before)


def test_the_values_take_half_of_the_memory() -> None:
    s = ft.sparse.to_sparse_semi_structured(pruned(8, 64))
    assert s.values().shape == (8, 32) and s.indices().shape == (8, 8) and s.indices().dtype is ft.uint8


def test_as_a_layers_weight_with_gradients_of_the_input() -> None:
    w = pruned(12, 32)
    layer = ft.nn.Linear(32, 12)
    layer.weight = ft.nn.Parameter(ft.sparse.to_sparse_semi_structured(w))
    assert isinstance(layer.weight, ft.nn.Parameter) and isinstance(layer.weight, ft.sparse.SparseSemiStructuredTensor)
    for shape in ((32,), (2, 3, 32), (30, 32)):
        x = ft.randn(*shape, requires_grad=True)
        y = layer(x)
        y.square().sum().backward()
        assert y.shape == (*shape[:-1], 12) and (x.grad - 2 * y.detach() @ w).abs().max() < 1e-4


def test_copies() -> None:
    w = pruned(4, 16)
    s = ft.sparse.to_sparse_semi_structured(w)
    assert ft.equal(s.clone().to_dense(), w) and ft.equal(s.detach().to_dense(), w) and s.to(ft.bfloat16).to_dense().dtype is ft.bfloat16


def test_what_is_refused() -> None:
    make = ft.sparse.to_sparse_semi_structured
    for given, message in (
        (ft.ones(4, 16), "16 of 16 groups of four"), (ft.zeros(16), "Only 2d"), (ft.zeros(4, 24), "multiple of"), (ft.zeros(4, 16, dtype=ft.int64), "dtype"),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=message):
            make(given)
    s = make(pruned(4, 16))
    with pytest.raises(NotImplementedError, match=r"use to_dense\(\)"):
        s + 1
    with pytest.raises(RuntimeError, match="expected a dense matrix of"):
        F.linear(ft.ones(1, 16, dtype=ft.bfloat16), s)
    with pytest.raises(RuntimeError, match="times 32 features"):
        F.linear(ft.ones(1, 32), s)
    with pytest.raises(RuntimeError, match="no gradients"):
        semi_structured._product(ft.ones(1, 16), s.values().requires_grad_(), s.indices()).sum().backward()
