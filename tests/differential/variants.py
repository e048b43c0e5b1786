"""How many variants of PyTorch's operators pass: `python -m tests.differential.variants [--samples 40] [--seed 7] [OPERATOR ...]`.

A variant is an entry of the database in one form: the function, the method, in place, with `out=`, by the operator (`a + b`), on the
database's larger set of samples (`reference`), or called wrongly (`errors`). Its samples are drawn by the seed, from all dtypes that
PyTorch has for it, and it passes where 99 % of them agree in values, dtypes, shapes, strides of views, first gradients and types of
errors. Nothing is left out here; of those that differ, the documented ones (documented.py) are counted by themselves, by their headings in
docs/differences.md. `--log FILE` keeps a line for each variant, and a second run goes on from there; `--minutes N` ends it before the next operator.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.differential.documented import Documented, documented
from tests.differential.known import INTERNAL
from tests.differential.samples import OPERATORS, Draw, supported
from tests.differential.sweep import answers, on_alarm, wrong_errors

FORMS = ("function", "method", "inplace", "out", "operator", "reference", "errors")
DTYPES = ("float64", "float32", "int64", "complex64", "bool", "bfloat16", "uint8", "complex128", "float16", "int32")
_SHARE = 0.99  # of the samples of a variant


class Variant(NamedTuple):
    """What came of one: how many samples, how many of them differ, and a line on some of those."""

    label: str
    form: str
    samples: int
    wrong: int
    lines: list[str]

    @property
    def passes(self) -> bool:
        return self.samples - self.wrong >= _SHARE * self.samples

    @property
    def documented(self) -> Documented | None:
        """Why it may differ as much as it does."""
        return documented(self.label, self.form, self.wrong / self.samples)


def run(label: str, form: str, most: int, seed: int) -> Variant:
    """At most `most` samples of a variant."""
    if form == "errors":
        count, lines = wrong_errors(label, most) if not label.startswith("jiterator") else (0, [])
        return Variant(label, form, count, len(lines), lines)
    dtypes = [dtype for dtype in DTYPES if supported(label, dtype)]
    left, count, wrong, found = most, 0, 0, []
    for i, dtype in enumerate(dtypes):
        share = max(-(-left // (len(dtypes) - i)), 1)
        here = 0
        kind, draw = ("function", Draw(seed, reference=True)) if form == "reference" else (form, Draw(seed))
        try:
            for _, lines in answers(label, dtype, share, kind, draw=draw):
                here += 1
                wrong += bool(lines)
                found += [f"[{dtype}] {line}" for line in lines]
        except Exception as error:  # a name that is missing, a sample that cannot be made
            here, wrong = here + 1, wrong + 1
            found.append(f"[{dtype}] {label}: {type(error).__name__}: {error}")
        count += here
        left -= here
    return Variant(label, form, count, wrong, found)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.variants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=FORMS)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--minutes", type=float, help="begin no operator after so many")
    parser.add_argument("--part", default="1/1", help="which part of the operators, as 2/4, so that several processes share them")
    options = parser.parse_intermixed_args(arguments)
    signal.signal(signal.SIGALRM, on_alarm)
    known: dict[tuple[str, str], Variant] = {}
    if options.log is not None and options.log.exists():
        for line in options.log.read_text().splitlines():
            made = Variant(*json.loads(line))
            known[made.label, made.form] = made
    part, parts = map(int, options.part.split("/"))
    made: list[Variant] = []  # type: ignore[no-redef]
    labels = sorted(set(OPERATORS) - INTERNAL)
    random.Random(options.seed).shuffle(labels)  # what a run that is cut short has seen is a sample
    begun = time.monotonic()
    for label in options.operators or labels[part - 1 :: parts]:
        if options.minutes is not None and time.monotonic() - begun > 60 * options.minutes:
            break
        for form in options.forms:
            variant = known.get((label, form)) or run(label, form, options.samples, options.seed)
            if options.log is not None and (label, form) not in known:
                with options.log.open("a") as log:
                    log.write(json.dumps(variant) + "\n")
            if variant.samples:
                made.append(variant)
    return report(made)


def report(variants: list[Any]) -> int:
    """Print those that differ with some of their samples, the documented ones by their headings, and how many there are of each."""
    differing = [v for v in variants if not v.passes]
    explained = [(v, entry) for v in differing if (entry := v.documented) is not None]
    open_ = [v for v in differing if v.documented is None]
    for v in open_:
        print(f"{v.form:10} {v.label:48} {v.wrong} of {v.samples}")
        for line in v.lines[:3]:
            print("    ", line)
    for heading in sorted({entry.heading for _, entry in explained}):
        print(f"documented: {heading}: {', '.join([f'{v.label} ({v.form})' for v, entry in explained if entry.heading == heading])}")
    passed = len(variants) - len(differing)
    rest = max(len(variants) - len(explained), 1)
    print(f"{len(variants)} variants: {passed} passed, {len(explained)} documented, {len(open_)} differing; of those not documented {passed / rest:.1%} pass")
    return int(bool(open_))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
