"""torch.utils._triton: whether Triton's compiler for graphics processors can be used. It cannot: kernels of one's own are flambeau.tile's."""

from __future__ import annotations

from typing import Any


def has_triton_package() -> bool:
    """False: the compiler is not there (`import triton` may give flambeau.tile, which has its surface)."""
    return False


def has_triton() -> bool:
    """False: there is no device that it compiles for."""
    return False


def has_triton_tma() -> bool:
    """False: there is no device that has it."""
    return False


def get_triton_version(fallback: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """What was given: no version is there."""
    return fallback


def triton_key() -> Any:
    """Refused: there is no compiler whose version could be told."""
    raise RuntimeError("triton_key(): Triton's compiler is not there; flambeau.tile compiles kernels that are written in its language")
