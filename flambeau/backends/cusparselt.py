"""torch.backends.cusparselt: NVIDIA's library, which is not here."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False


def version() -> int | None:
    """None: there is no library."""
    return None


def get_max_alg_id() -> int | None:
    """None: there is no library."""
    return None
