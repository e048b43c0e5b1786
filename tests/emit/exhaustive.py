"""Every float32 input of every function, against float64: writes the table of worst errors in docs/accuracy.md.

    python -m tests.emit.exhaustive [--every N] [--write] [function ...]

All 2^32 bit patterns of one function take two to ten minutes of one core. `--every N` takes each N-th pattern (N odd,
so that every low digit is met); the table says so. Rows of functions that are not run stay as they are. The same run is
a test: `pytest -m slow tests/emit/test_exhaustive.py`.
"""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flambeau import dtypes
from flambeau.compiler.emit import scalar
from tests.emit.accuracy import BOUND_BINARY, BOUND_FLOAT32, BOUND_FLOAT64, REFERENCE
from tests.emit.native import Array, compiled
from tests.emit.samples import ulps

TABLE = Path(__file__).parents[2] / "docs" / "accuracy.md"
CHUNK = 1 << 16  # inputs at a time: the arrays stay in the cache, which is worth a factor of three
HEAD = """# Accuracy of the vector mathematics

Worst error of each float32 function in units in the last place (ulp) of the exact result, and an input that has it.
0.5 is a correctly rounded result. Subnormal inputs and results, infinities, NaN and signed zeros are included. The
reference is float64 (NumPy, SciPy), so an entry can be off by about 2^-20 ulp where that is good. `every` is the
distance between the bit patterns tried: 1 means all 2^32. Written by `python -m tests.emit.exhaustive --write`.

| function | worst error, ulp | at | as bits | every | stated bound |
|---|---|---|---|---|---|
"""


@dataclass
class Worst:
    """The largest error seen of one function."""

    op: str
    error: float
    at: np.float32
    every: int

    def row(self) -> str:
        bits = int(np.float32(self.at).view(np.uint32))
        return f"| {self.op} | {self.error:.3f} | {self.at!s} | 0x{bits:08X} | {self.every} | {BOUND_FLOAT32[self.op]:g} |"


def measure(op: str, every: int) -> Worst:
    """Run `op` on each `every`-th float32 bit pattern."""
    run = compiled(lambda b, values, w: scalar.apply(b, op, dtypes.float32, values, w), [dtypes.float32], dtypes.float32, 16)
    worst = Worst(op, -1.0, np.float32(0), every)
    for start in range(0, 2**32, CHUNK * every):
        patterns = np.arange(start, min(start + CHUNK * every, 2**32), every, dtype=np.uint64)
        x = patterns.astype(np.uint32).view(np.float32)
        got = run([x])
        with np.errstate(all="ignore"):
            error = quick_ulps(got, REFERENCE[op](x.astype(np.float64)))
        at = int(np.argmax(error))
        if error[at] > worst.error:
            exact = float(ulps(got[at : at + 1], REFERENCE[op](x[at : at + 1].astype(np.float64)))[0])
            worst = Worst(op, exact, x[at], every)
    return worst


def quick_ulps(got: Array, wanted: Array) -> Array:
    """As `samples.ulps`, for float32 against float64, without long double: 16 times faster."""
    as_type = wanted.astype(np.float32)
    exponent = (np.abs(as_type).view(np.uint32) >> 23).astype(np.int32)
    # A result that rounds up to a power of two counts in the larger unit, and `measure` computes the worst one again.
    unit_bits = (np.maximum(exponent, 1) + (1023 - 127 - 23)).astype(np.int64) << 52
    error = np.abs(got.astype(np.float64) - wanted) / unit_bits.view(np.float64)
    right = (got == as_type) | (np.isnan(got) & np.isnan(wanted))
    inexact = np.isinf(got) | np.isnan(error)
    return np.where(inexact, np.where(right, 0.0, np.inf), error)


def rows_of(text: str) -> dict[str, str]:
    """The table's rows by function."""
    return {match[1]: match[0] for match in re.finditer(r"^\| (\w+) \| [\d.inf]+ \|.*\|$", text, re.MULTILINE)}


def tail() -> str:
    """The bounds that are checked on samples only, in every run of the tests."""
    unary = ", ".join(f"{op} {bound:g}" for op, bound in BOUND_FLOAT64.items())
    binary = "; ".join(f"{name}: " + ", ".join(f"{op} {bound:g}" for op, bound in bounds.items()) for name, bounds in BOUND_BINARY.items())
    return (
        "\n## float64, and functions of two arguments\n\n"
        "Bounds in ulp that `tests/emit/test_math.py` checks on samples (float64 against long double or mpmath).\n\n"
        f"- float64: {unary}. lgamma and digamma: about 1e-15 of the terms that cancel near their roots.\n"
        f"- {binary}.\n"
        "- float16 and bfloat16 compute in float32 and round once.\n"
        "- Complex functions: a few epsilon of the modulus (`tests/emit/test_complex.py`).\n"
    )


def write(results: list[Worst]) -> None:
    rows = rows_of(TABLE.read_text()) if TABLE.exists() else {}
    rows.update({r.op: r.row() for r in results})
    TABLE.write_text(HEAD + "\n".join(rows[op] for op in REFERENCE if op in rows) + "\n" + tail())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("functions", nargs="*", default=list(REFERENCE))
    parser.add_argument("--every", type=int, default=1, help="distance between the bit patterns tried (odd)")
    parser.add_argument("--write", action="store_true", help="write the rows into docs/accuracy.md, each when it is done")
    options = parser.parse_args()
    if options.every % 2 == 0:
        parser.error("--every must be odd, or whole exponents are never met")
    for op in options.functions:
        started = time.perf_counter()
        worst = measure(op, options.every)
        if options.write:
            write([worst])
        print(f"{worst.row()} {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
