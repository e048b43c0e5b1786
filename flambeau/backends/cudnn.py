"""torch.backends.cudnn: cuDNN, which is not here."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

from flambeau.backends.settings import Settings
from flambeau.backends.settings import flags as _flags

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
allow_tf32 = True
fp32_precision = "none"
conv = Settings("torch.backends.cudnn.conv", fp32_precision="tf32")
rnn = Settings("torch.backends.cudnn.rnn", fp32_precision="tf32")


def is_available() -> bool:
    """False."""
    return False


def version() -> int | None:
    """None: there is no library."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """False: no tensor can be given to cuDNN."""
    return False


def set_flags(
    _enabled: bool | None = None, _benchmark: bool | None = None, _benchmark_limit: int | None = None, _deterministic: bool | None = None,
    _allow_tf32: bool | None = None, _fp32_precision: str = "none",
) -> tuple[Any, ...]:  # fmt: skip
    """Make those settings that are not None; returns what they were."""
    module = sys.modules[__name__]
    given = {
        "enabled": _enabled, "benchmark": _benchmark, "benchmark_limit": _benchmark_limit, "deterministic": _deterministic,
        "allow_tf32": _allow_tf32,
    }  # fmt: skip
    before = tuple(getattr(module, name) for name in given)
    for name, value in given.items():
        if value is not None:
            setattr(module, name, value)
    return before


def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False, allow_tf32: bool = True
) -> AbstractContextManager[None]:
    """Make settings inside a block."""
    values = {"enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit, "deterministic": deterministic, "allow_tf32": allow_tf32}
    return _flags(sys.modules[__name__], values)
