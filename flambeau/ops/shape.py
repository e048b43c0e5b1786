"""Shapes and movement: views where PyTorch gives views, copies where it copies."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.devices import META
from flambeau.ops import primitives as prim
from flambeau.ops.primitive import laid_out
from flambeau.ops.promotion import convert
from flambeau.ops.registry import Number, Whole, operation
from flambeau.ops.remembered import remembered, remembered_with_axis
from flambeau.ops.signatures import must_be, type_name
from flambeau.ops.wrapper import MISSING
from flambeau.queries import channels_last, channels_last_3d, contiguous_format, preserve_format
from flambeau.runtime.buffers import check_available
from flambeau.symbols import whole as whole_number
from flambeau.trace.blank import no_data
from flambeau.trace.meta import CONJ
from flambeau.trace.recorder import OffsetNeeded, local
from flambeau.trace.storage import FAMILIES
from flambeau.trace.strides import format_strides, has_format, like_strides, suggests_channels_last, view_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def dim_of(dim: int, ndim: int) -> int:
    """`dim` counted from 0; PyTorch's IndexError if out of range."""
    if dim.__class__ is int and 0 <= dim < ndim:
        return dim
    from flambeau.tensor import normalize_dim

    return normalize_dim(dim, ndim)


_ARE_INTEGERS = frozenset((int,))
_A_TENSOR = 256  # bytes that a tensor object takes, at least


def dims_of(dims: Any, ndim: int, name: str) -> tuple[int, ...]:
    """One dim or several, counted from 0, each at most once."""
    given = (dims,) if isinstance(dims, int) else tuple(dims)
    found = tuple([dim_of(int(d), ndim) for d in given])
    if len(set(found)) != len(found):
        raise RuntimeError(f"{name}: dim {next(d for d in found if found.count(d) > 1)} appears multiple times in the list of dims")
    return found


def sizes_of(args: tuple[Any, ...]) -> tuple[int, ...]:
    """The sizes given either as one sequence or as separate numbers."""
    if _ARE_INTEGERS.issuperset(map(type, args)):
        return args
    if len(args) == 1 and not isinstance(args[0], int):
        args = tuple(args[0]) if isinstance(args[0], (tuple, list)) or (type(args[0]).__name__ == "ndarray" and args[0].ndim) else args
    if args and args[0].__class__ is bool:  # PyTorch looks at the first one
        raise TypeError(f"sizes must be integers, but got {args[0]!r}, a bool; convert it with int() if that is meant")
    return tuple([_size(a) for a in args])


def _size(a: Any) -> int:
    try:
        return whole_number(a)  # type: ignore[no-any-return]  # of a bool, too, a number
    except TypeError:
        raise TypeError(f"sizes must be integers, but got {a!r}, a {type(a).__name__}; convert it with int() if that is meant") from None


def sizes_given(function: str, name: str, by_position: tuple[Any, ...], sizes: Any) -> tuple[int, ...]:
    """The sizes of `function(*by_position)` or of `function(name=sizes)`; TypeError where they are missing, or given twice."""
    if by_position:
        if sizes is not MISSING:
            raise TypeError(f"{function}() got multiple values for argument '{name}'")
        return sizes_of(by_position)
    if sizes is MISSING:
        raise TypeError(f'{function}() missing 1 required positional arguments: "{name}"')
    return sizes_of((sizes,))


def one_of(function: str, **arguments: Any) -> Any:
    """The one of the arguments, which stand for each other, that was given; TypeError where none was, or several."""
    given = [value for value in arguments.values() if value is not MISSING]
    if len(given) != 1:
        raise TypeError(f"{function}() received an invalid combination of arguments: one of {', '.join(arguments)} must be given, got {len(given)}")
    return given[0]


def infer_shape(shape: Sequence[int], numel: int, name: str = "reshape") -> tuple[int, ...]:
    """`shape` with its -1 filled in; PyTorch's RuntimeError if the number of elements does not fit."""
    shape = tuple(shape)
    wild = [i for i, s in enumerate(shape) if s == -1]
    if len(wild) > 1:
        raise RuntimeError(f"{name}: only one dimension can be inferred, got shape {list(shape)}")
    if any(s < -1 for s in shape):
        raise RuntimeError(f"{name}: invalid shape dimension {min(shape)} in {list(shape)}")
    known = prod([s for s in shape if s != -1])
    if wild:
        if known == 0:
            raise RuntimeError(
                f"cannot reshape tensor of {numel} elements into shape {list(shape)} because the unspecified dimension size -1 "
                "can be any value and is ambiguous"
            )
        if numel % known:
            raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}: {numel} is not a multiple of {known}")
        shape = tuple([numel // known if s == -1 else s for s in shape])
    elif known != numel:
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {numel}: it has {known} elements")
    return shape


def contiguous_of(x: Any) -> Any:
    """x itself if contiguous, else a row-major copy."""
    return x if x._meta.is_contiguous else prim.copy(x, strides=contiguous_strides(x._meta.shape))


def as_shape(x: Any, shape: tuple[int, ...]) -> Any:
    """View of x under another shape, or of a copy where no view is possible."""
    if tuple(x._meta.shape) == tuple(shape):
        return prim.alias(x)
    if view_strides(x._meta, shape) is None:
        x = contiguous_of(x)
    return prim.reshape(x, shape=tuple(shape))


@operation(name="reshape")
def _reshape(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    shape = infer_shape(shape, input._meta.numel)
    return as_shape(input, shape) if view_strides(input._meta, shape) is None else prim.reshape(input, shape=shape)


@remembered
def reshape(input: Tensor, *sizes: Any, shape: Any = MISSING) -> Tensor:
    """The same elements under another shape (one size may be -1): a view where possible, else a copy."""
    return _reshape(input, sizes_given("reshape", "shape", sizes, shape))  # type: ignore[no-any-return]


@operation(name="view")
def _view(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    m = input._meta
    shape = infer_shape(shape, m.numel, "view")
    if view_strides(m, shape) is None:
        raise RuntimeError(
            f"view size is not compatible with input tensor's size and stride (shape {tuple(m.shape)}, strides {m.strides} as "
            f"{shape}: at least one dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return prim.reshape(input, shape=shape)


@operation(name="view_dtype")
def _view_dtype(input: Tensor, dtype: Any) -> Tensor:
    m = input._meta
    if m.bits:
        which = "conjugate view tensors" if m.bits & CONJ else "tensors with negative bit set"
        raise RuntimeError(f"torch.Tensor.view is not supported for {which} when converting to a different dtype.")
    if dtype is m.dtype:
        return prim.detach(input)
    old, new = m.dtype.itemsize, dtype.itemsize
    if old != new:
        if m.ndim == 0:
            raise RuntimeError(f"self.dim() cannot be 0 to view {m.dtype} as {dtype} (different element sizes)")
        if m.strides[-1] != 1:
            raise RuntimeError(f"self.stride(-1) must be 1 to view {m.dtype} as {dtype} (different element sizes), but got {m.strides[-1]}")
        if new > old:
            ratio = new // old
            if m.shape[-1] % ratio:
                raise RuntimeError(f"self.size(-1) must be divisible by {ratio} to view {m.dtype} as {dtype}, but got {m.shape[-1]}")
            if m.dynamic:
                raise OffsetNeeded
            if m.offset % ratio:
                raise RuntimeError(f"self.storage_offset() must be divisible by {ratio} to view {m.dtype} as {dtype}, but got {m.offset}")
            for d, s in enumerate(m.strides[:-1]):
                if s % ratio:
                    raise RuntimeError(f"self.stride({d}) must be divisible by {ratio} to view {m.dtype} as {dtype}, but got {s}")
    return prim.bitcast(input, dtype=dtype)


@remembered
def view(input: Tensor, *shape: Any, dtype: Any = None, size: Any = MISSING) -> Tensor:
    """A view of the same elements under another shape (RuntimeError if that needs a copy), or of the same bytes as a dtype."""
    if len(shape) == 1 and isinstance(dtypes.of_type(shape[0]), dtypes.dtype):
        dtype = shape[0]
    if dtype is not None:
        return _of_its_own(_view_dtype(input, dtypes.of_type(dtype)), input)
    return _view(input, sizes_given("view", "size", shape, size))  # type: ignore[no-any-return]


@remembered
def view_as(input: Tensor, other: Tensor) -> Tensor:
    """view to the shape of `other`."""
    return _view(input, other.shape)  # type: ignore[no-any-return]


@remembered
def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    """reshape to the shape of `other`."""
    return _reshape(input, other.shape)  # type: ignore[no-any-return]


@operation(method=True)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Dimensions start_dim..end_dim as one; a 0-d tensor becomes 1-d."""
    m = input._meta
    a, b = dim_of(start_dim, max(m.ndim, 1)), dim_of(end_dim, max(m.ndim, 1))
    if m.ndim == 0:
        return prim.reshape(input, shape=(1,))
    if a > b:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if a == b:
        return input
    shape = (*m.shape[:a], prod(m.shape[a : b + 1]), *m.shape[b + 1 :])
    return as_shape(input, shape)


@operation(name="unflatten")
def _unflatten(input: Tensor, dim: int, sizes: tuple[int, ...]) -> Tensor:
    m = input._meta
    d = dim_of(dim, m.ndim)
    sizes = infer_shape(sizes, m.shape[d], "unflatten")
    return prim.reshape(input, shape=(*m.shape[:d], *sizes, *m.shape[d + 1 :]))


@remembered
def unflatten(input: Tensor, dim: int, *several: Any, sizes: Any = MISSING) -> Tensor:
    """One dimension as several (one size may be -1)."""
    return _unflatten(input, dim, sizes_given("unflatten", "sizes", several, sizes))  # type: ignore[no-any-return]


@operation(method=True)
def ravel(input: Tensor) -> Tensor:
    """All elements as one dimension."""
    return as_shape(contiguous_of(input), (input._meta.numel,))


@operation(name="permute")
def _permute(input: Tensor, dims: tuple[int, ...]) -> Tensor:
    ndim = input._meta.ndim
    if len(dims) != ndim:
        raise RuntimeError(
            f"permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
            f"dimensions i.e. input.dim() = {ndim} is not equal to len(dims) = {len(dims)}"
        )
    return prim.permute(input, dims=dims_of(dims, ndim, "permute"))


@remembered
def permute(input: Tensor, *order: Any, dims: Any = MISSING) -> Tensor:
    """The dimensions in another order: a view."""
    return _permute(input, sizes_given("permute", "dims", order, dims))  # type: ignore[no-any-return]


@operation(method=True, aliases=("swapdims",))
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged: a view."""
    ndim = input._meta.ndim
    a, b = dim_of(dim0, ndim), dim_of(dim1, ndim)
    if ndim == 0:
        return prim.alias(input)
    dims = list(range(ndim))
    dims[a], dims[b] = dims[b], dims[a]
    return prim.permute(input, dims=tuple(dims))


@remembered
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Two dimensions exchanged: a view."""
    return transpose(input, axis0, axis1)


@operation(method=True)
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix (at most 2-d): a view."""
    ndim = input._meta.ndim
    if ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {ndim}D; use transpose or mT")
    return prim.permute(input, dims=(1, 0)) if ndim == 2 else prim.alias(input)


@operation(name="numpy_T", public=False)
def numpy_t(input: Tensor) -> Tensor:
    """All dimensions reversed."""
    return prim.permute(input, dims=tuple(range(input._meta.ndim - 1, -1, -1)))


@operation(method=True, aliases=("moveaxis",))
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to new places; the others keep their order."""
    ndim = input._meta.ndim
    src, dst = [tuple([dim_of(int(d), ndim) for d in ((given,) if isinstance(given, int) else given)]) for given in (source, destination)]
    if len(src) != len(dst):
        raise RuntimeError(f"movedim: Invalid source or destination dims: source ({src}) should contain the same number of dims as destination ({dst})")
    for what, found in (("source", src), ("destination", dst)):
        if len(set(found)) != len(found):
            raise RuntimeError(f"movedim: repeated dim in `{what}` ({found})")
    if ndim == 0:  # its one dim may be named, but is not there
        return prim.permute(input, dims=())
    order = [d for d in range(ndim) if d not in src]
    for d, s in sorted(zip(dst, src, strict=True)):
        order.insert(d, s)
    return prim.permute(input, dims=tuple(order))


@operation(name="expand")
def _expand(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    m = input._meta
    if len(shape) < m.ndim:
        raise RuntimeError(
            f"expand: the number of sizes provided ({len(shape)}) must be greater or equal to the number of dimensions in the "
            f"tensor ({m.ndim}); sizes {shape}, shape {tuple(m.shape)}"
        )
    lead = len(shape) - m.ndim
    full = []
    for d, size in enumerate(shape):
        have = m.shape[d - lead] if d >= lead else 1
        if size == -1:
            if d < lead:
                raise RuntimeError(f"expand: The expanded size of the tensor (-1) isn't allowed in a leading, non-existing dimension {d}")
            size = have
        elif have not in (1, size):
            raise RuntimeError(
                f"The expanded size of the tensor ({size}) must match the existing size ({have}) at non-singleton dimension {d}.  "
                f"Target sizes: {list(shape)}.  Tensor sizes: {list(m.shape)}"
            )
        full.append(size)
    return prim.expand(input, shape=tuple(full))


@remembered
def expand(input: Tensor, *sizes: Any, size: Any = MISSING, implicit: bool = False) -> Tensor:
    """Dimensions of size 1 (and new ones in front) repeated without copying; -1 keeps a size."""
    return _expand(input, sizes_given("expand", "size", sizes, size))  # type: ignore[no-any-return]


@remembered
def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """expand to the shape of `other`."""
    return _expand(input, other.shape)  # type: ignore[no-any-return]


@remembered
def broadcast_to(input: Tensor, size: Sequence[int]) -> Tensor:
    """expand to `size`."""
    return _expand(input, tuple(size))  # type: ignore[no-any-return]


@operation(name="broadcast_tensors")
def _broadcast_tensors(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    from flambeau.ops.primitive import broadcast_shapes

    shape = broadcast_shapes("broadcast_tensors", [x._meta.shape for x in tensors])
    return tuple([x if x._meta.shape == shape else prim.expand(x, shape=shape) for x in tensors])


@remembered
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    return _broadcast_tensors(tensors[0] if len(tensors) == 1 and not hasattr(tensors[0], "_meta") else tensors)  # type: ignore[no-any-return]


@operation(method=True)
def squeeze(input: Tensor, dim: int | tuple[int, ...] | None = None) -> Tensor:
    """Without the dimensions of size 1 (all of them, or those named): a view."""
    m = input._meta
    dims = range(m.ndim) if dim is None else dims_of(dim, m.ndim, "squeeze")
    shape = tuple([s for d, s in enumerate(m.shape) if not (s == 1 and d in dims)])
    strides = tuple([s for d, s in enumerate(m.strides) if not (m.shape[d] == 1 and d in dims)])
    return prim.alias(input) if shape == tuple(m.shape) else prim.reshape(input, shape=shape, strides=strides)


@operation(method=True)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """A new dimension of size 1 at `dim`: a view."""
    m = input._meta
    d = dim_of(dim, m.ndim + 1)
    step = m.shape[d] * m.strides[d] if d < m.ndim else 1
    return prim.reshape(input, shape=(*m.shape[:d], 1, *m.shape[d:]), strides=(*m.strides[:d], step, *m.strides[d:]))


@operation(method=True)
def contiguous(input: Tensor, memory_format: Any = contiguous_format) -> Tensor:
    """The tensor itself if it is contiguous in the memory format, else a copy that is."""
    if getattr(memory_format, "name", "") == "preserve_format":
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    m = input._meta
    return input if has_format(m, memory_format) else prim.copy(input, strides=format_strides(tuple(m.shape), None, memory_format))


@operation(method=True)
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy in the memory format; by default with the dims in the input's order, without gaps."""
    m = input._meta
    return prim.copy(input, strides=format_strides(tuple(m.shape), m.strides, memory_format))


@operation(name="relayout")
def _relayout(input: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A copy with these dense strides."""
    return prim.copy(input, strides=strides)


@operation(name="detach_view")
def _detach(input: Tensor) -> Tensor:
    return prim.detach(input)


def detach(input: Tensor) -> Tensor:
    """The same memory without history."""
    return _of_its_own(_detach(input), input)


def _of_its_own(result: Tensor, source: Tensor) -> Tensor:
    """The first tensor of a family (Storage): the memory of `source` without its history. What `.data` has given stays uncounted."""
    result._detached = next(FAMILIES) - (source._detached > 1 and source._detached % 2 == 0)
    result._view = False
    return result


def suggested_format(m: Any) -> Any:
    """The memory format that PyTorch takes a tensor to have; one with gaps is taken for contiguous."""
    return (channels_last if m.ndim == 4 else channels_last_3d) if suggests_channels_last(m) else contiguous_format


@operation(name="cast")
def _cast(input: Tensor, dtype: Any, memory_format: Any) -> Tensor:
    m = input._meta
    return laid_out(prim.cast(input, dtype=dtype), format_strides(tuple(m.shape), m.strides, memory_format))


@operation(name="to_meta", public=False)
def _without_elements(input: Tensor, dtype: Any, memory_format: Any) -> Tensor:
    m = input._meta
    local.trace.device = META
    return prim.copy(prim.cast(input, dtype=dtype), strides=format_strides(tuple(m.shape), m.strides, memory_format))


@remembered
def to(
    input: Tensor, *args: Any, dtype: Any = None, device: Any = None, non_blocking: bool = False, copy: bool = False, memory_format: Any = None,
    other: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Another dtype or device: `to(dtype)`, `to(device, dtype)`, `to(other)`; the tensor itself if nothing changes."""
    from flambeau import devices

    where = device
    for parameter, v, default in (("non_blocking bool", non_blocking, False), ("copy bool", copy, False), ("memory_format MemoryFormat?", memory_format, None)):
        if v is not default:
            must_be("to", parameter, v)
    if other is not None:
        args = (other, *args)
    dtype = dtypes.of_type(dtype)
    if dtype is not None and not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"to() received an invalid combination of arguments: argument 'dtype' must be torch.dtype, not {type_name(dtype)}")
    given = [dtypes.of_type(a) for a in args]
    flags = 1 if given and (isinstance(given[0], dtypes.dtype) or hasattr(given[0], "_meta")) else 2  # `to(dtype, ...)` or `to(device, dtype, ...)`
    for position, a in enumerate(given):
        if isinstance(a, dtypes.dtype) and position in (0, flags - 1):
            dtype = a
        elif hasattr(a, "_meta") and not position:
            dtype, where = a.dtype, a._meta.device
        elif isinstance(a, (bool, float, complex)) and len(given) == 1:  # a number stands for its class
            dtype = dtypes.of_type(type(a))
        elif isinstance(a, bool) and position >= flags:
            copy = a if position > flags else copy
        elif isinstance(a, (str, bytes, int, devices.Device)) and not isinstance(a, bool) and not position:
            where = a
        elif a is not None or position >= flags:
            raise TypeError(f"to() received an invalid combination of arguments: got {type_name(a)} at position {position + 1}")
    if where is not None and devices.is_meta(where) is (input._meta.device is devices.CPU):
        if input._meta.device is not devices.CPU:
            raise no_data()
        return _without_elements(input, dtype or input._meta.dtype, memory_format)
    if dtype is not None and dtype is not input._meta.dtype:
        return _cast(input, dtype, memory_format)  # type: ignore[no-any-return]
    if copy or memory_format not in (None, preserve_format, suggested_format(input._meta)):
        return input.clone(memory_format=memory_format)  # type: ignore[attr-defined, no-any-return]
    return input


@remembered
def type_as(input: Tensor, other: Tensor) -> Tensor:
    """The dtype and the device of `other`."""
    return to(input, other)


def sliced(x: Any, d: int, start: Any, length: int, step: int = 1) -> Any:
    """Inside a body: `length` elements of a dim from `start`, which may be a number that is given at run time."""
    if isinstance(start, int):
        return prim.slice(x, dim=d, start=start, length=length, step=step)
    return prim.slice(x, start, dim=d, start=0, length=length, step=step)


@operation(name="narrow")
def _narrow_op(input: Tensor, start: Number, dim: int, length: int) -> Tensor:
    return sliced(input, dim, start, length)


@remembered_with_axis
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """`length` elements of one dimension from `start`: a view. A changing start compiles nothing."""
    m = input._meta
    d = dim_of(dim, m.ndim)
    if m.ndim == 0:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if hasattr(start, "_meta") and (start.ndim or start._meta.dtype.category != 1):
        raise RuntimeError(f"narrow(): start must be an 0-dim integral Tensor, got {start.dtype} of shape {tuple(start.shape)}.")
    start, length, size = whole_number(start), whole_number(length), m.shape[d]
    if length < 0:
        raise RuntimeError("narrow(): length must be non-negative.")
    if not -size <= start <= size:
        raise IndexError(f"narrow(): start out of range (expected to be in range of [{-size}, {size}], but got {start})")
    start = start + size if start < 0 else start
    if start + length > size:
        raise RuntimeError(f"narrow(): start ({start}) + length ({length}) exceeds dimension size ({size}).")
    return _narrow_op(input, start, d, length)  # type: ignore[no-any-return]


def selected(x: Any, index: Any, dim: int) -> Any:
    """Inside a body: one index of a dim, which may be a number that is given at run time."""
    if isinstance(index, int):
        return prim.select(x, dim=dim, index=index)
    return prim.select(x, index, dim=dim, index=0)


@operation(name="select")
def _select_op(input: Tensor, index: Number, dim: int) -> Tensor:
    return selected(input, index, dim)  # type: ignore[no-any-return]


def checked_index(input: Tensor, dim: int, index: int) -> tuple[int, int]:
    """A dim and an index into it, both counted from the start."""
    m = input._meta
    if m.ndim == 0:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    d = dim_of(dim, m.ndim)
    size, i = m.shape[d], int(index)
    if not -size <= i < size:
        raise IndexError(f"select(): index {i} out of range for tensor of size {list(m.shape)} at dimension {d}")
    return d, i + size if i < 0 else i


@remembered_with_axis
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One index of a dimension, which disappears: a view. A changing index compiles nothing."""
    d, i = checked_index(input, dim, index)
    return _select_op(input, i, d)  # type: ignore[no-any-return]


@operation(name="unbind_one", public=False)
def _unbind_one(input: Tensor, index: Number, dim: int) -> Tensor:
    return selected(input, index, dim)  # type: ignore[no-any-return]


@operation(name="tensor_split", public=False)
def _slices(input: Tensor, sizes: tuple[int, ...], dim: int) -> tuple[Tensor, ...]:
    return _parts(input, sizes, dim)


@operation(name="unsafe_split", public=False)
def _unsafe_split(input: Tensor, sizes: tuple[int, ...], dim: int) -> tuple[Tensor, ...]:
    return _parts(input, sizes, dim)


def unsafe_parts(input: Tensor, parts: Sequence[Tensor], dim: int) -> tuple[Tensor, ...]:
    """The same parts by an operation of another name, whose results may be written to with gradients (autograd/one_of_many.py)."""
    d = dim_of(dim, input._meta.ndim)
    return _unsafe_split(input, tuple([p._meta.shape[d] for p in parts]), d)  # type: ignore[no-any-return]


@operation(name="split")
def _split(input: Tensor, sizes: tuple[int, ...], dim: int) -> tuple[Tensor, ...]:
    return _parts(input, sizes, dim)


def _parts(input: Tensor, sizes: tuple[int, ...], dim: int) -> tuple[Tensor, ...]:
    """Inside a body: consecutive parts of these sizes."""
    parts, start = [], 0
    for length in sizes:
        parts.append(sliced(input, dim, start, length))
        start += length
    return tuple(parts)


@remembered
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts: of one size (the last may be smaller), or of the listed sizes."""
    m = tensor._meta
    d = dim_of(dim, m.ndim)
    if m.ndim == 0:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    size = m.shape[d]
    if isinstance(split_size_or_sections, int) or getattr(split_size_or_sections, "ndim", 1) == 0:
        step = whole_number(split_size_or_sections)
        if step < 0 or (step == 0 and size):
            raise RuntimeError(f"split expects split_size be non-negative, but got split_size={step}")
        whole, rest = divmod(size, step) if size else (0, 0)
        sizes = ((step,) * int(whole) + (rest,) if rest else (step,) * int(whole)) if size else (0,)
    else:
        sizes = tuple([whole_number(s) for s in split_size_or_sections])
        if sum(sizes) != size or any(s < 0 for s in sizes):
            raise RuntimeError(
                f"split_with_sizes expects split_sizes to sum exactly to {size} (input tensor's size at dimension {d}), but got split_sizes={list(sizes)}"
            )
    return _split(tensor, sizes, d)  # type: ignore[no-any-return]


@remembered
def split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of consecutive parts of the listed sizes."""
    return split(input, split_sizes, dim)


@remembered
def _split_method(self: Tensor, split_size: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """torch.split of this tensor; a size may be a tensor with one element."""
    if not isinstance(split_size, int | list | tuple) and getattr(split_size, "ndim", 1) == 0:
        split_size = int(split_size)
    return split(self, split_size, dim)


_split_method.__name__ = _split_method.__qualname__ = "split"


@remembered
def _broadcast_to_method(self: Tensor, *sizes: Any, size: Any = MISSING) -> Tensor:
    """expand to `size`."""
    return _expand(self, sizes_given("broadcast_to", "size", sizes, size))  # type: ignore[no-any-return]


_broadcast_to_method.__name__ = _broadcast_to_method.__qualname__ = "broadcast_to"


@remembered_with_axis
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size (the last may be smaller)."""
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    m = input._meta
    if m.ndim == 0:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    size = m.shape[dim_of(dim, m.ndim)]
    if size == 0:
        return split(input, [0] * chunks, dim)
    return split(input, max(-(-size // chunks), 1), dim)


@remembered_with_axis
def tensor_split(
    input: Tensor, indices_or_sections: Any = MISSING, dim: int = 0, *, sections: Any = MISSING, indices: Any = MISSING,
    tensor_indices_or_sections: Any = MISSING,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Views: `n` parts of nearly equal size, or cut at the listed indices."""
    indices_or_sections = one_of(
        "tensor_split", indices_or_sections=indices_or_sections, sections=sections, indices=indices, tensor_indices_or_sections=tensor_indices_or_sections
    )
    m = input._meta
    d = dim_of(dim, m.ndim)
    if m.ndim == 0:
        raise RuntimeError("tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims")
    size = m.shape[d]
    if hasattr(indices_or_sections, "_meta"):
        given = indices_or_sections._meta
        if given.dtype is not dtypes.int64:
            raise RuntimeError(f"tensor_split expected tensor_indices_or_sections to have dtype of long, but got {dtypes.C_NAMES[given.dtype.name]}")
        if given.ndim > 1:
            raise RuntimeError(
                f"tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but got a tensor with {given.ndim} dims"
            )
        indices_or_sections = indices_or_sections.tolist()
    if isinstance(indices_or_sections, int):
        n = indices_or_sections
        if n <= 0:
            raise RuntimeError(f"tensor_split(): number of sections must be larger than 0, got {n}")
        check_available(n * _A_TENSOR)
        sizes = [size // n + (i < size % n) for i in range(n)]
    else:
        places = sizes_of((tuple(indices_or_sections),))
        bounds = [0, *[min(max(i + size if i < 0 else i, 0), size) for i in places], size]
        sizes = [max(b - a, 0) for a, b in zip(bounds, bounds[1:], strict=False)]
        if any(b < a for a, b in zip(bounds, bounds[1:], strict=False)):
            return tuple([narrow(input, d, min(a, size), max(b - a, 0)) for a, b in zip(bounds, bounds[1:], strict=False)])
    return _slices(input, tuple(sizes), d)  # type: ignore[no-any-return]


@operation(name="unbind")
def _unbind(input: Tensor, dim: int) -> tuple[Tensor, ...]:
    return tuple([prim.select(input, dim=dim, index=i) for i in range(input._meta.shape[dim])])


@remembered_with_axis
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of all indices of one dimension, which disappears."""
    m = input._meta
    d = dim_of(dim, m.ndim)
    if m.ndim == 0:
        raise IndexError("unbind(): Dimension specified as 0 but tensor has no dimensions")
    if m.shape[d] > 64:  # one edge of thousands of results would be slower than as many selects
        return tuple([_unbind_one(input, i, d) for i in range(m.shape[d])])
    return _unbind(input, d)  # type: ignore[no-any-return]


@operation(method=True)
def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Sliding windows of one dimension as a new last dimension: a view."""
    m = input._meta
    d = dim_of(dimension, m.ndim)
    length = m.shape[d] if m.ndim else 1
    if size < 0 or size > length:
        raise RuntimeError(f"maximum size for tensor at dimension {d} is {length} but size is {size}")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    if m.ndim == 0:
        return prim.slice(prim.reshape(input, shape=(1,)), dim=0, start=0, length=size, step=1)
    return prim.unfold(input, dim=d, size=size, step=step)


@operation(method=True)
def as_strided(input: Tensor, size: tuple[int, ...], stride: tuple[int, ...], storage_offset: int | None = None) -> Tensor:
    """Any layout over the tensor's storage: a view that starts at `storage_offset`, by default where the tensor starts.

    RuntimeError if it reaches beyond the storage.
    """
    if storage_offset is None and input._meta.dynamic:
        raise OffsetNeeded
    return strided(input, size, stride, input._meta.offset if storage_offset is None else storage_offset)  # type: ignore[no-any-return]


def strided(x: Any, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> Any:
    """`as_strided` from a place of the storage, inside a body."""
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {len(stride)} strides, {len(size)} sizes")
    if any(s < 0 for s in stride) or any(s < 0 for s in size) or offset < 0:
        raise RuntimeError(f"as_strided: Negative sizes, strides and offsets are not supported: got size {size}, stride {stride}, offset {offset}")
    available = elements_of_memory(x)
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1 if 0 not in size else 0
    if last > available:
        bytes_each = x.dtype.itemsize
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset}, and itemsize {bytes_each} "
            f"requiring a storage size of {last * bytes_each} are out of bounds for storage of size {available * bytes_each}"
        )
    return prim.as_strided(x, shape=tuple(size), strides=tuple(stride), offset=offset)


def elements_of_memory(x: Any) -> int:
    """How many elements of its dtype the memory has that a body's tensor is a view of."""
    value = local.trace.value(x._slot)
    root = value if value.base is None else local.trace.value(value.base)
    return root.numel * root.dtype.itemsize // x.dtype.itemsize  # type: ignore[no-any-return]


@operation(name="flip")
def _flip(input: Tensor, dims: tuple[int, ...]) -> Tensor:
    m = input._meta
    found = dims_of(dims, m.ndim, "flip")
    x = input
    for d in found if m.ndim else ():
        if m.shape[d] > 1:
            index = prim.sub(prim.constant(m.shape[d] - 1, dtypes.int64), prim.iota(shape=(m.shape[d],), dim=0))
            x = prim.take_rows(x, index, dim=d)
    return laid_out(x, like_strides(m.shape, m.strides))


@remembered
def flip(input: Tensor, *order: Any, dims: Any = MISSING) -> Tensor:
    """A copy with the order of the named dimensions reversed."""
    return _flip(input, sizes_given("flip", "dims", order, dims))  # type: ignore[no-any-return]


@remembered
def fliplr(input: Tensor) -> Tensor:
    """flip of dimension 1."""
    if input.ndim < 2:
        raise RuntimeError("fliplr(): Input must be >= 2-d.")
    return flip(input, 1)


@remembered
def flipud(input: Tensor) -> Tensor:
    """flip of dimension 0."""
    if input.ndim < 1:
        raise RuntimeError("flipud(): Input must be >= 1-d.")
    return flip(input, 0)


@operation(method=True)
def roll(input: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    """Elements moved on by `shifts` places, around the end; without dims, over the flattened tensor."""
    m = input._meta
    if not m.numel and dims not in (None, ()):
        return prim.copy(input, strides=like_strides(m.shape, m.strides))
    moves = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    if not moves:
        raise RuntimeError("roll(): `shifts` required")
    if dims is None or (dims == () and len(moves) == 1):
        if len(moves) != 1:
            raise RuntimeError("shifts and dimensions must align: give dims for several shifts")
        return as_shape(_roll(as_shape(input, (m.numel,)), moves[0], 0), tuple(m.shape))
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    if len(axes) != len(moves):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(moves)}, dims: {len(axes)}")
    x = input
    for shift, d in zip(moves, axes, strict=True):
        x = _roll(x, shift, dim_of(d, m.ndim))
    return prim.copy(x, strides=contiguous_strides(m.shape)) if x is input else x


def _roll(x: Any, shift: int, d: int) -> Any:
    size = x._meta.shape[d]
    shift = shift % size if size else 0
    if not shift:
        return prim.copy(x, strides=contiguous_strides(x._meta.shape))
    return prim.concatenate(sliced(x, d, size - shift, shift), sliced(x, d, 0, size - shift), dim=d)


@operation(name="repeat")
def _repeat(input: Tensor, repeats: tuple[int, ...]) -> Tensor:
    m = input._meta
    if len(repeats) < m.ndim:
        raise RuntimeError(
            f"Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor: got {repeats} for shape {tuple(m.shape)}"
        )
    shape = (1,) * (len(repeats) - m.ndim) + tuple(m.shape)
    inner = [n for s in shape for n in (1, s)]
    wide = [n for r, s in zip(repeats, shape, strict=True) for n in (r, s)]
    x = prim.expand(as_shape(input, tuple(inner)), shape=tuple(wide))
    x = prim.copy(x, strides=contiguous_strides(tuple(wide)))
    return prim.reshape(x, shape=tuple([r * s for r, s in zip(repeats, shape, strict=True)]))


@remembered
def repeat(input: Tensor, *counts: Any, repeats: Any = MISSING) -> Tensor:
    """The tensor copied so many times along each dimension."""
    given = sizes_given("repeat", "repeats", counts, repeats)
    if min(given, default=0) < 0:
        raise RuntimeError(f"repeat(): Trying to create tensor with negative dimension {min(given)}: {list(given)}")
    return _repeat(input, given)  # type: ignore[no-any-return]


@remembered
def tile(input: Tensor, *repeats: Any, dims: Any = MISSING) -> Tensor:
    """repeat, with missing counts taken as 1."""
    counts = sizes_given("tile", "dims", repeats, dims)
    if min(counts, default=0) < 0:
        raise RuntimeError(f"tile(): Trying to create tensor with negative dimension {min(counts)}: {list(counts)}")
    return _repeat(input, (1,) * (input.ndim - len(counts)) + counts)  # type: ignore[no-any-return]


@operation(method=True)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A diagonal of two dimensions as a new last dimension: a view."""
    a, b = two_dims(input._meta.ndim, dim1, dim2)
    return prim.diagonal(input, offset=offset, dim1=a, dim2=b)


def two_dims(ndim: int, dim1: int, dim2: int) -> tuple[int, int]:
    """Two different dims of a matrix (or several) whose diagonal is meant."""
    a, b = dim_of(dim1, ndim), dim_of(dim2, ndim)
    if a == b:
        raise RuntimeError(f"diagonal(): diagonal dimensions cannot be identical {dim1}, {dim2}")
    return a, b


@operation(method=True)
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension as a diagonal of new matrices."""
    m = input._meta
    size = m.shape[-1] + abs(offset)
    a, b = two_dims(m.ndim + 1, dim1, dim2)
    shape = [0] * (m.ndim + 1)
    rest = iter(m.shape[:-1])
    for d in range(m.ndim + 1):
        shape[d] = size if d in (a, b) else next(rest)
    zeros = prim.zeros_of(tuple(shape), m.dtype)
    return prim.scatter_view(zeros, input, prim.diagonal(zeros, offset=offset, dim1=a, dim2=b))


@operation(method=True, out=True)
def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix, or the diagonal of a matrix as a vector (a copy)."""
    m = input._meta
    if m.ndim == 1:
        size = m.shape[0] + abs(diagonal)
        zeros = prim.zeros_of((size, size), m.dtype)
        return prim.scatter_view(zeros, input, prim.diagonal(zeros, offset=diagonal, dim1=0, dim2=1))
    if m.ndim == 2:
        view = prim.diagonal(input, offset=diagonal, dim1=0, dim2=1)
        return prim.copy(view, strides=contiguous_strides(view._meta.shape))
    raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {m.ndim}D")


def _triangle(x: Any, k: int, lower: bool) -> Any:
    m = x._meta
    if m.ndim < 2:
        raise RuntimeError("tril/triu: input tensor must have at least 2 dimensions")
    rows = prim.iota(shape=(m.shape[-2], 1), dim=0)
    columns = prim.iota(shape=(m.shape[-1],), dim=0)
    limit = prim.add(rows, prim.constant(k, dtypes.int64))
    keep = prim.le(columns, limit) if lower else prim.ge(columns, limit)
    return laid_out(prim.where(keep, x, 0), contiguous_strides(m.shape))


@operation(method=True, inplace=True, out=True)
def tril(input: Tensor, diagonal: Whole = 0) -> Tensor:
    """The lower triangle; zeros above the given diagonal."""
    return _triangle(input, diagonal, True)


@operation(method=True, inplace=True, out=True)
def triu(input: Tensor, diagonal: Whole = 0) -> Tensor:
    """The upper triangle; zeros below the given diagonal."""
    return _triangle(input, diagonal, False)


@operation(name="sum_to_size_op")
def _sum_to_size(input: Tensor, shape: tuple[int, ...]) -> Tensor:
    m = input._meta
    lead = m.ndim - len(shape)
    dims = [*range(lead), *[d + lead for d, s in enumerate(shape) if s == 1 and m.shape[d + lead] != 1]]
    x = prim.cast(input, dtype=dtypes.int64) if m.dtype.category < 2 and m.dtype is not dtypes.int64 else input
    if not dims:  # of a 0-d tensor: a sum all the same, and so a new tensor
        return prim.copy(x, strides=like_strides(x._meta.shape, x._meta.strides)) if x is input else x
    return as_shape(prim.sum(x, dims=tuple(dims)), tuple(shape))


def sum_to_size(input: Tensor, *sizes: Any, size: Any = MISSING) -> Tensor:
    """Summed over the dimensions that broadcasting `size` would have repeated."""
    shape = sizes_given("sum_to_size", "size", sizes, size)
    have = tuple(input._meta.shape)
    if have == shape and shape:  # a sum over no dims is a sum
        return input
    if len(shape) > len(have) or any(s not in (1, n) for s, n in zip(shape[::-1], have[::-1], strict=False)):
        raise RuntimeError(f"sum_to_size(): size {list(shape)} is not expandable to size {list(have)}: each dim, from the last on, must be equal or 1")
    return _sum_to_size(input, shape)  # type: ignore[no-any-return]


@operation(name="pad_constant", public=False)
def pad_constant(input: Tensor, pad: tuple[int, ...], value: Number = 0) -> Tensor:
    """`pad` lists (before, after) from the last dimension on; negative amounts crop."""
    m = input._meta
    shape, starts = list(m.shape), [0] * m.ndim
    x = input
    for i in range(len(pad) // 2):
        d = m.ndim - 1 - i
        before, after = pad[2 * i], pad[2 * i + 1]
        crop_before, crop_after = max(-before, 0), max(-after, 0)
        if crop_before or crop_after:
            x = sliced(x, d, crop_before, x._meta.shape[d] - crop_before - crop_after)
        starts[d] = max(before, 0)
        shape[d] = m.shape[d] + before + after
        if shape[d] < 0:
            raise RuntimeError(f"pad: The input size {m.shape[d]}, plus negative padding {before} and {after}, resulted in a negative output size")
    full = prim.full_of(tuple(shape), convert(value, m.dtype))
    if 0 in shape:
        return full
    view = full
    for d in range(m.ndim):
        view = prim.slice(view, dim=d, start=starts[d], length=x._meta.shape[d], step=1)
    return prim.scatter_view(full, x, view)


def _set_part(x: Tensor, name: str, values: Any) -> None:
    """`x.real = values`: copied into that view."""
    part: Any = getattr(x, name)
    if isinstance(values, (bool, int, float)):
        part.fill_(values)
        return
    if not hasattr(values, "_meta"):
        raise TypeError(f"Tensor.{name} can only be set to a tensor or a real number, not {type(values).__name__}")
    part.copy_(values)


def _matrix(x: Tensor, name: str) -> Tensor:
    """The last two dims exchanged, as the property called `name` does. A 0-d tensor is itself."""
    ndim = x._meta.ndim
    if ndim == 0:
        return x
    if ndim == 1 or (name == "H" and ndim > 2):
        which, hint = ("matrices (2-D tensors)", "; use mH") if name == "H" else ("matrices or batches of matrices", "")
        raise RuntimeError(f"tensor.{name} is only supported on {which}. Got {ndim}-D tensor{hint if ndim > 2 else ''}.")
    return transpose(x, -2, -1)  # type: ignore[no-any-return]


def install_methods(cls: Any) -> None:
    """The methods whose sizes may be given one by one."""
    for function in (
        reshape, view, view_as, reshape_as, unflatten, permute, expand, expand_as, to, type_as, narrow, select,
        split_with_sizes, chunk, tensor_split, unbind, flip, fliplr, flipud, repeat, tile, sum_to_size, swapaxes,
    ):  # fmt: skip
        setattr(cls, function.__name__, function)
    cls.split, cls.broadcast_to = _split_method, _broadcast_to_method
    from flambeau.ops.elementwise import imag, real

    cls.real = property(real, lambda self, values: _set_part(self, "real", values))
    cls.imag = property(imag, lambda self, values: _set_part(self, "imag", values))
    cls.T = property(numpy_t)
    cls.mT = property(lambda self: _matrix(self, "mT"))
    cls.H = property(lambda self: _matrix(self, "H").conj())
    cls.mH = property(lambda self: _matrix(self, "mH").conj())
