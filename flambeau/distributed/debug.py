"""The debug level of torch.distributed, TORCH_DISTRIBUTED_DEBUG: what programs ask for. Ranks are compared at every level here (see window.py)."""

from __future__ import annotations

import os
from enum import IntEnum

_NAME = "TORCH_DISTRIBUTED_DEBUG"


class DebugLevel(IntEnum):
    """How much is looked at."""

    OFF, INFO, DETAIL = 0, 1, 2


_level = [DebugLevel.OFF]


def get_debug_level() -> DebugLevel:
    """The level."""
    return _level[0]


def set_debug_level(level: DebugLevel) -> None:
    """Change the level."""
    _level[0] = DebugLevel(level)


def set_debug_level_from_env() -> None:
    """Take the level from TORCH_DISTRIBUTED_DEBUG: OFF, INFO or DETAIL. ValueError for anything else."""
    text = os.environ.get(_NAME, "OFF")
    if text.upper() not in DebugLevel.__members__:
        raise ValueError(f"The value of {_NAME} must be OFF, INFO, or DETAIL; got {text!r}")
    _level[0] = DebugLevel[text.upper()]


if os.environ.get(_NAME, "OFF").upper() in DebugLevel.__members__:
    set_debug_level_from_env()
