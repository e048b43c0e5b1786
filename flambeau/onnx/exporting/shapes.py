"""Operators of shapes and order as ONNX nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

import flambeau
from flambeau.onnx.exporting.builder import FORMS, Builder, SizeVal, Val, form
from flambeau.onnx.importing.values import NUMBERS

END = 9223372036854775807


@form("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy")
def reshape(b: Builder, self: Any, size: Any = None, shape: Any = None, dtype: Any = None) -> Any:
    """Another shape."""
    if dtype is not None:
        raise b.refuse("a view as another dtype has no form")
    return b.op("Reshape", self, b.ints(size if size is not None else shape), allowzero=1)


@form("ravel")
def ravel(b: Builder, self: Any) -> Any:
    """All elements in one dim."""
    return b.op("Reshape", self, b.ints([-1]))


@form("hstack", "vstack", "dstack", "row_stack", "column_stack")
def joined(b: Builder, tensors: Any) -> Any:
    """Side by side, one above the other, one behind the other; with dims of size 1 where there are too few."""
    kind, name = b.dtype(), b.where.split(".")[1]
    parts = []
    for t in tensors:
        x: Any = b.cast(t, kind)
        if t.ndim == 0 and name == "hstack":
            x = b.op("Unsqueeze", x, b.ints([0]))
        elif t.ndim < 2 and name != "hstack":
            view = [1, -1] if name != "column_stack" else [-1, 1]
            x = b.op("Reshape", x, b.ints(view + [1] * (name == "dstack")))
        elif t.ndim == 2 and name == "dstack":
            x = b.op("Unsqueeze", x, b.ints([2]))
        parts.append(x)
    axis = {"hstack": 0 if max(t.ndim for t in tensors) < 2 else 1, "dstack": 2, "column_stack": 1}.get(name, 0)
    return b.op("Concat", *parts, axis=axis)


@form("view_as", "reshape_as")
def view_as(b: Builder, self: Any, other: Any) -> Any:
    """Another's shape."""
    return b.op("Reshape", self, b.op("Shape", other), allowzero=1)


@form("flatten")
def flatten(b: Builder, self: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Several dims as one."""
    rank = self.ndim
    if rank == 0:
        return b.op("Reshape", self, b.ints([1]))
    first, last = start_dim % rank, end_dim % rank
    if first == last:
        return b.op("Identity", self)
    # One of the sizes is -1: the product where it is not known, else another that is not known.
    sizes: list[Any] = [b.size(self, d) for d in range(rank)]
    inner = sizes[first : last + 1]
    product: Any = -1 if any(isinstance(s, SizeVal) for s in inner) else int(np.prod(inner))
    kept = [*sizes[:first], product, *sizes[last + 1 :]]
    unknown = [i for i, s in enumerate(kept) if isinstance(s, SizeVal)]
    if product != -1 and len(unknown) == 1:
        kept[unknown[0]] = -1
    return b.op("Reshape", self, b.ints(kept), allowzero=int(0 in [k for k in kept if isinstance(k, int)]))


@form("unflatten")
def unflatten(b: Builder, self: Any, dim: int, sizes: Any) -> Any:
    """One dim as several."""
    d = dim % self.ndim
    return b.op("Reshape", self, b.ints([*[b.size(self, i) for i in range(d)], *sizes, *[b.size(self, i) for i in range(d + 1, self.ndim)]]))


def permuted(b: Builder, x: Any, order: Any) -> str:
    """The dims in another order."""
    return b.op("Transpose", x, perm=[int(d) % len(order) for d in order])


@form("permute", "permute_copy")
def permute(b: Builder, self: Any, dims: Any) -> Any:
    """The dims in another order."""
    return permuted(b, self, dims)


@form("transpose", "t", "numpy_T", "mT", "adjoint", "matrix_H", "mH", "swapaxes")
def transpose(b: Builder, self: Any, dim0: int = 0, dim1: int = 1) -> Any:
    """Two dims exchanged; `T`: all of them."""
    order = list(range(self.ndim))
    if "numpy_T" in b.where:
        return permuted(b, self, order[::-1])
    if ".t." not in b.where and "transpose" not in b.where:
        dim0, dim1 = -2, -1
    if order:
        dim0, dim1 = dim0 % len(order), (dim1 if len(order) > 1 else 0) % len(order)
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return permuted(b, self, order)


@form("movedim")
def movedim(b: Builder, self: Any, source: Any, destination: Any) -> Any:
    """Dims at other places."""
    rank = self.ndim
    first = [s % rank for s in (source if isinstance(source, list) else [source])]
    last = [d % rank for d in (destination if isinstance(destination, list) else [destination])]
    order: list[Any] = [None] * rank
    for s, d in zip(first, last, strict=True):
        order[d] = s
    rest = iter([d for d in range(rank) if d not in first])
    return permuted(b, self, [next(rest) if d is None else d for d in order])


@form("unsqueeze")
def unsqueeze(b: Builder, self: Any, dim: int) -> Any:
    """One more dim of size 1."""
    return b.op("Unsqueeze", self, b.ints([dim]))


@form("squeeze")
def squeeze(b: Builder, self: Any, dim: Any = None) -> Any:
    """Without dims of size 1."""
    dims = range(self.ndim) if dim is None else dim if isinstance(dim, list) else [dim]
    gone = [d % self.ndim for d in dims if isinstance(self.shape[d], int) and type(self.shape[d]) is int and self.shape[d] == 1] if self.ndim else []
    return b.op("Squeeze", self, b.ints(gone)) if gone else b.op("Identity", self)


@form("expand", "broadcast_to", "expand_copy")
def expand(b: Builder, self: Any, size: Any, implicit: bool = False) -> Any:
    """Broadcast to a shape; -1 keeps a size."""
    return b.op("Expand", self, b.ints([1 if type(s) is int and s == -1 else s for s in size]))


@form("expand_as")
def expand_as(b: Builder, self: Any, other: Any) -> Any:
    """Broadcast to another's shape."""
    return b.op("Expand", self, b.op("Shape", other))


@form("repeat", "tile")
def repeat(b: Builder, self: Any, repeats: Any = None, dims: Any = None) -> Any:
    """Several times along each dim."""
    times = list(repeats if repeats is not None else dims)
    x: Any = self
    if len(times) > self.ndim:
        x = b.op("Unsqueeze", self, b.ints(range(len(times) - self.ndim)))
    times = [1] * (self.ndim - len(times)) + times
    return b.op("Tile", x, b.ints(times))


@form("cat", "concat", "concatenate")
def cat(b: Builder, tensors: Any, dim: int = 0) -> Any:
    """One after the other."""
    kind = b.dtype()
    return b.op("Concat", *[b.cast(t, kind) for t in tensors if not (t.ndim == 1 and type(t.shape[0]) is int and t.shape[0] == 0)], axis=dim)


@form("stack")
def stack(b: Builder, tensors: Any, dim: int = 0) -> Any:
    """Along a new dim."""
    kind = b.dtype()
    return b.op("Concat", *[b.op("Unsqueeze", b.cast(t, kind), b.ints([dim])) for t in tensors], axis=dim)


def sliced(b: Builder, x: Any, dim: int, start: Any, end: Any, step: int = 1) -> str:
    """From start to end of a dim."""
    return b.op("Slice", x, b.ints([start]), b.ints([end]), b.ints([dim]), b.ints([step]))


@form("slice", "slice_copy")
def slice_(b: Builder, self: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """Part of a dim."""
    return sliced(b, self, dim, 0 if start is None else start, END if end is None else end, step)


@form("select")
def select(b: Builder, self: Any, dim: int, index: Any) -> Any:
    """One place of a dim."""
    place = b.number(index, flambeau.int64) if not isinstance(index, SizeVal) else b.op("Squeeze", index.name, b.ints([0]))
    return b.op("Gather", self, place, axis=dim)


@form("narrow")
def narrow(b: Builder, self: Any, dim: int, start: Any, length: Any) -> Any:
    """Some places of a dim."""
    end = start + length if type(start) is int and type(length) is int else b.op("Add", b.ints([start]), b.ints([length]))
    return sliced(b, self, dim, start, SizeVal(end) if isinstance(end, str) else end)


def _parts(b: Builder, x: Any, sizes: list[Any], dim: int) -> list[str]:
    if len(sizes) == 1:
        return [b.op("Identity", x)]
    return b.several("Split", len(sizes), x, b.ints(sizes), axis=dim)


@form("split", "unsafe_split", "split_with_sizes", "unsafe_split_with_sizes", "chunk", "unsafe_chunk", "tensor_split")
def split(b: Builder, self: Any, split_size: Any = None, dim: int = 0, split_sizes: Any = None, **_: Any) -> Any:
    """Parts, as large as export has found them."""
    if isinstance(split_size, list):
        split_sizes = split_size
    if split_sizes is None:
        split_sizes = [v.shape[dim] for v in b.out]
        if any(type(s) is not int for s in split_sizes):
            raise b.refuse("parts of a dim whose size is not known have no form")
    return _parts(b, self, list(split_sizes), dim)


@form("unbind")
def unbind(b: Builder, self: Any, dim: int = 0) -> Any:
    """Each place of a dim."""
    count = len(b.out)
    return [b.op("Squeeze", p, b.ints([dim])) for p in _parts(b, self, [1] * count, dim)]


@form("flip", "fliplr", "flipud")
def flip(b: Builder, self: Any, dims: Any = None) -> Any:
    """Backwards."""
    dims = [1] if "fliplr" in b.where else [0] if "flipud" in b.where else dims
    return b.op("Slice", self, b.ints([-1] * len(dims)), b.ints([-END] * len(dims)), b.ints(dims), b.ints([-1] * len(dims)))


@form("roll")
def roll(b: Builder, self: Any, shifts: Any, dims: Any = ()) -> Any:
    """Round and round along dims."""
    x: Any = self
    if not dims:
        flat = b.op("Reshape", self, b.ints([-1]))
        turned = b.op("Concat", sliced(b, flat, 0, -shifts[0], END), sliced(b, flat, 0, 0, -shifts[0]), axis=0)
        return b.op("Reshape", turned, b.op("Shape", self))
    for s, d in zip(shifts, dims, strict=True):
        if s:
            x = b.op("Concat", sliced(b, x, d, -s, END), sliced(b, x, d, 0, -s), axis=d)
    return x if isinstance(x, str) else b.op("Identity", x)


@form("tril", "triu")
def triangle(b: Builder, self: Any, diagonal: Any = 0) -> Any:
    """One of the triangles."""
    x, boolean = self, self.dtype is flambeau.bool
    made = b.op("Trilu", b.cast(x, flambeau.int32) if boolean else x, b.number(diagonal, flambeau.int64), upper=int("triu" in b.where))
    return b.op("Cast", made, to=NUMBERS["bool"]) if boolean else made


@form("diagonal")
def diagonal(b: Builder, self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """A diagonal of two dims."""
    rank = self.ndim
    first, second = dim1 % rank, dim2 % rank
    order = [d for d in range(rank) if d not in (first, second)] + [first, second]
    x = permuted(b, self, order)
    rows, columns = b.size(self, first), b.size(self, second)
    if isinstance(rows, SizeVal) or isinstance(columns, SizeVal):
        raise b.refuse("a diagonal of dims whose sizes are not known has no form")
    i = np.arange(max(min(rows + min(offset, 0), columns - max(offset, 0)), 0))
    flat = b.op("Reshape", x, b.ints([*[b.size(self, d) for d in order[:-2]], rows * columns]))
    return b.op("Gather", flat, b.array((i - min(offset, 0)) * columns + i + max(offset, 0)), axis=rank - 2)


@form("pixel_shuffle")
def pixel_shuffle(b: Builder, self: Any, upscale_factor: int) -> Any:
    """Channels as pixels."""
    return b.op("DepthToSpace", self, blocksize=upscale_factor, mode="CRD")


@form("pixel_unshuffle")
def pixel_unshuffle(b: Builder, self: Any, downscale_factor: int) -> Any:
    """Pixels as channels."""
    r = downscale_factor
    n, c, h, w = [b.size(self, d) for d in range(4)]
    if any(isinstance(s, SizeVal) for s in (c, h, w)):
        raise b.refuse("images whose sizes are not known have no form")
    x = b.op("Reshape", self, b.ints([n, c, h // r, r, w // r, r]))
    return b.op("Reshape", b.op("Transpose", x, perm=[0, 1, 3, 5, 2, 4]), b.ints([n, c * r * r, h // r, w // r]))


@form("unfold")
def unfold(b: Builder, self: Any, dimension: int, size: int, step: int) -> Any:
    """Windows of a dim, as a new last dim."""
    d, count = dimension % self.ndim, b.size(self, dimension)
    if isinstance(count, SizeVal):
        raise b.refuse("windows of a dim whose size is not known have no form")
    places = np.arange((count - size) // step + 1)[:, None] * step + np.arange(size)
    made = b.op("Gather", self, b.array(places), axis=d)  # [..., windows, size, ...]
    order = [i for i in range(self.ndim + 1) if i != d + 1] + [d + 1]
    return permuted(b, made, order)


def padded(b: Builder, x: Any, pad: Any, mode: str, value: Any = None) -> str:
    """PyTorch's list of pads, from the last dim backwards."""
    rank, pairs = x.ndim, len(pad) // 2
    before: list[Any] = [0] * rank
    after: list[Any] = [0] * rank
    for i in range(pairs):
        before[rank - 1 - i], after[rank - 1 - i] = pad[2 * i], pad[2 * i + 1]
    return b.op("Pad", x, b.ints(before + after), None if value is None else b.number(value, x.dtype), mode=mode)


@form("constant_pad_nd")
def constant_pad_nd(b: Builder, self: Any, pad: Any, value: Any = 0) -> Any:
    """With a number around it."""
    return padded(b, self, pad, "constant", value)


@form("pad")
def pad(b: Builder, self: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """With elements around it."""
    names = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    return padded(b, self, pad, names[mode], (0 if value is None else value) if mode == "constant" else None)


for _n in (1, 2, 3):
    FORMS[f"reflection_pad{_n}d"] = lambda b, self, padding: padded(b, self, padding, "reflect")
    FORMS[f"replication_pad{_n}d"] = lambda b, self, padding: padded(b, self, padding, "edge")


@form("select_scatter")
def select_scatter(b: Builder, self: Any, src: Any, dim: int, index: int) -> Any:
    """x with one place of a dim written."""
    return written(b, self, b.op("Unsqueeze", src, b.ints([dim])), dim, index, END if index == -1 else index + 1)


@form("slice_scatter")
def slice_scatter(b: Builder, self: Any, src: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """x with part of a dim written."""
    if step != 1:
        raise b.refuse("a slice with steps has no form")
    return written(b, self, src, dim, start or 0, END if end is None else end)


def written(b: Builder, whole: Any, new: Any, dim: int, start: Any, end: Any) -> str:
    """A tensor with the places from start to end of a dim taken by a new value."""
    parts = [sliced(b, whole, dim, 0, start) if start != 0 else None, new, sliced(b, whole, dim, end, END) if end != END else None]
    return b.op("Concat", *[p for p in parts if p is not None], axis=dim)


@form("as_strided")
def as_strided(b: Builder, self: Any, size: Any, stride: Any, storage_offset: Any = None) -> Any:
    """Elements of memory by steps: of a tensor whose elements lie in order."""
    if any(type(s) is not int for s in (*self.shape, *size, *stride)):
        raise b.refuse("sizes that are not known have no form")
    places: Any = np.array(storage_offset or 0)
    for s, step in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(s) * step
    return b.op("Gather", b.op("Reshape", self, b.ints([-1])), b.array(places), axis=0)


@form("rand", "randn", "rand_like", "randn_like")
def random(b: Builder, size: Any = None, self: Any = None, dtype: Any = None) -> Any:
    """Random numbers of a shape; ONNX's generator is another one."""
    kind = "RandomNormal" if "randn" in b.where else "RandomUniform"
    like = b.op("Expand", b.number(0, b.dtype()), b.op("Shape", self) if self is not None else b.ints(size))
    return b.op(f"{kind}Like", like)


# -- tensors that are made -------------------------------------------------------------------------------------------
def filled(b: Builder, size: Any, value: Any) -> str:
    """One number everywhere, in the result's dtype."""
    kind = b.dtype()
    if isinstance(value, (Val, SizeVal)):
        return b.op("Expand", b.operand(value, kind), b.ints(size))
    if not len(size):
        return b.op("Identity", b.number(value, kind))
    return b.op("Expand", b.number(value, kind), b.ints(size))


FORMS["full"] = lambda b, size, fill_value, dtype=None: filled(b, size, fill_value)
FORMS["zeros"] = FORMS["empty"] = lambda b, size, dtype=None: filled(b, size, 0)
FORMS["ones"] = lambda b, size, dtype=None: filled(b, size, 1)
FORMS["new_full"] = lambda b, self, size, fill_value, dtype=None: filled(b, size, fill_value)
FORMS["new_zeros"] = FORMS["new_empty"] = lambda b, self, size, dtype=None: filled(b, size, 0)
FORMS["new_ones"] = lambda b, self, size, dtype=None: filled(b, size, 1)
FORMS["full_like"] = lambda b, self, fill_value, dtype=None: b.op("Expand", b.operand(fill_value, b.dtype()), b.op("Shape", self))
FORMS["zeros_like"] = FORMS["empty_like"] = lambda b, self, dtype=None: b.op("Expand", b.number(0, b.dtype()), b.op("Shape", self))
FORMS["ones_like"] = lambda b, self, dtype=None: b.op("Expand", b.number(1, b.dtype()), b.op("Shape", self))
FORMS["scalar_tensor"] = lambda b, s, dtype=None: b.op("Identity", b.number(s, b.dtype()))
FORMS["zero"] = lambda b, self: b.op("Expand", b.number(0, b.dtype()), b.op("Shape", self))
FORMS["fill"] = lambda b, self, value: b.op("Expand", b.operand(value, b.dtype()), b.op("Shape", self))


@form("copy")
def copy(b: Builder, self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Another's values in this one's shape and dtype."""
    return b.op("Expand", b.cast(src, self.dtype), b.op("Shape", self))


@form("arange")
def arange(b: Builder, end: Any, start: Any = 0, step: Any = 1, dtype: Any = None) -> Any:
    """Numbers from start to before end."""
    kind = b.dtype()
    if not any(isinstance(v, SizeVal) for v in (start, end, step)):
        from flambeau.onnx.importing.values import to_array

        return b.op("Identity", b.array(to_array(flambeau.arange(start, end, step, dtype=kind))))
    return b.op("Range", b.number(start, kind), b.number(end, kind), b.number(step, kind))


@form("linspace", "eye", "hann_window", "hamming_window", "tril_indices", "triu_indices")
def made(b: Builder, *args: Any, **kwargs: Any) -> Any:
    """What does not depend on any input is a constant."""
    from flambeau.onnx.importing.values import to_array

    if any(isinstance(v, (SizeVal, Val)) for v in kwargs.values()):
        raise b.refuse("with sizes that are not known it has no form")
    kwargs = {k: v for k, v in kwargs.items() if k != "dtype"}
    return b.op("Identity", b.array(to_array(getattr(flambeau, b.where.split(".")[1])(*kwargs.values(), dtype=b.dtype()))))


@form("meshgrid")
def meshgrid(b: Builder, tensors: Any, indexing: str = "ij") -> Any:
    """Grids of coordinates."""
    count = len(tensors)
    order = list(range(count))
    if indexing == "xy" and count > 1:
        order[0], order[1] = 1, 0
    sizes = b.ints([b.size(tensors[order[d]], 0) for d in range(count)])
    made = []
    for i, t in enumerate(tensors):
        view = [1] * count
        view[order.index(i)] = -1
        made.append(b.op("Expand", b.op("Reshape", t, b.ints(view)), sizes))
    return made


@form("broadcast_tensors")
def broadcast_tensors(b: Builder, tensors: Any) -> Any:
    """All in one shape."""
    total: Any = None
    for t in tensors:
        ones = b.op("Expand", b.number(0, flambeau.float32), b.op("Shape", t))
        total = ones if total is None else b.op("Add", total, ones)
    return [b.op("Expand", t, b.op("Shape", total)) for t in tensors]


@form("repeat_interleave")
def repeat_interleave(b: Builder, self: Any, repeats: Any, dim: Any = None, output_size: Any = None) -> Any:
    """Each element several times."""
    if not isinstance(repeats, int):
        raise b.refuse("repeats that are a tensor have no form")
    x: Any = self
    if dim is None:
        x, dim, rank = b.op("Reshape", self, b.ints([-1])), 0, 1
        sizes: list[Any] = [-1]
    else:
        rank, dim = self.ndim, dim % self.ndim
        sizes = [b.size(self, d) for d in range(rank)]
    wide = b.op("Unsqueeze", x, b.ints([dim + 1]))
    times = [1] * (rank + 1)
    times[dim + 1] = repeats
    made = b.op("Tile", wide, b.ints(times))
    sizes[dim] = -1 if isinstance(sizes[dim], SizeVal) or sizes[dim] == -1 else sizes[dim] * repeats
    return b.op("Reshape", made, b.ints(sizes))
