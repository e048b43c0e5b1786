"""torch.utils.deterministic: whether uninitialised memory is filled (with NaN, the largest integer, True) under use_deterministic_algorithms."""

from __future__ import annotations

fill_uninitialized_memory = True


def fills_memory() -> bool:
    """What a program has set."""
    return fill_uninitialized_memory
