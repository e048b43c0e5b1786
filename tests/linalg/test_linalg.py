"""torch.linalg and the older names: values, gradients, gradients of gradients, batches and complex matrices, against PyTorch.

Singular and eigenvectors are compared up to sign and phase, by magnitude or through expressions that do not see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.ops.oracle import check, compare

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated")


def numbers(*shape: int, seed: int = 0, kind: str = "float64") -> np.ndarray:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=shape)
    return (x + 1j * generator.normal(size=shape) if kind.startswith("complex") else x).astype(kind)


def positive(a: Any) -> Any:
    """A positive-definite matrix made of any."""
    return a @ a.mH + 2 * a.new_ones(a.shape[-1]).diag()


def mirrored(a: Any) -> Any:
    return a + a.mH


ONE: dict[str, Callable[..., Any]] = {
    "inv": lambda m, a: m.linalg.inv(a),
    "inv_ex": lambda m, a: m.linalg.inv_ex(a),
    "inverse": lambda m, a: a.inverse(),
    "det": lambda m, a: m.linalg.det(a),
    "slogdet": lambda m, a: m.linalg.slogdet(a),
    "logdet": lambda m, a: m.logdet(positive(a)),
    "cholesky": lambda m, a: m.linalg.cholesky(positive(a)),
    "cholesky upper": lambda m, a: m.linalg.cholesky(positive(a), upper=True),
    "cholesky_ex": lambda m, a: m.linalg.cholesky_ex(positive(a)),
    "cholesky_inverse": lambda m, a: m.cholesky_inverse(m.linalg.cholesky(positive(a))),
    "cholesky_inverse upper": lambda m, a: m.cholesky_inverse(m.linalg.cholesky(positive(a), upper=True), upper=True),
    "matrix_exp": lambda m, a: m.linalg.matrix_exp(a),
    "matrix_power": lambda m, a: m.linalg.matrix_power(a, 5),
    "matrix_power 0": lambda m, a: m.linalg.matrix_power(a, 0) + a,
    "matrix_power 1": lambda m, a: m.linalg.matrix_power(a, 1),
    "matrix_power -2": lambda m, a: m.linalg.matrix_power(a, -2),
    "lu": lambda m, a: m.linalg.lu(a),
    "lu_factor": lambda m, a: m.linalg.lu_factor(a),
    "eigh": lambda m, a: [m.linalg.eigh(mirrored(a))[0], m.linalg.eigh(mirrored(a))[1].abs()],
    "eigh U": lambda m, a: m.linalg.eigh(mirrored(a), UPLO="U").eigenvalues,
    "eigvalsh": lambda m, a: m.linalg.eigvalsh(mirrored(a)),
    "eigvals": lambda m, a: m.linalg.eigvals(a).abs().sort().values,
    "tensorinv": lambda m, a: m.linalg.tensorinv(a.reshape(-1, 4, 4)[0].reshape(2, 2, 4), 2),
    "cond": lambda m, a: m.linalg.cond(a),
    "cond 1": lambda m, a: m.linalg.cond(a, 1),
    "cond nuc": lambda m, a: m.linalg.cond(a, "nuc"),
    "torch.lu": lambda m, a: m.lu(a),
}


def over(shapes: tuple[tuple[int, ...], ...], of_complex: tuple[tuple[int, ...], ...]) -> Any:
    """(shape, kind): all shapes of floats, some of complex numbers: the compositions are the same. All of both with the marker `slow`."""
    every = [(shape, kind) for kind in ("float64", "complex128") for shape in shapes]
    marks = [[pytest.mark.slow] if kind == "complex128" and shape not in of_complex else [] for shape, kind in every]
    return pytest.mark.parametrize(("shape", "kind"), [pytest.param(*e, marks=m, id=f"{e[0]}-{e[1]}") for e, m in zip(every, marks, strict=True)])


@over(((4, 4), (2, 3, 4, 4)), of_complex=((2, 3, 4, 4),))
@pytest.mark.parametrize("name", ONE)
def test_square(name: str, shape: tuple[int, ...], kind: str) -> None:
    check(ONE[name], [numbers(*shape, kind=kind)], strides=False, grad=name not in ("cond 1", "cond nuc"), tolerance=1e-8)


ANY: dict[str, Callable[..., Any]] = {
    "qr": lambda m, a: m.linalg.qr(a),
    "torch.qr": lambda m, a: m.qr(a),
    "svd": lambda m, a: [t.abs() for t in m.linalg.svd(a, full_matrices=False)],
    "svd of torch": lambda m, a: (lambda r: r.U @ r.S.diag_embed().to(a.dtype) @ r.V.mH)(a.svd()),
    "svdvals": lambda m, a: m.linalg.svdvals(a),
    "pinv": lambda m, a: m.linalg.pinv(a),
    "pinverse": lambda m, a: m.pinverse(a),
    "pinv rtol": lambda m, a: m.linalg.pinv(a, rtol=0.5),
    "pinv atol": lambda m, a: m.linalg.pinv(a, atol=m.ones((), dtype=m.float64)),
    "lu": lambda m, a: m.linalg.lu(a),
    "norm": lambda m, a: m.linalg.norm(a),
    "matrix_norm fro": lambda m, a: m.linalg.matrix_norm(a, keepdim=True),
    "matrix_norm nuc": lambda m, a: m.linalg.matrix_norm(a, "nuc", keepdim=True),
    "matrix_norm 2": lambda m, a: m.linalg.matrix_norm(a, 2),
    "matrix_norm -2": lambda m, a: m.linalg.matrix_norm(a, -2),
    "matrix_norm 1": lambda m, a: m.linalg.matrix_norm(a, 1),
    "matrix_norm -1": lambda m, a: m.linalg.matrix_norm(a, -1, keepdim=True),
    "matrix_norm inf": lambda m, a: m.linalg.matrix_norm(a, float("inf"), (-1, -2)),
    "matrix_norm -inf": lambda m, a: m.linalg.matrix_norm(a, -float("inf"), (0, -1)),
    "nuclear_norm": lambda m, a: m.nuclear_norm(a, (-2, -1)),
    "torch.norm nuc": lambda m, a: m.norm(a, "nuc", dim=(-2, -1)),
    "vector_norm 3": lambda m, a: m.linalg.vector_norm(a, 3, dim=-1),
    "vector_norm inf": lambda m, a: m.linalg.vector_norm(a, float("inf")),
    "vecdot": lambda m, a: m.linalg.vecdot(a, a * 2 + 1, dim=-2),
    "diagonal": lambda m, a: m.linalg.diagonal(a, offset=1),
}


@over(((5, 3), (3, 5), (2, 4, 4), (2, 3, 5), (3, 2, 5, 3)), of_complex=((5, 3), (2, 3, 5)))
@pytest.mark.parametrize("name", ANY)
def test_any_shape(name: str, shape: tuple[int, ...], kind: str) -> None:
    grad = not (kind == "complex128" and name == "qr" and shape[-1] > shape[-2])
    check(ANY[name], [numbers(*shape, kind=kind)], strides=False, grad=grad, tolerance=1e-8)


TWO: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "solve": (lambda m, a, b: m.linalg.solve(a, b), (4, 2)),
    "solve right": (lambda m, a, b: m.linalg.solve(a, b, left=False), (2, 4)),
    "solve of a vector": (lambda m, a, b: m.linalg.solve(a, b), (4,)),
    "solve_ex": (lambda m, a, b: m.linalg.solve_ex(a, b), (4, 2)),
    "solve broadcast": (lambda m, a, b: m.linalg.solve(a, b), (5, 1, 1, 4, 2)),
    "solve_triangular": (lambda m, a, b: m.linalg.solve_triangular(a, b, upper=True), (4, 2)),
    "solve_triangular right": (lambda m, a, b: m.linalg.solve_triangular(a, b, upper=False, left=False, unitriangular=True), (2, 4)),
    "triangular_solve": (lambda m, a, b: m.triangular_solve(b, a, transpose=True), (4, 2)),
    "lu_solve": (lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b), (4, 2)),
    "lu_solve adjoint right": (lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b, left=False, adjoint=True), (2, 4)),
    "lu_solve adjoint": (lambda m, a, b: m.linalg.lu_solve(*m.linalg.lu_factor(a), b, adjoint=True), (4, 2)),
    "torch.lu_solve": (lambda m, a, b: m.lu_solve(b, *m.linalg.lu_factor(a)), (4, 2)),
    "cholesky_solve": (lambda m, a, b: m.cholesky_solve(b, a.tril()), (4, 2)),
    "cholesky_solve upper": (lambda m, a, b: m.cholesky_solve(b, a.triu(), upper=True), (4, 2)),
    "lstsq": (lambda m, a, b: m.linalg.lstsq(a, b).solution, (4, 2)),
}


@over(((4, 4), (2, 3, 4, 4)), of_complex=((2, 3, 4, 4),))
@pytest.mark.parametrize("name", TWO)
def test_systems(name: str, shape: tuple[int, ...], kind: str) -> None:
    expression, other = TWO[name]
    if name in ("lstsq", "torch.lu_solve", "cholesky_solve", "cholesky_solve upper"):
        other = (*shape[:-2], *other)
    if name == "solve broadcast" and len(shape) == 2:
        other = (3, 4, 2)
    check(expression, [numbers(*shape, kind=kind), numbers(*other, seed=1, kind=kind)], strides=False, tolerance=1e-8)


@pytest.mark.parametrize("shape", [(4, 4), (3, 3, 3)], ids=str)
def test_eig(shape: tuple[int, ...]) -> None:
    def expression(m: Any, a: Any) -> Any:
        w, v = m.linalg.eig(a)
        return [w.abs().sum(-1), v.abs().prod(-1).sum(-1), m.linalg.eigvals(a).abs().sum(-1)]

    check(expression, [numbers(*shape)], strides=False, tolerance=1e-7)
    a = ft.tensor(numbers(*shape))
    w, v = ft.linalg.eig(a)
    assert w.dtype is ft.complex128
    assert ft.allclose(a.to(w.dtype) @ v, v * w.unsqueeze(-2))


@pytest.mark.parametrize("kind", ["float64", "complex128"])
@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5), (4, 4)], ids=str)
def test_full_factors(shape: tuple[int, ...], kind: str) -> None:
    x = numbers(*shape, kind=kind)
    check(lambda m, a: m.linalg.qr(a, "r")[1].abs(), [x], grad=False, strides=False)
    check(lambda m, a: m.linalg.qr(a, "complete"), [x], grad=kind == "float64" and shape[-2] <= shape[-1], strides=False)
    k = min(shape[-2:])
    check(lambda m, a: [m.linalg.svd(a)[1], m.linalg.svd(a)[0][..., :k].abs(), m.linalg.svd(a)[2][..., :k, :].abs()], [x], strides=False, tolerance=1e-8)
    u, s, vh = ft.linalg.svd(ft.tensor(x))
    assert ft.allclose(u @ u.mH, ft.eye(shape[-2], dtype=u.dtype).expand(u.shape))
    assert ft.allclose((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], ft.tensor(x))


def test_householder() -> None:
    for shape in ((4, 4), (2, 5, 3)):
        tau = numbers(*shape[:-2], 2, seed=1)
        check(lambda m, a, t: m.linalg.householder_product(a, t), [numbers(*shape), tau], strides=False)
    check(lambda m, a: m.geqrf(a), [numbers(2, 5, 3)], grad=False, strides=False)
    for left in (True, False):
        for transpose in (True, False):
            check(lambda m, a, t, x, s=left, c=transpose: m.ormqr(a, t, x, s, c), [numbers(4, 4), numbers(4), numbers(4, 4, seed=2)], grad=False, strides=False)
    with pytest.raises(NotImplementedError, match="geqrf"):
        ft.geqrf(ft.ones(2, 2, requires_grad=True))[0].sum().backward()


@pytest.mark.parametrize("kind", ["float64", "complex128"])
@pytest.mark.parametrize("hermitian", [False, True])
def test_ldl(hermitian: bool, kind: str) -> None:
    for shape in ((1, 1), (3, 6, 6), (2, 7, 7), (50, 50)):
        a = numbers(*shape, kind=kind)
        a[..., 0, 0] = 0
        x = a + np.swapaxes(a.conj() if hermitian else a, -1, -2) + (np.eye(1) if shape == (1, 1) else 0)
        ours, theirs = (m.linalg.ldl_factor(m.tensor(x), hermitian=hermitian) for m in (ft, torch))
        compare(ours, theirs, 1e-8, strides=False)
        b = ft.tensor(numbers(shape[-1], 2, seed=1, kind=kind))
        solution = ft.linalg.ldl_solve(*ours, b.expand(*shape[:-1], 2), hermitian=hermitian)
        np.testing.assert_allclose((ft.tensor(x) @ solution).numpy(), b.expand(*shape[:-1], 2).numpy(), atol=1e-8)


def test_least_squares() -> None:
    for shape, other in (((5, 3), (5, 2)), ((3, 5), (3, 2)), ((2, 5, 3), (2, 5)), ((2, 5, 3), (2, 5, 2))):
        a, b = numbers(*shape), numbers(*other, seed=1)
        for driver in (None, "gels", "gelsy", "gelsd"):
            ours, theirs = (m.linalg.lstsq(m.tensor(a), m.tensor(b), driver=driver) for m in (ft, torch))
            compare(ours, theirs, strides=False)
        check(lambda m, x, y: m.linalg.lstsq(x, y, driver="gelsd")[:2], [a, b], strides=False, tolerance=1e-8)
    low = numbers(5, 1) @ numbers(1, 3, seed=1)
    ours, theirs = (m.linalg.lstsq(m.tensor(low), m.tensor(numbers(5, 2, seed=2))) for m in (ft, torch))
    compare(ours.solution, theirs.solution, strides=False)
    assert ours.rank.item() == theirs.rank.item() == 1 and tuple(ours.residuals.shape) == tuple(theirs.residuals.shape) == (0,)


def test_ranks() -> None:
    low = np.stack([numbers(5, 2) @ numbers(2, 4, seed=1), numbers(5, 4, seed=2), np.zeros((5, 4))])
    check(lambda m, a: m.linalg.matrix_rank(a), [low], grad=False)
    check(lambda m, a: m.linalg.matrix_rank(a, atol=1.0, rtol=0.0), [low], grad=False)
    check(lambda m, a: m.linalg.matrix_rank(a, m.tensor(2.0)), [low], grad=False)
    check(lambda m, a: m.linalg.matrix_rank(a @ a.mT, hermitian=True), [low], grad=False)
    check(lambda m, a: m.linalg.pinv(a @ a.mT, hermitian=True), [low[:1]], grad=False, strides=False)


def test_products() -> None:
    chain = [numbers(2, 5), numbers(5, 3, seed=1), numbers(3, 4, seed=2), numbers(4, 2, seed=3)]
    check(lambda m, *xs: m.linalg.multi_dot(xs), chain, strides=False)
    check(lambda m, *xs: m.linalg.multi_dot([xs[0][0], *xs[1:3], xs[3][:, 0]]), chain, strides=False)
    check(lambda m, *xs: m.chain_matmul(*xs), chain, strides=False)
    check(lambda m, a, b: m.linalg.cross(a, b), [numbers(4, 3), numbers(1, 3, seed=1)])
    check(lambda m, a: m.linalg.vander(a), [numbers(2, 3)], strides=False)
    check(lambda m, a: m.linalg.vander(a, N=2), [np.array([1, 2, 3])], strides=False)
    check(lambda m, a, b: m.linalg.tensorsolve(a, b), [numbers(2, 3, 6), numbers(2, 3, seed=1)], strides=False)
    check(lambda m, a, b: m.linalg.tensorsolve(a, b, dims=(0,)), [numbers(6, 2, 3), numbers(2, 3, seed=1)], strides=False)
    check(lambda m, a: m.lu_unpack(*m.linalg.lu_factor(a)), [numbers(2, 4, 3)], strides=False)


@pytest.mark.parametrize("ord", [None, 2, 1, 0, 0.5, 3, float("inf"), -float("inf"), -1])
def test_norm_of_vectors(ord: Any) -> None:
    check(lambda m, a: m.linalg.norm(a, ord, dim=1), [numbers(3, 4)], grad=ord != 0)
    check(lambda m, a: m.linalg.norm(a, ord), [numbers(4)], grad=ord != 0)


@pytest.mark.parametrize("p", [2, 1, 3, 0.5, float("inf"), "fro"])
def test_norms_have_a_gradient_at_zero(p: Any) -> None:
    check(lambda m, a: a.norm(p), [np.zeros(3)], second=False)


def test_gradient_of_the_determinant_of_singular_matrices() -> None:
    a = numbers(4, 4)
    a[:, 3] = a[:, 0]
    check(lambda m, x: m.linalg.det(x), [a], second=False, strides=False)
    compare(ft.linalg.slogdet(ft.zeros(3, 3)), torch.linalg.slogdet(torch.zeros(3, 3)))
    ours = ft.tensor(numbers(3, 3)[:, [0, 0, 0]] * 0 + np.diag([1.0, 2.0, 0.0])).requires_grad_()
    (g,) = ft.autograd.grad(ft.linalg.det(ours), ours)
    np.testing.assert_allclose(g.numpy(), np.diag([0.0, 0.0, 2.0]), atol=1e-12)


def test_float32() -> None:
    a = numbers(6, 6, kind="float32")
    for name in ("inv", "det", "cholesky", "matrix_exp", "lu", "eigh", "eigvalsh"):
        check(ONE[name], [a / 2], strides=False, tolerance=2e-3, second=False)
    check(ANY["svdvals"], [a], strides=False, tolerance=1e-4, second=False)


@pytest.mark.parametrize("n", [1, 17, 64, 150])
def test_larger_orders(n: int) -> None:
    a, b = numbers(n, n), numbers(n, 3, seed=1)
    check(lambda m, x: m.linalg.lu_factor(x), [a], strides=False, second=False, tolerance=1e-6)
    for upper in (True, False):
        t = a / n + np.eye(n)
        check(lambda m, x, y, u=upper: m.linalg.solve_triangular(x, y, upper=u), [t, b], strides=False, second=False)
    check(lambda m, x: m.linalg.matrix_exp(x), [a * 3 / n**0.5], strides=False, second=False, tolerance=1e-7)
    for shape in ((n, 2 * n), (2 * n, n)):
        check(lambda m, x: m.linalg.lu(x), [numbers(*shape)], strides=False, grad=False)


EMPTY = {
    "inv": lambda m, a: m.linalg.inv(a), "det": lambda m, a: m.linalg.det(a), "cholesky": lambda m, a: m.linalg.cholesky(a),
    "slogdet": lambda m, a: m.linalg.slogdet(a), "qr": lambda m, a: m.linalg.qr(a), "svd": lambda m, a: m.linalg.svd(a),
    "eigh": lambda m, a: m.linalg.eigh(a), "eigvals": lambda m, a: m.linalg.eigvals(a), "solve": lambda m, a: m.linalg.solve(a, a),
    "lu": lambda m, a: m.linalg.lu(a), "matrix_exp": lambda m, a: m.linalg.matrix_exp(a), "pinv": lambda m, a: m.linalg.pinv(a),
    "matrix_rank": lambda m, a: m.linalg.matrix_rank(a), "svdvals": lambda m, a: m.linalg.svdvals(a),
    "solve_triangular": lambda m, a: m.linalg.solve_triangular(a, a, upper=True), "matrix_power": lambda m, a: m.linalg.matrix_power(a, 3),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (0, 0)], ids=str)
@pytest.mark.parametrize("name", EMPTY)
def test_empty(name: str, shape: tuple[int, ...]) -> None:
    compare(EMPTY[name](ft, ft.zeros(*shape)), EMPTY[name](torch, torch.zeros(*shape)), strides=False)


def test_empty_rectangles() -> None:
    for shape in ((0, 3), (3, 0), (2, 3, 0)):
        for name in ("qr", "svd", "pinv", "matrix_rank", "svdvals", "lu"):
            compare(EMPTY[name](ft, ft.zeros(*shape)), EMPTY[name](torch, torch.zeros(*shape)), strides=False)


def test_result_names() -> None:
    a = numbers(3, 3) @ numbers(3, 3).T
    for call in (
        lambda m, x: m.linalg.eigh(x), lambda m, x: m.linalg.eig(x), lambda m, x: m.linalg.svd(x), lambda m, x: m.linalg.qr(x),
        lambda m, x: m.linalg.slogdet(x), lambda m, x: m.linalg.lu_factor(x), lambda m, x: m.linalg.lu_factor_ex(x), lambda m, x: m.linalg.lu(x),
        lambda m, x: m.linalg.inv_ex(x), lambda m, x: m.linalg.solve_ex(x, x), lambda m, x: m.linalg.cholesky_ex(x), lambda m, x: m.linalg.lstsq(x, x),
        lambda m, x: m.svd(x), lambda m, x: m.slogdet(x), lambda m, x: x.qr(), lambda m, x: m.triangular_solve(x, x), lambda m, x: m.geqrf(x),
        lambda m, x: m.lu_unpack(*m.linalg.lu_factor(x)), lambda m, x: m.lu(x, get_infos=True),
    ):  # fmt: skip
        ours, theirs = call(ft, ft.tensor(a)), call(torch, torch.tensor(a))
        assert type(ours).__name__ == type(theirs).__name__
        assert len(ours) == len(theirs) and set(ours._fields) <= set(dir(theirs))
        assert repr(ours).splitlines()[0] == repr(theirs).splitlines()[0]


def test_out() -> None:
    a, out, info = ft.tensor(numbers(3, 3)), ft.empty(3, 3, dtype=ft.float64), ft.empty((), dtype=ft.int32)
    assert ft.linalg.inv(a, out=out) is out
    assert ft.allclose(out @ a, ft.eye(3, dtype=ft.float64))
    assert ft.linalg.inv_ex(a, out=(out, info)).info is info
    assert info.item() == 0


@pytest.mark.parametrize("n", [-2, -1, 0, 1, 2, 3])
def test_dtype_of_out_of_matrix_power(n: int) -> None:
    """Powers that are products or inverses ask for their dtype, as PyTorch's; of 0 and 1 a copy is cast."""
    for name in ("float32", "float64", "bfloat16", "complex64"):
        accepted = []
        for m in (ft, torch):
            try:
                accepted.append(str(m.matrix_power(m.eye(2), n, out=m.empty(2, 2, dtype=getattr(m, name))).dtype))
            except RuntimeError as error:
                assert "Expected out tensor to have dtype" in str(error)
                accepted.append("refused")
        assert accepted[0] == accepted[1], (n, name, accepted)
