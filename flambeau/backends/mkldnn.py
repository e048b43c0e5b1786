"""torch.backends.mkldnn: oneDNN, which is not used."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext

from flambeau.backends.settings import Settings
from flambeau.backends.settings import flags as _flags

VERBOSE_OFF, VERBOSE_ON, VERBOSE_ON_CREATION = 0, 1, 2
enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"
conv = Settings("torch.backends.mkldnn.conv", fp32_precision="none")
matmul = Settings("torch.backends.mkldnn.matmul", fp32_precision="none")
rnn = Settings("torch.backends.mkldnn.rnn", fp32_precision="none")


def is_available() -> bool:
    """False."""
    return False


def flags(enabled: bool = False, deterministic: bool = False, allow_tf32: bool = True, fp32_precision: str = "none") -> AbstractContextManager[None]:
    """Make settings inside a block."""
    values = {"enabled": enabled, "deterministic": deterministic, "allow_tf32": allow_tf32, "fp32_precision": fp32_precision}
    return _flags(sys.modules[__name__], values)


def is_acl_available() -> bool:
    """False."""
    return False


class verbose(nullcontext[None]):
    """A block in which oneDNN would print: it is not used."""

    def __init__(self, level: int) -> None:
        super().__init__()
        self.level = level
