"""Another thread reads what this one has pending, and this one goes on, by whatever call: nothing that it records may be lost.

The trace that was taken leaves one behind that stands where no call is known, until what was taken has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau.trace import tiers
from flambeau.trace.recorder import local
from tests.threads import Thread, join


def _set_default(other: Any) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(other)
    yield
    torch.set_default_dtype(before)


def _looks(ready: Any) -> Iterator[None]:
    ready.tolist()
    yield


def _writes(ready: Any) -> Iterator[None]:
    ready.add_(0)
    yield


def _without_gradients(ready: Any) -> Iterator[None]:
    with torch.no_grad():
        yield


def _lower(ready: Any) -> Iterator[None]:
    with torch.autocast("cpu", torch.bfloat16):
        yield


def _nothing(ready: Any) -> Iterator[None]:
    yield


AFTER: dict[str, Callable[[Any], Iterator[None]]] = {
    "looks at a value": _looks, "writes": _writes, "without gradients": _without_gradients, "lower precision": _lower, "nothing": _nothing,
    "default dtype": lambda ready: _set_default(torch.float64),
}  # fmt: skip
CALLS: dict[str, Callable[[Any], Any]] = {
    "made": lambda ready: torch.full((5,), 2.0), "computed": lambda ready: ready * 2, "random": lambda ready: torch.rand(4),
    "a view": lambda ready: ready[1:], "made twice": lambda ready: torch.ones(3) + torch.ones(3),
}  # fmt: skip


def _outcome(after: Callable[[Any], Iterator[None]], call: Callable[[Any], Any], reads: bool) -> list[Any]:
    """What a program gives whose pending tensors another thread reads, or not, before it goes on."""
    torch.manual_seed(0)
    ready = torch.arange(3.0)
    ready.tolist()
    found: list[Any] = []
    for round_ in range(8):
        pending = ((torch.arange(4.0) * float(round_)) + 1).sin().exp().cos()
        if reads and round_ % 3:
            thread = Thread(target=pending.tolist)
            thread.start()
            join(thread)
        for _ in after(ready):
            made = call(ready)
        found += [made.tolist(), made.dtype, (made + 1).tolist(), pending.tolist()]
    return found


@pytest.mark.parametrize("mode", [tiers.MIXED, tiers.PIECES, tiers.WHOLE])
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("after", AFTER)
def test_nothing_recorded_is_lost(monkeypatch: pytest.MonkeyPatch, after: str, call: str, mode: int) -> None:
    monkeypatch.setattr(tiers, "MODE", [mode])
    expected = _outcome(AFTER[after], CALLS[call], False)
    assert _outcome(AFTER[after], CALLS[call], True) == expected
    assert local.main.taken == -1 or not local.main.tensors
