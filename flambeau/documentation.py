"""Docstrings in full: a function's own sentence, then what is known of it: arguments, result, errors, an example.

The sentence is written beside the code. The rest is made from signatures, records, and calls that were run (`scripts/docstrings`), and kept in
`data/documentation/`, a file for each namespace; it is added when the namespace is loaded.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, Final

FOLDER: Final = Path(__file__).parent / "data" / "documentation"
MARK: Final = "\n=== "  # before the name of each entry of a file


@cache
def entries(space: str) -> dict[str, str]:
    """{name: what is known of it} of a namespace ("torch.nn"); what has been added is no longer there."""
    try:
        text = (FOLDER / f"{space}.txt").read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict([part.split("\n", 1) for part in text.split(MARK)[1:]])  # type: ignore[misc]


def document(space: str, members: Mapping[str, Any]) -> None:
    """Complete the docstrings of these members of a namespace; each is done once."""
    if sys.flags.optimize > 1:
        return  # there are no docstrings
    known = entries(space)
    for name in [n for n in (known if len(known) < len(members) else members) if n in known and n in members]:
        found = members[name]
        details = known.pop(name)
        if isinstance(found, (FunctionType, type)):
            found.__doc__ = f"{own_words(found)}\n\n{details.rstrip()}"


def own_words(found: Any) -> str:
    """The sentences of a docstring that are written beside the code."""
    text = found.__doc__ or ""
    return inspect.cleandoc(text).split("\n\nArgs:\n")[0].split("\n\nReturns:\n")[0] if "\n" in text else text
