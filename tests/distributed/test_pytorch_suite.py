"""PyTorch's own tests of torch.distributed that ship with it and need no GPU: those that pass with gloo pass with flambeau in PyTorch's name."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.distributed.ranks import HERE, ROOT, environment


def outcomes(folder: Path, ours: bool, ranks: int, names: list[str]) -> dict[str, str]:
    """How each test ended."""
    package = importlib.util.find_spec("torch")
    assert package is not None and package.origin is not None
    out = folder / f"outcomes-{ours}"
    command = [sys.executable, *(["-m", "flambeau", "run"] if ours else []), str(HERE / "pytorch_suite.py"), str(Path(package.origin).parent), str(out), *names]
    processes.run(command, env=environment(WORLD_SIZE=str(ranks)), cwd=ROOT, check=True, timeout=3000, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {entry["test"]: entry["outcome"] for entry in map(json.loads, out.read_text().splitlines())}


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_as_pytorch(ranks, tmp_path):
    pytest.importorskip("torch")
    theirs = outcomes(tmp_path, False, ranks, [])
    wanted = [name for name, outcome in theirs.items() if outcome == "passed"]
    assert len(wanted) > 80
    mine = outcomes(tmp_path, True, ranks, wanted)
    wrong = {name: mine.get(name) for name in wanted if mine.get(name) != "passed"}
    assert not wrong
