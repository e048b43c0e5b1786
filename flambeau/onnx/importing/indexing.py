"""Operators that read and write at places that other tensors say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import Call, operator


def _whole(index: Any, count: int) -> Any:
    """Places from the start of a dim: negative ones count from its end."""
    index = index.to(flambeau.int64)
    return flambeau.where(index < 0, index + count, index)


@operator("Gather", raw=True)
def gather(n: Call, x: Any, index: Any) -> Any:
    """Slices of a dim."""
    axis = n.get("axis", 0) % len(x.shape)
    if isinstance(x, np.ndarray) and x.dtype == object:
        return np.asarray(np.take(x, values.to_array(index), axis=axis), object)
    if isinstance(x, values.Narrow):
        return values.Narrow(gather(n, x.tensor, index), x.kind)
    x = values.tensor(x)
    if isinstance(index, np.ndarray):
        if index.ndim == 0:
            return x.select(axis, int(index))
        if index.size and index.min() >= 0:
            return x.index_select(axis, values.tensor(index).reshape(-1).to(flambeau.int64)).reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])
        index = values.tensor(index)
    places = _whole(index, x.shape[axis])
    if axis == 0 and x.ndim == 2 and x.is_floating_point():
        return flambeau.nn.functional.embedding(places, x)
    return x.index_select(axis, places.reshape(-1)).reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


@operator("GatherElements")
def gather_elements(n: Call, x: Any, index: Any) -> Any:
    """x at places of a dim, element by element."""
    axis = n.get("axis", 0)
    return x.gather(axis, _whole(index, x.shape[axis]))


@operator("GatherND")
def gather_nd(n: Call, x: Any, index: Any) -> Any:
    """Slices at places of several dims."""
    batch, depth = n.get("batch_dims", 0), index.shape[-1]
    shape = index.shape[:-1]
    flat = index.reshape(*x.shape[:batch], -1, depth).to(flambeau.int64)
    places: list[Any] = []
    for d in range(batch):
        view = [1] * (batch + 1)
        view[d] = x.shape[d]
        places.append(flambeau.arange(x.shape[d]).reshape(view))
    places += [flat[..., d] for d in range(depth)]
    return x[tuple(places)].reshape(*shape, *x.shape[batch + depth :])


_REDUCES = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("ScatterElements", "Scatter")
def scatter_elements(n: Call, x: Any, index: Any, updates: Any) -> Any:
    """x with elements written, added, multiplied or compared in at places of a dim."""
    axis = n.get("axis", 0)
    places = _whole(index, x.shape[axis])
    how = n.get("reduction", "none")
    return x.scatter(axis, places, updates) if how == "none" else x.scatter_reduce(axis, places, updates, reduce=_REDUCES[how])


@operator("ScatterND")
def scatter_nd(n: Call, x: Any, index: Any, updates: Any) -> Any:
    """x with slices written, added, multiplied or compared in at places of several dims."""
    depth, how = index.shape[-1], n.get("reduction", "none")
    index = index.to(flambeau.int64)
    flat = flambeau.zeros(index.shape[:-1], dtype=flambeau.int64)
    for d in range(depth):
        flat = flat * x.shape[d] + _whole(index[..., d], x.shape[d])
    inner = math.prod(x.shape[depth:])
    rows = x.reshape(math.prod(x.shape[:depth]), inner)
    new = updates.reshape(-1, inner)
    flat = flat.reshape(-1)
    if how == "none":
        made = rows.index_put((flat,), new)
    else:
        made = rows.scatter_reduce(0, flat.unsqueeze(1).expand(-1, inner), new, reduce=_REDUCES[how])
    return made.reshape(x.shape)


@operator("TensorScatter")
def tensor_scatter(n: Call, past: Any, update: Any, where: Any = None) -> Any:
    """A cache with new steps written into it, round and round if it is circular."""
    axis = n.get("axis", -2) % past.ndim
    count, steps = past.shape[axis], update.shape[axis]
    first = where.to(flambeau.int64) if where is not None else flambeau.zeros(past.shape[0], dtype=flambeau.int64)
    places = first.unsqueeze(1) + flambeau.arange(steps)
    if n.get("mode", "linear") == "circular":
        places = places % count
    view = [1] * past.ndim
    view[0], view[axis] = past.shape[0], steps
    return past.scatter(axis, places.reshape(view).expand(update.shape), update)


@operator("OneHot")
def one_hot(n: Call, index: Any, depth: Any, on_off: Any) -> Any:
    """One value at the place that an index says, another elsewhere."""
    count, axis = int(values.number(depth)), n.get("axis", -1)
    places = _whole(index if not index.is_floating_point() else index.to(flambeau.int64), count)
    axis = axis + index.ndim + 1 if axis < 0 else axis
    view = [1] * (index.ndim + 1)
    view[axis] = count
    at = places.unsqueeze(axis) == flambeau.arange(count).reshape(view)
    return flambeau.where(at, on_off[1], on_off[0])


@operator("Compress")
def compress(n: Call, x: Any, condition: Any) -> Any:
    """The slices of a dim where a condition holds; of all elements without a dim."""
    axis = n.get("axis")
    places = condition.nonzero().reshape(-1)
    return x.reshape(-1)[places] if axis is None else x.index_select(axis, places)


@operator("NonZero")
def non_zero(n: Call, x: Any) -> Any:
    """The places of what is not 0, a row for each dim."""
    return x.nonzero().t()


@operator("Unique")
def unique(n: Call, x: Any) -> Any:
    """Values that differ, where they are first, which one each is, and how often they come."""
    a = values.to_array(x)
    axis = n.get("axis")
    found, first, inverse, counts = np.unique(a, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not n.get("sorted", 1):
        order = np.argsort(first)
        found = np.take(found, order, axis=0 if axis is None else axis)
        first, counts = first[order], counts[order]
        inverse = np.argsort(order)[inverse]
    return tuple([values.from_array(v) for v in (found, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64))])


@operator("TopK")
def top_k(n: Call, x: Any, k: Any = None) -> Any:
    """The largest or smallest elements of a dim, and where they are; the first of equal ones comes first."""
    count = int(values.number(k)) if k is not None else n.get("k")
    axis, largest = n.get("axis", -1), bool(n.get("largest", 1))
    wide = x.to(flambeau.int64) if x.dtype.name in ("uint16", "uint32") else x
    if x.dtype is flambeau.uint64:
        wide = x.view(flambeau.int64) ^ flambeau.iinfo(flambeau.int64).min
    places = wide.sort(dim=axis, descending=largest, stable=True)[1].narrow(axis, 0, count)
    if x.dtype.name in ("uint16", "uint32", "uint64"):
        return x.view(getattr(flambeau, x.dtype.name[1:])).gather(axis, places).view(x.dtype), places
    return x.gather(axis, places), places


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(n: Call, x: Any, places: Any) -> Any:
    """Columns of the last dim."""
    made = x[..., places.reshape(-1)]
    return made.reshape(1, -1) if x.ndim == 1 else made
