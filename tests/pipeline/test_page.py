"""docs/pipeline.md, followed from an empty folder: its programs and files, what is pushed, and that `flambeau serve` reads it."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

from tests import processes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "pipeline.md").read_text()


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return processes.python("-m", *words, cwd=folder, env=environment, timeout=300)


def pipeline(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return command(folder, "flambeau", "pipeline", "pipeline.toml", *words)


def ran(done: subprocess.CompletedProcess[str]) -> list[str]:
    return re.findall(r"^(\w+): runs$", done.stdout, re.M)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's files, and the first run of its pipeline."""
    made = tmp_path_factory.mktemp("empty")
    names = re.findall(r"`(\w+\.py)`", PAGE)
    for name, code in zip(dict.fromkeys(names), re.findall(r"```python\n(.*?)```", PAGE, re.S), strict=True):
        (made / name).write_text(code)
    (made / "pipeline.toml").write_text(re.search(r"```toml\n(.*?)```", PAGE, re.S)[1])
    done = pipeline(made)
    assert done.returncode == 0, done.stderr
    assert ran(done) == ["data", "train", "evaluate", "push"]
    return made


def test_metrics_are_written_and_the_model_is_pushed(folder: Path) -> None:
    assert json.loads((folder / "build" / "data.json").read_text()) == {"images": 1797, "brightest": 16, "classes": 10}
    assert json.loads((folder / "build" / "metrics.json").read_text())["accuracy"] >= 0.9
    assert (folder / "models" / "digits" / "1" / "model.pt2").read_bytes() == (folder / "build" / "model.pt2").read_bytes()
    left = [p for p in folder.rglob(".*") if p.name not in (".flambeau-pipeline", ".gitignore")]
    assert left == []


def test_nothing_is_run_again_and_a_condition_stops_the_push(folder: Path) -> None:
    again = pipeline(folder)
    assert again.returncode == 0 and ran(again) == []
    file = folder / "pipeline.toml"
    whole = file.read_text()
    file.write_text(whole.replace("accuracy >= 0.9", "accuracy >= 0.9999"))
    try:
        stopped = pipeline(folder, "--set", "epochs=1")
    finally:
        file.write_text(whole)
    assert stopped.returncode == 1 and ran(stopped) == ["train", "evaluate"]
    assert "accuracy >= 0.9999" in stopped.stderr and "does not hold" in stopped.stderr
    assert os.listdir(folder / "models" / "digits") == ["1"]


def test_the_server_serves_what_was_pushed(folder: Path) -> None:
    from tests.serve.running import Client, running

    with running(folder / "models") as server:
        pixels = {"inputs": [{"name": "x", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": [0.5] * 64}]}
        status, answer, _ = Client(server.port).ask("POST", "/v2/models/digits/infer", pixels)
        assert status == 200 and answer["outputs"][0]["shape"] == [1, 10]


def test_stages_of_dvc_are_the_pipelines_steps(folder: Path, tmp_path: Path) -> None:
    """The same names, files and conditions; a command with a condition that does not hold ends with an error, which stops DVC."""
    yaml = re.search(r"```yaml\n(.*?)```", PAGE, re.S)[1]
    stages = dict(re.findall(r"^  (\w+):\n((?:    .*\n)+)", yaml, re.M))
    steps = tomllib.loads((folder / "pipeline.toml").read_text())["steps"]
    assert list(stages) == list(steps)
    listed = lambda stage, key: re.findall(r"[\w./]+\.\w+", (re.search(rf"^    {key}: \[(.*)\]$", stage, re.M) or ["", ""])[1])
    for name, step in steps.items():
        stage = stages[name]
        assert listed(stage, "outs") == list(step.get("outputs", {}).values())
        assert listed(stage, "metrics") == [step[key] for key in ("metrics",) if key in step]
        assert set(step.get("inputs", {}).values()) <= set(listed(stage, "deps"))
        assert re.findall(r"--require '(.*?)'", stage) == step.get("require", [])
    words = re.search(r"cmd: python -m (.*?)\n    deps", stages["evaluate"], re.S)[1].replace("accuracy >= 0.9", "accuracy >= 2")
    failed = command(folder, *shlex.split(words.replace("build/metrics.json", str(tmp_path / "m.json"))))
    assert failed.returncode == 1 and "accuracy >= 2" in failed.stderr, failed.stderr
    pushed = command(folder, "flambeau.pipeline.push", "build/test.pt", str(tmp_path / "other"))
    assert pushed.returncode == 0 and pushed.stderr == "" and (tmp_path / "other" / "1" / "model.pt").is_file()


STEPS = """\
import time
from pathlib import Path

def first(a):
    a.write_text("1")

def second(a, b, c, scratch):
    seen = scratch / "seen"
    if not Path("reached").exists():
        seen.write_text("first attempt")
        b.write_text("half")
        Path("reached").write_text("")
        time.sleep(60)
    b.write_text(seen.read_text() if seen.exists() else "anew")
    c.mkdir()
    (c / "x").write_text("whole")
"""


def test_a_killed_run_is_taken_up(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    (tmp_path / "pipeline.toml").write_text("""
[steps.one]
function = "steps.py:first"
outputs = { a = "a" }
[steps.two]
function = "steps.py:second"
inputs = { a = "a" }
outputs = { b = "b", c = "c" }
""")
    words = [sys.executable, "-m", "flambeau", "pipeline", "pipeline.toml"]
    process = processes.popen(words, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    end = time.monotonic() + 120
    try:
        while not (tmp_path / "reached").exists():
            assert process.poll() is None and time.monotonic() < end
            time.sleep(0.05)
        process.kill()  # the step's process lives on, and keeps the lock
        process.wait(20)
        refused = pipeline(tmp_path)
        assert refused.returncode == 2 and "another run" in refused.stderr
    finally:
        processes.end(process)
    assert not (tmp_path / "b").exists() and list(tmp_path.glob(".two.part-*"))
    while (done := pipeline(tmp_path)).returncode == 2:  # until the system has taken the lock away
        assert "another run" in done.stderr and time.monotonic() < end
    assert done.returncode == 0 and ran(done) == ["two"], done.stderr
    assert (tmp_path / "b").read_text() == "first attempt" and (tmp_path / "c" / "x").read_text() == "whole"
    assert not list(tmp_path.glob(".two.part-*"))
    (tmp_path / "c" / "x").write_text("spoilt")
    assert ran(pipeline(tmp_path)) == ["two"] and (tmp_path / "b").read_text() == "anew"
