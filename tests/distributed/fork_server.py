"""Processes that have imported PyTorch, or flambeau in its name, and fork ranks: that takes milliseconds, and a new process seconds (PyTorch's 3, ours 1.4).

Run as a program it reads a line of JSON for each launch (`script`, `arguments`, `environments` of the ranks, their `logs`, `timeout`), and answers with a line:
the ranks' exit codes. Ranks that are started as users start them are those of `ranks.started` and of the launchers' tests.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tests import processes

ROOT = Path(__file__).parents[2]

# What the scripts import. An import starts no thread, and nothing is computed here: a child begins as a new process does after its imports.
MODULES = ("torch", "torch.distributed.checkpoint", "torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.optim",
           "torch.distributed.tensor.parallel", "torch.nn.parallel", "torch._dynamo")  # fmt: skip
_MORE = 30.0  # seconds for an answer, past the ranks' limit, and for the imports


def launch(script: Path, arguments: Sequence[str], environments: list[dict[str, str]], logs: list[Path], ours: bool, timeout: float) -> list[int]:
    """Run a script as several ranks to their ends; their exit codes. Past the limit of seconds, ranks that have not ended write where they stand and die."""
    given = {"script": str(script), "arguments": list(arguments), "environments": environments, "logs": list(map(str, logs)), "timeout": timeout}
    server = _server(ours)
    assert server.stdin is not None
    server.stdin.write(json.dumps(given) + "\n")
    server.stdin.flush()
    found: list[int] = json.loads(processes.line_of(server, timeout + _MORE))
    return found


@cache
def _server(ours: bool) -> subprocess.Popen[str]:
    command = [sys.executable, *(["-m", "flambeau", "run"] if ours else []), __file__]
    own = {"OMP_NUM_THREADS": "1", "FLAMBEAU_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    server = processes.popen(command, env={**os.environ, **own}, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(processes.end, server)
    return server


def _become(script: str, arguments: list[str], environment: dict[str, str], log: str) -> int:
    """In the child: be the script's process; its exit code."""
    os.setsid()
    faulthandler.enable()
    for number, name in ((0, os.devnull), (1, log), (2, log)):
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [script, *arguments]
    sys.path[0] = os.path.dirname(script)
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _serve(given: dict[str, Any]) -> list[int]:
    children = []
    for environment, log in zip(given["environments"], given["logs"], strict=True):
        child = os.fork()
        if child == 0:  # ends as any process does: a group waits at its end for the other machines
            sys.exit(_become(given["script"], given["arguments"], environment, log))
        children.append(child)
    codes: dict[int, int] = {}
    end = time.monotonic() + given["timeout"]
    signals = [signal.SIGABRT, signal.SIGKILL]
    while len(codes) < len(children):
        if signals and time.monotonic() > end:
            for child in set(children) - set(codes):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child, signals[0])
            signals, end = signals[1:], end + 5
        for child in children:
            if child not in codes and (found := os.waitpid(child, os.WNOHANG)) != (0, 0):
                codes[child] = os.waitstatus_to_exitcode(found[1])
        time.sleep(0.005)
    return [codes[child] for child in children]


def main() -> None:
    """Serve until the input ends."""
    for module in MODULES:
        importlib.import_module(module)
    assert sys.platform != "linux" or len(os.listdir("/proc/self/task")) == 1, "a process with threads cannot be forked safely"
    gc.freeze()  # children leave the pages of what was imported as they are, and need not look through it at their ends
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
