"""torch.distributed.elastic.multiprocessing.errors: what a worker's failure is told as."""

from __future__ import annotations

import datetime
import functools
import platform
import signal
from collections.abc import Callable, Sequence
from typing import Any


class ChildFailedError(Exception):
    """Processes have failed. `failures`: what is known of each, the first to fail first."""

    def __init__(self, name: str, failures: Sequence[dict[str, Any]]) -> None:
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def format_msg(self) -> str:
        """The report: the first failure with its traceback, and the others."""
        line, thin = "=" * 60, "-" * 60
        others = [_describe(i, failure, False) for i, failure in enumerate(self.failures[1:], 1)]
        first = [_describe(0, failure, True) for failure in self.failures[:1]] or ["  on another machine"]
        return "\n".join(
            [line, f"{self.name} FAILED", thin, "Failures:", *(others or ["  <NO_OTHER_FAILURES>"]), thin, "Root Cause (first observed failure):", *first, line]
        )


def _describe(number: int, failure: dict[str, Any], whole: bool) -> str:
    code = failure["exitcode"]
    name = f"Signal {-code} ({signal.Signals(-code).name}) received by PID {failure['pid']}" if code < 0 else ""
    trace = failure["callstack"].rstrip() if whole and failure["callstack"] else failure["message"] or name or "none was written"
    when = datetime.datetime.fromtimestamp(failure["at"]).strftime("%Y-%m-%d_%H:%M:%S")
    rows = [
        f"[{number}]:", f"  time      : {when}", f"  host      : {platform.node()}", f"  rank      : {failure['rank']} (local_rank: {failure['local_rank']})",
        f"  exitcode  : {code} (pid: {failure['pid']})", f"  error_file: {failure['error_file']}",
        "  traceback : " + trace.replace("\n", "\n    "),
    ]  # fmt: skip
    return "\n".join(rows)


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """The function; an exception that leaves it is also written where the launcher looks for it."""

    @functools.wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        try:
            return fn(*args, **kwargs)
        except SystemExit as error:
            if error.code == 0 or error.code is None:
                return None
            raise
        except Exception as error:
            from flambeau.distributed.launcher.child import write_error

            write_error(error)
            raise

    return recorded
