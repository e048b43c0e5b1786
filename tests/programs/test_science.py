"""Programs about graphs, agents, physics and statistics: the files of `science/`, run by PyTorch and by flambeau."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs.harness import Options, check, programs

pytest.importorskip("torch")
OPTIONS: dict[str, Options] = {}


@pytest.mark.parametrize("path", programs("science"), ids=lambda path: path.stem)
def test_program(path: Path) -> None:
    check(path, OPTIONS.get(path.stem, Options()))
