"""docs/slow.md: its example runs, and what it says of counters is true."""

from __future__ import annotations

import re
from pathlib import Path

import flambeau as torch
from tests import processes

PAGE = (Path(__file__).parents[2] / "docs" / "slow.md").read_text()


def test_the_example_shows_what_new_sizes_cost() -> None:
    """In a process of its own: what others have recorded changes the counts."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = processes.python("-c", code, check=True)
    *_, last = done.stdout.strip().split("\n")
    assert last.startswith("81 ")
    assert "'slow_path_entries': 0" in last and "'plans_made': 0" in last and "'class_plans': 0" not in last


def test_every_counter_that_it_names_exists() -> None:
    named = {name for row in re.findall(r"^\| `([^|]*)` \|", PAGE, re.MULTILINE) for name in row.split("`, `")}
    counters = {name for name in named if name.islower() and "_" in name}
    assert len(counters) > 8
    assert counters <= set(torch.stats())
