"""The main program of a launched process: the user's script under `torch` = flambeau; what it fails with is also written for the launcher."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flambeau.distributed.elastic.multiprocessing.errors import ErrorHandler
from flambeau.upward import upward


@upward
def run(arguments: Sequence[str], module: str | None) -> int:
    """Run a script or a module (cli/run.py)."""
    raise NotImplementedError


def main(arguments: Sequence[str]) -> int:
    """Run a script, or a module after "-m"."""
    module = arguments[1] if arguments[:1] == ["-m"] else None
    try:
        return run(arguments[2:] if module is not None else arguments, module)
    except Exception as error:
        ErrorHandler().record_exception(error)
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
