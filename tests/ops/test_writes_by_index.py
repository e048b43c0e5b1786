"""Functions that write by index: what they refuse, and whether their results require gradients where the index is empty, beside PyTorch."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")
DTYPES = ("bool", "int64", "float32", "float64", "complex64")


def forms(m: Any, rows: int, n: int, dtype: str, other: str, grads: tuple[bool, bool] = (False, False)) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Writes of n rows of one dtype to a tensor of another."""
    x = m.ones(rows, 3, dtype=getattr(m, dtype), requires_grad=grads[0])
    source = m.ones(n, 3, dtype=getattr(m, other), requires_grad=grads[1])
    flat = source.reshape(-1)[:n]
    i, wide = m.tensor([0] * n, dtype=m.int64), m.tensor([0] * 3 * n, dtype=m.int64).reshape(n, 3)  # at hand: an index out of range is seen at the call
    mask = m.zeros(rows, 3, dtype=m.bool)
    if n and rows:
        mask[0, 0] = True

    def written(write: Callable[[Any], Any]) -> Any:
        y = x.clone()
        write(y)
        return y

    yield "scatter", lambda: x.scatter(0, wide, source)
    yield "scatter along the rows", lambda: x.scatter(1, wide, source)
    yield "scatter_add", lambda: x.scatter_add(0, wide, source)
    for how in ("sum", "prod", "amax", "mean"):
        for kept in (True, False):
            yield f"scatter_reduce {how} {kept}", lambda how=how, kept=kept: x.scatter_reduce(0, wide, source, how, include_self=kept)
    yield "index_add", lambda: x.index_add(0, i, source)
    yield "index_copy", lambda: x.index_copy(0, i, source)
    yield "index_reduce", lambda: x.index_reduce(0, i, source, "prod")
    yield "index_fill", lambda: x.index_fill(0, i, flat.sum())
    for more in (False, True):
        yield f"index_put {more}", lambda more=more: x.index_put((i,), source, accumulate=more)
        yield f"index_put mask {more}", lambda more=more: x.index_put((mask,), flat, accumulate=more)
        yield f"put {more}", lambda more=more: x.put(i, flat, accumulate=more)
    yield "masked_scatter", lambda: x.masked_scatter(mask, source)
    yield "index_put_", lambda: written(lambda y: y.index_put_((i,), source))
    yield "index_put_ one", lambda: written(lambda y: y.index_put_((i,), flat.sum()))
    yield "setitem", lambda: written(lambda y: y.__setitem__(i, source))
    yield "setitem slice", lambda: written(lambda y: y.__setitem__(slice(0, n), source))
    yield "setitem number", lambda: written(lambda y: y.__setitem__(i, 2))
    yield "setitem mask", lambda: written(lambda y: y.__setitem__(mask, flat))


def outcome(call: Callable[[], Any]) -> Any:
    """What a call gives, or the kind of its error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            y = call()
    except (RuntimeError, IndexError):
        return "refused"
    return y.requires_grad, str(y.dtype), tuple(y.shape), y.detach().tolist()


@pytest.mark.parametrize("grads", ((False, True), (True, False), (True, True)))
def test_empty_indices_and_gradients(grads: tuple[bool, bool]) -> None:
    for rows, n in itertools.product((0, 2), (0, 1)):
        both = zip(*[forms(m, rows, n, "float32", "float32", grads) for m in (ft, torch)], strict=True)
        for (name, ours), (_, theirs) in both:
            assert outcome(ours) == outcome(theirs), (name, rows, n)


# Functions that have no such dtype here, or whose answer depends on whether an imaginary part is zero.
OTHERWISE = {("index_reduce", "bool"), ("index_reduce", "complex64")}


def test_dtypes_that_differ() -> None:
    for dtype, other in itertools.product(DTYPES, DTYPES):
        for (name, ours), (_, theirs) in zip(*[forms(m, 2, 1, dtype, other) for m in (ft, torch)], strict=True):
            if (name, dtype) not in OTHERWISE and (name != "setitem mask" or other != "complex64"):
                assert outcome(ours) == outcome(theirs), (name, dtype, other)


@pytest.mark.parametrize("grad", (False, True))
def test_an_expanded_tensor_is_copied_to_itself(grad: bool) -> None:
    def attempts(m: Any) -> list[Any]:
        found = []
        for write in (
            lambda e: e.__setitem__((..., slice(-2, None)), e[..., -2:]), lambda e: e.copy_(e[:]), lambda e: e[0].copy_(e[1]),
            lambda e: e[..., 1:].copy_(e[..., :-1]), lambda e: e.copy_(e.clone()), lambda e: e.add_(e),
        ):  # fmt: skip
            e = (m.arange(6.0).reshape(2, 3).clone().requires_grad_(grad) * 1).expand(2, 2, 3)
            try:
                write(e)
                found.append(e.tolist())
            except RuntimeError:
                found.append("refused")
        return found

    assert attempts(ft) == attempts(torch)
