"""torch.fx._compatibility: the decorator that marks functions whose interface stays, or may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def compatibility(is_backward_compatible: bool) -> Callable[[T], T]:
    """Decorator; the function or class is as it was."""

    def mark(thing: T) -> T:
        return thing

    return mark
