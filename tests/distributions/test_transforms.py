"""Transforms beside PyTorch's: values, inverses, log determinants, shapes, caches, composition; and the registries of constraints."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from tests.distributions.oracle import PACKAGES, both, gradients, outcome, same, tensors


def _near(shape: tuple[int, ...], low: float = -1.5, high: float = 1.5, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(low, high, shape)


Make = Callable[[Any], Any]  # of flambeau.distributions or torch.distributions
X, POSITIVE, SQUARE = _near((2, 3)), _near((2, 3), 0.3, 2.0, 1), _near((2, 3, 3), seed=2)
CASES: dict[str, tuple[Make, np.ndarray]] = {
    "exp": (lambda D: D.ExpTransform(), X),
    "power": (lambda D: D.PowerTransform(_of(D, [0.5, 2.0, -1.5])), POSITIVE),
    "power of a number": (lambda D: D.PowerTransform(3.0), POSITIVE.astype(np.float32)),
    "sigmoid": (lambda D: D.SigmoidTransform(), X),
    "softplus": (lambda D: D.SoftplusTransform(), X),
    "tanh": (lambda D: D.TanhTransform(), X),
    "abs": (lambda D: D.AbsTransform(), X),
    "affine": (lambda D: D.AffineTransform(0.5, -2.0), X),
    "affine of tensors": (lambda D: D.AffineTransform(_of(D, [0.5, 1.0, 1.5]), _of(D, [-0.5, 1.0, 2.0])), X),
    "affine of events": (lambda D: D.AffineTransform(_of(D, [0.5, 1.0, 1.5]), _of(D, [-0.5, 1.0, 2.0]), event_dim=1), X),
    "affine of events, number": (lambda D: D.AffineTransform(0.5, 2.0, 1), X),
    "softmax": (lambda D: D.SoftmaxTransform(), X),
    "stick breaking": (lambda D: D.StickBreakingTransform(), X),
    "reshape": (lambda D: D.ReshapeTransform((2, 3), (3, 2)), _near((4, 2, 3))),
    "correlation": (lambda D: D.CorrCholeskyTransform(), _near((2, 6))),
    "correlation of one": (lambda D: D.CorrCholeskyTransform(), _near((2, 1))),
    "lower cholesky": (lambda D: D.LowerCholeskyTransform(), SQUARE),
    "positive definite": (lambda D: D.PositiveDefiniteTransform(), SQUARE),
    "cdf": (lambda D: D.CumulativeDistributionTransform(D.Normal(_of(D, [0.0]), _of(D, [1.5]))), X),
    "identity": (lambda D: D.identity_transform, X),
    "composed": (lambda D: D.ComposeTransform([D.AffineTransform(0.1, 0.5), D.TanhTransform(), D.AffineTransform(2.0, 3.0)]), X),
    "composed of events": (lambda D: D.ComposeTransform([D.AffineTransform(0.1, 0.5), D.StickBreakingTransform(), D.ExpTransform()]), X),
    "inverse": (lambda D: D.ExpTransform().inv, POSITIVE),
    "composed inverse": (lambda D: D.ComposeTransform([D.ExpTransform(), D.AffineTransform(0.0, 2.0)]).inv, POSITIVE),
    "independent": (lambda D: D.IndependentTransform(D.ExpTransform(), 1), X),
    "cat": (lambda D: D.CatTransform([D.ExpTransform(), D.identity_transform, D.TanhTransform()], dim=-1), X),
    "cat of lengths": (lambda D: D.CatTransform([D.ExpTransform(), D.TanhTransform()], dim=0, lengths=[3, 1]), _near((4, 3))),
    "cat of events": (
        lambda D: D.CatTransform([D.AffineTransform(0.0, 2.0, 1), D.IndependentTransform(D.ExpTransform(), 1)], dim=0, lengths=[1, 2]), _near((3, 2)),
    ),
    "stack": (lambda D: D.StackTransform([D.ExpTransform(), D.AffineTransform(1.0, 2.0), D.TanhTransform()], dim=1), X),
}  # fmt: skip


def _of(D: Any, values: list[float]) -> Any:
    """A float64 tensor of the package whose distributions module `D` is."""
    t = ft if D.__name__.startswith("flambeau") else __import__("torch")
    return t.tensor(values, dtype=t.float64)


@pytest.mark.parametrize("name", CASES)
def test_values_inverses_and_determinants(name: str) -> None:
    make, array = CASES[name]
    found, shapes = [], []
    for t in PACKAGES:
        (x,) = tensors(t, [array], gradients=True)
        transform = make(t.distributions)
        y = transform(x)
        results = [y, *gradients(t, y, [x])]
        back = outcome(lambda tr=transform, y=y: tr.inv(y))  # type: ignore[misc]
        determinant = outcome(lambda tr=transform, x=x, y=y: tr.log_abs_det_jacobian(x, y))  # type: ignore[misc]
        reverse = outcome(lambda tr=transform, x=x, y=y: tr.inv.log_abs_det_jacobian(y, x))  # type: ignore[misc]
        results += [back, determinant, reverse]
        if not isinstance(determinant, Exception) and determinant.requires_grad:
            results += gradients(t, transform.log_abs_det_jacobian(x, transform(x)), [x])
        found.append(results)
        fit = [outcome(lambda tr=transform, x=x: tuple(tr.forward_shape(x.shape))), outcome(lambda tr=transform, y=y: tuple(tr.inverse_shape(y.shape)))]  # type: ignore[misc]
        shapes.append([f if not isinstance(f, Exception) else type(f) for f in fit])
    assert shapes[0] == shapes[1]
    tolerance = 1e-5 if array.dtype == np.float32 else 1e-9
    for i, (a, b) in enumerate(zip(*found, strict=True)):
        same(a, b, tolerance, f"{name}, number {i}")


@pytest.mark.parametrize("name", CASES)
def test_facts(name: str) -> None:
    def fact(transform: Any, read: Callable[[Any], Any]) -> Any:
        value = outcome(lambda: read(transform))
        value = type(value) if isinstance(value, Exception) else value
        return value.tolist() if hasattr(value, "tolist") else str(value)

    ours, theirs = (CASES[name][0](t.distributions) for t in PACKAGES)
    for read in (
        lambda t: t.bijective, lambda t: t.sign, lambda t: t.domain.event_dim, lambda t: t.codomain.event_dim, lambda t: t.event_dim, repr,
        lambda t: t.domain.is_discrete, lambda t: t == t, lambda t: t.inv.inv == t, lambda t: t.inv.inv is t, lambda t: repr(t.inv),
    ):  # fmt: skip
        assert fact(ours, read) == fact(theirs, read)
    copies = [copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))]
    (x,) = tensors(ft, [CASES[name][1]])
    for other in copies:
        assert np.array_equal(other(x).numpy(), ours(x).numpy())
        assert repr(other.inv) == repr(ours.inv)


@pytest.mark.parametrize("name", CASES)
def test_cache(name: str) -> None:
    """With a cache the inverse of a result is the very input, and results are no others."""
    make, array = CASES[name]
    (x,) = tensors(ft, [array])
    plain, cached = make(ft.distributions), make(ft.distributions).with_cache()
    assert type(cached) is type(plain)
    y = cached(x)
    assert cached.inv(y) is x
    assert np.array_equal(y.numpy(), plain(x).numpy())
    assert cached.with_cache(1) is cached and (plain.with_cache(0) is plain)
    assert repr(cached) == repr(plain)


def test_errors() -> None:
    for build in (
        lambda D: D.ExpTransform(cache_size=2), lambda D: D.ReshapeTransform((2, 3), (5,)), lambda D: D.CatTransform([1, 2]),
        lambda D: D.CatTransform([D.ExpTransform()], lengths=[1, 2]), lambda D: D.StackTransform([None]),
        lambda D: D.CorrCholeskyTransform().forward_shape((2, 5)), lambda D: D.CorrCholeskyTransform().inverse_shape((2, 3)),
        lambda D: D.ReshapeTransform((2, 3), (6,)).forward_shape((2, 4)), lambda D: D.StickBreakingTransform().forward_shape(()),
        lambda D: D.StickBreakingTransform().event_dim + 0 * D.ReshapeTransform((2, 3), (6,)).event_dim,
        lambda D: D.AbsTransform().log_abs_det_jacobian(_of(D, [1.0]), _of(D, [1.0])), lambda D: D.Transform().sign,
        lambda D: D.Transform()(_of(D, [1.0])), lambda D: D.IndependentTransform(D.ExpTransform(), 2)(_of(D, [1.0])),
        lambda D: D.CatTransform([D.ExpTransform()] * 2)(_of(D, [1.0, 2.0, 3.0])), lambda D: D.StackTransform([D.ExpTransform()], 3)(_of(D, [1.0])),
    ):  # fmt: skip
        ours, theirs = (outcome(lambda t=t, build=build: build(t.distributions)) for t in PACKAGES)  # type: ignore[misc]
        assert isinstance(theirs, Exception)
        same(ours, theirs)


def test_equality() -> None:
    for t in PACKAGES:
        D = t.distributions
        assert D.ExpTransform() == D.ExpTransform() and D.ExpTransform() != D.TanhTransform()
        assert D.AffineTransform(0, 1) == D.AffineTransform(0.0, 1.0) and D.AffineTransform(0, 1) != D.AffineTransform(0, t.tensor(2.0))
        assert D.AffineTransform(t.zeros(2), 1) == D.AffineTransform(t.zeros(2), 1)
        assert D.PowerTransform(2.0) == D.PowerTransform(2.0) and D.PowerTransform(2.0) != D.PowerTransform(3.0)
        assert D.ComposeTransform([D.ExpTransform()]) == D.ComposeTransform([D.ExpTransform()])
        assert D.ExpTransform().inv == D.ExpTransform().inv and D.ExpTransform().inv != D.ExpTransform()
        assert D.CorrCholeskyTransform() != D.CorrCholeskyTransform()


CONSTRAINTS: dict[str, Callable[[Any], Any]] = {
    "real": lambda c: c.real, "positive": lambda c: c.positive, "nonnegative": lambda c: c.nonnegative, "greater_than": lambda c: c.greater_than(-0.5),
    "greater_than_eq": lambda c: c.greater_than_eq(1.5), "less_than": lambda c: c.less_than(0.5), "unit": lambda c: c.unit_interval,
    "interval": lambda c: c.interval(-1.0, 2.0), "half open": lambda c: c.half_open_interval(0.5, 2.0), "simplex": lambda c: c.simplex,
    "lower_cholesky": lambda c: c.lower_cholesky, "corr_cholesky": lambda c: c.corr_cholesky, "positive_definite": lambda c: c.positive_definite,
    "positive_semidefinite": lambda c: c.positive_semidefinite, "real_vector": lambda c: c.real_vector,
    "independent": lambda c: c.independent(c.positive, 1), "boolean": lambda c: c.boolean, "symmetric": lambda c: c.symmetric,
    "cat": lambda c: c.cat([c.positive, c.real], -1, [1, 2]), "stack": lambda c: c.stack([c.positive, c.real, c.unit_interval], -1),
}  # fmt: skip


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_registries(name: str) -> None:
    shape = (2, 3, 3) if name in ("lower_cholesky", "positive_definite", "positive_semidefinite", "symmetric") else (2, 3)
    for registry in ("biject_to", "transform_to"):
        ours, theirs = both(lambda t, registry=registry: getattr(t.distributions, registry)(CONSTRAINTS[name](t.distributions.constraints))(  # type: ignore[misc]
            t.tensor(_near(shape))), 1e-9, registry)  # fmt: skip
        if not isinstance(theirs, Exception):
            checked = CONSTRAINTS[name](ft.distributions.constraints).check(ours)
            assert bool(checked.all())


def test_registering() -> None:
    D = ft.distributions

    class Mine(D.constraints.Constraint):
        pass

    registry = D.constraint_registry.ConstraintRegistry()

    @registry.register(Mine)
    def factory(constraint: Any) -> Any:
        return D.ExpTransform()

    assert registry(Mine()) == D.ExpTransform()
    with pytest.raises(TypeError, match="Expected constraint to be either a Constraint subclass or instance"):
        registry.register(int, factory)
    with pytest.raises(NotImplementedError, match="Cannot transform _Real constraints"):
        registry(D.constraints.real)


VALUES: dict[str, np.ndarray] = {
    "numbers": np.array([-1.5, -1.0, 0.0, 0.5, 1.0, 2.0, np.nan, np.inf]),
    "vectors": np.array([[0.2, 0.3, 0.5], [0.2, 0.3, 0.4], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [-0.5, 0.5, 1.0], [2.0, 1.0, 0.0]]),
    "matrices": np.array([[[1.0, 0.0], [0.6, 0.8]], [[1.0, 0.5], [0.5, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[-1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 0.0]]]),
}
CHECKS: dict[str, tuple[Callable[[Any], Any], str]] = {
    **{name: (make, "numbers") for name, make in CONSTRAINTS.items() if name in "real positive nonnegative greater_than greater_than_eq less_than".split()},
    **{name: (make, "numbers") for name, make in CONSTRAINTS.items() if name in ("unit", "interval", "half open", "boolean")},
    **{name: (lambda c, name=name: getattr(c, name), "numbers") for name in ("nonnegative_integer", "positive_integer")},  # type: ignore[misc]
    "integer_interval": (lambda c: c.integer_interval(-1, 1), "numbers"),
    **{name: (lambda c, name=name: getattr(c, name), "vectors") for name in ("simplex", "one_hot", "real_vector")},  # type: ignore[misc]
    "multinomial": (lambda c: c.multinomial(2), "vectors"),
    "independent": (CONSTRAINTS["independent"], "vectors"),
    "cat": (CONSTRAINTS["cat"], "vectors"),
    "stack": (CONSTRAINTS["stack"], "vectors"),
    "mixture": (lambda c: c.MixtureSameFamilyConstraint(c.positive), "numbers"),
    **{
        name: (lambda c, name=name: getattr(c, name), "matrices")  # type: ignore[misc]
        for name in ("lower_triangular", "lower_cholesky", "corr_cholesky", "square", "symmetric", "positive_definite", "positive_semidefinite")
    },
}  # fmt: skip


@pytest.mark.parametrize("name", CHECKS)
def test_constraints(name: str) -> None:
    make, values = CHECKS[name]
    both(lambda t: make(t.distributions.constraints).check(t.tensor(VALUES[values])), 0.0, name)
    ours, theirs = (make(t.distributions.constraints) for t in PACKAGES)
    assert repr(ours) == repr(theirs)
    assert (ours.is_discrete, ours.event_dim) == (theirs.is_discrete, theirs.event_dim)
    if name == "square":
        both(lambda t: make(t.distributions.constraints).check(t.ones(4, 2, 3)), 0.0, name)


def test_dependent_constraints() -> None:
    for t in PACKAGES:
        c = t.distributions.constraints
        assert c.is_dependent(c.dependent) and c.is_dependent(c.dependent(event_dim=1)) and not c.is_dependent(c.real)
        assert c.is_dependent(t.distributions.Uniform.support) and t.distributions.Uniform.support.event_dim == 0
        assert t.distributions.Binomial.support.is_discrete
        for read in (lambda d: d.event_dim, lambda d: d.is_discrete):
            with pytest.raises(NotImplementedError, match="cannot be determined statically"):
                read(c.dependent)
        with pytest.raises(ValueError, match="Cannot determine validity of dependent constraint"):
            c.dependent.check(t.ones(2))


def test_triangles() -> None:
    for diag in (-2, -1, 0, 1, 2):
        n = 3
        count = int(np.tri(n, n, diag).sum())
        both(lambda t, d=diag, k=count: t.distributions.utils.vec_to_tril_matrix(t.arange(1.0, k + 1).expand(2, k), d), 0.0)  # type: ignore[misc]
        both(lambda t, d=diag: t.distributions.utils.tril_matrix_to_vec(t.arange(18.0).reshape(2, 3, 3), d), 0.0)  # type: ignore[misc]
    both(lambda t: t.distributions.utils.vec_to_tril_matrix(t.ones(4)))
    both(lambda t: t.distributions.utils.tril_matrix_to_vec(t.ones(3, 3), 3))
    both(lambda t: t.stack(t.distributions.utils.broadcast_all(1.0, t.ones(2, 1).double(), 3)))
    both(lambda t: t.distributions.utils.broadcast_all("a"))
