"""Starting a script as several ranks, by flambeau or by PyTorch, and reading what each of them has written."""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "scripts"
ROOT = Path(__file__).parents[2]


def environment(**more: str) -> dict[str, str]:
    """The environment of a rank: one thread, and this tree's flambeau."""
    kept = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    return {**kept, "OMP_NUM_THREADS": "1", "FLAMBEAU_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), **more}


@contextlib.contextmanager
def started(
    script: str, ranks: int, folder: Path, arguments: Sequence[str] = (), ours: bool = True, machines: Sequence[str] = (), **more: str
) -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of a script's ranks; what still runs at the end of the block is killed. Each rank's `OUT` is its own file.

    `machines`: on which machine each rank believes that it is.
    """
    meeting = folder / f"meeting-{uuid.uuid4().hex}"
    command = [sys.executable, "-m", "flambeau", "run"] if ours else [sys.executable]
    processes = []
    try:
        for rank in range(ranks):
            if machines:
                more["FLAMBEAU_MACHINE"] = machines[rank]
            variables = environment(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks), INIT=f"file://{meeting}", OUT=str(folder / f"{script}-{ours}-{rank}"), **more
            )
            processes.append(
                subprocess.Popen([*command, str(HERE / script), *arguments], env=variables, cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            )
        yield processes
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.communicate()


def results(
    script: str, ranks: int, folder: Path, arguments: Sequence[str] = (), ours: bool = True, timeout: float = 240, machines: Sequence[str] = (), **more: str
) -> list[Any]:
    """What each rank of a script has written, which must all end well."""
    with started(script, ranks, folder, arguments, ours, machines, **more) as processes:
        for rank, process in enumerate(processes):
            output, errors = process.communicate(timeout=timeout)
            assert process.returncode == 0, f"rank {rank} of {script} (ours: {ours}) ended with {process.returncode}:\n{output}\n{errors}"
    return [pickle.loads((folder / f"{script}-{ours}-{rank}").read_bytes()) for rank in range(ranks)]
