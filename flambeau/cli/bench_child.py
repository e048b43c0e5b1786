"""One round of `flambeau bench` in a process of its own: `python -m flambeau.cli.bench_child MODULE CASE` prints the best time
of one call in seconds, the peak of the memory that calls take beyond the imported module, in bytes (0: cannot be told), and, of
flambeau, the floor in seconds: the least time for its kernels' bytes and operations on this machine."""

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
    settle()
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


def settle() -> None:
    """Wait until flambeau calls good code everywhere, if it is there."""
    twice = sys.modules.get("flambeau.runtime.twice")
    if twice is not None:
        twice.settle()


def status(field: str) -> int:
    """A field of /proc/self/status in bytes; 0 where there is none."""
    try:
        with open("/proc/self/status") as lines:
            return next((int(line.split()[1]) << 10 for line in lines if line.startswith(field + ":")), 0)
    except OSError:
        return 0


def peak(work: object, before: int) -> int:
    """The most resident bytes while `work` runs, above `before`."""
    assert callable(work)
    try:
        with open("/proc/self/clear_refs", "w") as reset:
            reset.write("5")  # VmHWM starts again (Linux, proc(5))
    except OSError:
        return 0
    work()
    return max(0, status("VmHWM") - before)


def floor(work: object) -> float:
    """Seconds that the kernels of one call take at least, by their bytes and operations (profiler/machine.py)."""
    from flambeau.profiler import profile

    assert callable(work)
    with profile() as profiler:
        work()
    return sum([event.floor_us for event in profiler.events() if event.kind == "kernel"]) / 1e6


def main() -> None:
    """Measure the named case."""
    from flambeau.cli.cases import CASES, SWEEP

    module = importlib.import_module(sys.argv[1])
    module.set_num_threads(2)
    module.manual_seed(0)
    by_name = {case.name: case for case in (*CASES, *SWEEP)}
    (module.ones(2) + 1).tolist()  # what the first call loads does not count as the case's memory
    before = status("VmRSS")
    work = by_name[sys.argv[2]].make(module)
    seconds = best(work)
    print(seconds, peak(work, before), floor(work) if module.__name__ == "flambeau" else 0.0)


if __name__ == "__main__":
    main()
