"""Warnings that are given once in a process, or at each call after `torch.set_warn_always(True)`; they are ones of the program's line."""

from __future__ import annotations

import warnings
from typing import Final

from flambeau.trace.place import stacklevel

ALWAYS: Final = [False]  # what `set_warn_always` has said
_given: Final[set[str]] = set()


def warn_once(text: str) -> None:
    """Warn unless the same has been said before."""
    if ALWAYS[0] or text not in _given:
        _given.add(text)
        warnings.warn(text, UserWarning, stacklevel=stacklevel())
