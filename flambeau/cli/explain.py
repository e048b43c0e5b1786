"""`flambeau explain script.py`: run a script and print each distinct plan: trace, graph, kernels, bytes, operations, floor."""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flambeau.runtime import whole_files


def explain(script: str, arguments: Sequence[str], html: str | None = None) -> int:
    """Run the script as `flambeau run` does; report when it ends, on the terminal or as a page in the file `html`.

    Each path is planned as a whole when it first comes, as in other runs once it has come again (trace/tiers.py).
    """
    from flambeau.cli.run import missing, run

    if missing(script, "explain"):
        return 2
    from flambeau.compiler import explain as compiler
    from flambeau.profiler import machine
    from flambeau.statistics import counters
    from flambeau.trace import evaluate, tiers

    tiers.MODE[0] = tiers.WHOLE
    if html is not None:
        return _explain_html(script, arguments, html)
    bandwidth, peak = machine.bandwidth(), machine.peak()
    print(f"measured: {bandwidth / 1e9:.1f} GB/s of memory, {peak / 1e9:.0f} GFLOP/s in float32\n")
    seen: list[tuple[Any, str]] = []
    evaluate.OBSERVERS.append(lambda plan, reason: seen.append((plan, reason)))

    def report() -> None:
        for number, (plan, reason) in enumerate(seen, start=1):
            print(f"=== plan {number}: the trace ended with: {reason} ===")
            print(compiler.explain(plan.plan, bandwidth=bandwidth, peak=peak))
        if counters.changing_numbers:
            print("=== numbers that had several values: each value of one in the key makes its own plans ===")
            for name, note in counters.changing_numbers.items():
                print(f"{name}: {note}")

    atexit.register(report)
    return run([script, *arguments])


def _explain_html(script: str, arguments: Sequence[str], html: str) -> int:
    from flambeau.cli.explain_html import page, watch
    from flambeau.cli.run import run
    from flambeau.trace import evaluate

    target = Path(html).resolve()  # before the script can change the directory
    if not target.parent.is_dir():
        raise SystemExit(f"flambeau explain: no such directory: {target.parent}")
    watcher = watch()
    try:
        return run([script, *arguments])
    finally:  # also if the script fails or calls sys.exit
        evaluate.synchronize("end of the script")
        with whole_files.replacing(target) as file:
            file.write(page(watcher, script).encode())
        print(f"wrote {target}")
