"""`flambeau pipeline FILE`: the steps of a TOML file, each run when its data, code or parameters have changed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from typing import Any


def pipeline(file: str, steps: Sequence[str], changed: Sequence[str], force: bool, dry: bool) -> int:
    """Run; 1 if a step or a condition fails, 2 if something that was given is wrong."""
    from flambeau.pipeline import StepFailed, read, run
    from flambeau.pipeline.call import value_of
    from flambeau.runtime.signals import caught

    parameters: dict[str, Any] = {}
    for text in changed:
        name, equals, value = text.partition("=")
        if not equals:
            print(f"flambeau pipeline: --set {text}: must have the form NAME=VALUE", file=sys.stderr)
            return 2
        parameters[name] = value_of(value)
    try:
        with caught([signal.SIGTERM], lambda number, frame: sys.exit(128 + number)):  # so that the step's process is ended, too
            run(read(file, parameters), steps, force=force, dry=dry, say=lambda text: print(text, flush=True))
    except StepFailed as error:
        print(f"flambeau pipeline: {error}", file=sys.stderr)
        return 1
    except (ImportError, OSError, ValueError, RuntimeError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0
