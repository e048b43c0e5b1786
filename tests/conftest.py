"""Fixtures that tests of several folders use."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from flambeau.trace import tiers
from flambeau.trace.recorder import local
from flambeau.trace.traces import TRACES

# Tests are of good code: a kernel's plain code (runtime/twice.py) would be all that a test sees on a machine without a cache. Plain code has tests of its own.
os.environ.setdefault("FLAMBEAU_COMPILE_PROCESSES", "1")

_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2") if hasattr(signal, name)]


@pytest.fixture(scope="module", autouse=True)
def handlers_are_put_back() -> Iterator[None]:
    """What a file's tests call leaves the process's signal handlers as they were: a later child that does not end by SIGTERM hangs its parent."""
    before = [signal.getsignal(number) for number in _SIGNALS]
    yield
    assert [signal.getsignal(number) for number in _SIGNALS] == before


@pytest.fixture(scope="module", autouse=True)
def the_recorder_is_left_whole() -> Iterator[None]:
    """After a file's tests this thread records as ever: else what fails is another file's, and does not say why."""
    yield
    tr = local.main
    assert local.trace is tr and TRACES[tr.index] is tr and not tr.held and tiers.MODE[0] == os.environ.get("FLAMBEAU_TIER", tiers.MIXED)


# Files that take longest, the longest first: they are begun first, so that no worker ends with one of them while others have nothing left.
# (With pytest-xdist's --no-loadscope-reorder; its own order is by the number of tests.)
LONG = [
    "distributed/test_dtensor.py", "distributed/test_pipelining.py", "distributed/test_fully_shard.py", "distributed/test_ddp.py",
    "distributed/test_two_kinds.py", "distributed/test_hooks.py", "distributed/test_errors.py", "engine/test_whole_programs.py", "engine/test_settling.py",
    "distributed/test_launch.py", "deploy/test_native.py", "distributed/test_collectives.py", "distributed/test_tensor_parallel.py", "deploy/test_page.py",
    "ops/test_is_view.py", "engine/test_finalizers.py", "engine/test_known_edges.py", "export/test_page.py", "runtime/test_untracked.py",
    "distributed/test_checkpoint.py", "serve/test_soak.py", "distributed/test_peer_memory.py", "distributed/test_context_parallel.py",
    "engine/test_native_steps.py", "compiler/test_summation.py", "documentation/test_examples.py", "engine/test_interrupts.py",
]  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long files first; within a file, and among the others, the order stays."""
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.fixture(scope="module")
def short_collections() -> Iterator[None]:
    """While a module's tests run, the collector looks only at what has been made since: for tests that collect often or count objects. Late in a long
    process a collection takes seconds otherwise."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


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
