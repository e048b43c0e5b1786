"""Every distribution beside PyTorch's: shapes, densities, moments, quantiles, entropies, samples, and gradients of what has them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

from tests.distributions.cases import CASES, Case
from tests.distributions.oracle import PACKAGES, both, gradients, outcome, same, tensors

ATTRIBUTES = ("mean", "mode", "variance", "stddev")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_shapes_moments_and_repr(case: Case) -> None:
    made = [case.make(t, *tensors(t, case.parameters)) for t in PACKAGES]
    ours, theirs = made
    assert tuple(ours.batch_shape) == tuple(theirs.batch_shape)
    assert tuple(ours.event_shape) == tuple(theirs.event_shape)
    assert (ours.has_rsample, ours.has_enumerate_support) == (theirs.has_rsample, theirs.has_enumerate_support)
    assert repr(ours) == repr(theirs)
    assert sorted(ours.arg_constraints) == sorted(theirs.arg_constraints)
    assert str(ours.support).split("(")[0] == str(theirs.support).split("(")[0]
    # All of one package first, so that what shares parameters is one plan.
    found = [
        {
            **{name: outcome(lambda d=d, name=name: getattr(d, name)) for name in ATTRIBUTES},  # type: ignore[misc]
            **{name: outcome(getattr(d, name)) for name in ("entropy", "perplexity")},
            **{f"enumerate_support({e})": outcome(lambda d=d, e=e: d.enumerate_support(e)) for e in (True, False)},  # type: ignore[misc]
        }
        for d in made
    ]
    for name, expected in found[1].items():
        same(found[0][name], expected, case.tolerance, name)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_densities_and_gradients(case: Case) -> None:
    found = []
    for t in PACKAGES:
        parameters = tensors(t, case.parameters, gradients=True)
        (value,) = tensors(t, [case.values], gradients=case.values.dtype.kind == "f")
        distribution = case.make(t, *parameters)
        log_prob = distribution.log_prob(value)
        inputs = [x for x in (*parameters, value) if x.requires_grad]
        results = [log_prob, *gradients(t, log_prob, inputs)]
        plain = t.tensor(case.values)
        results.append(outcome(lambda d=distribution, v=plain: d.cdf(v)))  # type: ignore[misc]
        shape = (*distribution.batch_shape, *distribution.event_shape)
        p = t.linspace(0.05, 0.95, max(int(np.prod(shape)), 1), dtype=t.float64).reshape(tuple(shape))
        results.append(outcome(lambda d=distribution, p=p: d.icdf(p)))  # type: ignore[misc]
        found.append(results)
    for i, (a, b) in enumerate(zip(*found, strict=True)):
        same(a, b, case.tolerance, f"number {i} of log_prob, its gradients, cdf, icdf")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_samples_of_one_seed(case: Case) -> None:
    if "sample" in case.silent:
        pytest.skip("PyTorch's samples are of another distribution (docs/differences.md); see test_matrices.py")
    for shape in ((), (2, 4)):
        both(lambda t, shape=shape: case.make(t, *tensors(t, case.parameters)).sample(t.Size(shape)), case.tolerance, f"sample {shape}")  # type: ignore[misc]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_reparametrised_samples(case: Case) -> None:
    if "sample" in case.silent:
        pytest.skip("PyTorch's samples are of another distribution (docs/differences.md); see test_matrices.py")
    found = []
    for t in PACKAGES:
        t.manual_seed(11)
        parameters = tensors(t, case.parameters, gradients=True)
        distribution = case.make(t, *parameters)
        if not distribution.has_rsample:
            found.append([outcome(lambda d=distribution: d.rsample((2,)))])  # type: ignore[misc]
            continue
        drawn = distribution.rsample((5,))
        found.append([drawn, *gradients(t, drawn, parameters)])
    assert len(found[0]) == len(found[1])
    for i, (a, b) in enumerate(zip(*found, strict=True)):
        # The gradients of PyTorch's gamma and Dirichlet numbers are approximations (docs/differences.md).
        same(a, b, max(case.approximate, case.tolerance) if i else min(case.tolerance, 1e-6), f"number {i} of rsample and its gradients")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_expanded_and_copied(case: Case) -> None:
    made: list[Any] = [case.make(t, *tensors(t, case.parameters)) for t in PACKAGES]
    wider = [d.expand((2, *d.batch_shape)) for d in made]
    assert tuple(wider[0].batch_shape) == tuple(wider[1].batch_shape)
    assert repr(wider[0]) == repr(wider[1])
    assert type(wider[0]) is type(made[0])
    drawn = []
    for t, d in zip(PACKAGES, wider, strict=True):
        t.manual_seed(5)
        drawn.append(d.sample((2,)))
    if "sample" not in case.silent:
        same(*drawn, case.tolerance, "a sample of the expanded distribution")
    for other in (copy.deepcopy(wider[0]), pickle.loads(pickle.dumps(wider[0]))):
        PACKAGES[0].manual_seed(5)
        assert np.array_equal(other.sample((2,)).numpy(), drawn[0].numpy())
        assert repr(other) == repr(wider[0])
