"""Fixtures that tests of several folders use."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from flambeau.trace import tiers

# Tests are of good code: a kernel's plain code (runtime/twice.py) would be all that a test sees on a machine without a cache. Plain code has tests of its own.
os.environ.setdefault("FLAMBEAU_COMPILE_PROCESSES", "1")

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGCHLD", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)]


@pytest.fixture(scope="module", autouse=True)
def handlers_are_put_back() -> Iterator[None]:
    """What a file's tests call leaves the process's signal handlers as they were: a later child that does not end by SIGTERM hangs its parent."""
    before = [signal.getsignal(number) for number in _SIGNALS]
    yield
    assert [signal.getsignal(number) for number in _SIGNALS] == before


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each path is recorded as a whole when it first comes (trace/tiers.py), here and in processes that a test starts: for tests that look at traces and
    plans."""
    before, tiers.MODE[0] = tiers.MODE[0], tiers.WHOLE
    monkeypatch.setenv("FLAMBEAU_TIER", tiers.WHOLE)
    yield
    tiers.MODE[0] = before


@pytest.fixture(params=[tiers.PIECES, tiers.WHOLE], ids=["pieces", "whole"])
def each_tier(request: pytest.FixtureRequest) -> Iterator[str]:
    """Everything in pieces, and everything as a whole."""
    before, tiers.MODE[0] = tiers.MODE[0], request.param
    yield request.param
    tiers.MODE[0] = before
