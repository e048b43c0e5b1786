"""Tables that are full: what a process remembers is bounded everywhere, and a long one meets all bounds. Here they are met at once.

`shrunk(seed)` makes bounds small, so that tables are emptied, entries given up and indices used again all the time. Numbers must stay as they are.
"""

from __future__ import annotations

import importlib
import itertools
import random
import sys
from typing import Any

from flambeau.trace import forgetting, traces

BOUNDS: dict[str, dict[str, int]] = {
    "symbols": {"MOST_KNOWN": 40}, "foreign": {"_MOST_KNOWN": 2}, "func.tracking": {"_MOST": 2},
    "trace.classes": {"MOST_VARIANTS": 2, "MOST_PLACES": 3}, "trace.class_plans": {"MOST_VARIANTS": 2}, "trace.from_model": {"_MOST_UNTRIED": 2},
    "trace.tiers": {"MOST_PLACES": 5, "MOST_CUTS": 12}, "trace.overlap": {"_MOST_SEEN": 2}, "trace.kept": {"MOST_SIZES": 2},
    "trace.kept_classes": {"MOST_COUNTED": 2, "MOST_ALIKE": 2, "MOST_TRIES": 3},
    "autograd.collected": {"MOST_PLACES": 2}, "autograd.kept_stages": {"MOST": 2}, "autograd.kept_class_stages": {"MOST_ALIKE": 2, "MOST_TRIES": 3},
    "ops.remembered": {"MOST_KINDS": 2, "MOST_MISSES": 2}, "ops.indexing": {"_MOST_VIEWS": 2}, "runtime.object_cache": {"_MOST_PLANS": 8, "_PLANS_BETWEEN": 2},
}  # fmt: skip
PLANS = (1_500, 6_000, 30_000)  # values and nodes of all plans together, before the oldest are forgotten
SEED = "FULL_TABLES"  # the environment's variable with a seed: processes that are started with it shrink their tables


def shrunk(seed: int) -> None:
    """Make most bounds small for the rest of the process, by chance which, and how small: where all are, some ways are never gone."""
    chance = random.Random(seed)
    for home, bounds in BOUNDS.items():
        origin: Any = importlib.import_module(f"flambeau.{home}")
        for name, least in bounds.items():
            usual = getattr(origin, name)
            bound = chance.choice((least, least, 3 * least, usual))
            assert usual > least, (home, name)
            for module in [m for n, m in list(sys.modules.items()) if n.startswith("flambeau.")]:  # also where it was imported by its name
                if vars(module).get(name) == usual:
                    setattr(module, name, bound)
    most, indices = chance.choice((*PLANS, None)), chance.choice((3, 4, traces.TRACE_SLOTS))
    if most is not None:
        forgetting.limit = lambda: most  # type: ignore[assignment]
    traces._indices = itertools.cycle(range(indices))  # type: ignore[assignment]


def main() -> int:
    """`python -m tests.engine.full_tables SEED COUNT`: so many generated programs beside PyTorch; the exit status."""
    from tests.engine.generated_programs import run_programs

    seed, count = int(sys.argv[1]), int(sys.argv[2])
    shrunk(seed)
    return run_programs(range(seed, seed + count))


if __name__ == "__main__":
    sys.exit(main())
