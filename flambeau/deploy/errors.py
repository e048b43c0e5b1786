"""What cannot be built, and why."""

from __future__ import annotations


class BuildError(RuntimeError):
    """A model or a target for which no library can be made; the text says what must change."""
