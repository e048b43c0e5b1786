"""torch.backends.mps: Apple's GPUs, which are not here."""

from __future__ import annotations


def is_available() -> bool:
    """False."""
    return False


def is_built() -> bool:
    """False."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    """False."""
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """False."""
    return False


def get_name() -> str:
    """Refused: there is no such device."""
    raise RuntimeError("torch.backends.mps.get_name: there is no MPS device")


def get_core_count() -> int:
    """Refused: there is no such device."""
    raise RuntimeError("torch.backends.mps.get_core_count: there is no MPS device")
