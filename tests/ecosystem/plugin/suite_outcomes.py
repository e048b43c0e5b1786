"""A pytest plugin for `scripts/ecosystem suites`: each test's outcome as a line of JSON, a time limit for each, and which are run.

It stands in a folder of its own, which is put on a foreign suite's path, and imports nothing of ours.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest


class TookTooLong(BaseException):
    """A test has passed its limit; no `except Exception` of the test or the package takes it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("outcomes of a foreign suite")
    group.addoption("--outcomes", metavar="FILE", help="append a line of JSON for each test begun and ended")
    group.addoption("--only", metavar="FILE", help="run the tests that this file names, a line each")
    group.addoption("--every", metavar="N", type=int, default=1, help="run one test of N: a sample, by a hash of the tests' names")
    group.addoption("--each", metavar="SECONDS", type=int, default=0, help="a limit for each test")


def _note(config: pytest.Config, **what: Any) -> None:
    file = config.getoption("outcomes")
    if file is not None:
        with Path(file).open("a") as out:
            out.write(json.dumps(what) + "\n")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests that `--only` names, or one of so many as `--every` says; none whose name has an address, which is another in every process."""
    file, every = config.getoption("only"), config.getoption("every")
    items[:] = [item for item in items if not re.search(r"\bat 0x[0-9a-f]{6,}", item.nodeid)]
    if file is not None:
        wanted = set(Path(file).read_text().splitlines())
    elif every > 1:
        wanted = {item.nodeid for item in items if zlib.crc32(item.nodeid.encode()) % every == 0}
    else:
        return
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in wanted])
    items[:] = [item for item in items if item.nodeid in wanted]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Note where a test begins, so that one that ends the process is known, and count its seconds."""
    _note(item.config, test=item.nodeid, outcome="begun")
    return (yield)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TookTooLong


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Give up a test that takes longer than the limit."""
    seconds = item.config.getoption("each")
    if not seconds:
        return (yield)
    before = signal.signal(signal.SIGALRM, _stop)
    signal.alarm(seconds)
    try:
        return (yield)
    except TookTooLong:
        pytest.fail(f"took more than {seconds} s")
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Note how a test ended: passed, failed, skipped, or xfailed and xpassed as pytest's report says."""
    report = yield
    if report.when == "call" or not report.passed:
        outcome = report.outcome
        if hasattr(report, "wasxfail"):
            outcome = "xfailed" if report.skipped else "xpassed"
        why = "" if call.excinfo is None else f"{call.excinfo.typename}: {call.excinfo.value}"
        _note(item.config, test=item.nodeid, outcome=outcome, seconds=round(call.duration, 4), why=why[:2000], where=report.longreprtext[-6000:])
    return report


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """A file that cannot be collected is noted on the error stream; its tests are missing from the outcomes."""
    if report.failed:
        print(f"not collected: {report.nodeid}: {str(report.longrepr).strip().splitlines()[-1]}", file=sys.stderr)


def pytest_configure(config: pytest.Config) -> None:
    """Note when the session began."""
    _note(config, session=time.time())
