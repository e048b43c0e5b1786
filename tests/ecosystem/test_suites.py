"""`scripts/ecosystem suites` on a small suite: tests that pass, differ, end the process and take too long are told apart."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from tests.ecosystem import compare, suite_table, suites

# The second interpreter is the same one with another switch, which stands for the other torch.
TESTS = """
import os, signal, time
import pytest
OURS = os.environ.get("SECOND") == "1"
def test_passes(): pass
@pytest.mark.parametrize("x", [1, 2])
def test_differs(x): assert not OURS or x == 1, "a reason"
def test_known(): assert not OURS
def test_fails(): assert False
def test_ends_the_process():
    if OURS: os.kill(os.getpid(), signal.SIGKILL)
def test_takes_long():
    if OURS: time.sleep(60)
def test_skipped(): pytest.skip("no")
def test_last(): pass
"""


@pytest.fixture
def result(tmp_path: Path) -> dict[str, object]:
    """The outcome of a suite of these tests."""
    (tmp_path / "sources" / "small" / "tests").mkdir(parents=True)
    (tmp_path / "sources" / "small" / "tests" / "test_small.py").write_text(TESTS)
    second = tmp_path / "second"
    second.write_text(f'#!/bin/sh\nSECOND=1 exec "{sys.executable}" "$@"\n')
    second.chmod(0o755)
    suite = suite_table.Suite("small", "small", "nobody/small", "v1", "all", "tests", "tests", differ={"*test_known": "it is known"})
    options = argparse.Namespace(sources=str(tmp_path / "sources"), torch=sys.executable, flambeau=str(second), limit=60.0, each=1, patience=2)
    return suites.judge(suite, options)


def test_what_differs_is_told(result: dict[str, object]) -> None:
    differing = result["differing"]
    assert isinstance(differing, dict)
    found = {test.partition("::")[2]: entry["outcome"] for test, entry in differing.items()}
    assert found == {"test_differs[2]": "failed", "test_known": "failed", "test_ends_the_process": "crashed", "test_takes_long": "failed"}
    assert "took more than 2 s" in differing["tests/test_small.py::test_takes_long"]["why"]
    assert (result["passed"], result["passed_with_pytorch"], result["not_reached"]) == (3, 7, 0)
    text = suites.section([result], {"small": "1.2"})
    assert "| small 1.2 | all | 7 | 3 (42.9 %) | 0 |" in text
    assert "- small, 1 test: it is known" in text and "- small, 3 tests: not looked into" in text
    other = {**result, "package": "other-one", "what": "a part", "passed": 7, "differing": {}}
    both = suites.section([other], {"other-one": "2"}, text)  # the first suite was not run again
    assert "| small 1.2 | all | 7 | 3 (42.9 %) | 0 |" in both and "| other-one 2 | a part | 7 | 7 (100.0 %) | 0 |" in both
    assert "- small, 3 tests: not looked into" in both and suites.section([other], {"other-one": "2"}, both) == both
    assert "not looked into" not in suites.section([{**result, "differing": {}}], {"small": "1.3"}, both)


def test_the_table() -> None:
    names = [suite.name for suite in suite_table.SUITES]
    assert len(names) == len(set(names))
    for suite in suite_table.SUITES:
        folders = suite.folders.split()
        for argument in suite.arguments.split():
            assert argument.startswith("-") or argument.isdigit() or any(argument == f or argument.startswith(f + "/") for f in folders), (suite.name, argument)


def test_what_stands_around_the_section_stays() -> None:
    page = f"# Title\n\n{compare.SUITES_HEADING}\n\nold\n\n## After\ntext\n"
    assert suites.replaced(page, f"{compare.SUITES_HEADING}\n\nnew\n") == f"# Title\n\n{compare.SUITES_HEADING}\n\nnew\n\n## After\ntext\n"
    assert suites.replaced("# Title\n", f"{compare.SUITES_HEADING}\n") == f"# Title\n\n{compare.SUITES_HEADING}\n"
