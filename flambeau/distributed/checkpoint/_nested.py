"""Nested states as names with dots, and back, as PyTorch's checkpoints name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau.distributed.checkpoint._traverse import traverse_state_dict


def flatten(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """({name: value}, {name: path}); ValueError where two have one name."""
    flat: dict[str, Any] = {}
    paths: dict[str, tuple[Any, ...]] = {}

    def take(path: tuple[Any, ...], value: Any) -> None:
        name = ".".join(map(str, path))
        if name in flat:
            raise ValueError(f"duplicated flatten key {name}")
        flat[name], paths[name] = value, path

    traverse_state_dict(state, take)
    return flat, paths


def put(state: Any, path: tuple[Any, ...], value: Any) -> None:
    """Write a value at its place in a nested state. Keys that are no strings are found by what they print."""
    for depth, key in enumerate(path):
        if isinstance(state, Mapping) and key not in state:
            key = next((k for k in state if str(k) == key), key)
        if depth == len(path) - 1:
            state[key] = value
        else:
            state = state[key]
