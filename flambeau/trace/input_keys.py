"""The keys of inputs' edges, each there once: native code compares them by identity."""

from __future__ import annotations

from typing import Any, Final

from flambeau.trace import classes
from flambeau.trace.meta import Meta
from flambeau.trace.state import IN

_KEYS: Final[dict[Any, Any]] = {}


def input_key(m: Meta, nbytes: int, external: bool = False) -> Any:
    """The key of the edge that takes a tensor with this metadata, over so many bytes, as an input."""
    key = (IN, m, nbytes, external)
    return _KEYS.setdefault(key, key)


def known_key(skeleton: Any, ints: tuple[Any, ...]) -> Any:
    """The key of an input's edge, or an alias's, of which classes.py knows all but these sizes."""
    key = classes.input_key_of(skeleton, ints)
    return _KEYS.setdefault(key, key) if key[0] == IN else key
