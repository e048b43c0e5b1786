"""torch.backends.cudnn: cuDNN, which is not here."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

from flambeau.backends.settings import flags as _flags

enabled = True
benchmark = False
benchmark_limit: int | None = None
deterministic = False
allow_tf32 = True
fp32_precision = "none"


def is_available() -> bool:
    """False."""
    return False


def version() -> int | None:
    """None: there is no library."""
    return None


def is_acceptable(tensor: Any) -> bool:
    """False: no tensor can be given to cuDNN."""
    return False


def flags(
    enabled: bool = False, benchmark: bool = False, benchmark_limit: int = 10, deterministic: bool = False, allow_tf32: bool = True
) -> AbstractContextManager[None]:
    """Make settings inside a block."""
    values = {"enabled": enabled, "benchmark": benchmark, "benchmark_limit": benchmark_limit, "deterministic": deterministic, "allow_tf32": allow_tf32}
    return _flags(sys.modules[__name__], values)
