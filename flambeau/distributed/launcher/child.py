"""The main program of a launched process: the user's script under `torch` = flambeau; what it fails with is also written for the launcher."""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections.abc import Sequence


def write_error(error: BaseException) -> None:
    """Write an exception where the launcher looks for it, if this process was launched."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path or os.path.exists(path):
        return
    text = "".join(traceback.format_exception(error))
    message = {"message": f"{type(error).__name__}: {error}", "extraInfo": {"py_callstack": text, "timestamp": str(int(time.time()))}, "at": time.time()}
    try:
        with open(path, "w") as file:
            json.dump({"message": message}, file)
    except OSError:
        return


def main(arguments: Sequence[str]) -> int:
    """Run a script, or a module after "-m"."""
    from flambeau.cli.run import run

    module = arguments[1] if arguments[:1] == ["-m"] else None
    try:
        return run(arguments[2:] if module is not None else arguments, module)
    except Exception as error:
        write_error(error)
        raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
