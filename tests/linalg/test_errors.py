"""Errors of linalg: PyTorch's exception type, at the call, with a message that says what and where; nothing else is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def indefinite(m: Any) -> Any:
    return m.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]])


# what is called, and what the message must name
VALUES: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "inv": (lambda m: m.linalg.inv(m.ones(2, 2)), ("linalg.inv", "diagonal element 2", "singular")),
    "inv of a batch": (lambda m: m.linalg.inv(m.stack([m.eye(2), m.zeros(2, 2)])), ("Batch element 1", "diagonal element 1")),
    "inverse": (lambda m: m.zeros(2, 2).inverse(), ("singular",)),
    "solve": (lambda m: m.linalg.solve(m.ones(2, 2), m.ones(2)), ("linalg.solve", "singular")),
    "cholesky": (lambda m: m.linalg.cholesky(indefinite(m)), ("linalg.cholesky", "order 2", "not positive-definite")),
    "torch.cholesky": (lambda m: m.cholesky(indefinite(m)), ("cholesky", "not positive-definite")),
    "cholesky of a batch": (lambda m: m.linalg.cholesky(m.stack([m.eye(3), indefinite(m)])), ("Batch element 1", "order 2")),
    "cholesky_ex": (lambda m: m.linalg.cholesky_ex(indefinite(m), check_errors=True), ("order 2",)),
    "eig": (lambda m: m.linalg.eig(m.full((2, 2), float("nan"))), ("linalg.eig", "failed to converge")),
    "svd": (lambda m: m.linalg.svd(m.full((2, 2), float("nan"))), ("linalg.svd", "failed to converge")),
    "lu_factor": (lambda m: m.linalg.lu_factor(m.zeros(2, 2)), ("lu_factor", "U[1,1] is zero")),
    "tensorinv": (lambda m: m.linalg.tensorinv(m.zeros(2, 2, 4)), ("singular",)),
    "matrix_power": (lambda m: m.linalg.matrix_power(m.zeros(2, 2), -1), ("singular",)),
}


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    call, words = VALUES[name]
    with pytest.raises(RuntimeError):
        call(torch)
    with pytest.raises(ft.linalg.LinAlgError) as caught:
        call(ft)
    assert isinstance(caught.value, RuntimeError)
    for word in words:
        assert word in str(caught.value), str(caught.value)


ARGUMENTS: dict[str, tuple[Callable[[Any], Any], tuple[str, ...]]] = {
    "not square": (lambda m: m.linalg.inv(m.ones(2, 3)), ("linalg.inv", "square", "2 by 3")),
    "det": (lambda m: m.linalg.det(m.ones(2, 3)), ("linalg.det", "square")),
    "vector": (lambda m: m.linalg.eigh(m.ones(3)), ("linalg.eigh", "at least 2 dimensions")),
    "integers": (lambda m: m.linalg.qr(m.ones(2, 2, dtype=m.int64)), ("linalg.qr", "Long")),
    "half": (lambda m: m.linalg.svd(m.ones(2, 2, dtype=m.float16)), ("linalg.svd", "Half")),
    "solve shapes": (lambda m: m.linalg.solve(m.eye(2), m.ones(3, 1)), ("linalg.solve", "Incompatible shapes", "2x2", "3x1")),
    "solve dtypes": (lambda m: m.linalg.solve(m.eye(2), m.ones(2, dtype=m.float64)), ("linalg.solve", "same dtype", "float64")),
    "solve batches": (lambda m: m.linalg.solve(m.ones(2, 2, 2), m.ones(3, 2, 1)), ("2", "3")),
    "triangular shapes": (lambda m: m.linalg.solve_triangular(m.eye(2), m.ones(3, 1), upper=True), ("Incompatible shapes", "3x1")),
    "qr mode": (lambda m: m.linalg.qr(m.eye(2), "raw"), ("raw", "reduced")),
    "qr gradient": (lambda m: m.linalg.qr(m.ones(3, 2, requires_grad=True), "complete")[1].sum().backward(), ("complete", "nrows > ncols")),
    "qr r gradient": (lambda m: m.linalg.qr(m.eye(2).requires_grad_(), "r")[1].sum().backward(), ("mode='r'",)),
    "uplo": (lambda m: m.linalg.eigh(m.eye(2), UPLO="X"), ("UPLO", "X")),
    "pivot": (lambda m: m.linalg.lu(m.eye(2), pivot=False), ("without pivoting", "CPU")),
    "norm order": (lambda m: m.linalg.matrix_norm(m.eye(2), 5), ("matrix_norm", "5", "not supported")),
    "norm dims": (lambda m: m.linalg.norm(m.ones(2, 2, 2), 2), ("linalg.norm", "3D")),
    "norm of integers": (lambda m: m.linalg.norm(m.ones(3, dtype=m.int64)), ("vector_norm", "Long")),
    "norm of nothing": (lambda m: m.linalg.vector_norm(m.ones(0), float("inf")), ("inf", "empty")),
    "cond": (lambda m: m.linalg.cond(m.ones(2, 3), 1), ("linalg.cond", "2 by 3")),
    "multi_dot": (lambda m: m.linalg.multi_dot([m.ones(2, 3), m.ones(4, 2)]), ("multi_dot", "[2, 3]", "[4, 2]")),
    "multi_dot of one": (lambda m: m.linalg.multi_dot([m.ones(2, 3)]), ("at least 2 tensors",)),
    "cross": (lambda m: m.linalg.cross(m.ones(2), m.ones(2)), ("linalg.cross", "3")),
    "lstsq": (lambda m: m.linalg.lstsq(m.ones(2, 3), m.ones(3, 1)), ("lstsq", "2")),
    "lstsq driver": (lambda m: m.linalg.lstsq(m.ones(2, 2), m.ones(2, 1), driver="x"), ("driver", "gelsd")),
    "tensorinv": (lambda m: m.linalg.tensorinv(m.ones(2, 3, 4)), ("prod",)),
    "lu_solve pivots": (lambda m: m.linalg.lu_solve(m.eye(2), m.ones(2, dtype=m.int64), m.ones(2, 1)), ("pivots", "int32")),
    "cholesky_solve": (lambda m: m.cholesky_solve(m.ones(3, 1), m.eye(2)), ("cholesky_solve", "2 by 2", "3 by 1")),
    "out": (lambda m: m.linalg.inv(m.eye(2), out=m.empty(2, 2, dtype=m.int64)), ("int64|Long|long",)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str) -> None:
    call, words = ARGUMENTS[name]
    with pytest.raises(RuntimeError):
        call(torch)
    with pytest.raises(RuntimeError) as caught:
        call(ft)
    for word in words:
        assert any(w in str(caught.value) for w in word.split("|")), str(caught.value)


def test_type() -> None:
    with pytest.raises(TypeError, match="must be Tensor"):
        ft.linalg.inv([[1.0]])


def test_a_failure_loses_nothing() -> None:
    """The usual loop that adds to the diagonal until the matrix is positive-definite."""
    x = ft.randn(5, 2, dtype=ft.float64)
    a = (x @ x.mT - ft.eye(5, dtype=ft.float64) * 0.1).requires_grad_()  # pending
    jitter, tries = 0.0, 0
    while True:
        try:
            factor = ft.linalg.cholesky(a + jitter * ft.eye(5, dtype=ft.float64))
            break
        except ft.linalg.LinAlgError:
            jitter = max(jitter * 10, 1e-3)
            tries += 1
    assert tries > 1
    factor.diagonal().log().sum().backward()
    expected = torch.tensor(a.detach().numpy() + jitter * torch.eye(5).double().numpy()).inverse() / 2
    assert torch.allclose(torch.tensor(a.grad.numpy()), expected)


def test_ex_functions_tell_by_info() -> None:
    a = ft.stack([ft.eye(3), indefinite(ft), ft.ones(3, 3)])
    assert ft.linalg.cholesky_ex(a).info.tolist() == torch.linalg.cholesky_ex(torch.tensor(a.numpy())).info.tolist() == [0, 2, 2]
    assert ft.linalg.inv_ex(a).info.tolist() == torch.linalg.inv_ex(torch.tensor(a.numpy())).info.tolist() == [0, 0, 2]
    assert ft.linalg.lu_factor_ex(a).info.tolist() == torch.linalg.lu_factor_ex(torch.tensor(a.numpy())).info.tolist() == [0, 0, 2]
    assert ft.linalg.cholesky_ex(a, upper=True).info.dtype is ft.int32
    assert ft.allclose(ft.linalg.cholesky_ex(a).L[0], ft.eye(3))
    assert ft.linalg.solve_ex(a, ft.ones(3, 3, 1)).info.tolist() == [0, 0, 2]


def test_results_without_a_gradient_can_be_seen() -> None:
    x = ft.ones(3, 2, requires_grad=True)
    r = ft.linalg.qr(x, "r").R
    assert r.tolist()[1][0] == 0
    with pytest.raises(RuntimeError, match="mode='r'"):
        r.sum().backward()
    assert (x * 2).sum().item() == 12


@pytest.mark.usefixtures("whole")
def test_ex_functions_wait_for_nothing() -> None:
    a = ft.eye(3) * 2
    before = ft.stats()["traces_run"]
    inverse, _ = ft.linalg.inv_ex(a)
    total = inverse.sum()
    assert ft.stats()["traces_run"] == before
    calls = ft.stats()["host_calls"]
    assert total.item() == 1.5
    assert ft.stats()["host_calls"] == calls + 1
