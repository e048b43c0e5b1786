"""torch.distributed.checkpoint._nested_dict: nested states as names with dots, and back."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.checkpoint._nested import flatten as flatten_state_dict  # noqa: F401
from flambeau.distributed.checkpoint._traverse import set_element


def unflatten_state_dict(state_dict: dict[str, Any], mapping: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    """The nested state of names, by their paths."""
    nested: dict[str, Any] = {}
    for name, value in state_dict.items():
        set_element(nested, mapping[name], value)
    return nested
