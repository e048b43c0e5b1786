"""Starting a script as several ranks, by flambeau or by PyTorch, and reading what each of them has written."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.distributed import fork_server
from tests.processes import end, popen

HERE = Path(__file__).parent / "scripts"
ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """The environment of a rank: one thread, and this tree's flambeau."""
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    return {**kept, "OMP_NUM_THREADS": "1", "FLAMBEAU_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


def environments(script: str, ranks: int, folder: Path, ours: bool = True, machines: Sequence[str] = (), **more: str) -> list[dict[str, str]]:
    """The environment of each rank of a launch. `OUT` is the rank's own file; `machines`: on which machine each rank believes that it is."""
    meeting = folder / f"meeting-{uuid.uuid4().hex}"
    own = [{"FLAMBEAU_MACHINE": machine} for machine in machines] or [{}] * ranks
    return [
        environment(RANK=str(r), LOCAL_RANK=str(r), WORLD_SIZE=str(ranks), INIT=f"file://{meeting}", OUT=str(folder / f"{script}-{ours}-{r}"), **more, **own[r])
        for r in range(ranks)
    ]


@contextlib.contextmanager
def started(
    script: str, ranks: int, folder: Path, arguments: Sequence[str] = (), machines: Sequence[str] = (), **more: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of a script's ranks of flambeau; what still runs at the end of the block is killed."""
    command = [sys.executable, "-m", "flambeau", "run", str(HERE / script), *arguments]
    processes = []
    try:
        for variables in environments(script, ranks, folder, machines=machines, **more):
            processes.append(popen(command, env=variables, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            end(process)


def results(
    script: str, ranks: int, folder: Path, arguments: Sequence[str] = (), ours: bool = True, timeout: float = 240, machines: Sequence[str] = (), **more: str
) -> list[Any]:
    """What each rank of a script has written, which must all end well: ranks of flambeau, or of PyTorch. They are forks (fork_server.py)."""
    for left in (1, 0):
        logs = [folder / f"log-{uuid.uuid4().hex}" for _ in range(ranks)]
        codes = fork_server.launch(HERE / script, arguments, environments(script, ranks, folder, ours, machines, **more), logs, ours, timeout)
        if ours or not left or -signal.SIGABRT not in codes:  # PyTorch's ranks abort now and then at their end, where a thread of gloo still runs
            break
    if any(codes):
        raise AssertionError("\n".join(f"rank {r} of {script} (ours: {ours}) ended with {codes[r]}:\n{logs[r].read_text()}" for r in range(ranks)))
    return [pickle.loads((folder / f"{script}-{ours}-{rank}").read_bytes()) for rank in range(ranks)]
