"""Conjugate and negative views against PyTorch: random programs of views, writes, observations and gradients (conjugate_programs.py)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

import flambeau
from tests.ops.conjugate_programs import Program

torch = pytest.importorskip("torch")
PROGRAMS = int(os.environ.get("CONJUGATE_PROGRAMS", "64"))
START = int(os.environ.get("CONJUGATE_START", "0"))


# Which earlier values gradients need (docs/differences.md), and gradients that PyTorch computes of another shape or kind than it accepts.
UNLIKE = ("modified by an inplace operation", "returned an invalid gradient", "Expected isFloatingType")


def close(a: Any, b: Any) -> bool:
    """Whether two outcomes are the same up to rounding."""
    if any(unlike in getattr(x, "text", "") for x in (a, b) for unlike in UNLIKE):
        return True
    if b == "IndexRangeError":  # both of what PyTorch raises
        return a in ("IndexError", "RuntimeError")
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(close(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, (float, complex)) and isinstance(b, (float, complex)):
        if isinstance(a, complex) or isinstance(b, complex):
            a, b = complex(a), complex(b)
            return close(a.real, b.real) and close(a.imag, b.imag)
        return a == b or (a != a and b != b) or abs(a - b) <= 1e-9 * max(1.0, abs(a), abs(b))
    return bool(a == b)


class Different(Exception):
    """Both libraries have done another thing."""


def compare(seed: int, gradients: bool, steps: Sequence[int] = range(30)) -> None:
    """Run a program in PyTorch, then thrice here: recorded, known, and known as a whole."""
    expected: list[tuple[str, Any]] = []
    Program(torch, seed, lambda what, outcome: expected.append((what, outcome)), gradients).run(steps)
    for _ in range(3):
        rest = iter(expected)
        done: list[str] = []

        def check(what: str, outcome: Any, rest: Any = rest, done: list[str] = done) -> None:
            name, value = next(rest)
            if not what.endswith(("flags", "layout")):
                done.append(what if isinstance(outcome, tuple) else f"{what} -> {str(outcome)[:40]}")
            if name != what or not close(value, outcome):
                both = "\n".join(f"{who}: {at}: {found} {getattr(found, 'text', '')}" for who, at, found in (("PyTorch", name, value), ("here", what, outcome)))
                raise Different(f"seed {seed}, gradients {gradients}\n{[d for d in done if 'values' not in d]}\n{both}")

        Program(flambeau, seed, check, gradients).run(steps)


@pytest.mark.parametrize("block", range(8))
@pytest.mark.parametrize("gradients", [False, True])
def test_programs_do_what_they_do_in_pytorch(block: int, gradients: bool) -> None:
    """Values, errors, flags, strides, sharing (by writes through views) and gradients."""
    for seed in range(START + block, START + PROGRAMS, 8):
        compare(seed, gradients)
