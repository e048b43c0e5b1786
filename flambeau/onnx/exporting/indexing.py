"""Operators that read and write at places as ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.exporting.builder import FORMS, Builder, form


@form("embedding")
def embedding(b: Builder, weight: Any, indices: Any, **_: Any) -> Any:
    """Rows of a table."""
    return b.op("Gather", weight, indices, axis=0)


@form("index_select")
def index_select(b: Builder, self: Any, dim: int, index: Any) -> Any:
    """Places of a dim."""
    return b.op("Gather", self, index, axis=dim)


@form("gather")
def gather(b: Builder, self: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    """Places of a dim, element by element."""
    return b.op("GatherElements", self, index, axis=dim)


@form("scatter", "scatter_add")
def scatter(b: Builder, self: Any, dim: int, index: Any, src: Any = None, value: Any = None, reduce: Any = None) -> Any:
    """Elements written at places of a dim, or added there."""
    if src is None:
        src = b.op("Expand", b.number(value, self.dtype), b.op("Shape", index))
    else:
        src = b.op("Slice", src, b.ints([0] * index.ndim), b.op("Shape", index), b.ints(range(index.ndim))) if src.shape != index.shape else src
    how = {"add": "add", "multiply": "mul", None: "add" if "scatter_add" in b.where else "none"}[reduce]
    return b.op("ScatterElements", self, index, src, axis=dim, reduction=how)


@form("scatter_reduce")
def scatter_reduce(b: Builder, self: Any, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Any:
    """Elements added, multiplied or compared at places of a dim."""
    names = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}
    if reduce not in names or not include_self:
        raise b.refuse(f"reduce={reduce!r}, include_self={include_self} has no form")
    return b.op("ScatterElements", self, index, src, axis=dim, reduction=names[reduce])


def _advanced(b: Builder, x: Any, indices: Any) -> tuple[list[int], list[Any], str]:
    """(dims that are indexed, their indices as int64, the shape that these are broadcast to)."""
    dims = [d for d, i in enumerate(indices) if i is not None]
    given = [indices[d] for d in dims]
    if any(i.dtype in (flambeau.bool, flambeau.uint8) for i in given):
        if len(given) > 1:
            raise b.refuse("masks together with other indices have no form")
        return dims, given, ""
    given = [b.cast(i, flambeau.int64) for i in given]
    total: Any = given[0]
    for i in given[1:]:
        total = b.op("Add", total, i)
    return dims, given, b.op("Shape", total)


@form("index")
def index(b: Builder, self: Any, indices: Any) -> Any:
    """x[i], x[:, i, j]: several indices are broadcast together."""
    dims, given, shape = _advanced(b, self, indices)
    if not shape:
        raise b.refuse("a mask as an index gives a size that follows from values; use torch.where")
    if len(dims) == 1:
        return b.op("Gather", self, given[0], axis=dims[0])
    rank, count = self.ndim, len(dims)
    order = dims + [d for d in range(rank) if d not in dims]
    x = self if order == list(range(rank)) else b.op("Transpose", self, perm=order)
    last = b.op("Concat", *[b.op("Unsqueeze", b.op("Expand", i, shape), b.ints([-1])) for i in given], axis=-1)
    made = b.op("GatherND", x, last)
    together = dims == list(range(dims[0], dims[0] + count))
    if not together or dims[0] == 0:
        return made
    wide = max(i.ndim for i in given)  # the indexed dims stand where they were
    front = list(range(wide, wide + dims[0]))
    return b.op("Transpose", made, perm=[*front, *range(wide), *range(wide + dims[0], wide + rank - count)])


@form("index_put", "_unsafe_index_put")
def index_put(b: Builder, self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    """x with values written at indices."""
    dims, given, shape = _advanced(b, self, indices)
    values = b.cast(values, self.dtype)
    if not shape:
        mask: Any = given[0]
        if values.ndim:
            raise b.refuse("values of more than one element at a mask have no form")
        if dims != [0]:
            raise b.refuse("a mask that is not the first index has no form")
        if mask.ndim < self.ndim:
            mask = b.op("Unsqueeze", mask, b.ints(range(mask.ndim, self.ndim)))
        return b.op("Where", mask, b.op("Add", self, values) if accumulate else values, self)
    rank, count = self.ndim, len(dims)
    order = dims + [d for d in range(rank) if d not in dims]
    plain = order == list(range(rank))
    if not plain and dims != list(range(dims[0], dims[0] + count)):
        raise b.refuse("indices with slices between them have no form")
    x = self if plain else b.op("Transpose", self, perm=order)
    last = b.op("Concat", *[b.op("Unsqueeze", b.op("Expand", i, shape), b.ints([-1])) for i in given], axis=-1)
    wide = max(i.ndim for i in given)
    rest = [b.size(self, d) for d in order[count:]]
    if not plain:
        # The values' dims of slices before the indices come after them.
        front = rest[: dims[0]]
        full = b.op("Concat", *([b.ints(front)] if front else []), shape, *([b.ints(rest[dims[0] :])] if rest[dims[0] :] else []), axis=0)
        spread = b.op("Expand", values, full)
        new = b.op("Transpose", spread, perm=[*range(dims[0], dims[0] + wide), *range(dims[0]), *range(dims[0] + wide, wide + len(rest))])
    else:
        new = b.op("Expand", values, b.op("Concat", shape, b.ints(rest), axis=0) if rest else shape)
    made = b.op("ScatterND", x, last, new, reduction="add" if accumulate else "none")
    if plain:
        return made
    back = [order.index(d) for d in range(rank)]
    return b.op("Transpose", made, perm=back)


@form("topk")
def topk(b: Builder, self: Any, k: Any, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The largest or smallest elements of a dim."""
    return b.several("TopK", 2, self, b.ints([k]), axis=dim, largest=int(largest), sorted=int(sorted))


@form("sort", "argsort")
def sort(b: Builder, self: Any, dim: int = -1, descending: bool = False, stable: Any = None) -> Any:
    """All elements of a dim in order."""
    size = b.size(self, dim)
    made = b.several("TopK", 2, self, b.ints([size]), axis=dim, largest=int(descending), sorted=1)
    return made[1] if "argsort" in b.where else made


@form("one_hot")
def one_hot(b: Builder, self: Any, num_classes: int = -1) -> Any:
    """1 at a place, else 0."""
    if not isinstance(num_classes, int) or num_classes < 0:
        raise b.refuse("num_classes must be given")
    return b.op("OneHot", self, b.ints([num_classes]), b.array(np.array([0, 1], np.int64)), axis=-1)


@form("nonzero")
def nonzero(b: Builder, self: Any) -> Any:
    """The places of what is not 0."""
    return b.op("Transpose", b.op("NonZero", self), perm=[1, 0])


@form("index_add", "index_copy")
def index_add(b: Builder, self: Any, dim: int, index: Any, source: Any, alpha: Any = 1) -> Any:
    """Slices added or written at places of a dim."""
    view = [1] * self.ndim
    view[dim % self.ndim] = -1
    places = b.op("Expand", b.op("Reshape", b.cast(index, flambeau.int64), b.ints(view)), b.op("Shape", source))
    value = source if alpha == 1 else b.op("Mul", source, b.number(alpha, source.dtype))
    return b.op("ScatterElements", self, places, value, axis=dim, reduction="add" if "index_add" in b.where else "none")


FORMS["masked_scatter"] = lambda b, **_: _refuse_masked(b)


def _refuse_masked(b: Builder) -> Any:
    raise b.refuse("it has no form: what is written where follows from values")
