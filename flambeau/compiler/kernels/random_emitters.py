"""Which of the kernels of random numbers runtime/random.py asks for, by name."""

from __future__ import annotations

from collections.abc import Callable

from flambeau.compiler.kernels import random, random_fills, random_rejection


def fill_emitter(name: str) -> Callable[..., str]:
    """The function that writes the text of a kernel."""
    return next(getattr(m, name) for m in (random_fills, random_rejection, random) if hasattr(m, name))  # type: ignore[no-any-return]
