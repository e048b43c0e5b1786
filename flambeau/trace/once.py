"""Warnings: of the program's line, whoever of ours gives them, at each call or once in a process.

A function that called `warnings.warn` by itself would have to know how many of our frames are above it: guards, decorators, the class of a user's own
that calls `super().__init__`. So nothing else in the package calls it (tests/ops/test_warnings_of_functions.py).
"""

from __future__ import annotations

import warnings
from typing import Final

from flambeau.trace.place import stacklevel

ALWAYS: Final = [False]  # what `set_warn_always` has said
_given: Final[set[str]] = set()


def warn_here(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the program's call that is under way."""
    warnings.warn(text, category, stacklevel=stacklevel())


def warn_once(text: str) -> None:
    """Warn unless the same has been said before, or at each call after `torch.set_warn_always(True)`."""
    if ALWAYS[0] or text not in _given:
        _given.add(text)
        warnings.warn(text, UserWarning, stacklevel=stacklevel())
