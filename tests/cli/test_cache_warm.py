"""`flambeau cache warm SCRIPT`: afterwards the script compiles nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import processes

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FLAMBEAU_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-m", "flambeau.cli.main", "cache", *arguments]
    return processes.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)


def counts(text: str) -> tuple[int, int]:
    found = re.search(r"compiled (\d+) kernels, found (\d+) on disk", text)
    assert found, text
    return int(found[1]), int(found[2])


def test_second_time_everything_is_there(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import sys, torch\nprint((torch.ones(4).sin() + 2).sum().item() > 0, sys.argv[1:])\n")
    first = run(tmp_path, "warm", "s.py", "--flag", "x")
    assert first.returncode == 0 and "True ['--flag', 'x']" in first.stdout, first.stderr
    new, _ = counts(first.stdout)
    assert new >= 1
    again = run(tmp_path, "warm", "s.py")
    assert counts(again.stdout)[0] == 0 and counts(again.stdout)[1] >= 1
    shown = run(tmp_path, "show")
    assert int(re.search(r"entries\s+(\d+)", shown.stdout)[1]) >= new  # type: ignore[index]
    cleared = run(tmp_path, "clear")
    assert "deleted" in cleared.stdout and counts(run(tmp_path, "warm", "s.py").stdout)[0] >= 1


def test_endless_script_is_ended_when_settled(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(
        "import torch\nx = torch.ones(8)\nwhile True:\n    try:\n        x = (x * 1.5).clamp(max=9)\n        x.sum().item()\n"
        "    except Exception:\n        pass\n"
    )
    done = run(tmp_path, "warm", "--settled", "1.5", "s.py")
    assert done.returncode == 0 and "nothing was compiled for 1.5 seconds" in done.stdout and counts(done.stdout)[0] >= 1


def test_status_and_errors(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import torch\nprint(torch.ones(3).sum().item())\nraise SystemExit(4)\n")
    done = run(tmp_path, "warm", "s.py")
    assert done.returncode == 4 and "compiled" in done.stdout
    assert run(tmp_path, "warm").returncode == 2 and "usage: flambeau cache warm" in run(tmp_path, "warm", "--help").stdout
    missing = run(tmp_path, "warm", "no.py")
    assert missing.returncode == 2 and "no such file" in missing.stderr
