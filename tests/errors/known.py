"""Wrong calls whose errors differ from PyTorch's, each with the reason."""

from __future__ import annotations

from tests.errors.calls import Wrong


def reason(wrong: Wrong, kind: str) -> str | None:
    """Why a difference is there; None if it may not be."""
    return None
