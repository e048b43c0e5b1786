"""`flambeau build`: a library of an exported model, in a folder."""

from __future__ import annotations

import sys


def build(model: str, target: str, out: str, name: str | None, weights_inside: bool) -> int:
    """Make it, and say what is there; returns the exit status."""
    from flambeau.deploy import build as make

    try:
        files = make(model, target, out, name=name, weights_inside=weights_inside, report=print)
    except (OSError, RuntimeError, ValueError, NotImplementedError) as error:
        print(f"flambeau build: {error}", file=sys.stderr)
        return 1
    for path in files:
        print(f"{path.stat().st_size:>12,} bytes  {path}")
    return 0
