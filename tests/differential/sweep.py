"""All operators of PyTorch's database against flambeau: `python -m tests.differential.sweep [DTYPE] [MOST] [--form FORM] [OPERATOR ...]`.

Prints each difference with the call, and how many there were. Known ones (known.py) are left out. FORM is one of forms.FORMS:
"function" (the default), "inplace", "out", "method", "operator", "layout", "size", "special", "numbers", "errors", or "all" for each of them.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from flambeau.testing.compare import compare, error_of
from tests.differential.forms import FORMS, error_cases, form_cases
from tests.differential.known import FORMS_KNOWN, INTERNAL, KNOWN, NOTHING, Known, skipped
from tests.differential.samples import ALWAYS, OPERATORS, Case, Draw, Unsupported, supported, torch

_SHORT = ("float16", "bfloat16")  # second gradients of so few digits are noise


class TookTooLong(BaseException):
    """A case that does not end."""


def differences(label: str, dtype: str, most: int, form: str = "function") -> tuple[int, list[str]]:
    """How many cases of an operator there were in a form (at most `most`), and a line on each that differs."""
    if (form, label) in FORMS_KNOWN:
        return 0, []
    if form == "errors":
        return wrong_errors(label, most)
    op = OPERATORS[label]
    known = KNOWN.get(f"{label}:{dtype}") or KNOWN.get(label, Known(""))
    order = min(known.gradients, 2 if op.supports_gradgrad and form in ("function", "inplace") else 1)
    found = [(case, lines) for case, lines in answers(label, dtype, most, form, known, order) if not skipped(label, dtype, case.args, case.kwargs)]
    return len(found), [line for _, lines in found for line in lines]


def answers(label: str, dtype: str, most: int, form: str, known: Known = NOTHING, order: int = 1, draw: Draw = ALWAYS) -> Iterator[tuple[Case, list[str]]]:
    """Each case of an operator in a form (at most `most`), with a line on every difference. `order`: of the gradients that are compared."""
    op = OPERATORS[label]
    inexact = getattr(torch, dtype).is_floating_point or getattr(torch, dtype).is_complex
    order = order if inexact and op.supports_autograd else 0
    if dtype in _SHORT or form in ("out", "size", "special", "numbers"):
        order = min(order, dtype in _SHORT)
    values = known.values and "empty" not in op.name
    for case in form_cases(label, dtype, form, order > 0, most, draw):
        signal.alarm(120)  # a machine may be busy
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = compare(
                    case.function, *case.args, reference=torch, gradients=order, values=values, tolerance=known.tolerance,
                    strides=known.strides, referee=True, errors=form not in ("size", "special"),
                    indices=not known.ties, **case.kwargs,
                )  # fmt: skip
        except TookTooLong:
            yield case, [f"{case.text}: took more than two minutes"]
            continue
        finally:
            signal.alarm(0)
        yield case, [f"{case.text[:600]}\n        {d}" for d in found]


def wrong_errors(label: str, most: int) -> tuple[int, list[str]]:
    """The calls that PyTorch's database has as errors: the same type, and a message that names the operation."""
    found: list[str] = []
    count = 0
    for case in error_cases(label, most):
        count += 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, theirs = error_of(case.function, case.args, case.kwargs, torch)
        wanted = type(theirs).__name__
        if theirs is not None and ours is None:
            found.append(f"{case.text[:600]}\n        no error, expected {wanted}: {theirs}")
        elif theirs is not None and wanted not in [c.__name__ for c in type(ours).__mro__] and wanted.isidentifier():
            found.append(f"{case.text[:600]}\n        {type(ours).__name__} ({ours}), expected {wanted} ({theirs})")
        elif theirs is not None and not (names_operation(label, str(ours)) or type(ours).__name__ == "IndexRangeError"):  # found by a kernel
            found.append(f"{case.text[:600]}\n        does not name the operation: {ours} (PyTorch: {theirs})")
    return count, found


def names_operation(label: str, text: str) -> bool:
    """Whether an error's text names the operation, one of its aliases, or (in front) the one inside of it that found the error."""
    op = OPERATORS[label]
    names = [op.name, *[a.name for a in op.aliases], op.op.__name__]
    plain = text.lower().replace("_", "").replace(" ", "")
    if text.startswith("Dimension out of range"):  # PyTorch's own words, whoever asks
        return True
    in_front = re.match(r"[a-z_0-9.]+(\(\)|:| requires| expects| is implemented)", text)
    return in_front is not None or any(n.rsplit(".", 1)[-1].lower().replace("_", "") in plain for n in names)


def on_alarm(*_: Any) -> None:
    raise TookTooLong


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.sweep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("dtype", nargs="?", default="float64")
    parser.add_argument("most", nargs="?", type=int, default=10, help="cases for each operator and form")
    parser.add_argument("operators", nargs="*")
    parser.add_argument("--form", choices=(*FORMS, "all"), default="function")
    options = parser.parse_intermixed_args(arguments)
    labels = options.operators or list(OPERATORS)
    signal.signal(signal.SIGALRM, on_alarm)
    total = wrong = 0
    for form in FORMS if options.form == "all" else (options.form,):
        for label in labels:
            if label in INTERNAL or not (form == "errors" or supported(label, options.dtype)):
                continue
            try:
                count, found = differences(label, options.dtype, options.most, form)
            except (AttributeError, Unsupported) as error:
                count, found = 1, [f"{label}: missing: {error}"]
            total += count
            wrong += len(found)
            for text in found[:5]:
                print("-", text, flush=True)
    print(f"{wrong} differences in {total} cases of {options.dtype}, form {options.form}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
