"""Whether a thread is outside of the engine, so that its trace is whole."""

from __future__ import annotations

from pathlib import Path
from types import FrameType
from typing import Final

from flambeau.python_code import GENERATED

_PACKAGE: Final = str(Path(__file__).parent.parent)
# Between the calls of these parts of the package a trace is whole, as between those of a user's program. (`flambeau run` is below all of a program's frames.)
_FOLDERS: Final = ("nn/modules", "nn/parallel", "utils/data", "distributed", "multiprocessing", "testing", "cli")
_OUTSIDE: Final = (*[f"{_PACKAGE}/{name}/" for name in _FOLDERS], f"{_PACKAGE}/__main__.py")


def between_calls(at: FrameType | None) -> bool:
    """Whether a thread whose innermost frame this is is between two calls of the engine. None: a thread that has ended, whose trace is whole."""
    while at is not None:
        name = at.f_code.co_filename
        if name.startswith(GENERATED) or (name.startswith(_PACKAGE) and not name.startswith(_OUTSIDE)):
            return False
        at = at.f_back
    return True
