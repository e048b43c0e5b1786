"""Embeddings with sparse=True: their COO gradients, and the optimizers that take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

WORDS = np.array([[1, 3, 1], [4, 0, 3]])
TARGETS = np.random.default_rng(0).uniform(-1, 1, (2, 3, 2)).astype("float32")


def table(t: Any, **options: Any) -> Any:
    embedding = t.nn.Embedding(6, 2, sparse=True, **options)
    with t.no_grad():
        embedding.weight.copy_(t.arange(12.0).reshape(6, 2) / 10)
    return embedding


@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}], ids=["plain", "padding"])
def test_gradient(options: dict[str, Any]) -> None:
    grads = []
    for t in (ft, torch):
        e = table(t, **options)
        (e(t.tensor(WORDS)) * t.tensor(TARGETS)).sum().backward()
        g = e.weight.grad
        assert g.is_sparse and not g.is_coalesced() and g._nnz() == (6 if not options else 4)
        e(t.tensor(WORDS)).sum().backward()  # accumulates
        assert e.weight.grad.is_sparse
        e.zero_grad(set_to_none=False)
        assert e.weight.grad._nnz() == 0
        e(t.tensor(WORDS)).pow(2).sum().backward()
        grads.append((g, e.weight.grad))
    for mine, theirs in zip(*grads, strict=True):
        assert tuple(mine.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(mine.to_dense().numpy(), theirs.to_dense().numpy(), rtol=1e-6)


def test_dense_and_sparse_uses_of_one_table() -> None:
    grads = []
    for t in (ft, torch):
        e = table(t)
        ((e(t.tensor(WORDS)) * t.tensor(TARGETS)).sum() + e.weight.pow(2).sum()).backward()
        assert not e.weight.grad.is_sparse
        grads.append(e.weight.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-6)


def test_a_table_that_is_computed() -> None:
    grads = []
    for t in (ft, torch):
        w = (t.arange(12.0).reshape(6, 2) / 10).requires_grad_()
        t.nn.functional.embedding(t.tensor(WORDS), w * 1, sparse=t is ft).pow(2).sum().backward()
        grads.append(w.grad.numpy())
    np.testing.assert_allclose(*grads, rtol=1e-6)


OPTIMIZERS = {
    "SGD": lambda t, p: t.optim.SGD(p, lr=0.1),
    "SGD momentum": lambda t, p: t.optim.SGD(p, lr=0.1, momentum=0.9),
    "SGD maximize": lambda t, p: t.optim.SGD(p, lr=0.1, maximize=True),
    "Adagrad": lambda t, p: t.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
    "SparseAdam": lambda t, p: t.optim.SparseAdam(p, lr=0.1),
    "SparseAdam maximize": lambda t, p: t.optim.SparseAdam(list(p), lr=0.1, betas=(0.8, 0.9), eps=1e-6, maximize=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training(name: str) -> None:
    weights = []
    for t in (ft, torch):
        e = table(t)
        optimizer = OPTIMIZERS[name](t, e.parameters())
        for step in range(4):
            optimizer.zero_grad()
            words = t.tensor(WORDS[:, : 1 + step % 3])
            (e(words) - t.tensor(TARGETS[:, : 1 + step % 3])).pow(2).sum().backward()
            optimizer.step()
        weights.append(e.weight.detach().numpy())
        state = optimizer.state_dict()["state"]
        assert "Adam" not in name or list(state[0]) == ["step", "exp_avg", "exp_avg_sq"]
    np.testing.assert_allclose(*weights, rtol=2e-6, atol=1e-6)


def test_embedding_bag() -> None:
    grads = []
    for t in (ft, torch):
        e = t.nn.EmbeddingBag(6, 2, mode="sum", sparse=True)
        with t.no_grad():
            e.weight.copy_(t.arange(12.0).reshape(6, 2) / 10)
        e(t.tensor([1, 2, 4, 5, 4]), t.tensor([0, 2])).pow(2).sum().backward()
        assert e.weight.grad.is_sparse
        grads.append(e.weight.grad.to_dense().numpy())
    np.testing.assert_allclose(*grads, rtol=1e-6)


def test_who_takes_no_sparse_gradients() -> None:
    for t in (ft, torch):
        for make, text in ((t.optim.Adam, "Adam does not support sparse gradients"), (t.optim.RMSprop, "RMSprop does not support sparse gradients")):
            e = table(t)
            optimizer = make(e.parameters())
            e(t.tensor(WORDS)).sum().backward()
            with pytest.raises(RuntimeError, match=text):
                optimizer.step()
        e = t.nn.Linear(2, 2)
        optimizer = t.optim.SparseAdam(e.parameters())
        e(t.ones(1, 2)).sum().backward()
        with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
            optimizer.step()
