"""Programs about images: the files of `vision/`, run by PyTorch and by flambeau."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.harness import FOLDER, Options, Outcome, check, differences, programs, run

pytest.importorskip("torch")
OPTIONS: dict[str, Options] = {}
LIBRARIES = ("einops", "scipy")  # that some programs import


@pytest.mark.parametrize("path", programs("vision"), ids=lambda path: path.stem)
def test_program(path: Path) -> None:
    for library in LIBRARIES:
        if f"from {library}" in path.read_text():
            pytest.importorskip(library)
    check(path, OPTIONS.get(path.stem, Options()))


def test_a_script_under_the_command(tmp_path: Path) -> None:
    """`flambeau run vae.py` prints what `python vae.py` does with PyTorch (the file has no dropout)."""
    script = FOLDER / "vision" / "vae.py"
    environment = {**os.environ, "PYTHONPATH": str(FOLDER.parents[1])}
    command = [sys.executable, "-m", "flambeau", "run", str(script), "--epochs", "1"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    theirs = run(script, False, Options(arguments=("--epochs", "1")))
    assert theirs.printed and not differences(Outcome(printed=done.stdout), theirs)
