"""A program of n steps costs n steps: what flambeau does for a call must not grow with what came before.

Counted are the calls of Python's functions and of built-in ones. Four times as many steps may cost eight times as many calls; what is done anew at each
step for all earlier ones would cost sixteen times as many.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau
from flambeau.trace import tiers
from tests.engine.growing_programs import PROGRAMS, Program
from tests.engine.nothing_known import forget_edges, forget_places

FEW, MANY = 64, 256


@pytest.fixture(autouse=True, params=[tiers.PIECES, tiers.MIXED], ids=["pieces", "mixed"])
def _tier(request: pytest.FixtureRequest) -> Iterator[None]:
    before = tiers.MODE[0]
    tiers.MODE[0] = request.param
    yield
    tiers.MODE[0] = before


def calls(function: Program, n: int) -> int:
    """How many functions a run calls."""
    count = 0

    def seen(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function(flambeau, n)
    finally:
        sys.setprofile(before)
    return count


ONCE = 250_000  # what recording a loop as a whole costs, which the longer run comes to


@pytest.mark.parametrize("name", PROGRAMS)
def test_growth(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = PROGRAMS[name]
    forget_places(monkeypatch)
    forget_edges()
    function(flambeau, 8)
    for once in (ONCE, 20_000):  # new, and known
        few, many = calls(function, FEW), calls(function, MANY)
        assert many < 8 * few + once, f"{name}: {few} calls for {FEW} steps, {many} for {MANY}"
