"""`python -m tests.engine.same_bits`: programs in which each step brings something new give the same bits however they are run.

Each setting has a process of its own: as ever, in pieces alone, as a whole alone, without paths by class, on one thread, with tables that are full.
"""

from __future__ import annotations

import hashlib
import os
import sys

import flambeau
from flambeau.cli.fresh_programs import PROGRAMS
from tests import processes
from tests.engine import full_tables

SETTINGS: dict[str, dict[str, str]] = {
    "as ever": {}, "in pieces": {"FLAMBEAU_TIER": "0"}, "as a whole": {"FLAMBEAU_TIER": "1"}, "without classes": {"FLAMBEAU_CLASSES": "0"},
    "one thread": {"FLAMBEAU_NUM_THREADS": "1"}, "full tables": {full_tables.SEED: "1"}, "other full tables": {full_tables.SEED: "2"},
}  # fmt: skip
STEPS = 10  # new ones; then the same again


def results() -> None:
    """Print what each program gives, as a line with its hash."""
    if full_tables.SEED in os.environ:
        full_tables.shrunk(int(os.environ[full_tables.SEED]))
    for name, make in PROGRAMS.items():
        flambeau.manual_seed(0)
        step, found = make(flambeau, 1), hashlib.sha256()
        for i in [*range(STEPS), *range(STEPS)]:
            found.update(repr(step(i)).encode())
        print(f"{name}: {found.hexdigest()[:16]}")


def main() -> int:
    """Compare the settings; the exit status."""
    lines: dict[str, list[str]] = {}
    for setting, environment in SETTINGS.items():
        own = {k: v for k, v in os.environ.items() if k not in ("FLAMBEAU_TIER", "FLAMBEAU_CLASSES", "FLAMBEAU_NUM_THREADS")}
        done = processes.python("-m", __spec__.name, "results", env=own | environment, check=True)
        lines[setting] = done.stdout.splitlines()
    usual, bad = lines["as ever"], []
    for setting, found in lines.items():
        bad += [f"{setting}: {there}; as ever: {here}" for here, there in zip(usual, found, strict=True) if here != there]
    print(f"{len(usual)} programs in {len(SETTINGS)} settings: {len(bad)} differ", *bad, sep="\n")
    return bool(bad) or len(usual) != len(PROGRAMS)


if __name__ == "__main__":
    sys.exit(main() if sys.argv[1:] != ["results"] else results())
