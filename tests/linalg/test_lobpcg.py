"""lobpcg against full decompositions, and against PyTorch's."""

from __future__ import annotations

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
