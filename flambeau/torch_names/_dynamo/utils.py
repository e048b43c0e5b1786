"""torch._dynamo.utils: questions about PyTorch's reader of bytecode."""

from __future__ import annotations

from typing import Any


def is_compile_supported(device_type: Any) -> bool:
    """False: there is no compiler apart from the one that runs everything (compiling.py)."""
    return False
