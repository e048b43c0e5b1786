"""torch._dynamo.utils: questions about PyTorch's reader of bytecode."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from flambeau.trace.once import warn_here


def is_compile_supported(device_type: Any) -> bool:
    """False: there is no compiler apart from the one that runs everything (compiling.py)."""
    return False


counters: defaultdict[str, Counter[str]] = defaultdict(Counter)
"""What PyTorch's compiler counts, by kind; there is no such compiler, so nothing is counted here."""


@functools.cache
def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warn of a message, the first time that it comes."""
    warn_here(msg)


@contextlib.contextmanager
def disable_cache_limit() -> Iterator[None]:
    """A block without a limit of the kernels that are kept for a function; there is none outside of it, either."""
    yield
