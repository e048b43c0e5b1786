"""The commands as a user types them, and the code that the README and the pages show."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import processes

ROOT = Path(__file__).resolve().parents[2]
TOGETHER = ("deploy.md", "export.md", "onnx.md", "pipeline.md", "serving.md", "tile.md")  # whose programs build on each other: test_page.py of their folders
PAGES = [ROOT / "README.md", *[page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in TOGETHER]]
SNIPPETS = [
    pytest.param(code, id=f"{page.stem}-{i}")
    for page in PAGES for i, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
]  # fmt: skip


def run(folder: Path, *arguments: str, timeout: int = 300) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    return processes.python("-m", "flambeau", *arguments, cwd=folder, env=environment, timeout=timeout)


@pytest.mark.parametrize("code", SNIPPETS)
def test_code_of_the_pages_runs(code: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = processes.python("-c", code, cwd=tmp_path, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr


def test_demo_reaches_its_accuracy_and_writes_its_files(tmp_path: Path) -> None:
    pytest.importorskip("tqdm"), pytest.importorskip("matplotlib")
    done = run(tmp_path, "demo", "--out", "made")
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"([\d.]+) % of the held-out images are right", done.stdout)
    assert accuracy and float(accuracy[1]) >= 98.0, done.stdout
    assert (tmp_path / "made" / "model.pt").stat().st_size > 10_000
    assert (tmp_path / "made" / "curves.png").read_bytes().startswith(b"\x89PNG")
    for words in ("reading the shipped digits", "to learn from", "compile the network's kernels"):  # before the first bar
        assert words in done.stdout.split("epoch 1/")[0], done.stdout
    processes.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    seen = processes.run(["git", "status", "--porcelain", "--untracked-files=all"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert seen.stdout == ""
    assert str(Path("made") / "model.pt") in done.stdout and str(Path("made") / "curves.png") in done.stdout


@pytest.mark.parametrize("epochs", [1, 2, 3, 20])
def test_epochs_are_whole_numbers_on_the_axis(epochs: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    from flambeau.cli import demo

    ticks: list[float] = []
    close = pyplot.close

    def look(figure: Any) -> None:
        axes = next(a for a in figure.axes if a.get_xlabel() == "epoch")
        ticks.extend(axes.get_xticks())
        close(figure)

    monkeypatch.setattr(pyplot, "close", look)
    demo.draw(demo.digits(), demo.History([1.0] * epochs, [0.5] * epochs), tmp_path / "curves.png")
    assert ticks and all(float(t).is_integer() for t in ticks), ticks


def test_version_and_missing_scripts(tmp_path: Path) -> None:
    import flambeau

    done = run(tmp_path, "--version")
    assert done.returncode == 0 and done.stdout.strip() == f"flambeau {flambeau.__version__}"
    for command in (["run"], ["explain"], ["explain", "--html", "p.html"], ["cache", "warm"]):
        done = run(tmp_path, *command, "nosuch.py")
        assert done.returncode == 2 and done.stdout == "" and "no such file: nosuch.py" in done.stderr, (command, done)
        done = run(tmp_path, *command, str(tmp_path))
        assert done.returncode == 2 and "this is a folder" in done.stderr, (command, done)
    assert not (tmp_path / "p.html").exists()


def test_demo_without_its_data(tmp_path: Path) -> None:
    done = run(tmp_path, "demo", "--data", str(tmp_path))
    assert done.returncode != 0 and str(tmp_path) in done.stderr + done.stdout and "Traceback" not in done.stderr


SCRIPT = """
import sys
import torch, torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
assert __name__ == "__main__"
x = torch.linspace(0, 1, 32).unsqueeze(1)
for a, b in DataLoader(TensorDataset(x, 2 * x), batch_size=16):
    assert isinstance(F.mse_loss(nn.Linear(1, 1)(a), b), Tensor)
print(torch.__name__, sys.argv[1:])
"""


def test_run_gives_flambeau_as_torch(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run(tmp_path, "run", "script.py", "--size", "3")
    assert done.returncode == 0 and done.stdout.strip() == "torch ['--size', '3']", done.stderr
    done = run(tmp_path, "run", "-m", "script", "x")
    assert done.returncode == 0 and done.stdout.strip() == "torch ['x']", done.stderr


def test_run_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import torch\ntorch.nn.functional.sofmax\n")
    done = run(tmp_path, "run", "a.py")
    assert done.returncode == 1 and "sofmax" in done.stderr and "softmax" in done.stderr
    (tmp_path / "b.py").write_text("import torch.no_such_part\n")
    done = run(tmp_path, "run", "b.py")
    assert done.returncode == 1 and "torch.no_such_part" in done.stderr and "flambeau" in done.stderr
    assert run(tmp_path, "run", "none.py").returncode == 2
    assert run(tmp_path, "run").returncode == 2


def test_explain_tells_of_numbers_that_change(tmp_path: Path) -> None:
    lines = ["import torch", "x = torch.randn(4, 4)", "for v in (0.1, 0.2, 0.3):", "    torch.nn.functional.leaky_relu(x, v).tolist(), x.norm(1 + v).item()"]
    (tmp_path / "s.py").write_text("\n".join(lines))
    done = run(tmp_path, "explain", "s.py")
    assert "leaky_relu.negative_slope: at run time: finite floats" in done.stdout
    assert "vector_norm.p: in the key: its body looks at the value" in done.stdout


def test_explain_prints_graph_and_kernels(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text("import torch\nx = torch.ones(50, 60)\nprint(x.softmax(-1).sum().item())\n")
    done = run(tmp_path, "explain", "s.py")
    assert done.returncode == 0, done.stderr
    for words in ("softmax", "amax(", "kernels", "bytes", "floor", "observation"):
        assert words in done.stdout, words


def test_info_and_bench(tmp_path: Path) -> None:
    done = run(tmp_path, "info")
    assert done.returncode == 0 and re.search(r"primitives\s+\d+", done.stdout) and "threads" in done.stdout, done.stderr
    done = run(tmp_path, "bench", "no such case")
    assert done.returncode == 2 and "X + X" in done.stderr
    for asked, near in (("restnet", "ResNet-18"), ("sofmax", "softmax, 4096"), ("ResNt inferense", "ResNet-18, 224 x 224, batch 8, inference")):
        done = run(tmp_path, "bench", "gelu", asked)  # no case is measured, although there is one for the first name
        assert done.returncode == 2 and repr(asked) in done.stderr and near in done.stderr and "f64 matmul" not in done.stderr and not done.stdout
    done = run(tmp_path, "bench", "--fresh", "no such program")
    assert done.returncode == 2 and "there are:" in done.stderr
    done = run(tmp_path, "bench", "100 dependent", "--rounds", "1")
    assert done.returncode == 0 and re.search(r"100 dependent operations.* us ", done.stdout), done.stderr + done.stdout


def test_calibrate_measures_once_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    done = run(tmp_path, "calibrate", "--show")
    assert done.returncode == 0 and "never measured" in done.stdout, done.stderr
    made = run(tmp_path, "calibrate")
    assert made.returncode == 0 and "kept in" in made.stdout and "vector_float32" in made.stdout, made.stderr
    shown = run(tmp_path, "calibrate", "--show")
    assert shown.stdout == made.stdout.split("\n", 1)[1] and shown.stdout.startswith("measured")


def test_the_porting_page_goes_through_every_difference() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "docs" / "differences.md").read_text(), re.M)
    page = (ROOT / "docs" / "porting.md").read_text()
    advised = [" ".join(text.split()) for text in re.findall(r"^- \*\*(.*?)\.\*\* ", page, re.M | re.S)]
    assert advised == headings, set(advised) ^ set(headings)
