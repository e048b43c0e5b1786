"""torch.backends.openmp: OpenMP, which is not used: flambeau has a team of threads of its own."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False
