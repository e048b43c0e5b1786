"""`flambeau coverage`: the page in docs/ is the present one, and the comparison finds what it is there to find."""

from __future__ import annotations

import builtins
import importlib
import os
from pathlib import Path
from types import ModuleType

import pytest

from flambeau.cli import coverage
from flambeau.cli.coverage import Parameter, differences, documented, public_names
from tests import processes

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def test_page_is_present() -> None:
    torch = pytest.importorskip("torch")
    text = PAGE.read_text()
    if f"PyTorch {torch.__version__.split('+')[0]};" not in text:
        pytest.skip("the page was made with another PyTorch")
    # In a process of its own: here other tests may have changed how functions look (subclasses of Tensor do).
    script = "from flambeau.cli import coverage; import sys; sys.stdout.write(coverage.page())"
    done = processes.python("-c", script, check=True, env={**os.environ, "PYTHONPATH": str(PAGE.parents[1])})
    assert done.stdout == text, "docs/coverage.md is stale: flambeau coverage --out docs/coverage.md"


def test_comparison_of_known_names() -> None:
    pytest.importorskip("torch")
    functional = coverage.compare("nn.functional")
    assert functional is not None
    assert {"relu", "max_pool3d", "linear_cross_entropy"} <= {*functional.equal, *functional.open}
    assert coverage.compare("no.such.space") is None
    assert "CustomDecompTable" in coverage.compare("export").missing
    overloads = coverage.their_signatures(importlib.import_module("torch").add, "add", "torch")
    assert [Parameter("input", "positional", None), Parameter("other", "positional", None)] == overloads[0][:2]


def test_differences() -> None:
    theirs = [Parameter("input", "positional", None), Parameter("dim", "positional", "1.0"), Parameter("dtype", "keyword", "None")]
    assert differences(theirs, theirs, False) == []
    assert differences([*theirs, Parameter("more", "positional", None)], theirs, False) == []
    assert differences(theirs[:2], theirs, False) == ["no dtype"]
    assert differences([theirs[0], Parameter("dim", "positional", "2.0"), theirs[2]], theirs, False) == ["dim=2.0, not 1.0"]
    assert differences([theirs[0], Parameter("dim", "keyword", "1.0"), theirs[2]], theirs, False) == ["dim only by keyword"]
    assert differences([theirs[1], theirs[0], theirs[2]], theirs, False) == ["input is number 2, not 1", "dim is number 1, not 2"]
    assert differences([Parameter("self", "positional", None), theirs[1]], [theirs[1]], True) == []


def test_documented_signatures() -> None:
    def function() -> None:
        """
        f(input, dim=-1, *, keepdim=False, out=None) -> Tensor

        What it does.

        f(input, sizes=(1, 2)) -> Tensor
        """

    first, second = documented(function, "f")
    assert first[1:3] == [Parameter("dim", "positional", "-1.0"), Parameter("keepdim", "keyword", "False")]
    assert second[1] == Parameter("sizes", "positional", "(1.0, 2.0)")


def test_public_names() -> None:
    module = ModuleType("torch.some")
    module.__dict__.update(_private=1, dtype=type("dtype", (), {"__module__": "torch"}), path=Path, other=builtins, limit=3)
    assert public_names(module) == ["dtype"]
    module.__dict__["__all__"] = ["limit", "_private", "absent"]
    assert public_names(module) == ["limit"]


def test_without_torch(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def missing(name: str) -> ModuleType:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    monkeypatch.setattr(importlib, "import_module", missing)
    assert coverage.coverage(None) == 1
    assert "flambeau[torch]" in capsys.readouterr().err
