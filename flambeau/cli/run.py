"""`flambeau run script.py`: an unmodified PyTorch script, with `torch` and its submodules as aliases of flambeau's."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from flambeau.as_torch import install


def missing(script: str, command: str) -> bool:
    """Whether a script is not there; then it has been said. Asked first, before anything is measured or written."""
    path = Path(script)
    if path.is_file():
        return False
    print(f"flambeau {command}: {'this is a folder' if path.is_dir() else 'no such file'}: {path}", file=sys.stderr)
    return True


def run(arguments: Sequence[str], module: str | None = None) -> int:
    """Run a script (the first of the arguments) or a module as __main__, with its own arguments."""
    if module is None:
        path = Path(arguments[0])
        if not (path / "__main__.py").is_file() and missing(arguments[0], "run"):
            return 2
    install()
    if module is not None:
        sys.argv = [module, *arguments]
        sys.path.insert(0, "")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        return 0
    sys.argv = list(arguments)
    sys.path.insert(0, str(path.resolve().parent))
    runpy.run_path(str(path), run_name="__main__")
    return 0
