"""A few of the losses of random options that loss_programs.py compares with PyTorch; and that the comparison can fail."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flambeau
from tests.nn import loss_programs

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("part", range(4))
def test_losses_of_random_options(part: int) -> None:
    found = [shown for seed in range(15 * part, 15 * part + 15) if (shown := loss_programs.difference(seed))]
    assert not found, "\n".join(found)


def test_a_wrong_loss_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = flambeau.nn.functional.mse_loss
    monkeypatch.setattr(flambeau.nn.functional, "mse_loss", lambda *args, **kwargs: right(*args, **kwargs) * 1.01)
    monkeypatch.setattr(loss_programs, "KINDS", (lambda s: ("mse_loss", [s.input((2, 3)).requires_grad_(), s.input((2, 3))], {}),))
    assert all(loss_programs.difference(seed) for seed in range(3))


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 3, 2, 2), (0, 3, 2)])
def test_bytes_as_classes(shape: tuple[int, ...]) -> None:
    """PyTorch takes them for samples that are one number of each class."""

    def outcome(m: Any) -> Any:
        try:
            return m.nn.functional.cross_entropy(m.ones(shape), m.zeros((shape[0], *shape[2:]), dtype=m.uint8)).nan_to_num(7.0).round(decimals=4).item()
        except RuntimeError:
            return RuntimeError

    assert outcome(flambeau) == outcome(torch)


@pytest.mark.parametrize("shapes", [((3, 1), (3, 2)), ((1, 4), (3, 4)), ((2,), (3, 2)), ((3, 2), (3, 1)), ((3, 2), (3, 2))])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_multilabel_soft_margin_loss_of_labels_of_other_sizes(shapes: tuple[tuple[int, ...], tuple[int, ...]], reduction: str) -> None:
    x, y = np.linspace(-1, 2, math.prod(shapes[0])).reshape(shapes[0]), np.linspace(0, 1, math.prod(shapes[1])).reshape(shapes[1])
    ours, theirs = (np.asarray(m.nn.functional.multilabel_soft_margin_loss(m.from_numpy(x), m.from_numpy(y), reduction=reduction)) for m in (flambeau, torch))
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)
