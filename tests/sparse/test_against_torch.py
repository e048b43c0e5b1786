"""Sparse tensors beside PyTorch's: the same expressions over the same inputs; values, layout, printed text, gradients, error types."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

INDEX = np.array([[2, 0, 1, 2, 0, 2], [3, 1, 1, 3, 2, 0]])  # (2, 3) twice, not sorted
VALUES = np.array([1.5, -2.0, 3.0, 0.25, -1.25, 4.0], dtype="float32")
DENSE = np.random.default_rng(0).uniform(-1, 1, (4, 5)).astype("float32")
ROWS = np.random.default_rng(1).uniform(-1, 1, (3, 4)).astype("float32")


def matrix(t: Any, requires_grad: bool = False) -> Any:
    """3 x 4 with a duplicate."""
    return t.sparse_coo_tensor(t.tensor(INDEX), t.tensor(VALUES), (3, 4), requires_grad=requires_grad)


def hybrid(t: Any) -> Any:
    """Two sparse dims and a dense one of size 2."""
    return t.sparse_coo_tensor(t.tensor(INDEX), t.tensor(np.stack([VALUES, VALUES * 2], 1)), (3, 4, 2))


def cube(t: Any) -> Any:
    """Three sparse dims: a batch of two matrices."""
    return t.sparse_coo_tensor(t.tensor(np.concatenate([np.array([[1, 0, 1, 0, 0, 1]]), INDEX])), t.tensor(VALUES), (2, 3, 4))


def plain(result: Any) -> np.ndarray:
    """The values as a NumPy array."""
    dense = result.to_dense() if str(result.layout) != "torch.strided" else result
    return np.array(dense.detach().numpy())


def same(mine: Any, theirs: Any) -> None:
    """Everything that can be seen of a result."""
    if not isinstance(theirs, torch.Tensor):
        assert mine == theirs or str(mine) == str(theirs), (mine, theirs)
        return
    assert str(mine.layout) == str(theirs.layout)
    assert str(mine.dtype) == str(theirs.dtype)
    assert tuple(mine.shape) == tuple(theirs.shape)
    assert mine.requires_grad == theirs.requires_grad
    assert mine.is_leaf == theirs.is_leaf
    np.testing.assert_allclose(plain(mine), plain(theirs), rtol=1e-6, atol=1e-6)
    if theirs.layout is torch.sparse_coo and mine.is_coalesced() == theirs.is_coalesced() and not theirs.requires_grad and mine._nnz() == theirs._nnz():
        np.testing.assert_array_equal(mine._indices().numpy(), theirs._indices().numpy())
        assert repr(mine.double().mul(8).long()) == repr(theirs.double().mul(8).long())


Case = Callable[[Any], Any]
RESULTS: dict[str, Case] = {
    "build": matrix,
    "size": lambda t: t.sparse_coo_tensor(t.tensor(INDEX), t.tensor(VALUES)),
    "lists": lambda t: t.sparse_coo_tensor([[0, 1], [1, 0]], [1, 2], (2, 2)),
    "empty": lambda t: t.sparse_coo_tensor(t.empty(2, 0, dtype=t.int64), t.empty(0), (2, 3)),
    "sizes": lambda t: t.sparse_coo_tensor((2, 3)),
    "dtype": lambda t: t.sparse_coo_tensor(t.tensor(INDEX), t.tensor(VALUES), (3, 4), dtype=t.float64),
    "legacy": lambda t: t.sparse.FloatTensor(t.tensor(INDEX), t.tensor(VALUES), t.Size([3, 4])),
    "legacy sizes": lambda t: t.sparse.FloatTensor(2, 3),
    "new": lambda t: matrix(t).new(t.tensor(INDEX), t.tensor(VALUES), t.Size([3, 4])),
    "coalesce": lambda t: matrix(t).coalesce(),
    "coalesce hybrid": lambda t: hybrid(t).coalesce(),
    "coalesce bool": lambda t: matrix(t).bool().coalesce(),
    "indices": lambda t: matrix(t).coalesce().indices(),
    "values": lambda t: matrix(t).coalesce().values(),
    "_indices": lambda t: matrix(t)._indices(),
    "_values": lambda t: matrix(t)._values(),
    "nnz": lambda t: (matrix(t)._nnz(), matrix(t).coalesce()._nnz()),
    "dims": lambda t: (hybrid(t).sparse_dim(), hybrid(t).dense_dim(), t.ones(2, 3).sparse_dim(), t.ones(2, 3).dense_dim()),
    "flags": lambda t: (matrix(t).is_sparse, matrix(t).is_sparse_csr, matrix(t).to_sparse_csr().is_sparse_csr, t.ones(2).is_sparse),
    "type": lambda t: (matrix(t).type(), matrix(t).double().type(), t.is_tensor(matrix(t)), isinstance(matrix(t), t.Tensor)),
    "isinstance": lambda t: (isinstance(matrix(t), t.sparse.FloatTensor), isinstance(t.ones(2), t.sparse.FloatTensor)),
    "shape": lambda t: (matrix(t).shape, matrix(t).size(1), matrix(t).numel(), matrix(t).dim(), len(matrix(t)), matrix(t).stride()),
    "device": lambda t: str(matrix(t).to("cpu").cpu().device),
    "repr": lambda t: repr(matrix(t)),
    "repr csr": lambda t: repr(matrix(t).to_sparse_csr().requires_grad_()),
    "repr double": lambda t: repr(hybrid(t).double().requires_grad_()),
    "repr empty": lambda t: repr(t.sparse_coo_tensor((2, 3))),
    "repr layout": lambda t: repr((t.sparse_coo, t.sparse_csr, t.sparse_csc, t.strided)),
    "to_dense": lambda t: matrix(t).to_dense(),
    "to_dense hybrid": lambda t: hybrid(t).to_dense(),
    "to_dense csr": lambda t: matrix(t).to_sparse_csr().to_dense(),
    "to_sparse": lambda t: t.tensor(DENSE).relu().to_sparse(),
    "to_sparse 1": lambda t: t.tensor(DENSE).relu().to_sparse(1),
    "to_sparse layout": lambda t: t.tensor(DENSE).relu().to_sparse(layout=t.sparse_csr),
    "to_sparse_csr": lambda t: matrix(t).to_sparse_csr(),
    "csr parts": lambda t: t.cat([matrix(t).to_sparse_csr().crow_indices(), matrix(t).to_sparse_csr().col_indices()]),
    "to_sparse_csc": lambda t: matrix(t).to_sparse_csc(),
    "csc parts": lambda t: t.cat([matrix(t).to_sparse_csc().ccol_indices(), matrix(t).to_sparse_csc().row_indices()]),
    "csr": lambda t: t.sparse_csr_tensor(t.tensor([0, 2, 3]), t.tensor([0, 1, 1]), t.tensor([1.0, 2.0, 3.0]), (2, 2)),
    "csr size": lambda t: t.sparse_csr_tensor([0, 2, 3], [0, 1, 1], [1.0, 2.0, 3.0]),
    "csc": lambda t: t.sparse_csc_tensor(t.tensor([0, 2, 3]), t.tensor([0, 1, 1]), t.tensor([1.0, 2.0, 3.0]), (2, 2)),
    "csr to coo": lambda t: matrix(t).to_sparse_csr().to_sparse_coo(),
    "csc to csr": lambda t: matrix(t).to_sparse_csc().to_sparse_csr(),
    "sparse_mask": lambda t: t.tensor(ROWS).sparse_mask(matrix(t).coalesce()),
    "sparse_mask sparse": lambda t: matrix(t).coalesce().sparse_mask((matrix(t) * 2).coalesce()),
    "sparse.mm": lambda t: t.sparse.mm(matrix(t), t.tensor(DENSE)),
    "spmm": lambda t: t.spmm(matrix(t), t.tensor(DENSE)),
    "mm": lambda t: t.mm(matrix(t), t.tensor(DENSE)),
    "matmul": lambda t: t.matmul(matrix(t), t.tensor(DENSE)),
    "@": lambda t: matrix(t) @ t.tensor(DENSE),
    "@ vector": lambda t: matrix(t) @ t.tensor(DENSE)[:, 0],
    "mv": lambda t: t.mv(matrix(t), t.tensor(DENSE)[:, 1]),
    "method mm": lambda t: matrix(t).mm(t.tensor(DENSE)),
    "dense @": lambda t: t.tensor(ROWS).t() @ matrix(t),
    "csr @": lambda t: matrix(t).to_sparse_csr() @ t.tensor(DENSE),
    "csc @": lambda t: matrix(t).to_sparse_csc() @ t.tensor(DENSE),
    "csr mv": lambda t: matrix(t).to_sparse_csr() @ t.tensor(DENSE)[:, 0],
    "bmm": lambda t: t.bmm(cube(t), t.tensor(np.stack([DENSE, DENSE + 1]))),
    "addmm": lambda t: t.addmm(t.ones(3, 5), matrix(t), t.tensor(DENSE), beta=0.5, alpha=2),
    "sparse.addmm": lambda t: t.sparse.addmm(t.ones(3, 5), matrix(t), t.tensor(DENSE), beta=0.5, alpha=2.0),
    "smm": lambda t: t.smm(matrix(t), t.tensor(DENSE)).to_dense(),
    "sparse sparse": lambda t: t.sparse.mm(matrix(t), matrix(t).t()),
    "csr csr": lambda t: matrix(t).to_sparse_csr() @ matrix(t).t().to_sparse_csr(),
    "reduce": lambda t: t.sparse.mm(matrix(t).to_sparse_csr(), t.tensor(DENSE), "mean"),
    "sampled": lambda t: t.sparse.sampled_addmm(matrix(t).to_sparse_csr(), t.tensor(DENSE[:3]), t.tensor(DENSE).t(), beta=0.5),
    "sum": lambda t: t.sparse.sum(matrix(t)),
    "sum 0": lambda t: t.sparse.sum(matrix(t), 0),
    "sum 1": lambda t: t.sparse.sum(matrix(t), dim=1),
    "sum all": lambda t: t.sparse.sum(matrix(t), (0, 1)),
    "sum hybrid": lambda t: t.sparse.sum(hybrid(t), 1),
    "sum dense dim": lambda t: t.sparse.sum(hybrid(t), 2),
    "sum sparse dims": lambda t: t.sparse.sum(hybrid(t), (0, 1)),
    "sum method": lambda t: t.sum(matrix(t), 1),
    "sum csr": lambda t: matrix(t).to_sparse_csr().sum(),
    "sum to_dense": lambda t: t.sparse.sum(matrix(t), 1).to_dense(),
    "softmax": lambda t: t.sparse.softmax(matrix(t), 1),
    "softmax 0": lambda t: t.sparse.softmax(matrix(t), 0),
    "softmax hybrid": lambda t: t.sparse.softmax(hybrid(t), 1),
    "softmax dense dim": lambda t: t.sparse.softmax(hybrid(t), 2),
    "log_softmax": lambda t: t.sparse.log_softmax(matrix(t), 1),
    "transpose": lambda t: matrix(t).transpose(0, 1),
    "transpose cube": lambda t: cube(t).transpose(0, 2),
    "permute": lambda t: cube(t).permute(2, 0, 1),
    "t": lambda t: matrix(t).t(),
    "T": lambda t: matrix(t).T,
    "F.relu": lambda t: t.nn.functional.relu(matrix(t)),
    "type_as": lambda t: matrix(t).type_as(matrix(t).double()),
    "t csr": lambda t: matrix(t).to_sparse_csr().t(),
    "mul number": lambda t: 2 * matrix(t) * 0.5,
    "mul tensor": lambda t: matrix(t) * t.tensor(3.0),
    "mul dense": lambda t: matrix(t).coalesce() * t.tensor(ROWS),
    "mul row": lambda t: matrix(t).coalesce() * t.tensor(ROWS[0]),
    "mul sparse": lambda t: matrix(t).coalesce() * (matrix(t) + matrix(t)).coalesce(),
    "div": lambda t: matrix(t) / 4,
    "add": lambda t: matrix(t) + matrix(t).t().t() * 2,
    "add coalesced": lambda t: matrix(t).coalesce() + matrix(t).coalesce(),
    "add alpha": lambda t: t.add(matrix(t), matrix(t), alpha=3),
    "sub": lambda t: matrix(t) - 2 * matrix(t),
    "dense + sparse": lambda t: t.tensor(ROWS) + matrix(t),
    "dense - sparse": lambda t: t.tensor(ROWS) - matrix(t),
    "dense + hybrid": lambda t: t.ones(3, 4, 2) + hybrid(t),
    "csr + csr": lambda t: matrix(t).to_sparse_csr() + matrix(t).to_sparse_csr(),
    "dense add_": lambda t: t.tensor(ROWS).add_(matrix(t), alpha=0.5),
    "neg": lambda t: -matrix(t),
    "abs": lambda t: matrix(t).abs(),
    "pow": lambda t: matrix(t).pow(2),
    "sqrt": lambda t: matrix(t).abs().sqrt(),
    "tanh": lambda t: t.tanh(matrix(t)),
    "relu": lambda t: t.relu(matrix(t)),
    "norm": lambda t: matrix(t).norm(),
    "any": lambda t: matrix(t).any(),
    "int": lambda t: matrix(t).int(),
    "to": lambda t: matrix(t).to(t.float64),
    "half csr": lambda t: matrix(t).to_sparse_csr().half().to_dense().float(),
    "clone": lambda t: matrix(t).clone(),
    "detach": lambda t: matrix(t, True).detach(),
    "requires_grad": lambda t: matrix(t, True),
    "row": lambda t: matrix(t)[2],
    "column": lambda t: matrix(t)[:, 1],
    "element": lambda t: matrix(t)[2, 3],
    "select dense": lambda t: hybrid(t).select(2, 1),
    "rows": lambda t: [plain(row).tolist() for row in matrix(t)],
    "index_select": lambda t: matrix(t).index_select(0, t.tensor([2, 0, 2])),
    "index_select 1": lambda t: t.index_select(matrix(t).coalesce(), 1, t.tensor([3, 1])),
    "index_select dense": lambda t: hybrid(t).index_select(2, t.tensor([1])),
    "narrow_copy": lambda t: matrix(t).narrow_copy(1, 1, 2),
    "unsqueeze": lambda t: matrix(t).unsqueeze(0),
    "unsqueeze last": lambda t: matrix(t).unsqueeze(-1),
    "cat": lambda t: t.cat([matrix(t), matrix(t)], 1),
    "cat dense dim": lambda t: t.cat([hybrid(t), hybrid(t)], 2),
    "stack": lambda t: t.stack([matrix(t), matrix(t)]),
    "zeros_like": lambda t: t.zeros_like(matrix(t)),
    "ones_like": lambda t: t.ones_like(matrix(t), layout=t.strided),
    "zeros layout": lambda t: t.zeros(2, 3, layout=t.sparse_coo),
    "linear": lambda t: t.nn.functional.linear(matrix(t), t.tensor(DENSE).t().contiguous(), t.ones(5)),
    "spdiags": lambda t: t.sparse.spdiags(t.tensor(ROWS), t.tensor([0, -1, 2]), (4, 4)).to_dense(),
    "scipy": lambda t: t.sparse_coo_tensor(t.from_numpy(INDEX), t.from_numpy(VALUES), t.Size((3, 4))).to_dense(),
    "resize": lambda t: matrix(t).sparse_resize_((5, 6), 2, 0),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_results(name: str) -> None:
    expression = RESULTS[name]
    same(expression(ft), expression(torch))


ERRORS: dict[str, Case] = {
    "indices": lambda t: matrix(t).indices(),
    "values": lambda t: matrix(t).values(),
    "dense indices": lambda t: t.ones(2).indices(),
    "dense coalesce": lambda t: t.ones(2).coalesce(),
    "csr coalesce": lambda t: matrix(t).to_sparse_csr().coalesce(),
    "numpy": lambda t: matrix(t).numpy(),
    "data_ptr": lambda t: matrix(t).data_ptr(),
    "item": lambda t: matrix(t).item(),
    "nbytes": lambda t: matrix(t).nbytes,
    "exp": lambda t: t.exp(matrix(t)),
    "view": lambda t: matrix(t).view(4, 3),
    "where": lambda t: t.where(matrix(t), matrix(t), matrix(t)),
    "max": lambda t: matrix(t).max(),
    "equal": lambda t: matrix(t) == matrix(t),
    "softmax": lambda t: t.softmax(matrix(t), 0),
    "add number": lambda t: matrix(t) + 1,
    "sparse + dense": lambda t: matrix(t) + t.tensor(ROWS),
    "shapes": lambda t: matrix(t) + matrix(t).t(),
    "divide": lambda t: matrix(t) / t.tensor(ROWS),
    "mm": lambda t: t.sparse.mm(matrix(t), t.ones(3, 2)),
    "mv": lambda t: matrix(t) @ t.ones(3),
    "nnz": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0, 3.0], (3,)),
    "dims": lambda t: t.sparse_coo_tensor([[0, 1]], [1.0, 2.0], (3, 3)),
    "invariants": lambda t: t.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), check_invariants=True),
    "size": lambda t: matrix(t)[3],
}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name: str) -> None:
    with pytest.raises(Exception) as theirs:
        ERRORS[name](torch)
    with pytest.raises(theirs.type) as mine:
        ERRORS[name](ft)
    assert len(str(mine.value)) > 20


GRADIENTS: dict[str, Callable[..., Any]] = {
    "spmm": lambda t, s, v, d: t.spmm(s, d),
    "csr": lambda t, s, v, d: s.to_sparse_csr() @ d,
    "vector": lambda t, s, v, d: s @ d[:, 0],
    "dense first": lambda t, s, v, d: d.t()[:, :3] @ s,
    "coalesce": lambda t, s, v, d: s.coalesce().values() ** 2,
    "to_dense": lambda t, s, v, d: s.to_dense() ** 2,
    "sum": lambda t, s, v, d: t.sparse.sum(s, 1).to_dense() ** 2,
    "softmax": lambda t, s, v, d: t.sparse.softmax(s, 1).to_dense() ** 2,
    "sparse sparse": lambda t, s, v, d: t.sparse.mm(s, s.t()).to_dense() * 2,
    "scaled": lambda t, s, v, d: (2 * s.t()).t().to_dense() * 3,
    "add": lambda t, s, v, d: (s + s).to_dense() ** 2,
    "dense + sparse": lambda t, s, v, d: (d[:3, :4] + s) ** 2,
    "mask": lambda t, s, v, d: (d[:3, :4] * 2).sparse_mask(s.detach().coalesce()).to_dense() ** 2 + v.sum() * 0,
}  # fmt: skip


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_of_values_and_dense_operands(name: str) -> None:
    found = []
    for t in (ft, torch):
        v, d = t.tensor(VALUES, requires_grad=True), t.tensor(DENSE, requires_grad=True)
        s = t.sparse_coo_tensor(t.tensor(INDEX), v, (3, 4))
        out = GRADIENTS[name](t, s, v, d)
        (out * t.linspace(0.5, 1.5, out.numel()).reshape(out.shape)).sum().backward()
        found.append([x.grad if x.grad is None or x.grad.layout is t.strided else x.grad.to_dense() for x in (v, d)])
    for mine, theirs in zip(*found, strict=True):
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-5, atol=1e-5)


def test_gradient_of_a_sparse_leaf() -> None:
    for build in (lambda t: matrix(t, True), lambda t: matrix(t).coalesce().requires_grad_(), lambda t: matrix(t).to_sparse_csr().requires_grad_()):
        grads = []
        for t in (ft, torch):
            s = build(t)
            assert s.is_leaf and s.requires_grad and s.grad is None
            t.sparse.mm(s, t.tensor(DENSE)).sum().backward()
            t.sparse.mm(s, t.tensor(DENSE)).sum().backward()
            grads.append(s.grad)
            (again,) = t.autograd.grad(t.sparse.mm(s, t.tensor(DENSE)).pow(2).sum(), [s])
            grads.append(again)
        mine, mine_again, theirs, theirs_again = grads
        assert str(mine.layout) == str(theirs.layout) and str(mine_again.layout) == str(theirs_again.layout)
        # PyTorch gives a duplicate index its gradient once or for each element, depending on the operation: compare where there is none
        keep = np.ones((3, 4), bool)
        keep[2, 3] = False
        np.testing.assert_allclose(plain(mine)[keep], plain(theirs)[keep], rtol=1e-5)
        np.testing.assert_allclose(plain(mine_again)[keep], plain(theirs_again)[keep], rtol=1e-5)


def test_in_place() -> None:
    for change in (
        lambda s: s.mul_(2), lambda s: s.add_(s.clone()), lambda s: s.neg_(), lambda s: s.zero_(), lambda s: s.div_(4), lambda s: s.t_(),
        lambda s: s.copy_(s.clone() * 3), lambda s: s.__imul__(2), lambda s: s._values().mul_(5),
    ):  # fmt: skip
        pair = []
        for t in (ft, torch):
            s = matrix(t)
            change(s)
            pair.append(s)
        same(*pair)


def test_copies_pickles_and_files() -> None:
    for build in (matrix, hybrid, lambda t: matrix(t).coalesce(), lambda t: matrix(t).to_sparse_csr(), lambda t: matrix(t, True)):
        s = build(ft)
        for copied in (deepcopy(s), pickle.loads(pickle.dumps(s))):
            assert copied is not s and copied.layout is s.layout
            np.testing.assert_array_equal(plain(copied), plain(s))
        mine, theirs = io.BytesIO(), io.BytesIO()
        ft.save({"s": s.detach(), "x": ft.ones(2)}, mine)
        torch.save({"s": build(torch).detach(), "x": torch.ones(2)}, theirs)
        for file in (mine, theirs):
            for load in (ft.load, torch.load):
                file.seek(0)
                loaded = load(file)["s"]
                assert str(loaded.layout) == str(s.layout)
                if s.is_sparse:
                    assert loaded.is_coalesced() == s.is_coalesced()
                np.testing.assert_array_equal(plain(loaded), plain(s))


def test_a_buffer_of_a_module() -> None:
    class Graph(ft.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = ft.nn.Linear(5, 2)
            self.register_buffer("adjacency", matrix(ft).coalesce())

        def forward(self, x: Any) -> Any:
            return ft.relu(ft.spmm(self.adjacency, self.linear(x)))

    model = Graph()
    assert list(model.state_dict()) == ["adjacency", "linear.weight", "linear.bias"]
    model(ft.tensor(DENSE)).sum().backward()
    assert model.linear.weight.grad is not None
    model.double()
    assert model.adjacency.dtype is ft.float64 and model.adjacency.is_coalesced()
    deepcopy(model)(ft.tensor(DENSE).double())


def test_a_training_loop_records_once() -> None:
    s, w = matrix(ft).coalesce(), ft.ones(5, 2, requires_grad=True)
    for step in range(16):
        loss = (s @ ft.tensor(DENSE) @ w).pow(2).mean()
        loss.backward()
        with ft.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
        float(loss)
        if step == 11:
            before = ft.stats()["slow_path_entries"]
    assert ft.stats()["slow_path_entries"] == before


def test_rarer_products() -> None:
    for call in (
        lambda t: t.hspmm(matrix(t), t.tensor(DENSE)), lambda t: t.dsmm(matrix(t), t.tensor(DENSE)),
        lambda t: t.sspaddmm(t.ones(3, 5).to_sparse(), matrix(t), t.tensor(DENSE), beta=2, alpha=0.5),
    ):  # fmt: skip
        mine, theirs = call(ft), call(torch)
        assert str(mine.layout) == str(theirs.layout)
        np.testing.assert_allclose(plain(mine), plain(theirs), rtol=1e-6, atol=1e-6)
    with pytest.raises(NotImplementedError, match="sparse_bsr"):
        ft.sparse_bsr_tensor([0, 1], [0], [[[1.0]]])


def test_arguments_by_name() -> None:
    for m in (ft, torch):
        empty = m.sparse_coo_tensor(size=(2, 3))
        assert tuple(empty.shape) == (2, 3) and empty._nnz() == 0 and empty.dtype is m.float32
        for arguments in ({}, {"values": m.ones(2)}, {"values": m.ones(2), "size": (2,)}):
            with pytest.raises(TypeError, match=r"sparse_coo_tensor\(\)"):
                m.sparse_coo_tensor(**arguments)
