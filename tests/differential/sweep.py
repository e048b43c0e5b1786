"""All operators of PyTorch's database against flambeau: `python -m tests.differential.sweep [DTYPE] [MOST] [OPERATOR ...]`.

Prints each difference with the call, and how many there were. Known ones (known.py) are left out.
"""

from __future__ import annotations

import signal
import sys
import warnings
from typing import Any

from flambeau.testing.compare import compare
from tests.differential.known import INTERNAL, KNOWN, Known, skipped
from tests.differential.samples import OPERATORS, cases, supported, torch


class TookTooLong(BaseException):
    """A case that does not end."""


def differences(label: str, dtype: str, most: int) -> tuple[int, list[str]]:
    """How many cases of an operator there were, and a line on each that differs."""
    found: list[str] = []
    count = 0
    inexact = getattr(torch, dtype).is_floating_point or getattr(torch, dtype).is_complex
    op = OPERATORS[label]
    known = KNOWN.get(label, Known(""))
    order = min(known.gradients, 2 if op.supports_gradgrad else 1) if inexact and op.supports_autograd else 0
    values = known.values and "empty" not in op.name
    for case in cases(label, dtype, order > 0, most):
        if skipped(label, dtype, case.args, case.kwargs):
            continue
        count += 1
        signal.alarm(60)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                answer = compare(
                    case.function, *case.args, reference=torch, gradients=order, values=values, tolerance=known.tolerance,
                    strides=known.strides and not op.name.startswith("fft."), **case.kwargs,
                )  # fmt: skip
        except TookTooLong:
            found.append(f"{case.text}: took more than 60 s")
            continue
        finally:
            signal.alarm(0)
        found.extend([f"{case.text[:600]}\n        {d}" for d in answer])
    return count, found


def on_alarm(*_: Any) -> None:
    raise TookTooLong


def main(arguments: list[str]) -> int:
    dtype = arguments[0] if arguments else "float64"
    most = int(arguments[1]) if len(arguments) > 1 else 10
    labels = arguments[2:] or list(OPERATORS)
    signal.signal(signal.SIGALRM, on_alarm)
    total = wrong = 0
    for label in labels:
        if label in INTERNAL or not supported(label, dtype):
            continue
        try:
            count, found = differences(label, dtype, most)
        except AttributeError as error:
            count, found = 1, [f"{label}: missing: {error}"]
        total += count
        wrong += len(found)
        for text in found[:5]:
            print("-", text, flush=True)
    print(f"{wrong} differences in {total} cases of {dtype}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
