"""What a type checker sees of a program: a training script without errors, and mistakes that are found, with mypy and pyright.

The checkers are run on the program as it stands (`import flambeau as torch`), in their strict modes. They take some ten seconds, so the tests are
slow ones (`scripts/lint` runs them); that the stubs are up to date is always tested.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


def _written(folder: Path, name: str, text: str) -> Path:
    ours = re.sub(r"^import torch$", "import flambeau as torch", text, flags=re.M)
    ours = re.sub(r"^import torch\.", "import flambeau.", ours, flags=re.M)
    path = folder / name
    path.write_text(re.sub(r"^from torch\b", "from flambeau", ours, flags=re.M))
    return path


def test_stubs_are_up_to_date() -> None:
    done = subprocess.run([sys.executable, str(ROOT / "scripts" / "stubs"), "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checkers(checker: str, tmp_path: Path) -> None:
    program, mistakes = _written(tmp_path, "program.py", PROGRAM), _written(tmp_path, "mistakes.py", MISTAKES)
    environment = {**os.environ, "MYPYPATH": str(ROOT), "PYTHONPATH": str(ROOT)}
    if checker == "mypy":
        if importlib.util.find_spec("mypy") is None:
            pytest.skip("mypy is not installed")
        command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(tmp_path / "cache")]
    else:
        found = shutil.which("pyright")
        if found is None:
            pytest.skip("pyright is not installed")
        (tmp_path / "pyrightconfig.json").write_text(f'{{"typeCheckingMode": "strict", "extraPaths": ["{ROOT}"]}}')
        command = [found, "--pythonpath", sys.executable]
    done = subprocess.run([*command, program.name, mistakes.name], capture_output=True, text=True, cwd=tmp_path, env=environment)
    told = done.stdout + done.stderr
    assert not re.search(r"program\.py:\d+", told), told
    lines = {int(n) for n in re.findall(r"mistakes\.py:(\d+)", told)}
    assert lines == set(range(2, len(MISTAKES.splitlines()) + 1)), told
