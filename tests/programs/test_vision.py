"""Programs about images: the files of `vision/`, run by PyTorch and by flambeau."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.programs.harness import Options, check, programs

pytest.importorskip("torch")
OPTIONS: dict[str, Options] = {}
LIBRARIES = ("einops", "scipy")  # that some programs import



@pytest.mark.parametrize("path", programs("vision"), ids=lambda path: path.stem)
def test_program(path: Path) -> None:
    for library in LIBRARIES:
        if f"from {library}" in path.read_text():
            pytest.importorskip(library)
    check(path, OPTIONS.get(path.stem, Options()))
