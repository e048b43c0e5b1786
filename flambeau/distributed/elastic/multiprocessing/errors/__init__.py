"""torch.distributed.elastic.multiprocessing.errors: what a worker's failure is told as."""

from __future__ import annotations

import datetime
import functools
import json
import os
import platform
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from flambeau.distributed.elastic.multiprocessing.errors.error_handler import ErrorHandler as ErrorHandler
from flambeau.distributed.elastic.multiprocessing.errors.handlers import get_error_handler as get_error_handler

_NOT_AVAILABLE = "<N/A>"
_NO_TRACE = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"  # that is: put `record` around main


@dataclass
class ProcessFailure:
    """The end of a process that failed. What it has written to its error file is read here: `message` is a text, or that file's."""

    local_rank: int
    pid: int
    exitcode: int
    error_file: str
    error_file_data: dict[str, Any] = field(init=False)
    message: Any = field(init=False)
    timestamp: int = field(init=False)

    def __post_init__(self) -> None:
        self.error_file_data = {"message": "<NONE>"}
        self.message, self.timestamp, self.at = "", int(time.time()), time.time()
        with suppress(OSError, ValueError), open(self.error_file) as file:  # it may have been killed while it wrote
            self.error_file_data = json.load(file)
        if self.error_file_data["message"] != "<NONE>":
            self.message = self.error_file_data["message"]
            written = self.message["extraInfo"]["timestamp"] if isinstance(self.message, dict) else self.error_file_data.get("timestamp", 0)
            self.timestamp = int(written)
            self.at = float(self.message.get("at", written)) if isinstance(self.message, dict) else float(written)
        else:
            self.error_file = _NOT_AVAILABLE
        if not self.message:
            self.message = f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}" if self.exitcode < 0 else _NO_TRACE

    @contextmanager
    def kept_file(self) -> Iterator[str]:
        """A block in which there is the error file, if only again: the launcher's folder may be gone with the run."""
        if os.path.exists(self.error_file):
            yield self.error_file
            return
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(self.error_file_data, file)
            file.flush()
            yield file.name

    def signal_name(self) -> str:
        """The signal that ended the process, or "<N/A>"."""
        with suppress(ValueError):
            return signal.Signals(-self.exitcode).name
        return _NOT_AVAILABLE

    def timestamp_isoformat(self) -> str:
        """When it failed."""
        return datetime.datetime.fromtimestamp(self.timestamp).isoformat(sep="_")

    def text(self) -> str:
        """The message in a line or so."""
        return str(self.message["message"]) if isinstance(self.message, dict) else str(self.message)

    def _order(self) -> tuple[bool, bool, bool, float]:
        # The launcher's own signal comes last, before it those that miss another rank; one killed by a signal goes before those that complain.
        return self.exitcode == -signal.SIGTERM, self.text().startswith("Dist"), self.exitcode >= 0, self.at

    def describe(self, number: int, rank: int, whole: bool) -> str:
        """Rows of the report; `whole`: with the traceback."""
        trace = self.text()
        if whole and isinstance(self.message, dict):
            trace = str(self.message.get("extraInfo", {}).get("py_callstack") or trace).rstrip().replace("\n", "\n    ")
        rows = [
            f"[{number}]:", f"  time      : {self.timestamp_isoformat()}", f"  host      : {platform.node()}",
            f"  rank      : {rank} (local_rank: {self.local_rank})", f"  exitcode  : {self.exitcode} (pid: {self.pid})",
            f"  error_file: {self.error_file}", f"  traceback : {trace}",
        ]  # fmt: skip
        return "\n".join(rows)


class ChildFailedError(Exception):
    """Processes have failed. `failures`: what is known of each of this machine's, by global rank; none if they were another machine's."""

    def __init__(self, name: str, failures: Mapping[int, ProcessFailure]) -> None:
        self.name, self.failures = name, failures
        super().__init__(self.format_msg())

    def __reduce__(self) -> Any:
        return type(self), (self.name, self.failures)

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """(rank, failure) of the process that failed first."""
        return min(self.failures.items(), key=lambda item: item[1]._order())

    def format_msg(self, boarder_delim: str = "=", section_delim: str = "-") -> str:
        """The report: the first failure with its traceback, and the others."""
        line, thin = boarder_delim * 60, section_delim * 60
        ordered = sorted(self.failures.items(), key=lambda item: item[1]._order())
        others = [failure.describe(i, rank, False) for i, (rank, failure) in enumerate(ordered[1:], 1)]
        first = [failure.describe(0, rank, True) for rank, failure in ordered[:1]] or ["  on another machine"]
        return "\n".join(
            [line, f"{self.name} FAILED", thin, "Failures:", *(others or ["  <NO_OTHER_FAILURES>"]), thin, "Root Cause (first observed failure):", *first, line]
        )


def record(fn: Callable[..., Any], error_handler: ErrorHandler | None = None) -> Callable[..., Any]:
    """The function; an exception that leaves it is also written where the launcher looks for it."""
    handler = error_handler or get_error_handler()

    @functools.wraps(fn)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        handler.initialize()
        try:
            return fn(*args, **kwargs)
        except SystemExit as error:
            if error.code == 0 or error.code is None:
                return None
            raise
        except ChildFailedError as error:
            if error.failures:
                failure = error.get_first_failure()[1]
                if failure.error_file != _NOT_AVAILABLE:
                    with failure.kept_file() as path:
                        handler.dump_error_file(path, failure.exitcode)
            raise
        except Exception as error:
            handler.record_exception(error)
            raise

    return recorded
