"""Operators of one's own without values: the functions of `torch.library.register_fake`, and the sizes that only values could tell."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class DynamicOutputShapeException(RuntimeError):
    """A result whose shape depends on values."""


class FakeImplCtx:
    """What `torch.library.get_ctx()` gives inside a function of `register_fake`. `size`: what a size that depends on values is taken for, if anything."""

    def __init__(self, name: str, size: Callable[[int, int | None], int] | None = None) -> None:
        self._name, self._size = name, size
        self.asked = 0  # how many such sizes there are

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> int:
        """A size that depends on values. DynamicOutputShapeException where no number can stand for it; ValueError for a negative `min`."""
        if min < 0:
            raise ValueError(
                f"ctx.new_dynamic_size(min={min}, ...): expected min to be greater than or equal to 0: this API can only create non-negative sizes."
            )
        self.asked += 1
        if self._size is None:
            raise DynamicOutputShapeException(f"{self._name}: the shape of its result depends on values, which tensors without values do not have")
        return self._size(min, max)

    create_unbacked_symint = new_dynamic_size


class _Running(threading.local):
    context: FakeImplCtx | None = None


_running = _Running()


@contextmanager
def context(given: FakeImplCtx | None) -> Iterator[None]:
    """A block in which `get_ctx()` gives this."""
    before, _running.context = _running.context, given
    try:
        yield
    finally:
        _running.context = before


def current() -> FakeImplCtx | None:
    """The context that is open in this thread."""
    return _running.context


def get_ctx() -> FakeImplCtx:
    """Inside a function that `register_fake` has registered: what makes sizes that depend on values. RuntimeError elsewhere."""
    if _running.context is None:
        raise RuntimeError(
            "torch.library.get_ctx() can only be called inside of a function that register_fake has registered, while fake tensors run through it "
            "(for tensors of the device meta there are no sizes that depend on values)"
        )
    return _running.context
