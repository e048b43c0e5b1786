"""A launched process: its start, its output, its end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def _end_with_parent() -> Callable[[], None] | None:
    """What a process does before its program starts, so that it ends when the launcher is killed."""
    if sys.platform != "linux":
        return None
    set_signal = ctypes.CDLL(None).prctl  # looked up here: between fork and exec little is allowed

    def run() -> None:
        set_signal(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))

    return run


class Worker:
    """One process. `redirect`, `tee`: which of its streams go to files (1 stdout, 2 stderr, 3 both), in place of here, or too."""

    def __init__(
        self, command: Sequence[str], variables: dict[str, str], rank: int, local_rank: int, folder: str, redirect: int, tee: int, role: str, shown: bool
    ) -> None:
        self.rank, self.local_rank = rank, local_rank
        os.makedirs(folder, exist_ok=True)
        self.error_file = os.path.join(folder, "error.json")
        self.ended: float | None = None
        self.files: list[IO[Any]] = []
        targets = [self._target(folder, name, bit, redirect, tee, shown) for bit, name in ((1, "stdout"), (2, "stderr"))]
        self.process = subprocess.Popen(
            list(command), env={**variables, "TORCHELASTIC_ERROR_FILE": self.error_file}, stdout=targets[0], stderr=targets[1],
            start_new_session=True, preexec_fn=_end_with_parent(),
        )  # fmt: skip
        self.readers = []
        for _bit, name, source in ((1, "stdout", self.process.stdout), (2, "stderr", self.process.stderr)):
            if source is not None:
                arguments = source, os.path.join(folder, f"{name}.log"), getattr(sys, name) if shown else None, f"[{role}{local_rank}]:"
                self.readers.append(threading.Thread(target=_copy_lines, args=arguments, daemon=True))
                self.readers[-1].start()

    def _target(self, folder: str, name: str, bit: int, redirect: int, tee: int, shown: bool) -> Any:
        if tee & bit:
            return subprocess.PIPE
        if redirect & bit:
            self.files.append(open(os.path.join(folder, f"{name}.log"), "wb"))  # noqa: SIM115  # closed when the process has ended
            return self.files[-1]
        return None if shown else subprocess.DEVNULL

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

    def failure(self) -> dict[str, Any]:
        """What is known of its end: time, exit code, and what it wrote."""
        found: dict[str, Any] = {
            "rank": self.rank, "local_rank": self.local_rank, "exitcode": self.process.returncode, "pid": self.process.pid, "error_file": "<N/A>",
            "at": self.ended or time.time(), "message": "", "callstack": "",
        }  # fmt: skip
        with contextlib.suppress(OSError, ValueError, KeyError):
            with open(self.error_file) as file:
                message = json.load(file)["message"]
            found |= {"error_file": self.error_file, "message": message["message"], "callstack": message["extraInfo"]["py_callstack"]}
            found["at"] = float(message.get("at", found["at"]))
        return found


def _copy_lines(source: IO[bytes], path: str, here: Any, prefix: str) -> None:
    """Lines of a process to a file, and here behind a prefix."""
    with open(path, "ab") as file:
        for line in source:
            file.write(line)
            file.flush()
            if here is not None:
                here.write(prefix + line.decode(errors="replace").rstrip("\n") + "\n")
                here.flush()


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
