"""The end of a process: native code runs after the interpreter has cleared the modules, and what it has the addresses of is still there."""

from __future__ import annotations

import os
from pathlib import Path

from tests import processes

ROOT = Path(__file__).resolve().parents[2]

# What the interpreter does at its end, to the module whose objects native code has: it clears the names, and collects.
CLEARED = """
import gc, weakref
import flambeau
from flambeau.ops import known_edge
flambeau.ones(3).add(1).tolist()
held = [weakref.ref(o) for o in known_edge._held if type(o).__name__ == "function"]
assert held, "the method that frees buffers is held"
vars(known_edge).clear()
gc.collect()
print([r() is not None for r in held])
"""


def test_what_native_code_uses_outlives_its_module() -> None:
    done = processes.python("-c", CLEARED, timeout=100, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert "True" in done.stdout and "False" not in done.stdout, done.stdout
