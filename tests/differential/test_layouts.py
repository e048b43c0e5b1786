"""Strides and sharing of results equal PyTorch's: every operator of its database in a layout that goes by its name, and a table of
calls that ask for nothing, whose results are copies in one framework where they are in the other.

`python -m tests.differential.layouts 3 --writes` makes more calls; `known_layouts.py` has the differences that are left.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import numpy as np
import pytest

from flambeau.testing.compare import Input
from tests.differential.forms import hash_of
from tests.differential.identities import IDENTITIES, SHAPES
from tests.differential.known import INTERNAL
from tests.differential.known_layouts import IDENTITIES_KNOWN, KNOWN_LAYOUTS
from tests.differential.layouts import CHANGES, FIRST, difference, differences
from tests.differential.samples import OPERATORS, Case, Unsupported, supported, torch
from tests.differential.sweep import on_alarm

import flambeau  # isort: skip

_TURNS = (*[name for name in CHANGES if name != "as it is"], "mixed", FIRST)
_ORDERS = ("row-major", "turned around", "with gaps")


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """A call that does not end fails."""
    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("label", [x for x in sorted(set(OPERATORS) - INTERNAL) if x not in KNOWN_LAYOUTS and supported(x, "float64")])
def test_operator(label: str) -> None:
    turn = hash_of(label) % len(_TURNS)
    try:
        found = differences(label, "float64", 1, hash_of(label) % 7 == 0, (_TURNS[turn],))[1]
    except Unsupported:
        pytest.skip("samples of another layout")
    assert not found, "\n".join(found)


def _input(shape: tuple[int, ...], order: str) -> Input:
    values = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    if order == "turned around":
        steps = np.cumprod([1, *[max(n, 1) for n in shape]])[: len(shape)]
        return Input(values, strides=[int(s) for s in steps])
    if order == "with gaps":
        steps = np.cumprod([2, *[max(n, 1) + 1 for n in reversed(shape)]])[: len(shape)][::-1]
        return Input(values, strides=[int(s) for s in steps], offset=3)
    return Input(values)


@pytest.mark.parametrize("name", IDENTITIES)
def test_calls_that_ask_for_nothing(name: str) -> None:
    call = IDENTITIES[name]
    function = (lambda x: call(flambeau, x), lambda x: call(torch, x))
    found = []
    for i, shape in enumerate(SHAPES):
        for j, order in enumerate(_ORDERS):
            if (name, order if len(shape) else "") in IDENTITIES_KNOWN or name in IDENTITIES_KNOWN:
                continue
            case = Case(function, (_input(shape, order),), {}, f"{name} of {shape}, {order}")
            found.append(difference(case, writes=(i + j) % 9 == hash_of(name) % 9))
    told = [text for text in found if text]
    assert not told, "\n".join(told)


_OTHERS = ("complex64", "int64", "bool", "bfloat16")
_MORE = "abs angle conj_physical isinf isreal isfinite isnan floor sign add where masked_fill sum real imag mm cumsum".split()


@pytest.mark.parametrize("dtype", _OTHERS)
def test_other_dtypes(dtype: str) -> None:
    """`python -m tests.differential.layouts DTYPE 1 --writes` goes through all operators."""
    found = [text for label in _MORE if supported(label, dtype) for text in differences(label, dtype, 1, False, (*_TURNS[::3], "one"))[1]]
    assert not found, "\n".join(found)
