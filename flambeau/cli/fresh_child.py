"""One run of a program of `flambeau bench --fresh` in a process of its own.

`python -P .../fresh_child.py MODULE PROGRAM SEED STEPS STARTED` prints a line of JSON: the seconds of the steps that bring something new, and of the same
steps done again with the same seed (seen before); seconds from STARTED (time.time() of the parent) to the end of the first step and of the last new one;
the resident bytes then; and the lengths of garbage collections after the third step.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
import time
import types
import warnings
from pathlib import Path
from typing import Any


class Collections:
    """A callback of the garbage collector that notes how long each collection takes, in seconds."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.began = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.began = time.perf_counter()
        else:
            self.seconds.append(time.perf_counter() - self.began)


def without_its_package() -> None:
    """Let the modules of flambeau.cli be imported without flambeau itself, whose import would count as PyTorch's time."""
    here = Path(__file__).resolve().parent
    for name, folder in (("flambeau", here.parent), ("flambeau.cli", here)):
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = [str(folder)]


def main() -> None:
    """Run the program."""
    name, program, seed, steps, started = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    warnings.simplefilter("ignore")
    if name != "flambeau":
        without_its_package()
    torch: Any = importlib.import_module(name)
    from flambeau.cli.bench_child import settle, status
    from flambeau.cli.fresh_programs import PROGRAMS

    torch.set_num_threads(2)
    collections = Collections()
    gc.callbacks.append(collections)

    def run() -> list[float]:
        torch.manual_seed(seed)
        step, seconds = PROGRAMS[program](torch, seed), []
        for i in range(steps):
            start = time.perf_counter()
            step(i)
            seconds.append(time.perf_counter() - start)
            if i == 0:
                firsts.append(time.time() - started)
            if i == 2:
                collections.seconds.clear()
        return seconds

    firsts: list[float] = []
    new = run()
    total, resident, pauses = time.time() - started, status("VmRSS"), collections.seconds[:]
    seen = run()
    settle()  # what still compiles would disturb the next process
    print(json.dumps({"new": new, "seen": seen, "first": firsts[0], "total": total, "resident": resident, "collections": pauses}))


if __name__ == "__main__":
    main()
