"""Nested states as names with dots, and back, as PyTorch's checkpoints name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flambeau.tensor import Tensor


def _is_leaf(value: Any) -> bool:
    if isinstance(value, Mapping):
        return False
    return not isinstance(value, list) or not any(isinstance(v, Tensor) or (isinstance(v, (Mapping, list)) and not _is_leaf(v)) for v in value)


def flatten(state: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]]]:
    """({name: value}, {name: path}); ValueError where two have one name."""
    flat: dict[str, Any] = {}
    paths: dict[str, tuple[Any, ...]] = {}

    def visit(path: tuple[Any, ...], value: Any) -> None:
        if isinstance(value, Mapping):
            for key, v in value.items():
                visit((*path, str(key)), v)
        elif not _is_leaf(value):
            for i, v in enumerate(value):
                visit((*path, i), v)
        else:
            name = ".".join(map(str, path))
            if name in flat:
                raise ValueError(f"duplicated flatten key {name}")
            flat[name], paths[name] = value, path

    for key, value in state.items():
        visit((str(key),), value)
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


def build(state: Any, path: tuple[Any, ...], value: Any) -> None:
    """Write a value at a place of a nested state that is built by it: texts are keys of dicts, numbers are places of lists."""
    for depth, key in enumerate(path):
        if isinstance(state, list):
            state.extend([None] * (key + 1 - len(state)))
        if depth == len(path) - 1:
            state[key] = value
            return
        below: Any = {} if isinstance(path[depth + 1], str) else []
        if isinstance(state, list):
            state[key] = below if state[key] is None else state[key]
        else:
            state.setdefault(key, below)
        state = state[key]
