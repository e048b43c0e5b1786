"""What docs/deploy.md says to do, in an empty folder: a model, its library, the example in C, and the library in Python."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).parents[2]
NODE = shutil.which("node")


@pytest.mark.skipif(shutil.which("cc") is None, reason="a C compiler is wanted")
def test_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    make, use = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    build, compile_, web, shaders = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    (tmp_path / "make.py").write_text(make)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    shell = f'flambeau() {{ {sys.executable} -m flambeau "$@"; }}\nset -e\n'
    for code in (build, compile_, shaders):
        done = processes.run(["bash", "-c", shell + code], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    assert {p.name for p in (tmp_path / "gpu").iterdir()} == {"digits.mjs", "digits.d.mts", "digits.weights", "package.json"}
    assert (tmp_path / "out" / "result.bin").stat().st_size == 3 * 10 * 4
    done = processes.python("-B", "-c", use, cwd=tmp_path, timeout=300)  # -B: the folder is looked at below
    assert done.stdout == "(3, 10)\n", done.stderr
    if NODE and importlib.util.find_spec("ziglang"):
        done = processes.run(["bash", "-c", shell + web.partition("\n")[2]], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        program, _ = re.findall(r"```js\n(.*?)```", page, re.DOTALL)
        (tmp_path / "use.mjs").write_text(program)
        done = processes.run([NODE, "use.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert done.stdout == "[ 3, 10 ]\n", done.stderr
    listed = set(re.findall(r"`([\w.]+)`", page[page.index("| file |") : page.index("A C compiler makes")])) - {"digits", "digits_static"}
    assert listed == {p.name for p in (tmp_path / "out").iterdir()} - {"example", "result.bin"}
