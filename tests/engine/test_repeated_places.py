"""Views whose elements share places of memory (`as_strided` with small strides): written, read, and with gradients. PyTorch is the reference.

What is written is one number all over, so that it does not matter which of several elements of one place is written last.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

LAYOUTS = [((3, 2), (1, 1)), ((2, 3), (1, 1)), ((2, 2), (1, 1)), ((2, 2), (2, 1)), ((2, 2, 2), (1, 1, 1)), ((3, 2), (1, 0)), ((2,), (3,))]


def _run(m: Any, seed: int) -> list[Any]:
    """The values of a memory and its views after some writes, and the gradient; for an error that PyTorch's backward pass alone has: None."""
    chance = random.Random(seed)
    n = chance.choice([4, 6, 8, 12])
    x = m.arange(float(n)).requires_grad_()
    y = x * 1 if chance.random() < 0.6 else x.reshape(2, -1) * 1
    views, found = [y], []
    for _ in range(chance.randrange(1, 6)):
        to = chance.choice(views)
        kind = chance.randrange(3)
        try:
            if kind == 0 or len(views) == 1:
                size, stride = chance.choice([*LAYOUTS, ((n // 2, 2), (1, 1)), ((2, n // 2), (1, 1)), ((n - 1,), (1,))])
                views.append(to.as_strided(size, stride, chance.choice([0, 0, 0, 1])))
            elif kind == 1:
                number = chance.choice([0.0, 1.0, 2.0])
                to.copy_(m.full(to.shape, number)) if chance.random() < 0.5 else to.fill_(number)
            else:
                to.copy_(x[:1].expand(to.shape))
        except RuntimeError as error:
            found.append(type(error).__name__)
        if chance.random() < 0.2:
            found.append(y.sum().item())
    found += [view.tolist() for view in views]
    try:
        sum([(view * view).sum() * (i + 1) for i, view in enumerate(views)]).backward()
    except RuntimeError:
        return [*found, None]
    return [*found, None if x.grad is None else x.grad.tolist()]


@pytest.mark.parametrize("seed", range(0, 90, 30))
def test_values_and_gradients_are_pytorchs(seed: int) -> None:
    for number in range(seed, seed + 30):
        ours, theirs = _run(flambeau, number), _run(torch, number)
        if theirs[-1] is None:  # a view that is written has strides of 0: PyTorch cannot write its gradient
            ours[-1] = None
        assert ours == theirs, number


@pytest.mark.parametrize("observed", [False, True])
def test_what_lies_outside_of_a_written_view_keeps_its_gradient(observed: bool) -> None:
    """The view has as many elements as the memory, and does not fill it: the gradient was of whatever lay in its buffer before."""
    x = flambeau.arange(6.0).requires_grad_()
    y = x * 1
    u = y.as_strided((3, 2), (1, 1))
    u.mul_(3)
    if observed:
        y.sum().item()
    u.copy_(flambeau.zeros(3, 2))
    y.sum().backward()
    assert x.grad.tolist() == [0, 0, 0, 0, 1, 1]
