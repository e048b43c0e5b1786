"""The harness itself: what differs is found, what agrees within the tolerance is not, and PyTorch comes back after a run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.programs.harness import Options, check, differences, run

torch = pytest.importorskip("torch")

SAME = """
import torch
import torch.nn as nn, torch.nn.functional as F
from torch.optim import SGD

def program():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
    yield "initial", model
    x, y = torch.randn(6, 4), torch.randint(0, 2, (6,))
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    SGD(model.parameters(), 0.1).step()
    print(f"loss {loss.item():.5f}")
    yield "trained", model
    yield "parts", {"loss": loss, "sizes": [x.size(), x.dtype], "none": None}
"""
# `ours` is True only in flambeau's run.
HEAD = "import torch, torch.nn as nn\nours = 'flambeau' in torch.__version__\n"
DIFFERENT = [
    ("values", "yield 'x', torch.ones(3) + 1e-3 * ours", "differ by more"),
    ("exact values", "yield 'exact x', torch.ones(3) + 1e-6 * ours", "not equal"),
    ("integers", "yield 'x', torch.tensor([1, 2 + ours])", "not equal"),
    ("shape", "yield 'x', torch.ones(3 + ours)", "shape"),
    ("dtype", "yield 'x', torch.ones(3, dtype=torch.float64 if ours else torch.float32)", "dtype"),
    ("requires_grad", "yield 'x', torch.ones(3, requires_grad=ours)", "requires_grad"),
    ("NaN", "yield 'x', torch.tensor([1.0, float('nan') if ours else 2.0])", "differ"),
    ("infinity", "yield 'x', torch.tensor([1.0, float('inf') if ours else 2.0])", "differ"),
    ("number", "yield 'x', [1.0, 2.0 + 1e-2 * ours]", "[1]"),
    ("type", "yield 'x', 1 if ours else 1.0", "is a int"),
    ("names", "yield 'x' if ours else 'y', 1", "yielded"),
    ("length", "yield 'x', [1] * (2 + ours)", "items"),
    ("repr", "yield 'm', nn.ReLU(inplace=ours)", "repr"),
    ("keys", "yield 'm', nn.Linear(2, 2, bias=ours)", "too many ['bias']"),
    ("gradients", "m = nn.Linear(2, 2); m(torch.ones(2)).sum().backward() if ours else None; yield 'm', m", "grad"),
    ("printed number", "print('loss', 1.25 + 0.25 * ours); yield 'x', 1", "printed line 1"),
    ("printed words", "print('loss' if ours else 'Loss'); yield 'x', 1", "printed line 1"),
    ("printed lines", "print('a\\n' * (1 + ours)); yield 'x', 1", "lines"),
]


def _write(folder: Path, text: str) -> Path:
    (folder / "some_program.py").write_text(text)
    return folder / "some_program.py"


def test_what_agrees_passes(tmp_path: Path) -> None:
    check(_write(tmp_path, SAME))
    assert sys.modules["torch"] is torch and sys.modules["torch.nn"] is torch.nn
    assert torch.nn.functional.dropout.__module__ == "torch.nn.functional"


@pytest.mark.parametrize(("text", "said"), [case[1:] for case in DIFFERENT], ids=[case[0] for case in DIFFERENT])
def test_what_differs_is_found(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError) as raised:
        check(_write(tmp_path, f"{HEAD}def program():\n    {text}\n"))
    assert said in str(raised.value)


def test_rounding_passes(tmp_path: Path) -> None:
    check(_write(tmp_path, f"{HEAD}def program():\n    print(0.1234 + 1e-4 * ours)\n    yield 'x', torch.ones(3) + 1e-6 * ours\n"))


def test_a_script_is_compared_by_what_it_prints(tmp_path: Path) -> None:
    path = _write(tmp_path, f"{HEAD}import sys\nif __name__ == '__main__':\n    print(sys.argv[1:], torch.rand(2))\n")
    check(path, Options(arguments=("--epochs", "2")))
    path = _write(tmp_path, "import torch\nprint(torch.rand(2).sum().item() > 0, torch.__version__)\n")
    assert any("printed line 1" in line for line in differences(run(path, True), run(path, False)))


def test_an_error_of_the_program_comes_out_and_torch_comes_back(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mine"):
        run(_write(tmp_path, "import torch\nraise ValueError('mine')\n"), True)
    assert sys.modules["torch"] is torch
