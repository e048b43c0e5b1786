"""The command of modules that run random programs by their seeds and print what differs: `python -m MODULE N [SEED]`."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Sequence


def main(differences: Callable[[Sequence[int]], list[str]], how: str, at_once: int = 1) -> int:
    """Run N random programs, so many `at_once`; 0 if none differs. `how`: in what way they run."""
    parser = argparse.ArgumentParser(description=f"Compares random programs {how} with themselves in one thread.")
    parser.add_argument("count", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    wrong, end = 0, given.seed + given.count
    for first in range(given.seed, end, at_once):
        seeds = range(first, min(first + at_once, end))
        try:
            found = differences(seeds)
        except Exception as error:
            found = [f"seeds {seeds}: {error!r}"]
        wrong += len(found)
        for line in found:
            print(line, flush=True)
    print(f"{wrong} of {given.count} random programs {how} differ")
    return int(wrong > 0)
