"""The programs of docs/tile.md, compiled and interpreted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tile.md"


@pytest.mark.parametrize("interpreted", ["", "1"])
def test_programs_of_the_page(interpreted: str, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    done = subprocess.run(
        [sys.executable, str(program)], env={**os.environ, "FLAMBEAU_TILE_INTERPRET": interpreted}, capture_output=True, text=True, timeout=300
    )
    assert done.stdout.split() == ["True", "True"], done.stderr
