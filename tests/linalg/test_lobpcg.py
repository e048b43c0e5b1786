"""lobpcg against full decompositions, and against PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(("largest", "general"), [(True, False), (False, False), (True, True), (False, True)])
def test_pairs(largest: bool, general: bool) -> None:
    torch.manual_seed(0)
    base = torch.randn(2, 12, 12, dtype=torch.float64)
    a = base @ base.mT + torch.eye(12, dtype=torch.float64)
    b = torch.eye(12, dtype=torch.float64) * 2 + torch.ones(12, 12, dtype=torch.float64) if general else None
    expected, _ = torch.lobpcg(a, 3, B=None if b is None else b.expand(2, 12, 12), largest=largest)
    A = flambeau.tensor(a.numpy())
    B = None if b is None else flambeau.tensor(b.numpy()).expand(2, 12, 12)
    values, vectors = flambeau.lobpcg(A, 3, B=B, largest=largest)
    assert tuple(vectors.shape) == (2, 12, 3)
    assert torch.allclose(torch.tensor(values.numpy()), expected, rtol=1e-6)
    scaled = vectors if B is None else B @ vectors
    assert flambeau.allclose(A @ vectors, scaled * values.unsqueeze(-2), atol=1e-4)
    assert flambeau.allclose(vectors.mT @ scaled, flambeau.eye(3, dtype=flambeau.float64).expand(2, 3, 3), atol=1e-8)


def test_gradient_of_eigenvalues() -> None:
    flambeau.manual_seed(0)
    base = flambeau.randn(9, 9, dtype=flambeau.float64)
    found = []
    for of in (lambda a: flambeau.lobpcg(a, 2)[0], lambda a: flambeau.linalg.eigvalsh(a)[-2:]):
        a = (base @ base.mT).requires_grad_()
        (g,) = flambeau.autograd.grad(of(a).sum(), a)
        found.append((g + g.mT) / 2)
    assert flambeau.allclose(*found, atol=1e-5)


def test_errors() -> None:
    for module in (flambeau, torch):
        with pytest.raises(ValueError, match="not applicable when the number of A rows"):
            module.lobpcg(module.eye(5), 2)


def tracked(m: Any, niter: int, *, metric: float = 0.0, batch: bool = False, stop: int = 0, largest: bool = True) -> Any:
    """What a tracker sees of each step after the first, whose eigenvalues PyTorch has not yet; and the eigenvalues."""
    A = (m.arange(144.0, dtype=m.float64).reshape(12, 12) * 0.37).sin()
    A = A @ A.mT + m.diag(m.arange(1.0, 13.0, dtype=m.float64))
    X = m.eye(12, 2, dtype=m.float64) + 0.1
    seen = []

    def tracker(w: Any) -> None:
        first = w.ivars["istep"] == 1
        seen.append((
            {k: w.ivars[k] for k in ("istep", "iterations_left", "converged_count")},
            {k: w.iparams[k] for k in ("m", "n", "k", "niter")}, w.fparams["tol"], w.bparams["largest"],
            [] if first else [round(e, 6) for e in w.E.tolist()], tuple(w.X.shape), tuple(w.R.shape), len(w.tvars["rerr"]),
        ))  # fmt: skip
        if w.ivars["istep"] == stop:
            w.bvars["force_stop"] = True

    B = m.eye(12, dtype=m.float64) * metric if metric else None
    values, _ = m.lobpcg(m.stack([A, A * 2]) if batch else A, k=2, X=m.stack([X, X]) if batch else X, B=B, niter=niter, largest=largest, tracker=tracker)
    return seen, [round(e, 5) for e in values.flatten().tolist()]


@pytest.mark.parametrize("options", [{"niter": 3}, {"niter": -1}, {"niter": 5, "metric": 2.0}, {"niter": 3, "batch": True}, {"niter": 4, "largest": False}])
def test_a_tracker_sees_each_step(options: dict[str, Any]) -> None:
    assert tracked(flambeau, **options) == tracked(torch, **options)


def test_a_tracker_may_end_the_iteration() -> None:
    assert tracked(flambeau, -1, stop=3) == tracked(torch, -1, stop=3)
