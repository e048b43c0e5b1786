"""Compiled text of functions that are written for one plan or call: many differ in what they are given only, so they share their code."""

from __future__ import annotations

from functools import lru_cache
from types import CodeType
from typing import Final

GENERATED: Final = "<flambeau"  # how the name of every text begins that is compiled here: tracebacks, debuggers and other threads know our frames by it


@lru_cache(maxsize=2048)
def compiled(text: str, name: str) -> CodeType:
    """The code of some statements; `name` stands for a file's, in tracebacks and for debuggers (trace/debugging.py)."""
    return compile(text, name, "exec")
