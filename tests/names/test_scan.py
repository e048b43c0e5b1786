"""torch._higher_order_ops.scan, beside PyTorch's, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch._higher_order_ops.scan import scan as theirs

import flambeau
from flambeau._higher_order_ops import scan


def _rnn(t: Any, run: Any, dim: int, reverse: bool) -> list[np.ndarray]:
    x, w = (t.tensor(np.random.default_rng(i).standard_normal((3, 3)), requires_grad=True) for i in range(2))

    def step(carry: Any, xs: Any) -> Any:
        h = (carry["h"] @ w + xs[0]).tanh()
        return {"h": h}, (h * 2, xs[1] + 1)

    carry, (first, second) = run(step, {"h": t.zeros(3, dtype=t.float64)}, (x, x.detach() * 2), dim=dim, reverse=reverse)
    (first.pow(2).sum() + carry["h"].sum()).backward()
    return [v.detach().numpy() for v in (carry["h"], first, second, x.grad, w.grad)]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
def test_values_and_gradients_are_pytorchs(dim: int, reverse: bool) -> None:
    for ours, wanted in zip(_rnn(flambeau, scan, dim, reverse), _rnn(torch, theirs, dim, reverse), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-10)


def test_what_is_wrong_is_told() -> None:
    x = flambeau.ones(3, 2)
    for call, error, words in (
        (lambda: scan(None, x, x), RuntimeError, "must be a callable"), (lambda: scan(lambda c, s: (c, s), x, []), RuntimeError, "xs must be a tensor"),
        (lambda: scan(lambda c, s: (c, s), x, x, dim=2), IndexError, "out of range"), (lambda: scan(lambda c, s: c, x, x), RuntimeError, "must return"),
        (lambda: scan(lambda c, s: (c[0], s), x, x), RuntimeError, "shapes and dtypes of init"),
        (lambda: scan(lambda c, s: (c, s), x, [x, x[:2]]), RuntimeError, "same size in dim 0"),
    ):  # fmt: skip
        with pytest.raises(error, match=words):
            call()
