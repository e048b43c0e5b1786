"""FileCheck accepts and refuses the same texts as PyTorch's."""

from __future__ import annotations

from typing import Any

import pytest

from flambeau.testing import FileCheck

torch = pytest.importorskip("torch")

TEXT = "alpha beta\ngamma alpha\ndelta alpha\n      ~~~~~\nomega\n"
PROGRAMS = [
    [("check", "alpha"), ("check", "gamma")], [("check", "gamma"), ("check", "beta")], [("check", "alpha"), ("check_same", "beta")],
    [("check", "alpha"), ("check_same", "gamma")], [("check", "beta"), ("check_next", "gamma")], [("check", "alpha"), ("check_next", "delta")],
    [("check_not", "gamma"), ("check", "beta")], [("check", "beta"), ("check_not", "gamma"), ("check", "delta")], [("check_not", "zeta")],
    [("check", "delta"), ("check_not", "beta")], [("check", "delta"), ("check_not", "omega")],
    [("check_dag", "gamma"), ("check_dag", "alpha"), ("check", "omega")],
    [("check_dag", "gamma"), ("check_dag", "zeta")], [("check_count", "alpha", 3)], [("check_count", "alpha", 4)], [("check_count", "alpha", 2, True)],
    [("check_count", "alpha", 3, True)], [("check_regex", "g.m+a")], [("check_regex", "g.x+a")], [("check_source_highlighted", "alpha")],
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_same_verdict(program: list[tuple[Any, ...]]) -> None:
    verdicts = []
    for kind in (FileCheck, torch.testing.FileCheck):
        check = kind()
        for name, *arguments in program:
            check = getattr(check, name)(*arguments)
        try:
            check.run(TEXT)
            verdicts.append("passes")
        except RuntimeError:
            verdicts.append("fails")
    assert verdicts[0] == verdicts[1]
