"""torch.distributed.checkpoint._traverse: values of nested states by their paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flambeau.distributed._shard.sharded_tensor import ShardedTensor
from flambeau.distributed.tensor.api import DTensor, inner
from flambeau.tensor import Tensor

Path = tuple[Any, ...]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, ShardedTensor))


def traverse_state_dict(state_dict: Mapping[Any, Any], visitor: Callable[[Path, Any], None], keep_traversing: Callable[[Any], bool] = _is_tensor) -> None:
    """Call `visitor(path, value)` for each value. Lists are values, but for those that hold dicts, or what `keep_traversing` says yes to, at any depth."""

    def is_leaf(value: Any) -> bool:
        if isinstance(value, Mapping):
            return False
        return not isinstance(value, list) or not any((isinstance(v, (Mapping, list)) and not is_leaf(v)) or keep_traversing(v) for v in value)

    def visit(path: Path, value: Any) -> None:
        if isinstance(value, Mapping):
            for key, v in value.items():
                visit((*path, str(key)), v)
        elif is_leaf(value):
            visitor(path, value)
        else:
            for i, v in enumerate(value):
                visit((*path, i), v)

    for key, value in state_dict.items():
        visit((str(key),), value)


def set_element(state: Any, path: Path, value: Any) -> None:
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


def get_element(root_dict: Any, path: Path, default_value: Any = None) -> Any:
    """The value at a path of a nested state, or the default where there is none."""
    found = root_dict
    for key in path:
        there = key < len(found) if isinstance(found, list) and isinstance(key, int) else isinstance(found, Mapping) and key in found
        if not there:
            return default_value
        found = found[key]
    return found


def print_tensor(path: Path, value: Any, print_fun: Callable[[str], None] = print) -> None:
    """A visitor that prints what each value is."""
    if isinstance(value, ShardedTensor):
        print_fun(f"{path} ShardedTensor size: {value.size()}")
        for shard in value.local_shards():
            print_fun(f"{shard.metadata.shard_offsets}  Tensor size: {shard.tensor.size()}")
    elif isinstance(value, DTensor):
        print_fun(f"{path} DistributedTensor size: {value.size()}")
        print_fun(f" Tensor size: {inner(value).size()}")
    else:
        print_fun(f"{path} Tensor size: {value.size()}" if isinstance(value, Tensor) else f"{path} Type: {type(value)}")
