"""A launched process: its start, its output, its end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import IO, Any

from flambeau.distributed.elastic.multiprocessing.errors import ProcessFailure

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def _end_with_parent() -> Callable[[], None] | None:
    """What a process does before its program starts, so that it ends when the launcher is killed."""
    if sys.platform != "linux":
        return None
    set_signal = ctypes.CDLL(None).prctl  # looked up here: between fork and exec little is allowed

    def run() -> None:
        set_signal(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))

    return run


@dataclass
class Output:
    """Where a stream of a process goes: to a file ("" for none), and here (behind a prefix, where it also goes to a file).

    Lines with one of the filters' texts also go to the file `filtered`, which all processes share.
    """

    name: str  # stdout, stderr
    path: str
    shown: bool
    prefix: str
    filters: Sequence[str] = ()
    filtered: str = ""

    @property
    def is_read(self) -> bool:
        """Whether the launcher looks at the lines."""
        return (self.shown and bool(self.path)) or bool(self.filters)

    def copy(self, source: IO[bytes]) -> None:
        """Hand on all lines."""
        with contextlib.ExitStack() as files:
            file = files.enter_context(open(self.path, "ab")) if self.path else None
            matching = files.enter_context(open(self.filtered, "ab")) if self.filters and self.filtered else None
            here = getattr(sys, self.name) if self.shown else None
            prefix = self.prefix if self.path else ""
            for line in source:
                text = line.decode(errors="replace")
                if file is not None:
                    file.write(line)
                    file.flush()
                if matching is not None and any(wanted in text for wanted in self.filters):
                    matching.write(line)
                    matching.flush()
                if here is not None:
                    here.write(prefix + text.rstrip("\n") + "\n")
                    here.flush()


class Worker:
    """One process of a command."""

    def __init__(self, command: Sequence[str], variables: dict[str, str], rank: int, local_rank: int, outputs: Sequence[Output], error_file: str) -> None:
        self.rank, self.local_rank, self.error_file = rank, local_rank, error_file
        self.ended: float | None = None
        self.files: list[IO[Any]] = []
        targets = [self._target(output) for output in outputs]
        self.process = subprocess.Popen(
            list(command), env=variables, stdout=targets[0], stderr=targets[1], start_new_session=True, preexec_fn=_end_with_parent()
        )
        self.readers = []
        for output, source in zip(outputs, (self.process.stdout, self.process.stderr), strict=True):
            if source is not None:
                self.readers.append(threading.Thread(target=output.copy, args=(source,), daemon=True))
                self.readers[-1].start()

    def _target(self, output: Output) -> Any:
        if output.is_read:
            return subprocess.PIPE
        if output.path and output.path != os.devnull:
            self.files.append(open(output.path, "wb"))  # noqa: SIM115  # closed when the process has ended
            return self.files[-1]
        return subprocess.DEVNULL if output.path or not output.shown else None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        code = self.process.poll()
        if code is not None and self.ended is None:
            self.ended = time.time()
            for reader in self.readers:
                reader.join(5)
            for file in self.files:
                file.close()
        return code

    def send(self, number: int) -> None:
        """A signal to the process and to those that it has started."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def failure(self) -> ProcessFailure:
        """What is known of its end: time, exit code, and what it wrote."""
        found = ProcessFailure(self.local_rank, self.process.pid, self.process.returncode, self.error_file)
        if not isinstance(found.message, dict) and self.ended is not None:
            found.timestamp, found.at = int(self.ended), self.ended
        return found


def stop(workers: Sequence[Worker], number: int, patience: float) -> None:
    """End all of these processes and what they have started: by a signal, and after some seconds by SIGKILL."""
    for worker in workers:
        if worker.poll() is None:
            worker.send(number)
    end = time.monotonic() + patience
    while any(worker.poll() is None for worker in workers) and time.monotonic() < end:
        time.sleep(0.02)
    for worker in workers:
        worker.send(signal.SIGKILL)  # also what a worker that has ended has left behind
    for worker in workers:
        worker.process.wait()
        worker.poll()
