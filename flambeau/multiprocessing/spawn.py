"""Starting several processes of one function, and waiting for all of them or for the first that fails."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flambeau.trace.once import warn_here

ENV_VAR_PARALLEL_START = "TORCH_MP_PARALLEL_START"
_PATIENCE = 30.0  # seconds that a process has to end after SIGTERM
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


class ProcessException(Exception):
    """A process failed: its index among those that were started, and its process id."""

    def __init__(self, msg: str, error_index: int, error_pid: int) -> None:
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process ended by an exception, whose traceback is in the message."""


class ProcessExitedException(ProcessException):
    """A process ended by a signal, or with an exit code that is not 0."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None) -> None:
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> Any:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _wrap(fn: Callable[..., Any], i: int, args: Sequence[Any], error_file: str) -> None:
    """The main function of a process."""
    if sys.platform == "linux":  # end with the parent
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGINT))
    try:
        fn(i, *args)
    except KeyboardInterrupt:
        pass  # by the parent
    except Exception:
        with open(error_file, "wb") as file:
            pickle.dump(traceback.format_exc(), file)
        sys.exit(1)


class ProcessContext:
    """Processes that were started together."""

    def __init__(self, processes: Sequence[Any], error_files: Sequence[str]) -> None:
        self.error_files = error_files
        self.processes = processes
        self.sentinels = {process.sentinel: index for index, process in enumerate(processes)}

    def pids(self) -> list[int]:
        """Their process ids."""
        return [int(process.pid) for process in self.processes]

    def _join_all(self, timeout: float) -> None:
        end = time.monotonic() + timeout
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait (at most `timeout` seconds) until one or more have ended; True once all have.

        If one failed, the others are ended (after `grace_period` seconds), and ProcessRaisedException or ProcessExitedException says
        which it was and why.
        """
        if not self.sentinels:
            return True
        failed: int | None = None
        for sentinel in multiprocessing.connection.wait(list(self.sentinels), timeout=timeout):
            index = self.sentinels.pop(sentinel)  # type: ignore[call-overload]
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        if grace_period is not None:
            self._join_all(grace_period)
        for process in self.processes:
            if process.is_alive():
                process.terminate()
        self._join_all(_PATIENCE if grace_period is None else grace_period)
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()
        raise self._failure(failed)

    def _failure(self, index: int) -> ProcessException:
        process = self.processes[index]
        if os.access(self.error_files[index], os.R_OK):
            with open(self.error_files[index], "rb") as file:
                text = pickle.load(file)
            os.unlink(self.error_files[index])
            return ProcessRaisedException(f"\n\n-- Process {index} terminated with the following error:\n{text}", index, process.pid)
        code = process.exitcode
        if code >= 0:
            return ProcessExitedException(f"process {index} terminated with exit code {code}", index, process.pid, code)
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"<Unknown signal {-code}>"
        return ProcessExitedException(f"process {index} terminated with signal {name}", index, process.pid, code, name)


class SpawnContext(ProcessContext):
    """The old name of ProcessContext."""

    def __init__(self, processes: Sequence[Any], error_files: Sequence[str]) -> None:
        warn_here("SpawnContext is renamed to ProcessContext since 1.4 release.")
        super().__init__(processes, error_files)


def start_processes(
    fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` processes; with `join` wait for all, else return the ProcessContext."""
    context = multiprocessing.get_context(start_method)

    def start(i: int) -> tuple[Any, str]:
        handle, error_file = tempfile.mkstemp(prefix="flambeau-errorfile-", suffix=".pickle")
        os.close(handle)
        os.unlink(error_file)  # it exists again if the process raises
        process = context.Process(target=_wrap, args=(fn, i, args, error_file), daemon=daemon)  # type: ignore[attr-defined]
        process.start()
        return process, error_file

    if start_method == "forkserver" and os.environ.get(ENV_VAR_PARALLEL_START, "0") == "1":
        with ThreadPoolExecutor(max_workers=nprocs) as executor:
            started = list(executor.map(start, range(nprocs)))
    else:
        started = [start(i) for i in range(nprocs)]
    processes = ProcessContext([process for process, _ in started], [error_file for _, error_file in started])
    if not join:
        return processes
    while not processes.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any], args: Sequence[Any] = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
) -> ProcessContext | None:
    """start_processes by the start method "spawn"; another one is accepted with a warning, and ignored."""
    if start_method != "spawn":
        warn_here(
            f"This method only supports start_method=spawn (got: {start_method}).\nTo use a different start_method use:\n\t\t "
            "torch.multiprocessing.start_processes(...)",
            FutureWarning,
        )
    return start_processes(fn, args, nprocs, join, daemon, start_method="spawn")
