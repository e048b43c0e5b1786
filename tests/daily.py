"""What generators of programs that are compared with PyTorch each day share: the command, and how far two arrays are apart."""

from __future__ import annotations

import argparse
import datetime
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np


def run(what: str, difference: Callable[[int], str | None], count: int) -> int:
    """The command line of a generator: `difference` of a seed's program says in what the libraries differ. 0 if no program differs."""
    parser = argparse.ArgumentParser(description=f"Compares {what} with PyTorch.")
    parser.add_argument("seed", type=int, nargs="?", help="the first program (default: of today)")
    parser.add_argument("--count", type=int, help=f"how many programs (default: 1 with a seed, else {count})")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # PyTorch's, of what is deprecated
    first = datetime.date.today().toordinal() * 100_000 if given.seed is None else given.seed
    seeds = range(first, first + (given.count or (count if given.seed is None else 1)))
    wrong = 0
    for seed in seeds:
        if found := difference(seed):
            wrong += 1
            print(f"seed {seed}: {found}", flush=True)
    print(f"{wrong} of {len(seeds)} {what} from seed {first} differ")
    return int(wrong > 0)


def scale_of(q: Any) -> float:
    """The greatest finite number of an array, at least 1."""
    return float(np.max(np.abs(np.where(np.isfinite(q), q, 0)), initial=1.0))


def relative(p: Any, q: Any) -> float:
    """The greatest difference of two arrays of a shape, relative to `scale_of(q)`; infinite where NaN or infinities differ."""
    same = (p == q) | (np.isnan(p) & np.isnan(q))
    if not np.all(same | (np.isfinite(p) & np.isfinite(q))):
        return math.inf
    return float(np.max(np.where(same, 0, np.abs(np.where(same, 0, p) - np.where(same, 0, q))), initial=0.0)) / scale_of(q)
