"""Loggers that are called like the module that asks for one."""

from __future__ import annotations

import inspect
import logging
import os


def get_logger(name: str | None = None) -> logging.Logger:
    """The logger of a name, or of the caller's module, at the level of LOGLEVEL (WARNING)."""
    found = logging.getLogger(name or _derive_module_name(depth=2))
    found.setLevel(os.environ.get("LOGLEVEL", "WARNING"))
    return found


def _derive_module_name(depth: int = 1) -> str | None:
    """The name of the module that is so many calls up."""
    stack = inspect.stack(0)
    if depth >= len(stack):
        return None
    frame = stack[depth]
    return frame.frame.f_globals.get("__name__") or os.path.splitext(os.path.basename(frame.filename))[0]
