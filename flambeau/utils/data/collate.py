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


def collate(batch: Any, *, collate_fn_map: dict[Any, Any] | None = None) -> Any:
    """A batch from samples of equal structure. `collate_fn_map`: for a type (or tuple of types), `function(batch, collate_fn_map=map)`.

    TypeError for what neither the map nor the rules for containers know.
    """
    first = batch[0]
    if collate_fn_map is not None:
        function = collate_fn_map.get(type(first))
        if function is None:
            function = next((f for kind, f in collate_fn_map.items() if isinstance(first, kind)), None)
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)
        if collate_fn_map is default_collate_fn_map and _is_array(first):
            return collate_numpy_array_fn(batch, collate_fn_map=collate_fn_map)

    def inner(samples: Any) -> Any:
        return collate(samples, collate_fn_map=collate_fn_map)

    if isinstance(first, Mapping):
        return _map_mapping(first, {key: inner([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(inner(column) for column in zip(*batch, strict=False)))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [inner(column) for column in zip(*batch, strict=True)]
        return columns if isinstance(first, tuple) else _map_sequence(first, columns)
    raise TypeError(_unknown(type(first)))


def collate_tensor_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Tensors of one shape along a new first dimension."""
    for kind, found in (("nested", batch[0].is_nested), ("sparse", batch[0].layout is not torch.strided)):
        if found:
            raise RuntimeError(
                f"default_collate(): Batches of {kind} tensors are not currently supported by the default collate_fn; give the loader a custom collate_fn"
            )
    return torch.stack(batch, 0)


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """NumPy arrays as one tensor along a new first dimension; scalars as a vector."""
    import numpy

    _check_array(batch[0])
    if batch[0].shape == ():
        return torch.as_tensor(numpy.asarray(batch))
    return torch.tensor(numpy.stack(batch))


collate_numpy_scalar_fn = collate_numpy_array_fn


def collate_float_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Python floats as a float64 vector."""
    return torch.tensor(batch, dtype=torch.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: Any = None) -> Tensor:
    """Python integers (and bools) as a vector."""
    return torch.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Texts stay a list."""
    return batch


default_collate_fn_map: dict[Any, Any] = {
    Tensor: collate_tensor_fn, float: collate_float_fn, int: collate_int_fn, str: collate_str_fn, bytes: collate_str_fn,
}  # fmt: skip


def default_collate(batch: Any) -> Any:
    """A batch from samples of equal structure; a new first dimension for tensors. TypeError for what it does not know."""
    return collate(batch, collate_fn_map=default_collate_fn_map)


Collate = Callable[[Any], Any]
