"""What a type checker sees of a program: a training script without errors, and mistakes that are found, with mypy and pyright.

The checkers are run on the program as it stands (`import flambeau as torch`), in their strict modes. They take some ten seconds, so the tests are
slow ones (`scripts/lint` runs them); that the stubs are up to date is always tested.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from flambeau.cli import torch_package
from tests import processes

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
from __future__ import annotations

import torch
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first = nn.Linear(8, width)
        self.norm = nn.LayerNorm(width)
        self.last = nn.Linear(width, 3)
        self.register_buffer("scale", torch.ones(1))
        self.extra = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.norm(self.first(x)))
        h = F.dropout(h, 0.1, training=self.training)
        out: torch.Tensor = self.last(h) + self.extra
        return out


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())


def main() -> None:
    torch.manual_seed(0)
    device = torch.device("cpu")
    x = torch.randn(128, 8, device=device)
    y = (x.sum(dim=1) > 0).long() + (x[:, 0] > 1).to(torch.int64)
    loader = DataLoader(TensorDataset(x, y), batch_size=16, shuffle=True)
    model = Net().to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for epoch in range(2):
        total = 0.0
        for batch, target in loader:
            optimizer.zero_grad(set_to_none=True)
            loss = criterion(model(batch), target)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        schedule.step()
        print(epoch, total, accuracy(model, x, y))
    a = torch.cat([x, x], dim=0).view(2, -1, 8).permute(1, 0, 2).contiguous()
    b = torch.stack([a, a]).softmax(dim=-1).log().clamp(min=-5.0)
    c = torch.einsum("ij,kj->ik", x, x) @ x.t().T
    values, indices = torch.topk(c, 3, dim=1)
    d = torch.where(values > 0, values, torch.zeros_like(values)).sum()
    e = F.softmax(c, dim=-1) + torch.softmax(c, dim=-1)
    torch.save(model.state_dict(), "model.pt")
    model.load_state_dict(torch.load("model.pt"))
    shape: torch.Size = b.shape
    n: int = shape[0]
    f: float = d.item()
    print(n, f, e.dtype == torch.float32, indices.tolist(), x.numpy().shape, x[0, :2], float(x[0, 0]), -x, 2 * x, x**2, x / 3, x.grad)


if __name__ == "__main__":
    main()
"""
# One mistake a line.
MISTAKES = """\
import torch
bad: int = torch.ones(3)
torch.ones(3).foo()
torch.nn.Linear("a", 2)
torch.relu()
y: str = torch.nn.functional.relu(torch.ones(2))
torch.nosuch(3)
torch.zeros(2).sum().nothing()
z: int = torch.randn(2, 3) @ torch.randn(3, 4)
q: str = torch.arange(3) == 2
torch.nn.Linear(3)
"""


PROGRAMS = {p.name: p.read_text() for p in sorted((Path(__file__).parent / "programs").glob("*.py"))} | {"program.py": PROGRAM}


def _renamed(text: str) -> str:
    """A program for torch as one of `import flambeau as torch`."""
    ours = re.sub(r"^import torch$", "import flambeau as torch", text, flags=re.M)
    ours = re.sub(r"^import torch\.", "import flambeau.", ours, flags=re.M)
    return re.sub(r"^from torch\b", "from flambeau", ours, flags=re.M)


def _errors(checker: str, folder: Path, paths: list[Path]) -> tuple[set[tuple[str, int]], str]:
    """(file, line) of each error that a checker finds in a folder's programs, and all that it says. `paths`: where it finds packages first."""
    files = sorted(p.name for p in folder.glob("*.py"))
    environment = {**os.environ, "MYPYPATH": os.pathsep.join(map(str, paths)), "PYTHONPATH": str(ROOT)}
    if checker == "mypy":
        command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(folder / "cache")]
    else:
        (folder / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "extraPaths": [str(p) for p in paths]}))
        command = [str(_pyright()), "--pythonpath", sys.executable]
    done = processes.run([*command, *files], capture_output=True, text=True, cwd=folder, env=environment)
    told = done.stdout + done.stderr
    found = re.findall(r"^\s*(?:\S*/)?(\w+\.py):(\d+)(?::\d+)?(?: -)?:? error", told, re.M)
    assert done.returncode in (0, 1) and ("error" in told or "no issues" in told), told
    return {(name, int(line)) for name, line in found}, told


def _pyright() -> str | None:
    """Where it is; None where it is not, or cannot start (it may have to fetch its other half first)."""
    found = shutil.which("pyright", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    return found if found and processes.run([found, "--version"], capture_output=True, timeout=120).returncode == 0 else None


def test_stubs_are_up_to_date() -> None:
    done = processes.python(str(ROOT / "scripts" / "stubs"), "--check")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_run(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(_renamed(PROGRAMS[name]))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = processes.python(name, cwd=tmp_path, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("alias", [False, True], ids=["flambeau as torch", "installed as torch"])
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checkers(checker: str, alias: bool, tmp_path: Path) -> None:
    """No error in the programs that the types of PyTorch do not give, and one at each mistake."""
    if (importlib.util.find_spec("mypy") if checker == "mypy" else _pyright()) is None:
        pytest.skip(f"{checker} is not installed")
    ours, theirs, site = tmp_path / "ours", tmp_path / "theirs", tmp_path / "site"
    for folder, renamed in ((ours, not alias), (theirs, False)):
        folder.mkdir()
        for name, text in PROGRAMS.items():
            (folder / name).write_text(_renamed(text) if renamed else text)
    (ours / "mistakes.py").write_text(MISTAKES if alias else _renamed(MISTAKES))
    for path, text in torch_package.stubs().items() if alias else ():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    found, told = _errors(checker, ours, [site, ROOT] if alias else [ROOT])
    assert {line for name, line in found if name == "mistakes.py"} == set(range(2, len(MISTAKES.splitlines()) + 1)), told
    more = {place for place in found if place[0] != "mistakes.py"}
    if more and importlib.util.find_spec("torch") is not None:
        more -= _errors(checker, theirs, [])[0]
    assert not more, told
