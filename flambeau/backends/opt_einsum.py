"""torch.backends.opt_einsum: the order of an einsum's products, which flambeau chooses by itself."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager

from flambeau.backends.settings import flags as _flags

enabled = False
strategy: str | None = None


def is_available() -> bool:
    """False: the library is not used."""
    return False


def get_opt_einsum() -> None:
    """None: the library is not used."""


def set_flags(_enabled: bool | None = None, _strategy: str | None = None) -> tuple[bool, str | None]:
    """Make those settings that are not None; returns what they were."""
    global enabled, strategy
    before = (enabled, strategy)
    enabled = enabled if _enabled is None else _enabled
    strategy = strategy if _strategy is None else _strategy
    return before


def flags(enabled: bool | None = None, strategy: str | None = None) -> AbstractContextManager[None]:
    """Make settings inside a block."""
    given = {"enabled": enabled, "strategy": strategy}
    return _flags(sys.modules[__name__], {name: value for name, value in given.items() if value is not None})
