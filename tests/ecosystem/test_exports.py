"""The table of scripts/ecosystem exports, on made-up outcomes; and a model both ways where the packages are."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ecosystem import export_models, exports

SAVED = {"nodes": 3, "core": 4, "parameters": 5000}


def _results(name: str, **changed: Any) -> dict[Any, dict[str, dict[str, Any]]]:
    good = {"program": 0.0, "core": 3e-7}
    found = {("save", side): {name: dict(SAVED)} for side in exports.SIDES}
    found |= {("read", a, b): {name: dict(good)} for a in exports.SIDES for b in exports.SIDES}
    found["read", "flambeau", "torch"][name].update(changed)
    return found


def test_rows_say_what_differs() -> None:
    assert exports.judge("a/b", _results("a/b"))["wrong"] == []
    assert len(exports.judge("a/b", _results("a/b", core=0.01))["wrong"]) == 1
    assert len(exports.judge("a/b", _results("a/b", program=float("nan")))["wrong"]) == 1
    failed = exports.judge("a/b", _results("a/b", error="ValueError: no"))
    assert failed["wrong"] == ["read flambeau torch: ValueError: no"] and "| fails |" in exports.cells(failed)
    assert "| fails: 0e+00, 1e-02 |" in exports.cells(exports.judge("a/b", _results("a/b", core=0.01)))
    alone = exports.judge("a/b", _results("a/b", core=None))
    assert alone["wrong"] == [] and "| 0e+00" not in exports.cells(alone) and "| equal (no core) |" in exports.cells(alone)


def test_the_table_takes_its_place_in_a_page() -> None:
    name, other = export_models.NAMES[:2]
    line = exports.cells(exports.judge(name, _results(name)))
    assert f"| {name} | 5,000 | 3, 4 | 3e-07 |" in line
    lines = exports.table({name: line}, {"timm": "1.0"})
    assert lines[0].startswith("1 models of torchvision ?, timm 1.0") and ": 1 give equal" in lines[0]
    page = exports.insert("# T\n\ntext\n", lines)
    assert exports.kept(page) == {name: line} and page.endswith("<!-- end of models -->\n")
    both = exports.table({**exports.kept(page), other: f"| {other} | fails |"}, {})
    again = exports.insert(page + "after\n", both)
    assert list(exports.kept(again)) == [name, other] and again.endswith("after\n") and again.count(exports.BEGIN) == 1 and ": 1 give equal" in again


def test_there_are_thirty_models() -> None:
    assert len(export_models.NAMES) == len(set(export_models.NAMES)) == 30


def test_a_process_that_dies_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that a process has not come to have its last line as their error."""
    program = tmp_path / "program.py"
    program.write_text(f"import json, sys\nprint(json.dumps({{'name': 'a', **{json.dumps(SAVED)}}}))\nsys.exit('broken')\n")
    monkeypatch.setattr(exports, "PROGRAM", program)
    found = exports.child("torch", sys.executable, "save", tmp_path, ["a", "b"])
    assert found["a"]["nodes"] == 3 and found["b"] == {"error": "the process ended before: broken"}
