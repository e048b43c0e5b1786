"""Values of tensors that are at hand: where a function asks something of them, the call that is wrong raises; what is pending stays pending."""

from __future__ import annotations

from typing import Any

from flambeau.trace.recorder import Trace, local


def at_hand(t: Any) -> bool:
    """Whether the values of a tensor can be looked at without running anything: outside of transforms, and nothing of them pending."""
    storage = getattr(t, "_storage", None)
    return type(local.trace) is Trace and storage is not None and storage.buffer is not None and bool(storage.buffer.address) and storage.has_value()


def within(t: Any, low: float, high: float) -> bool:
    """Whether all values, none of them a NaN, are from `low` to `high`. What is pending is computed."""
    x = t.detach()
    return bool(((x >= low) & (x <= high)).all()) if x.numel() else True
