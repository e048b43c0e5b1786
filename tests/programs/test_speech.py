"""Programs about speech: the files of `speech/`, run by PyTorch and by flambeau."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs.harness import Options, check, programs

pytest.importorskip("torch")
OPTIONS: dict[str, Options] = {
    "conformer": Options(tolerance=3e-4),  # biases before a batch norm: their gradients are rounding
}


@pytest.mark.parametrize("path", programs("speech"), ids=lambda path: path.stem)
def test_program(path: Path) -> None:
    check(path, OPTIONS.get(path.stem, Options()))
