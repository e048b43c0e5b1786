"""generate_opcheck_tests: which tests are made of a test class, which pass, and what the file of failures does; as in PyTorch."""

from __future__ import annotations

import importlib
import json
import unittest
from pathlib import Path
from typing import Any

import pytest

import flambeau as ft

CASES = ["right", "shaped wrongly", "writes"]
SPACE = "generated_opchecks"


def _operators(torch: Any) -> Any:
    """Three operators: a right one, one whose shapes are said wrongly, one that writes what it does not say; and one of another namespace."""

    def made(name: str, fn: Any, fake: Any, space: str = SPACE) -> Any:
        op = torch.library.custom_op(f"{space}::{name}", fn, mutates_args=(), schema="(Tensor x) -> Tensor")
        op.register_fake(fake)
        return op

    made("other", lambda x: x + 1, lambda x: x.new_empty(7), space="generated_elsewhere")
    made("right", lambda x: x * 2, torch.empty_like)
    made("shaped", lambda x: x * 2, lambda x: x.new_empty(9))
    made("writes", lambda x: x.add_(1) * 2, torch.empty_like)
    return torch.ops


def _class(torch: Any) -> Any:
    ops = _operators(torch)
    space = getattr(ops, SPACE)

    class Sample(unittest.TestCase):
        def test_right(self) -> None:
            self.assertEqual(space.right(torch.ones(3)).tolist(), [2.0] * 3)
            ops.generated_elsewhere.other(torch.ones(3))

        def test_shaped(self) -> None:
            space.right(space.shaped.default(torch.ones(3)))

        def test_writes(self) -> None:
            space.writes(torch.ones(3))

    return Sample


def _outcomes(torch: Any, place: Path, failures: dict[str, Any], *, decorators: Any = None) -> dict[str, str]:
    """What becomes of each generated test."""
    optests = importlib.import_module(f"{torch.__name__}.testing._internal.optests")
    place.write_text(json.dumps({"_description": _description(torch), "data": failures, "_version": 1}, indent=2, sort_keys=True) + "\n")
    sample = _class(torch)
    optests.generate_opcheck_tests(sample, [SPACE], str(place), decorators or {})
    outcomes = {}
    for name in sorted(n for n in dir(sample) if n.startswith("test_")):
        result = unittest.TestResult()
        sample(name).run(result)
        outcomes[name] = "skipped" if result.skipped else "passed" if result.wasSuccessful() else "failed"
    return outcomes


def _description(torch: Any) -> str:
    found: str = importlib.import_module(f"{torch.__name__}.testing._internal.optests.generate_tests").DESCRIPTION
    return found


def _said(name: str, status: str) -> dict[str, dict[str, str]]:
    return {name: {"comment": "", "status": status}}


FILES: list[dict[str, Any]] = [
    {},
    {f"{SPACE}::shaped": _said("Sample.test_faketensor__test_shaped", "xfail"), f"{SPACE}::writes": _said("Sample.test_schema__test_writes", "skip")},
    {f"{SPACE}::right": _said("Sample.test_schema__test_right", "xfail")},  # it passes
]


@pytest.mark.parametrize("failures", FILES)
def test_as_pytorch(failures: dict[str, Any], tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    wanted = _outcomes(torch, tmp_path / "theirs.json", failures)
    assert _outcomes(ft, tmp_path / "ours.json", failures) == wanted
    assert "failed" in wanted.values() and "passed" in wanted.values()


def test_the_file_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_OPCHECK_ACCEPT", "1")
    place = tmp_path / "failures.json"
    assert "failed" not in _outcomes(ft, place, {}).values()
    found = json.loads(place.read_text())["data"]
    assert found[f"{SPACE}::shaped"]["Sample.test_faketensor__test_shaped"] == {"comment": "", "status": "xfail"} and f"{SPACE}::right" not in found
    monkeypatch.delenv("PYTORCH_OPCHECK_ACCEPT")
    later = _outcomes(ft, place, found)
    assert {name for name, outcome in later.items() if outcome == "failed"} == {  # operators of custom_op say that they can be exported
        f"test_pt2_compliant_tag_{SPACE}_shaped", f"test_pt2_compliant_tag_{SPACE}_writes",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("failures", "text"),
    [({"a::b": _said("Sample.test_schema__test_nothing", "xfail")}, "test_nothing does not exist on the TestCase 'Sample"),
     ({"a::b": _said("Sample.test_schema__test_right", "never")}, "got status=never"), ({"a::b": _said("Sample.test_right", "skip")}, "should begin with"),
     ({"a::b": {"Sample.test_schema__test_right": {"status": "skip"}}}, "keys 'comment' and 'status'")],
)  # fmt: skip
def test_files_that_are_not_in_order(failures: dict[str, Any], text: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=text):
        _outcomes(ft, tmp_path / "failures.json", failures)


def test_names_and_decorators(tmp_path: Path) -> None:
    from flambeau.testing._internal import optests

    place = tmp_path / "failures.json"
    place.write_text("")
    with pytest.raises(RuntimeError, match="formatted a certain way"):
        optests.generate_opcheck_tests(_class(ft), [SPACE], str(place))
    name = "test_schema__test_right"
    assert _outcomes(ft, place, {}, decorators={name: [unittest.skip("not now")]})[name] == "skipped"
    sample = _class(ft)
    sample.test_right = optests.dontGenerateOpCheckTests("slow")(sample.test_right)
    seen: list[bool] = []
    sample.test_inside = lambda self: seen.append(optests.is_inside_opcheck_mode())
    optests.generate_opcheck_tests(sample, [SPACE], str(place), test_utils=["test_schema"])
    assert not hasattr(sample, name) and hasattr(sample, "test_schema__test_shaped")
    sample("test_schema__test_inside").run(unittest.TestResult())
    assert seen == [True] and not optests.is_inside_opcheck_mode()
    with pytest.raises(RuntimeError, match="already has a method named"):
        optests.generate_opcheck_tests(sample, [SPACE], str(place), test_utils=["test_schema"])
