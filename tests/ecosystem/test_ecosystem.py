"""The tools of scripts/ecosystem on small sources, and the programs whose packages are installed here beside flambeau as torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ecosystem import compare, names, scan

SOURCE = """
import torch, os
import torch.nn as nn
from torch.nn import functional as F, Linear as Layer
from torch.no_such_part import thing
def f(x):
    y = nn.no_such_layer(F.relu(x)) + torch.ones(2).no_such_method + Layer.no_such_attribute
    return torch.linalg.no_such_function(os.path.join("torch.a"), y)
"""


def test_uses_of_a_source() -> None:
    found = scan.uses(SOURCE)
    assert {"torch.nn.functional.relu", "torch.nn.no_such_layer", "torch.no_such_part.thing", "torch.linalg.no_such_function", "torch.ones"} <= found
    assert not any("os" in name.split(".") for name in found)
    lacking = names.lacking(sorted(found), "flambeau")
    assert lacking == [
        "torch.linalg.no_such_function", "torch.nn.Linear.no_such_attribute", "torch.nn.no_such_layer", "torch.no_such_part", "torch.no_such_part.thing",
    ]  # fmt: skip


def test_outcomes_are_compared() -> None:
    ours = {"a": [1.0, 2], "b": "x"}
    assert not list(compare.differences(ours, {"a": [1.00001, 2], "b": "x"}))
    for other in ({"a": [1.1, 2], "b": "x"}, {"a": [1.0, 3], "b": "x"}, {"a": [1.0, 2], "b": "y"}, {"a": [1.0], "b": "x"}, {"a": [1.0, 2]}):
        assert list(compare.differences(ours, other))


@pytest.mark.parametrize("program", sorted(compare.FOLDER.glob("use_*.py")), ids=lambda p: p.stem)
def test_programs_say_what_they_use(program: Path) -> None:
    packages, what = compare.head(program)
    assert packages and what
    compile(program.read_text(), str(program), "exec")


def test_what_classes_ask_of_themselves_counts() -> None:
    """Inner names of torch's classes that packages' subclasses call."""
    lines = ["import torch.nn as nn", "class A(nn.Linear):", "    def f(self):", "        self.x = super()._inner() + self._other(self.y.z)"]
    found = scan.uses("\n".join(lines))
    assert {"torch.nn.Linear._inner", "torch.nn.Linear._other", "torch.nn.Linear.y"} <= found
    assert not any(name.endswith((".x", ".z")) for name in found)


def test_pages_keep_what_was_not_run_again() -> None:
    """Rows of programs without a new outcome stay; measured parts and whole processes become the table of speed."""
    before = "# T\n\n| packages | what was run | result | seconds |\n|---|---|---|---|\n"
    before += "| old 1.0 | an old use | equal | 1.2, 2.3 |\n| new 1.0 | a new use | fails | 1, 2 |\n"
    rows = [
        compare.Row("new", ["new"], "a new use", "equal", 1.0, 2.0, (2.0, 3.0), {"step": (0.001, 0.004), "inference": (0.002, 0.001)}),
        compare.Row("plain", ["plain"], "a plain use", "runs", 1.0, None),
    ]
    page = compare.page(rows, {"new": "2.0"}, before)
    assert "| old 1.0 | an old use | equal |\n" in page and "| new 2.0 | a new use | equal |\n" in page and "fails" not in page
    assert "| new | step | 1.00, 4.00 | 4.00 | 2.0, 3.0 | 1.50 |" in page and "|  | inference | 2.00, 1.00 | 0.50 |  |  |" in page
    assert "in 1 of 2 parts, geometric mean 1.41. Whole processes: 1 of 1, 1.50." in page
    assert compare.page(rows, {"new": "2.0"}, page) == page
    assert "| new | step | 1.00, 4.00 | 4.00 | 2.0, 3.0 | 1.50 |" in compare.page([rows[1]], {}, page + "\n" + compare.SUITES_HEADING + "\n")
    assert compare.speed_table([rows[1]], "some processor") == []


def test_parts_are_measured_only_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    namespace: dict[str, Any] = {}
    exec((compare.FOLDER / "warm.py").read_text(), namespace)
    calls: list[int] = []
    monkeypatch.delenv("WARM_FILE", raising=False)
    namespace["measure"]("part", lambda: calls.append(1))
    assert not calls
    monkeypatch.setenv("WARM_FILE", str(tmp_path / "warm"))
    namespace["measure"]("part", lambda: calls.append(1), seconds=0.01, most=20)
    entry = json.loads((tmp_path / "warm").read_text())
    assert len(calls) >= 8 and entry["what"] == "part" and 0 <= entry["seconds"] < 0.01
