"""Where a process writes what it fails with."""

from __future__ import annotations

import json
import os
import time
import traceback
from contextlib import suppress


class ErrorHandler:
    """Writes what a process fails with where the launcher looks for it: TORCHELASTIC_ERROR_FILE."""

    def initialize(self) -> None:
        """Called before the program begins."""
        import faulthandler

        with suppress(Exception):  # standard error may be no file
            faulthandler.enable(all_threads=True)

    def record_exception(self, e: BaseException) -> None:
        """Write an exception, if this process was launched and nothing has been written."""
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        if not path or os.path.exists(path):
            return
        text = "".join(traceback.format_exception(e))
        message = {"message": f"{type(e).__name__}: {e}", "extraInfo": {"py_callstack": text, "timestamp": str(int(time.time()))}, "at": time.time()}
        with suppress(OSError), open(path, "w") as file:
            json.dump({"message": message}, file)

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> None:
        """Hand on what a child has written, as this process's own."""
        path = os.environ.get("TORCHELASTIC_ERROR_FILE")
        with open(rootcause_error_file) as file:
            cause = json.load(file)
        if error_code and isinstance(cause.get("message"), dict):
            cause["message"]["errorCode"] = error_code
        if path:
            with open(path, "w") as file:
                json.dump(cause, file)
