"""Programs about speech: the files of `speech/`, run by PyTorch and by flambeau."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs.harness import Options, check, programs

pytest.importorskip("torch")
OPTIONS: dict[str, Options] = {}


@pytest.mark.parametrize("path", programs("speech"), ids=lambda path: path.stem)
def test_program(path: Path) -> None:
    check(path, OPTIONS.get(path.stem, Options()))
