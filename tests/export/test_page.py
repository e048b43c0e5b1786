"""The programs of docs/export.md, one after the other in an empty folder: flambeau writes a file, PyTorch and flambeau run it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).parents[2]


def test_programs_of_the_page(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    make, with_pytorch, without, fewer = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "export.md").read_text(), re.DOTALL)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ours = ["-m", "flambeau", "run"]
    for name, code, command in (("make", make, ours), ("read", with_pytorch, []), ("again", without, ours), ("fewer", fewer, ours)):
        program = tmp_path / f"{name}.py"
        program.write_text(code)
        done = processes.python(*command, str(program), cwd=tmp_path, env=environment, timeout=300)
        assert done.returncode == 0, done.stderr
        if name == "fewer":
            assert done.stdout.strip() == code.strip().split("\n")[-1].removeprefix("# ")
        elif name != "make":
            assert "torch.Size([7, 10])" in done.stdout
