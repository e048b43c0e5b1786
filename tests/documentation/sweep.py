"""`python -m tests.documentation.sweep [PREFIX ...]`: all examples whose names begin so (torch.nn, torch.Tensor.add, ...), and a report."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

from tests.documentation.compare import compare
from tests.documentation.execute import run_apart, run_here
from tests.documentation.extract import examples
from tests.documentation.known import reason


def main(prefixes: Sequence[str]) -> int:
    """Print every difference and the counts; 1 if there is a difference without a reason."""
    chosen = [e for e in examples() if not prefixes or any(e.name == p or e.name.startswith(p if p.endswith(".") else p + ".") for p in prefixes)]
    left = [e for e in chosen if reason(e.name, "") is not None]
    chosen = [e for e in chosen if reason(e.name, "") is None]
    start = time.perf_counter()
    theirs = run_here(chosen)
    middle = time.perf_counter()
    mine = run_apart(chosen)
    end = time.perf_counter()
    compared = skipped = equal = runnable = known = 0
    for example, a, b in zip(chosen, theirs, mine, strict=True):
        report = compare(example, a, b)
        compared += report.compared
        skipped += report.skipped
        differences = [d for d in report.differences if reason(d.name, d.source) is None]
        known += len(report.differences) - len(differences)
        runnable += report.compared > 0
        equal += report.compared > 0 and not differences
        for d in differences:
            print(f"=== {d.name}\n>>> {d.source}\n--- PyTorch\n{d.theirs.rstrip()}\n--- flambeau\n{d.mine.rstrip()}")
    print(
        f"{len(chosen)} examples ({len(left)} left out with reasons): {runnable} run in PyTorch, {equal} of them equal; {compared} statements compared, "
        f"{known} differ with reasons, {skipped} that PyTorch cannot run; {middle - start:.0f} s PyTorch, {end - middle:.0f} s flambeau"
    )
    return int(equal < runnable)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
