"""`flambeau explain script.py`: run a script and print each distinct plan: trace, graph, kernels, bytes, operations, floor."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from typing import Any


def measure() -> tuple[float, float]:
    """(bytes a second of memory, f32 operations a second) of this machine, from a large copy and a large product."""
    import time

    import flambeau as torch

    x, a = torch.rand(1 << 24), torch.rand(768, 768)

    def best(work: Any) -> float:
        least = float("inf")
        for _ in range(5):
            start = time.perf_counter()
            work().data_ptr()
            least = min(least, time.perf_counter() - start)
        return least

    return 2 * 4 * x.numel() / best(lambda: x + 1), 2 * 768**3 / best(lambda: a @ a)


def explain(script: str, arguments: Sequence[str]) -> int:
    """Run the script as `flambeau run` does; report when it ends."""
    from flambeau.cli.run import run
    from flambeau.compiler import explain as compiler
    from flambeau.trace import evaluate

    bandwidth, peak = measure()
    print(f"measured: {bandwidth / 1e9:.1f} GB/s of memory, {peak / 1e9:.0f} GFLOP/s in float32\n")
    seen: list[tuple[Any, str]] = []
    evaluate.OBSERVERS.append(lambda plan, reason: seen.append((plan, reason)))

    def report() -> None:
        for number, (plan, reason) in enumerate(seen, start=1):
            print(f"=== plan {number}: the trace ended with: {reason} ===")
            print(compiler.explain(plan.plan, bandwidth=bandwidth, peak=peak))

    atexit.register(report)
    return run(script, arguments)
