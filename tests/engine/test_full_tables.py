"""Programs while every table of the process is full, and indices of traces come again (full_tables.py; CI runs 40 of each day)."""

from __future__ import annotations

import pytest

from tests import processes


@pytest.mark.parametrize("seed", [3, 31])
def test_programs(seed: int) -> None:
    pytest.importorskip("torch")
    done = processes.python("-m", "tests.engine.full_tables", str(seed), "2")
    assert done.returncode == 0, done.stdout + done.stderr
