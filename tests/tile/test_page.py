"""The programs of docs/tile.md, compiled and interpreted."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import processes

PAGE = Path(__file__).parents[2] / "docs" / "tile.md"


@pytest.mark.parametrize("interpreted", ["", "1"])
def test_programs_of_the_page(interpreted: str, tmp_path: Path) -> None:
    program = tmp_path / "page.py"
    program.write_text("\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)))
    done = processes.python(str(program), env={**os.environ, "FLAMBEAU_TILE_INTERPRET": interpreted}, timeout=300)
    assert done.stdout.split() == ["True", "True"], done.stderr
