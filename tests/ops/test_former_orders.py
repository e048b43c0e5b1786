"""Numbers by position, before the tensors that they multiply: deprecated in PyTorch, and taken all the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

CALLS: dict[str, Callable[[Any], Any]] = {
    "add": lambda m: (m.add(m.ones(2), 2, m.arange(2.0)), m.ones(2).add(2, m.arange(2.0)), m.ones(2).add_(2.5, m.arange(2.0))),
    "sub": lambda m: (m.sub(m.ones(2), 2, m.arange(2.0)), m.ones(2).sub(2, m.arange(2.0)), m.ones(2).sub_(2.5, m.arange(2.0))),
    "numbers alone": lambda m: (m.ones(2).add(2, 3), m.add(m.ones(2), 0.5, 3.0), m.ones(2).sub_(2, 3), m.ones(2).add(m.tensor(2.0), 1)),
    "rsub": lambda m: (m.rsub(m.ones(2), 2, 3),),
    "dims one after the other": lambda m: (m.ones(1, 1, 2).squeeze(0, 1), m.ones(1, 2, 1).squeeze_(0, -1), m.ones(2, 1, 2).count_nonzero(0, 1)),
    "add out": lambda m: m.add(m.ones(2), 2, m.arange(2.0), out=m.empty(2)),
    "addcmul": lambda m: (m.addcmul(m.ones(2), 2, m.arange(2.0), m.ones(2)), m.ones(2).addcmul_(0.5, m.arange(2.0), m.ones(2))),
    "addcdiv": lambda m: (m.addcdiv(m.ones(2), 2, m.arange(2.0), m.ones(2)), m.ones(2).addcdiv_(-0.5, m.arange(2.0), m.ones(2))),
    "addmm": lambda m: (m.addmm(2, m.ones(2, 2), 3, m.eye(2), m.eye(2)), m.addmm(2, m.ones(2, 2), m.eye(2), m.eye(2))),
    "addmm method": lambda m: (m.ones(2, 2).addmm(2, 3, m.eye(2), m.eye(2)), m.ones(2, 2).addmm_(2, m.eye(2), m.eye(2))),
    "addmv": lambda m: (m.addmv(2, m.ones(2), 3, m.eye(2), m.arange(2.0)), m.ones(2).addmv_(2, 3, m.eye(2), m.arange(2.0))),
    "addr": lambda m: (m.addr(2, m.ones(2, 2), 3, m.ones(2), m.arange(2.0)), m.ones(2, 2).addr_(2, 3, m.ones(2), m.arange(2.0))),
    "baddbmm": lambda m: (m.baddbmm(2, m.ones(1, 2, 2), 3, m.ones(1, 2, 2), m.ones(1, 2, 2)), m.ones(1, 2, 2).baddbmm_(2, m.ones(1, 2, 2), m.ones(1, 2, 2))),
    "addbmm": lambda m: (m.addbmm(2, m.ones(2, 2), 3, m.ones(1, 2, 2), m.ones(1, 2, 2)),),
    "addbmm in place": lambda m: (m.ones(2, 2).addbmm_(2, m.ones(1, 2, 2), m.ones(1, 2, 2)), m.ones(2, 2).addbmm_(2, 3, m.ones(1, 2, 2), m.ones(1, 2, 2))),
    "max of two, out": lambda m: (m.max(m.arange(3.0), m.ones(3), out=m.empty(3)), m.min(m.arange(3.0), m.ones(3), out=m.empty(3))),
    "max over a dim, out": lambda m: tuple(m.max(m.eye(3), 1, out=(m.empty(3), m.empty(3, dtype=m.int64)))),
}


def _arrays(x: Any) -> list[np.ndarray]:
    return [a for part in x for a in _arrays(part)] if isinstance(x, tuple) else [x.numpy()]


@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for ours, theirs in zip(_arrays(CALLS[name](flambeau)), _arrays(CALLS[name](torch)), strict=True):
            np.testing.assert_array_equal(ours, theirs)


WRONG: dict[str, Callable[[Any], Any]] = {
    "number last": lambda m: m.add(m.ones(2), m.ones(2), 2),
    "four": lambda m: m.add(m.ones(2), 1, m.ones(2), m.ones(2)),
    "addcmul of numbers alone": lambda m: m.ones(2).addcmul_(1, 2, 3),
    "a summand that is none": lambda m: m.ones(2).add(1, "a"),
    "alpha of two numbers": lambda m: m.ones(2).add(m.ones(2), 1),
    "a dim that is none": lambda m: m.ones(1, 1).squeeze(0, None),
    "a bool as the first of dims": lambda m: m.ones(1, 1).count_nonzero(True, 0),
    "in the middle": lambda m: m.addmm(m.eye(2), m.eye(2), 2, m.eye(2), 2),
    "max": lambda m: m.max(m.ones(2), "a", out=m.empty(2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_others_are_refused(name: str) -> None:
    for module in (torch, flambeau):
        with pytest.raises(TypeError):
            WRONG[name](module)


def test_the_warning_says_what_to_write() -> None:
    with pytest.warns(UserWarning, match=r"add_ is deprecated.*alpha=\.\.\."):
        flambeau.ones(2).add_(2, flambeau.ones(2))
