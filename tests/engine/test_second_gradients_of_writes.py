"""Gradients of gradients through writes in place, where what was written over came from an earlier trace: it is kept with where it came from."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

WRITES: dict[str, Any] = {
    "sin_": lambda v, w: v.sin_(),
    "mul_": lambda v, w: v.mul_(w),
    "div_": lambda v, w: v.div_(w + 3),
    "pow_": lambda v, w: v.pow_(3),
    "log1p_": lambda v, w: v.log1p_(),
    "addcmul_": lambda v, w: v.addcmul_(v.detach() + w, w * w),
    "a part": lambda v, w: v[0].cos_(),
    "a column": lambda v, w: v[:, 1:].mul_(w[:, 1:] * w[:, 1:]),
    "twice": lambda v, w: v.sin_().mul_(w).cos_(),
}


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.parametrize("name", WRITES)
@pytest.mark.usefixtures("each_tier")
def test_second_gradients(name: str, looks: bool) -> None:
    def run(m: Any) -> list[Any]:
        found = []
        for repeat in range(3):
            x = m.tensor([[0.3, 0.7, 1.1], [0.9, 0.2, 1.7]], dtype=m.float64).add(repeat).requires_grad_()
            w = m.tensor([[1.5, 0.4, 0.8], [0.6, 1.2, 0.1]], dtype=m.float64, requires_grad=True)
            v = x * w + x
            if looks:
                v.tolist()
            WRITES[name](v, w)
            if looks:
                v.tolist()
            first = m.autograd.grad((v**2).sum(), [x, w], create_graph=True)
            loss = sum((g * g).sum() for g in first)
            if looks:
                loss.item()
            loss.backward()  # type: ignore[union-attr]
            found += [[x for row in g.tolist() for x in row] for g in (x.grad, w.grad, *first)]
        return found

    for ours, theirs in zip(run(flambeau), run(torch), strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-12)
