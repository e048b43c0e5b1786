"""The tools of scripts/ecosystem on small sources, and the programs whose packages are installed here beside flambeau as torch."""

from __future__ import annotations

from pathlib import Path

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
