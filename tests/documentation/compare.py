"""Compares what two packages show for the same statements, as text."""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.documentation.execute import Outcome
from tests.documentation.extract import Example

# What PyTorch cannot run as written: undefined names, other packages, files and devices that are not there, elisions.
NOT_RUNNABLE = "NameError UnboundLocalError ImportError ModuleNotFoundError SyntaxError IndentationError FileNotFoundError _TooLong Died".split()
NEEDS_DEVICE = re.compile(r"cuda|CUDA|NVIDIA|GPU|xpu|XPU|mps|MPS|mtia|HPU|accelerator|Inductor|compiler|g\+\+|quantized engine")

_NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")


class Difference(NamedTuple):
    """A statement whose outcomes differ."""

    name: str
    source: str
    theirs: str
    mine: str


class Report(NamedTuple):
    """Of one example: how many of its statements PyTorch runs and were compared, how many it cannot run, and the differences."""

    compared: int
    skipped: int
    differences: list[Difference]


def normal(text: str) -> str:
    """Text without addresses, and with one name for both packages."""
    text = re.sub(r"0x[0-9a-fA-F]+", "0x", text)
    return text.replace("flambeau.", "torch.").rstrip()  # classes, where they are shown by their modules' names


def unit(number: str) -> float:
    """One unit of the last printed digit; zero of an integer."""
    mantissa, _, exponent = number.lower().partition("e")
    if "." not in mantissa:
        return 0.0
    return float(10.0 ** (int(exponent or 0) - len(mantissa.split(".")[1])))


def same_text(theirs: str, mine: str) -> bool:
    """Equal, but for one unit of the last printed digit of floating numbers (another order of summation rounds otherwise).

    What is left of numbers that cancel is rounding errors, of which only the size is compared.
    """
    a, b = normal(theirs), normal(mine)
    if a == b:
        return True
    if " ".join(_NUMBER.sub("#", a).split()) != " ".join(_NUMBER.sub("#", b).split()):
        return False
    pairs = list(zip(_NUMBER.findall(a), _NUMBER.findall(b), strict=True))
    largest = max([1.0, *[abs(float(x)) for x, _ in pairs if "e" in x]])
    residue = largest * (5e-15 if "float64" in a or "complex128" in a else 1e-6)  # what is left of such numbers that cancel
    return all(x == y or _close(x, y, residue) for x, y in pairs)


def _close(x: str, y: str, residue: float) -> bool:
    a, b = float(x), float(y)
    if abs(a - b) <= 1.01 * max(unit(x), unit(y)):
        return True
    if len(x) > 12 and "e" not in x:  # all digits of a float32, by item()
        return abs(a - b) <= 5e-7 * abs(a)
    return "e" in x and "e" in y and (max(abs(a), abs(b)) < 5 * residue or abs(a - b) < residue)


def compare(example: Example, theirs: list[Outcome], mine: list[Outcome]) -> Report:
    """Statement by statement."""
    compared = skipped = 0
    found: list[Difference] = []
    sources = [s for chunk in example.chunks for s in chunk]
    for i, source in enumerate(sources):
        if i >= len(theirs) or theirs[i].error in NOT_RUNNABLE or (theirs[i].error and NEEDS_DEVICE.search(theirs[i].message)):
            skipped += 1
            continue
        compared += 1
        if i >= len(mine):
            if i == len(mine):
                found.append(Difference(example.name, source, theirs[i].text, "(ended before)"))
            continue
        a, b = theirs[i], mine[i]
        if a.error != b.error or not same_text(a.text, b.text):
            found.append(Difference(example.name, source, *(o.text + (f"{o.error}: {o.message}" if o.error else "") for o in (a, b))))
    return Report(compared, skipped, found)
