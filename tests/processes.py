"""Starting processes in tests: each has a time limit, after which its whole group ends and the test fails with where its threads stood."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.threads import Thread, join

LIMIT = 240.0  # seconds; shorter than the limit of a test (tests/conftest.py), so that it is the process that is named
_END = 20.0  # for what is being ended
_DUMPS = {"PYTHONFAULTHANDLER": "1"}  # at SIGABRT, CPython writes its threads' stacks

Command = Sequence[str | os.PathLike[str]]


def end(process: subprocess.Popen[Any]) -> tuple[Any, Any]:
    """Kill a process of `popen`, and what it has started in its group; what it has written that nobody has read.

    `Popen.kill` ends the process alone: children of it that live keep the pipes open, and who reads these to their end waits for ever.
    """
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    try:
        return process.communicate(timeout=_END)
    except subprocess.TimeoutExpired:  # something that has left the group has its pipes
        return None, None
    except ValueError:  # the test has closed a pipe
        process.wait(_END)
        return None, None


def popen(command: Command, env: dict[str, str] | None = None, **options: Any) -> subprocess.Popen[Any]:
    """`subprocess.Popen` in a group of its own, for `end`. Prefer `started` and `run`, which end it."""
    return subprocess.Popen(command, env={**_DUMPS, **(os.environ if env is None else env)}, start_new_session=True, **options)


@contextlib.contextmanager
def started(command: Command, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process that runs while the block does; at its end it is killed, with what it has started."""
    process = popen(command, **options)
    try:
        yield process
    finally:
        end(process)


def outputs(processes: Sequence[subprocess.Popen[Any]], timeout: float = LIMIT) -> list[tuple[Any, Any]]:
    """What processes of `popen` write until they end, read from all at once: one that waits for another while its pipe is full would wait for ever.

    Fails past the limit of seconds, with what each has written and where those that have not ended stand.
    """
    threads = [Thread(process.communicate) for process in processes]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + timeout
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    late = [process for process, thread in zip(processes, threads, strict=True) if thread.is_alive()]
    for process in late:
        _abort(process)
    if late:
        time.sleep(1)
    for process in late:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    found = [output or (None, None) for output in join(*threads, timeout=_END)]
    if late:
        said = [f"{p.returncode}: {_text(a)}\n{_text(b)}" for p, (a, b) in zip(processes, found, strict=True)]
        pytest.fail(f"{len(late)} of {len(processes)} x {_named(late[0].args)} did not end in {timeout:g} s. Exit codes and output:\n" + "\n".join(said))
    return found


def line_of(process: subprocess.Popen[str], timeout: float = LIMIT) -> str:
    """The first line that a process of `popen` prints."""
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], timeout)[0]:
        _abort(process)
        pytest.fail(f"{_named(process.args)} printed nothing in {timeout:g} s, but:\n{_text(end(process)[1])}")
    return process.stdout.readline()


def run(
    command: Command, *, timeout: float = LIMIT, check: bool = False, input: Any = None, capture_output: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` with a time limit of seconds. Fails, with what the process has written, past the limit and, where `check`, if it does not end with 0."""
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    options.setdefault("stdin", subprocess.DEVNULL if input is None else subprocess.PIPE)
    process = popen(command, **options)
    try:
        output, errors = process.communicate(input, timeout=timeout)
    except subprocess.TimeoutExpired:
        _abort(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END)
        output, errors = end(process)
        pytest.fail(f"{_named(command)} did not end in {timeout:g} s. Its output:\n{_text(output)}\nIts errors:\n{_text(errors)}")
    except BaseException:
        end(process)
        raise
    if check and process.returncode:
        pytest.fail(f"{_named(command)} ended with {process.returncode}. Its output:\n{_text(output)}\nIts errors:\n{_text(errors)}")
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def python(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments (`"-c", code`, a script, `"-m", name`); its output and errors as text. Keywords are `run`'s."""
    return run([sys.executable, *arguments], capture_output=True, text=True, **options)


def exit_code_of_child(pid: int, timeout: float = 60.0) -> int:
    """How a forked child ends; past the limit it is killed and the test fails."""
    deadline = time.monotonic() + timeout
    while (found := os.waitpid(pid, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            pytest.fail(f"the forked child did not end in {timeout:g} s")
        time.sleep(0.005)
    return os.waitstatus_to_exitcode(found[1])


def _abort(process: subprocess.Popen[Any]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGABRT)


def _named(command: Any) -> str:
    words = " ".join(str(word) for word in command)
    return words if len(words) < 400 else words[:400] + " ..."


def _text(written: Any) -> str:
    return written.decode(errors="replace") if isinstance(written, bytes) else written or ""
