"""The user's Python stack, innermost frame first, without flambeau's own frames."""

from __future__ import annotations

import sys
from pathlib import Path

_OWN = str(Path(__file__).resolve().parents[1])
_DEPTH = 32


def stack() -> list[str]:
    """Lines `file(line): function`, as PyTorch prints them."""
    lines: list[str] = []
    frame = sys._getframe(1)
    while frame is not None and len(lines) < _DEPTH:
        code = frame.f_code
        if not code.co_filename.startswith(_OWN) and not code.co_filename.startswith("<"):
            lines.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return lines
