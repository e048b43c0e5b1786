"""Tracebacks end in the program's call, and show our own frames where that is asked for."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as ft
from flambeau import nn
from flambeau.trace.place import is_ours
from flambeau.tracebacks import FULL
from tests import processes


@pytest.fixture
def short() -> Iterator[None]:
    before = FULL[0]
    ft.set_traceback("short")
    yield
    FULL[0] = before


class Asked(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.reshape(7)


def _hooked() -> None:
    x = ft.ones(3, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g + ft.ones(7))
    y.sum().backward()


CASES: dict[str, Callable[[], Any]] = {
    "an operation": lambda: ft.add(ft.ones(2), ft.ones(3)),
    "an operator": lambda: ft.ones(2) + ft.ones(3),
    "in place": lambda: ft.ones(2).mul_(ft.ones(3)),
    "out=": lambda: ft.add(ft.ones(2), ft.ones(3), out=ft.ones(2)),
    "an index": lambda: ft.ones(2)[5],
    "an index tensor": lambda: ft.ones(2)[ft.tensor([5])],
    "an assignment": lambda: ft.ones(2).__setitem__(5, 1.0),
    "a module": lambda: nn.Linear(2, 3)(ft.ones(5)),
    "a module of one's own": lambda: nn.Sequential(Asked())(ft.ones(3)),
    "item": lambda: ft.ones(2).item(),
    "bool": lambda: bool(ft.ones(2)),
    "float": lambda: float(ft.ones(2)),
    "late": lambda: ft.ones(2).gather(0, ft.tensor([5]) + 1).tolist(),
    "late, an item": lambda: ft.ones(2).gather(0, ft.tensor([5]) + 1).item(),
    "backward": lambda: ft.ones(2).backward(),
    "grad": lambda: ft.autograd.grad(ft.ones(2), ft.ones(2)),
    "a hook": _hooked,
    "a wrong type": lambda: ft.add(ft.ones(2), "x"),
}


@pytest.mark.parametrize("name", CASES)
def test_frames(name: str, short: None) -> None:
    for _ in range(2):
        with pytest.raises((RuntimeError, IndexError, TypeError, ValueError)) as caught:
            CASES[name]()
        files = [entry.filename for entry in traceback.extract_tb(caught.value.__traceback__)]
        assert files and not [file for file in files if is_ours(file)], files
        assert files[-1] == __file__


def test_a_chain_of_errors_is_short_too(short: None) -> None:
    with pytest.raises(ValueError) as caught:
        try:
            ft.ones(2) + ft.ones(3)
        except RuntimeError as error:
            raise ValueError("told otherwise") from error
    assert caught.value.__cause__ is not None
    assert not [e.filename for e in traceback.extract_tb(caught.value.__cause__.__traceback__) if is_ours(e.filename)]


def test_a_switch_shows_them(short: None) -> None:
    ft.set_traceback("full")
    with pytest.raises(RuntimeError) as caught:
        ft.ones(2) + ft.ones(3)
    assert any(is_ours(e.filename) for e in traceback.extract_tb(caught.value.__traceback__))
    with pytest.raises(ValueError, match="short"):
        ft.set_traceback("none")


@pytest.mark.parametrize("mode", ["", "full"])
def test_what_nobody_catches(mode: str) -> None:
    """Also of a function that is written in Python; in a thread, too."""
    text = (
        "import threading\nimport flambeau as ft\n"
        "def run():\n    ft.nn.functional.embedding(ft.tensor([9]), ft.ones(3, 2))\n"
        "t = threading.Thread(target=run)\nt.start()\nt.join()\nrun()\n"
    )
    env = {**os.environ, "FLAMBEAU_TRACEBACK": mode, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = processes.python("-c", text, env=env)
    assert done.returncode == 1
    assert done.stderr.count("index 9 is out of bounds") == 2
    assert ("nn/functional/linear.py" in done.stderr) == (mode == "full"), done.stderr
