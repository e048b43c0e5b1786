"""One round of `flambeau bench` in a process of its own: `python -m flambeau.cli.bench_child MODULE CASE...` prints, a line a
case, the best time of one call in seconds."""

from __future__ import annotations

import importlib
import sys
import time

SECONDS = 0.6  # of repetitions a case


def best(work: object, seconds: float = SECONDS) -> float:
    """The least time of one call; calls too short for the clock are timed in groups."""
    call = work
    assert callable(call)
    for _ in range(4):
        call()
    start = time.perf_counter()
    call()
    once = time.perf_counter() - start
    group = max(1, int(2e-4 / max(once, 1e-9)))
    least = float("inf")
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or least == float("inf"):
        start = time.perf_counter()
        for _ in range(group):
            call()
        least = min(least, (time.perf_counter() - start) / group)
    return least


def main() -> None:
    """Time the named cases."""
    from flambeau.cli.cases import CASES, SWEEP

    module = importlib.import_module(sys.argv[1])
    module.set_num_threads(2)
    module.manual_seed(0)
    by_name = {case.name: case for case in (*CASES, *SWEEP)}
    for name in sys.argv[2:]:
        print(best(by_name[name].make(module)), flush=True)


if __name__ == "__main__":
    main()
