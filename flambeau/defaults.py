"""What a program sets for all calls: the device of new tensors, deterministic algorithms."""

from __future__ import annotations

from typing import Any

from flambeau import devices
from flambeau.ops import placing
from flambeau.ops.creation import fills
from flambeau.ops.signatures import must_be

_warns_only = [False]


def set_default_device(device: Any) -> None:
    """The device of new tensors: the CPU (or None), or `meta`. RuntimeError for a device that does not exist."""
    placing.set_default(device)


def get_default_device() -> Any:
    """The device of new tensors."""
    return placing.current() or devices.CPU


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Results are always deterministic, whatever the number of threads, at no cost. `empty` and its like then hold NaN, or the largest number."""
    must_be("use_deterministic_algorithms", "mode bool", mode)
    must_be("use_deterministic_algorithms", "warn_only bool", warn_only)
    _warns_only[0] = warn_only
    fills[0] = mode


def are_deterministic_algorithms_enabled() -> bool:
    """What use_deterministic_algorithms was told; results are deterministic either way."""
    return fills[0]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """What use_deterministic_algorithms was told; there never is anything to warn of."""
    return _warns_only[0]


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Accepted: "default" or 0, "warn" or 1, "error" or 2."""
    if debug_mode not in (0, 1, 2, "default", "warn", "error"):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, 2 or default, warn, error, got {debug_mode!r}")
    _warns_only[0] = debug_mode in (1, "warn")
    fills[0] = debug_mode not in (0, "default")


def get_deterministic_debug_mode() -> int:
    """What was asked for: 0 nothing, 1 warnings, 2 errors."""
    return (1 if _warns_only[0] else 2) if are_deterministic_algorithms_enabled() else 0
