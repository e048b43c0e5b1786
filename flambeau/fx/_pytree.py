"""torch.fx._pytree: containers of one's own among the arguments of a traced program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

SUPPORTED_NODES: dict[type, Callable[..., Any]] = {}


def register_pytree_flatten_spec(cls: type, flatten_fn_spec: Callable[..., Any], flatten_fn_exact_match_spec: Any = None) -> None:
    """Remember how a container is taken apart where a specification is known."""
    SUPPORTED_NODES[cls] = flatten_fn_spec
