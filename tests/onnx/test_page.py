"""The programs of docs/onnx.md, one after the other in an empty folder: flambeau writes a file, ONNX Runtime and flambeau run it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).parents[2]


def test_programs_of_the_page(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    make, runtime, without = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "onnx.md").read_text(), re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ours = ["-m", "flambeau", "run"]
    wanted = {"make": "['batch', 1, 28, 28]", "runtime": "(7, 10)", "again": "(7, 10) 6 ['images'] ['scores']\n(2, 10)"}
    for name, code, command in (("make", make, ours), ("runtime", runtime, []), ("again", without, ours)):
        program = tmp_path / f"{name}.py"
        program.write_text(code)
        done = processes.python(*command, str(program), cwd=tmp_path, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        assert wanted[name] in done.stdout
