"""CSR and CSC whose elements are dense tensors: made, converted, printed, added up and refused as PyTorch does."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def made(m: Any, layout: str) -> Any:
    make = m.sparse_csr_tensor if layout == "csr" else m.sparse_csc_tensor
    return make(m.tensor([0, 2, 3, 3]), m.tensor([0, 2, 1]), m.arange(12.0).reshape(3, 4))


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_elements_that_are_tensors(layout: str) -> None:
    found = []
    for m in (ft, torch):
        t = made(m, layout)
        other = "csc" if layout == "csr" else "csr"
        turned = getattr(t, f"to_sparse_{other}")()
        found.append([
            tuple(t.shape), t.sparse_dim(), t.dense_dim(), t._nnz(), t.to_dense().tolist(), t.to_sparse_coo().to_dense().tolist(),
            turned.values().tolist(), turned.to_dense().tolist(), (t * 2).values().tolist(), (t + t).to_dense().tolist(), t.sum().item(),
            t.relu().values().tolist(),
            getattr(t.to_sparse_coo(), f"to_sparse_{layout}")().values().tolist(), repr(t),
            getattr(t.to_dense(), f"to_sparse_{layout}")(dense_dim=1).values().tolist(),
        ])  # fmt: skip
    assert found[0] == found[1]


def test_gradient_of_the_elements() -> None:
    values = ft.arange(12.0).reshape(3, 4).requires_grad_()
    ft.sparse_csr_tensor(ft.tensor([0, 2, 3, 3]), ft.tensor([0, 2, 1]), values).to_dense().square().sum().backward()
    assert values.grad is not None and values.grad.tolist() == (2 * values.detach()).tolist()


def test_wrong_calls() -> None:
    crow, col, values = ft.tensor([0, 2, 3, 3]), ft.tensor([0, 2, 1]), ft.ones(3, 4)
    for size in ((3, 3), (3, 3, 5), (3, 3, 4, 1)):
        with pytest.raises(RuntimeError, match=r"values of shape \[3, 4\] need a size of 2 and then \[4\]"):
            ft.sparse_csr_tensor(crow, col, values, size)
    with pytest.raises(RuntimeError, match="dimensionalities must be equal but got 1 and 2"):
        ft.sparse_csr_tensor(crow, col[None], values)
    with pytest.raises(NotImplementedError, match="batches of matrices"):
        ft.sparse_csr_tensor(crow[None], col[None], values)
    with pytest.raises(RuntimeError, match="hybrid sparse compressed tensors with dense dimensions"):
        made(ft, "csr").transpose(0, 1)
    with pytest.raises(RuntimeError, match="expected a sparse matrix"):
        made(ft, "csr") @ ft.ones(3, 2)
    with pytest.raises(RuntimeError, match="batches of matrices are not there"):
        ft.ones(2, 3, 3).to_sparse_csr(dense_dim=0)
