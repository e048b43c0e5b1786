"""Debuggers: trace functions that stop at any line, look at every variable, and evaluate what they like there."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import flambeau as torch
from flambeau import nn
from tests import processes

_PROGRAM = """
import flambeau as torch
x = torch.arange(3.0).requires_grad_()
y = (x.sin() + torch.cos(x) * 2).sum()
y.backward()
z = x.clone()
with torch.no_grad():
    z[1:] = z[:-1] + 5
print("result", y.item(), x.grad.tolist(), z.tolist())
"""


def _train(size: int) -> list[Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, size), nn.Tanh(), nn.Linear(size, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = torch.randn(16, 4), torch.randint(0, 2, (16,))
    losses: list[Any] = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses + [p.tolist() for p in model.parameters()]


def _attributes(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        for name in dir(value):
            with suppress(Exception):
                getattr(value, name)


def _methods(value: Any) -> None:
    if isinstance(value, torch.Tensor):
        for look in (lambda: value.sum().item(), lambda: value + 1, lambda: bool((value > 0).any()), lambda: len(value)):
            with suppress(Exception):
                look()


@pytest.mark.parametrize(("look", "size", "most"), [(repr, 5, 4000), (_attributes, 6, 60), (_methods, 7, 400)])
def test_a_training_loop_under_a_tracer_that_looks_at_every_variable(look: Callable[[Any], Any], size: int, most: int) -> None:
    """As VS Code and PyCharm do when they stop in library code."""
    stops = 0

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        nonlocal stops
        if "flambeau" in frame.f_code.co_filename and "/tests/" not in frame.f_code.co_filename and stops < most:
            stops += 1
            for value in list(frame.f_locals.values()):
                with suppress(Exception):  # objects that are being made
                    look(value)
        return tracer

    sys.settrace(tracer)
    try:
        traced = _train(size)
    finally:
        sys.settrace(None)
    assert stops >= min(most, 100) and traced == _train(size)


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="Python 3.12 and later")
@pytest.mark.parametrize("tool", (0, 4))
@pytest.mark.parametrize(("look", "size", "most", "each"), [(repr, 8, 4000, 1), (repr, 9, 4000, 61), (_attributes, 10, 60, 1), (_methods, 11, 400, 1)])
def test_a_training_loop_under_line_events(look: Callable[[Any], Any], size: int, most: int, each: int, tool: int) -> None:
    """The same by `sys.monitoring`, as these debuggers step on Python 3.12 and later: line events of all code, at which variables are looked at."""
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    seen = stops = 0

    def on_line(code: Any, line: int) -> None:
        nonlocal seen, stops
        if "flambeau" in code.co_filename and "/tests/" not in code.co_filename:
            seen += 1
            if stops < most and not seen % each:
                stops += 1
                for value in list(sys._getframe(1).f_locals.values()):
                    with suppress(Exception):  # objects that are being made
                        look(value)

    size += tool * 10
    monitoring.use_tool_id(tool, "a debugger")
    try:
        monitoring.register_callback(tool, monitoring.events.LINE, on_line)
        monitoring.set_events(tool, monitoring.events.LINE)
        stepped = _train(size)
        assert monitoring.register_callback(tool, monitoring.events.LINE, None) is on_line  # what was taken away in between is back
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    assert stops >= min(most, 100) and stepped == _train(size)


@pytest.mark.parametrize("command", ["step", "next", "step\nargs\nlocals().keys()"])
def test_pdb_steps_through_operations(tmp_path: Path, command: str) -> None:
    path = tmp_path / "program.py"
    path.write_text(_PROGRAM)
    plain = processes.python(str(path))
    commands = f"{command}\n" * 120 + "continue\n"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    stepped = processes.python("-m", "pdb", str(path), input=commands, env=environment)
    assert plain.stdout.strip() and plain.stdout.strip() in stepped.stdout, stepped.stdout[-2000:] + stepped.stderr[-500:]


def test_pdb_prints_variables_in_the_middle_of_a_call(capsys: pytest.CaptureFixture[str]) -> None:
    """A breakpoint in a user's module, and one in the body of an operation."""
    shown = []

    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            shown.append(repr(y))
            return y + 1

    def tracer(frame: Any, event: str, argument: Any) -> Any:
        return tracer

    sys.settrace(tracer)
    try:
        result = Model()(torch.ones(2)).tolist()
    finally:
        sys.settrace(None)
    assert shown == ["tensor([2., 2.])"] and result == [3, 3]


def test_functions_are_built_by_name_although_a_debugger_adds_names() -> None:
    """pdb puts `__return__` among the locals of the code that defines a generated function."""
    code = textwrap.dedent("""
        import sys, flambeau as torch
        def tracer(frame, event, argument):
            if event == "return":
                frame.f_locals["__return__"] = argument
            return tracer
        x = torch.ones(2)
        sys.settrace(tracer)
        y = torch.asinh(x)
        sys.settrace(None)
        print(y.tolist())
    """)
    done = processes.python("-c", code, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    assert done.stdout.startswith("[0.88"), done.stderr
