"""Text that is compiled while a program runs: its frames are ours, to debuggers, in tracebacks, and to threads that look where another one stands."""

from __future__ import annotations

import ast
import sys
import threading
from pathlib import Path
from typing import Any

import flambeau
from flambeau.python_code import GENERATED, compiled
from flambeau.trace import debugging, place
from flambeau.trace.whereabouts import between_calls
from tests.threads import Thread, join

PACKAGE = Path(flambeau.__file__).parent
# Programs that are compiled for a user: their frames are the program's.
OF_USERS = {"utils/benchmark/timer.py", "absent.py"}


def names() -> list[tuple[str, int, str]]:
    """File, line and name of each text that the package compiles under a name that is no file's."""
    found = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("compile", "compiled") and len(node.args) > 1:
                name = node.args[1].values[0] if isinstance(node.args[1], ast.JoinedStr) else node.args[1]
                if isinstance(name, ast.Constant) and isinstance(name.value, str) and name.value.startswith("<"):
                    found.append((file.relative_to(PACKAGE).as_posix(), node.lineno, name.value))
    return found


def test_every_name_says_whose_it_is() -> None:
    found = [n for n in names() if n[0] not in OF_USERS]
    assert len(found) > 8
    assert [n for n in found if not n[2].startswith(GENERATED)] == []


def test_a_thread_in_generated_code_is_in_the_middle_of_a_call() -> None:
    """A trace that is taken there loses what the call is recording."""
    begin, end = threading.Event(), threading.Event()
    scope: dict[str, Any] = {"wait": lambda: (begin.set(), end.wait(60))}
    exec(compiled("def piece():\n    wait()", f"{GENERATED} kept piece>"), scope)
    for function, between in ((scope["piece"], False), (scope["wait"], True)):
        begin.clear(), end.clear()
        thread = Thread(function)
        thread.start()
        assert begin.wait(60)
        found = between_calls(sys._current_frames()[thread.ident])
        end.set()
        join(thread)
        assert found is between


def test_lists_of_our_frames() -> None:
    assert place.is_ours(f"{GENERATED} plan>")
    assert GENERATED in debugging._ENGINE
