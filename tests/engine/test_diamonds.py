"""Histories in which each piece leads back to the one before on two ways: there are two to the power of `COUNT` ways through them.

What goes over histories must see each piece once. A walk that goes each way never ends here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import flambeau
from flambeau.trace import tiers
from tests.engine.growing_programs import same_function

COUNT = 60


@pytest.fixture(autouse=True, params=[tiers.PIECES, tiers.MIXED, tiers.WHOLE])
def _tier(request: pytest.FixtureRequest) -> Iterator[None]:
    before = tiers.MODE[0]
    tiers.MODE[0] = request.param
    yield
    tiers.MODE[0] = before


Same = same_function(flambeau)


def seen(x: Any) -> Any:
    """The tensor, in memory: what follows is another piece."""
    x.sum().item()
    return x


def half(x: Any) -> Any:
    return x * 0.5


def half_by_function(x: Any) -> Any:
    return half(Same.apply(x))


def half_written(x: Any) -> Any:
    made = flambeau.zeros(3)
    made[:] = x
    return made.mul_(0.5)


def diamonds(x: Any, way: Any = half) -> list[Any]:
    """Tensors all equal to x, each the sum of two halves of the one before."""
    made = [x]
    for _ in range(COUNT):
        left, right = seen(way(made[-1])), seen(way(made[-1]))
        made.append(seen(left + right))
    return made


def ones() -> Any:
    return flambeau.ones(3, requires_grad=True)


@pytest.mark.parametrize("way", [half, half_by_function, half_written])
def test_backward(way: Any) -> None:
    x = ones()
    diamonds(x, way)[-1].sum().backward()
    assert x.grad.tolist() == [1.0] * 3


def test_passes_to_some_tensors() -> None:
    x, other = ones(), ones()
    made = diamonds(x)
    (middle,) = flambeau.autograd.grad(made[-1].sum(), [made[COUNT // 2]], retain_graph=True)
    assert middle.tolist() == [1.0] * 3
    first, none = flambeau.autograd.grad(made[-1].sum(), [x, other], retain_graph=True, allow_unused=True)
    assert first.tolist() == [1.0] * 3
    assert none is None
    made[-1].sum().backward(inputs=[x])
    assert x.grad.tolist() == [1.0] * 3


@pytest.mark.parametrize("way", [half, half_by_function, half_written])
def test_behind_what_was_given_up(way: Any) -> None:
    made = diamonds(ones(), way)
    squared = made[-1] * made[-1]
    later = squared + made[-2]
    squared.sum().backward()
    seen(later)
    with pytest.raises(RuntimeError, match="second time"):
        (later * 2).sum().backward()


def test_second_order() -> None:
    x = ones()
    made = diamonds(x)
    (first,) = flambeau.autograd.grad((made[-1] ** 3).sum(), [x], create_graph=True)
    (second,) = flambeau.autograd.grad(first.sum(), [x])
    assert first.tolist() == [3.0] * 3
    assert second.tolist() == [6.0] * 3


def test_hooks() -> None:
    x = ones()
    made = diamonds(x)
    gradients: list[Any] = []
    made[1].register_hook(lambda g: gradients.append(g.tolist()))
    made[2].retain_grad()
    made[-1].sum().backward()
    assert gradients == [[1.0] * 3]
    assert made[2].grad.tolist() == [1.0] * 3
