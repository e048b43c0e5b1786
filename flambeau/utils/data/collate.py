"""From a list of samples to a batch: tensors are stacked, numbers become tensors, containers are kept."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor


def _is_array(x: Any) -> bool:
    """Whether it is a NumPy array or scalar, without loading NumPy."""
    return type(x).__module__.startswith("numpy") and hasattr(x, "dtype")


def _check_array(x: Any) -> None:
    if x.dtype.kind in "SUOMmV":
        raise TypeError(_unknown(x.dtype))


def _unknown(kind: Any) -> str:
    return f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {kind}"


def default_convert(data: Any) -> Any:
    """NumPy arrays as tensors, inside any nesting; everything else as it is."""
    if isinstance(data, Tensor):
        return data
    if _is_array(data):
        return data if data.dtype.kind in "SUO" else torch.as_tensor(data)
    if isinstance(data, Mapping):
        return _map_mapping(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple):
        items = [default_convert(item) for item in data]
        return type(data)(*items) if hasattr(data, "_fields") else items
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        return _map_sequence(data, [default_convert(item) for item in data])
    return data


def _map_mapping(like: Any, values: dict[Any, Any]) -> Any:
    """The values in a mapping of the same type, if it can be made."""
    try:
        if isinstance(like, MutableMapping):
            result = copy.copy(like)
            result.update(values)
            return result
        return type(like)(values)  # type: ignore[call-arg]
    except TypeError:
        return values


def _map_sequence(like: Any, values: list[Any]) -> Any:
    """The values in a sequence of the same type, if it can be made."""
    try:
        if isinstance(like, MutableSequence):
            result = copy.copy(like)
            for i, value in enumerate(values):
                result[i] = value
            return result
        return type(like)(values)
    except TypeError:
        return values


def default_collate(batch: Any) -> Any:
    """A batch from samples of equal structure; a new first dimension for tensors. TypeError for what it does not know."""
    first = batch[0]
    if isinstance(first, Tensor):
        return torch.stack(list(batch), 0)
    if _is_array(first):
        import numpy

        _check_array(first)
        if first.shape == ():
            return torch.as_tensor(numpy.asarray(batch))
        return torch.tensor(numpy.stack(batch))
    if isinstance(first, bool):
        return torch.tensor(batch)
    if isinstance(first, float):
        return torch.tensor(batch, dtype=torch.float64)
    if isinstance(first, int):
        return torch.tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _map_mapping(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(column) for column in zip(*batch, strict=True)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(column) for column in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else _map_sequence(first, columns)
    raise TypeError(_unknown(type(first)))


Collate = Callable[[Any], Any]
