"""torch.backends.mkl: Intel's library, which is not used."""

from __future__ import annotations

from contextlib import nullcontext

VERBOSE_OFF, VERBOSE_ON = 0, 1


def is_available() -> bool:
    """False."""
    return False


class verbose(nullcontext[None]):
    """A block in which MKL would print: it is not used."""

    def __init__(self, enable: int) -> None:
        super().__init__()
        self.enable = enable
