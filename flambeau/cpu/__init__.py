"""torch.cpu: the CPU as a device among others, for code that is written for any device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flambeau.cpu import amp as amp


def is_available() -> bool:
    """True: there always is a CPU."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """ "cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """Accepted: there is one CPU."""


def is_initialized() -> bool:
    """True."""
    return True


def synchronize(device: Any = None) -> None:
    """Run everything that is recorded in this thread and still pending."""
    from flambeau.trace.evaluate import synchronize as run

    run()


class Stream:
    """A stream of a device without streams."""

    def __init__(self, priority: int = -1) -> None:
        self.priority = priority

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""


def current_stream(device: Any = None) -> Stream:
    """The one stream."""
    return Stream()


def stream(stream: Any) -> AbstractContextManager[None]:
    """A context that changes nothing."""
    return nullcontext()
