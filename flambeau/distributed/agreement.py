"""What a collective is, as a text for messages and as a number that ranks compare."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=4096)
def collective(name: str, detail: str, dtype: Any, shape: Any) -> tuple[str, int]:
    """(text, number) of a collective on tensors of one dtype and shape (a tuple, or a tuple of tuples)."""
    text = f"{name}({detail})" if detail else name
    if dtype is not None:
        text += f" of {dtype.name} {tuple(shape)}"
    return text, int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little", signed=True)
