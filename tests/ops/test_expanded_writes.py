"""Writes to expanded tensors beside PyTorch: by index and by mask they are done in order, with a warning; the others are refused."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def _index(m: Any) -> Any:
    return m.tensor([0, 2])


def _mask(m: Any) -> Any:
    return m.arange(12).reshape(3, 4) % 5 == 0


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "rows": lambda m, x: x.__setitem__(_index(m), 7.0), "rows of values": lambda m, x: x.__setitem__(_index(m), m.arange(8.0).reshape(2, 4)),
    "columns": lambda m, x: x.__setitem__((slice(None), _index(m)), 7.0), "a list": lambda m, x: x.__setitem__([0, 1], 6.0),
    "columns of values": lambda m, x: x.__setitem__((slice(None), _index(m)), m.arange(6.0).reshape(3, 2) * 10),
    "after a slice": lambda m, x: x.__setitem__((slice(1, 3), _index(m)), m.arange(4.0).reshape(2, 2)), "leading ones": lambda m, x: x.__setitem__(
        _index(m), m.arange(8.0).reshape(1, 2, 4)),
    "mask": lambda m, x: x.__setitem__(_mask(m), 9.0), "mask of values": lambda m, x: x.__setitem__(_mask(m), m.tensor([10.0, 20.0, 30.0])),
    "index_put_": lambda m, x: x.index_put_((_index(m), _index(m)), m.tensor([1.0, 2.0])),
    "accumulate": lambda m, x: x.index_put_((_index(m),), m.tensor(1.0), accumulate=True),
    "accumulate pairs": lambda m, x: x.index_put_((_index(m), _index(m)), m.tensor([1.0, 2.0]), accumulate=True),
    "masked_fill_": lambda m, x: x.masked_fill_(_mask(m), 9.0), "index_fill_": lambda m, x: x.index_fill_(0, _index(m), 5.0),
    "index_fill_ 1": lambda m, x: x.index_fill_(1, _index(m), 5.0), "index_fill_ from the end": lambda m, x: x.index_fill_(0, _index(m) - 3, 5.0),
    "index_fill_ 1 from the end": lambda m, x: x.index_fill_(-1, _index(m) - 3, 5.0), "wrong shape": lambda m, x: x.__setitem__(_index(m), m.ones(3, 4)),
    "out of range": lambda m, x: x.__setitem__(m.tensor([0, 7]), 1.0), "scatter_": lambda m, x: x.scatter_(0, m.tensor([[0, 1, 2, 0]]), 5.0),
    "slice": lambda m, x: x.__setitem__(slice(0, 2), 3.0), "add_": lambda m, x: x.add_(1), "copy_": lambda m, x: x.copy_(m.ones(3, 4)),
    "no index": lambda m, x: x.__setitem__(m.tensor([], dtype=m.int64), 1.0),
}  # fmt: skip


def base(m: Any, kind: int) -> tuple[Any, Any]:
    rows = m.arange(4.0) if kind == 0 else m.arange(3.0).reshape(3, 1) if kind == 1 else m.tensor(5.0)
    return rows, rows.expand(3, 4)


@pytest.mark.parametrize("kind", (0, 1, 2))
@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str, kind: int) -> None:
    seen = []
    for m in (ft, torch):
        b, x = base(m, kind)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                for _ in range(2):  # new and known
                    WRITES[name](m, x)
                what: Any = np.asarray(b.tolist())
            except (RuntimeError, IndexError):
                what = "error"
        seen.append((what, any("expanded tensors is deprecated" in str(w.message) for w in caught)))
    (ours, warned), (theirs, wanted) = seen
    np.testing.assert_array_equal(ours, theirs)
    assert warned == wanted or not isinstance(ours, np.ndarray)


def test_gradients() -> None:
    """PyTorch has none; here it is that of `index_put` with an index that comes several times: all values of a place have its gradient."""
    leaf = ft.arange(4.0).requires_grad_()
    values = (ft.arange(6.0).reshape(3, 2) * 10).requires_grad_()
    x = (leaf * 2).expand(3, 4)
    with pytest.warns(UserWarning, match="expanded tensors is deprecated"):
        x[:, ft.tensor([0, 2])] = values
    (x * ft.arange(12.0).reshape(3, 4)).sum().backward()
    assert leaf.grad.tolist() == [0.0, 2 * (1 + 5 + 9), 0.0, 2 * (3 + 7 + 11)]
    assert values.grad.tolist() == [[0 + 4 + 8, 2 + 6 + 10]] * 3


@pytest.mark.parametrize("values", [(0,), (3,), (1,)])
def test_an_index_into_nothing_is_told_before_a_shape(values: tuple[int, ...]) -> None:
    for module in (torch, ft):
        with pytest.raises(IndexError):
            module.zeros(0).index_put_((module.tensor([0, 0]),), module.zeros(*values))


@pytest.mark.parametrize("view", ["conj", "neg"])
@pytest.mark.parametrize("write", ["fill_", "zero_", "copy_", "masked_fill_", "index_fill_", "__setitem__"])
def test_expanded_conjugate_and_negative_views_are_refused(view: str, write: str) -> None:
    for m in (ft, torch):
        x = (m.ones(3, dtype=m.complex64).conj() if view == "conj" else m._neg_view(m.ones(3))).expand(2, 3)
        arguments = {"fill_": (1,), "zero_": (), "copy_": (m.ones(2, 3),), "masked_fill_": (m.ones(2, 3, dtype=m.bool), 0),
                     "index_fill_": (0, m.tensor([0]), 1), "__setitem__": (m.tensor([0, 1]), 1)}[write]  # fmt: skip
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            getattr(x, write)(*arguments)


OF_ITSELF: dict[str, Callable[[Any, Any, Any], Any]] = {
    "copy_": lambda m, x, y: y.copy_(x), "[...] =": lambda m, x, y: y.__setitem__(..., x), "[:] =": lambda m, x, y: y.__setitem__(slice(None), x),
    "add_": lambda m, x, y: y.add_(x), "add_ of a number": lambda m, x, y: y.add_(1), "mul, out": lambda m, x, y: m.mul(x, 2, out=y),
    "copy_ back": lambda m, x, y: x.copy_(y[(0,) * (y.ndim - x.ndim)]), "fill_": lambda m, x, y: y.fill_(1), "zero_": lambda m, x, y: y.zero_(),
    "copy_ of itself": lambda m, x, y: y.copy_(y), "add of itself, out": lambda m, x, y: m.add(y, y, out=y),
}  # fmt: skip


def _outcomes(m: Any, shape: tuple[int, ...], lead: tuple[int, ...], cut: int | None) -> list[tuple[str, str]]:
    outcomes = []
    for name, write in [*OF_ITSELF.items(), *reversed(OF_ITSELF.items())]:  # what one has learned must not answer for another
        x = m.arange(float(np.prod(shape))).reshape(shape)
        y = x.expand(*lead, *shape)
        if cut is not None:
            x, y = x[..., -cut:], y[..., -cut:]
        try:
            write(m, x, y)
            outcomes.append((name, str(y.tolist())))
        except (RuntimeError, IndexError) as error:
            outcomes.append((name, type(error).__name__))
    return outcomes


@pytest.mark.parametrize("shape", [(), (1,), (2,), (1, 1), (1, 3), (3, 1), (2, 3)])
def test_what_is_expanded_is_given_to_itself(shape: tuple[int, ...]) -> None:
    for lead in ((1,), (2,), (2, 1), (1, 2)):
        for cut in (None, 1, 2) if shape else (None,):
            assert _outcomes(ft, shape, lead, cut) == _outcomes(torch, shape, lead, cut), (lead, cut)
