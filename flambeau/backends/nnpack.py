"""torch.backends.nnpack: a library that is not used."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext


def is_available() -> bool:
    """False."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Accepted; what it was: False."""
    return (False,)


def flags(enabled: bool = False) -> AbstractContextManager[None]:
    """A block that changes nothing."""
    return nullcontext()
