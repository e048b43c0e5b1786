"""Writes of some elements to views whose elements share memory (windows of `unfold`): what is left alone must not undo them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import flambeau

oracle = pytest.importorskip("torch")
Write = Callable[[Any, Any], object]

# Of a module and the windows (4, 2) of five numbers.
WRITES: dict[str, Write] = {
    "index_fill_": lambda m, v: v.index_fill_(1, m.tensor([1]), 7),
    "masked_fill_": lambda m, v: v.masked_fill_(m.tensor([False, True]), 7),
    "mask": lambda m, v: v.__setitem__(m.tensor([[False, True], [True, False]] * 2), 7.0),
    "places": lambda m, v: v.__setitem__((slice(None), m.tensor([1])), 7.0),
    "rows": lambda m, v: v.__setitem__(m.tensor([2, 0]), m.tensor([[5.0, 6.0], [7.0, 8.0]])),
    "scatter_": lambda m, v: v.scatter_(1, m.ones(4, 1, dtype=m.long), 7.0),
    "index_copy_": lambda m, v: v.index_copy_(1, m.tensor([1]), m.full((4, 1), 7.0)),
    "index_add_": lambda m, v: v.index_add_(1, m.tensor([1]), m.full((4, 1), 7.0)),
    "index_put_": lambda m, v: v.index_put_((m.arange(4), m.tensor([1])), m.tensor(7.0)),
    "masked_scatter_": lambda m, v: v.masked_scatter_(m.tensor([[True, False]] * 4), m.arange(8.0) + 0.5),
    "fill_diagonal_": lambda m, v: v.fill_diagonal_(7),
    "nothing": lambda m, v: v.masked_fill_(m.tensor(False), 7),
}


def _numbers(m: Any, write: Write, kind: str) -> list[Any]:
    given = m.tensor([0.0, 1.0, float("nan"), 3.0, 4.0]) if kind == "nan" else m.arange(5.0)
    x = given.to(m.complex64 if kind == "complex" else m.float32)
    write(m, x.unfold(0, 2, 1))
    return [*[repr(n) for n in x.tolist()], x._version]


@pytest.mark.parametrize("kind", ["numbers", "nan", "complex"])
@pytest.mark.parametrize("write", WRITES)
def test_what_is_left_alone_undoes_no_write(write: str, kind: str) -> None:
    if kind == "complex" and write in ("places", "rows", "index_copy_", "index_put_", "masked_scatter_", "index_add_"):
        pytest.skip("numbers of another dtype are refused")
    expected = _numbers(oracle, WRITES[write], kind)
    for _ in range(3):
        assert _numbers(flambeau, WRITES[write], kind) == expected


@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_over_has_no_gradient(write: str) -> None:
    """By the numbers: PyTorch's gradients of such writes count windows, so that some places that were written over have one."""
    leaf = flambeau.arange(5.0).requires_grad_()
    x = leaf * 1
    WRITES[write](flambeau, x.unfold(0, 2, 1))
    (x * x).sum().backward()
    left = x.detach() == leaf.detach() if write != "index_add_" else flambeau.ones(5, dtype=flambeau.bool)
    assert leaf.grad is not None and leaf.grad.tolist() == (2 * x.detach() * left).tolist()


def test_what_is_written_gets_its_gradient_once() -> None:
    """Also where nobody else holds the memory, and where it had no gradients before."""
    given = flambeau.full((4, 1), 9.0).requires_grad_()
    windows = flambeau.arange(5.0).unfold(0, 2, 1)
    windows[:, flambeau.tensor([1])] = given
    (windows * windows).sum().backward()
    assert given.grad is not None and given.grad.tolist() == [[36.0], [36.0], [36.0], [18.0]]  # the places are in two windows, and the last in one


def _equal_numbers(m: Any, seed: int, marked: bool) -> Any:
    """A write of numbers to windows that mostly hold them already: the leaf, what is written, and the memory afterwards. `marked`: of nines to zeros."""
    rng = random.Random(seed)
    before, after = [float(rng.randrange(2)) for _ in range(6)], [[float(rng.randrange(2)) for _ in range(2)] for _ in range(5)]
    given = (m.zeros(6) if marked else m.tensor(before)).requires_grad_()
    numbers = (m.full((5, 2), 9.0) if marked else m.tensor(after)).requires_grad_()
    x = given * 1
    v, rows, how = x.unfold(0, 2, 1), sorted(rng.sample(range(5), rng.randrange(1, 6))), rng.randrange(7)
    mask = m.tensor([[rng.randrange(2) == 0 for _ in range(2)] for _ in range(5)])
    some = numbers[: len(rows)]
    if how == 0:
        v[m.tensor(rows)] = some
    elif how == 1:
        v.index_put_((m.tensor(rows),), some)
    elif how == 2:
        v.index_copy_(0, m.tensor(rows), some)
    elif how == 3:
        v[mask] = numbers[0, 0]
    elif how == 4:
        v.masked_fill_(mask, numbers[0, 0])
    elif how == 5:
        v.index_fill_(0, m.tensor(rows), numbers[0, 0])
    else:
        v.scatter_(0, m.tensor([[r, r] for r in rows]), some)
    return given, numbers, x


@pytest.mark.parametrize("seed", range(60))
def test_numbers_that_were_there_before_are_written_too(seed: int) -> None:
    """The last write to a place counts, and what was there has no gradient, also where both are one number. What is written has one, as in PyTorch."""
    for _ in range(3):
        leaf, numbers, x = _equal_numbers(flambeau, seed, marked=False)
        _, their_numbers, theirs = _equal_numbers(oracle, seed, marked=False)
        assert x.tolist() == theirs.tolist()
        theirs.sum().backward()
        written = [n == 9 for n in _equal_numbers(oracle, seed, marked=True)[2].tolist()]
        x.sum().backward()
        assert leaf.grad is not None and leaf.grad.tolist() == [0.0 if w else 1.0 for w in written]
        assert numbers.grad is not None and numbers.grad.tolist() == their_numbers.grad.tolist()
