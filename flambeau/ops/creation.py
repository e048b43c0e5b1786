"""New tensors: from data, of a constant, ranges, and the legacy constructors."""

from __future__ import annotations

import builtins
import ctypes
import itertools
import math
import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flambeau import devices, dtypes
from flambeau.dtypes import dtype
from flambeau.layouts import strided
from flambeau.ops import primitives as prim
from flambeau.ops.promotion import convert
from flambeau.ops.registry import Number, operation
from flambeau.ops.remembered import remembered, remembered_writes
from flambeau.ops.shape import sizes_of
from flambeau.queries import preserve_format
from flambeau.runtime.buffers import allocate
from flambeau.trace.existing import from_buffer
from flambeau.trace.mutation import assign, into

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def _finish(t: Any, requires_grad: bool) -> Any:
    return t.requires_grad_() if requires_grad else t


def _check_sizes(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    for s in shape:
        if s < 0:
            raise RuntimeError(f"{name}: Trying to create tensor with negative dimension {s}: {list(shape)}")
    return shape


@operation(name="full_values")
def _full(value: Number, shape: tuple[int, ...], dtype: Any) -> Tensor:
    return prim.full_of(shape, convert(value, dtype))


def check_memory(shape: Sequence[int], d: dtype) -> None:
    """PyTorch's RuntimeError at the call, if so many bytes cannot be had."""
    count = math.prod(shape)
    if count * d.itemsize > 1 << 33:
        from flambeau.runtime.buffers import check_available

        check_available(count * d.itemsize)


@remembered
def full(
    size: Any, fill_value: Any, *, out: Any = None, dtype: dtype | None = None, layout: Any = strided, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, names: Any = None,
) -> Tensor:  # fmt: skip
    """`fill_value` in every element; the dtype follows the value unless given."""
    devices.check(device)
    shape = _check_sizes("full", (size,) if isinstance(size, int) else sizes_of((size,)))
    if dtype is None:
        dtype = fill_value.dtype if hasattr(fill_value, "_meta") else dtypes.of_number(fill_value)
    if hasattr(fill_value, "_meta"):
        fill_value = fill_value.item()
    check_memory(shape, dtype)
    if isinstance(fill_value, complex) and not dtype.is_complex:
        raise RuntimeError(f"value cannot be converted to type {dtype.name} without overflow")
    if dtype.category == 1 and isinstance(fill_value, float):
        fill_value = int(fill_value)
    result = _full(fill_value, shape, dtype)
    if out is not None:
        from flambeau.trace.mutation import write_over

        write_over(out, result, "full")
        return out  # type: ignore[no-any-return]
    return _finish(result, requires_grad)  # type: ignore[no-any-return]


def _constant_maker(name: str, value: int, text: str) -> Any:
    def make(
        *sizes: Any, size: Any = None, out: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, names: Any = None, memory_format: Any = None,
    ) -> Any:  # fmt: skip
        d = dtype or dtypes.get_default_dtype()
        shape = sizes_of(sizes if size is None else (size,))
        if out is None and layout is None and device is None and min(shape, default=0) >= 0:  # the usual case
            check_memory(shape, d)
            return _finish(_full(value, shape, d), requires_grad)
        if layout is not None and layout is not strided:
            from flambeau.sparse.construct import without_elements

            if value:
                raise NotImplementedError("ones: a sparse tensor of ones would have every element; use torch.ones(...).to_sparse()")
            return without_elements(shape, layout, d, requires_grad)
        if out is not None:
            d = out.dtype if dtype is None else dtype
        return full(shape, value, out=out, dtype=d, device=device, requires_grad=requires_grad)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = text
    return remembered(make)


zeros = _constant_maker("zeros", 0, "Zeros of the given sizes.")
ones = _constant_maker("ones", 1, "Ones of the given sizes.")


def empty(
    *sizes: Any, size: Any = None, out: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None, names: Any = None,
) -> Tensor:  # fmt: skip
    """Uninitialised memory of the given sizes."""
    devices.check(device)
    shape = _check_sizes("empty", sizes_of(sizes if size is None else (size,)))
    d = dtype or dtypes.get_default_dtype()
    if layout is not None and layout is not strided:
        from flambeau.sparse.construct import without_elements

        return without_elements(shape, layout, d, requires_grad)
    strides = None
    if getattr(memory_format, "name", "") == "channels_last" and len(shape) == 4:
        n, c, h, w = shape
        strides = (h * w * c, 1, w * c, c)
    if out is not None:
        if dtype not in (None, out.dtype):
            raise RuntimeError(f"empty(): dtype {d.name} does not match dtype of out parameter ({out.dtype.name})")
        return out.resize_(shape)  # type: ignore[no-any-return]
    return _finish(from_buffer(allocate(math.prod(shape) * d.itemsize), shape, d, strides), requires_grad)  # type: ignore[no-any-return]


def empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype: dtype | None = None, device: Any = None,
                  layout: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """Uninitialised memory with the given strides."""

    devices.check(device)
    d = dtype or dtypes.get_default_dtype()
    last = sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1 if 0 not in tuple(size) else 0
    t = from_buffer(allocate(last * d.itemsize), tuple(size), d, tuple(stride))
    return _finish(t, requires_grad)  # type: ignore[no-any-return]


def _like_dtype(input: Tensor, d: dtype | None) -> dtype:
    return d or input.dtype


def sparse_like(input: Tensor, name: str, layout: Any, d: dtype, requires_grad: bool) -> Any:
    """zeros_like and empty_like where the result is sparse: without elements."""
    from flambeau.sparse.construct import without_elements

    if name == "ones_like":
        raise NotImplementedError("ones_like: a sparse tensor of ones would have every element; give layout=torch.strided")
    return without_elements(tuple(input.shape), layout or input.layout, d, requires_grad)


def _like(name: str, value: int, text: str) -> Any:
    def make(
        input: Tensor, *, dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
        memory_format: Any = None, pin_memory: bool | None = None,
    ) -> Any:  # fmt: skip
        devices.check(device)
        m = input._meta
        d = dtype or m.dtype
        if layout is not strided and (layout or input.layout) is not strided:
            return sparse_like(input, name, layout, d, requires_grad)
        result = _full(value, tuple(m.shape), d)
        if m.is_dense and not m.is_contiguous:
            result = _relayout(result, m.strides)
        return _finish(input._lift(result), requires_grad)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = text
    return remembered(make)


@operation(name="relayout")
def _relayout(input: Tensor, strides: tuple[int, ...]) -> Tensor:
    from flambeau.trace.mutation import _normal_strides

    return prim.copy(input, strides=_normal_strides(input._meta.shape, strides))


zeros_like = _like("zeros_like", 0, "Zeros with the shape and dtype of `input`.")
ones_like = _like("ones_like", 1, "Ones with the shape and dtype of `input`.")


@operation(name="unit_gradient", public=False)
def unit_gradient(input: Tensor) -> Tensor:
    """Ones like `input`, as static numbers that the compiler can see: where a backward pass starts."""
    return prim.full_of(tuple(input._meta.shape), prim.constant(1, input.dtype))


@remembered
def full_like(input: Tensor, fill_value: Any, *, dtype: dtype | None = None, layout: Any = None, device: Any = None,
              requires_grad: bool = False, memory_format: Any = None, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """`fill_value` with the shape and dtype of `input`."""
    return input._lift(full(tuple(input.shape), fill_value, dtype=dtype or input.dtype, device=device, requires_grad=requires_grad))


def empty_like(input: Tensor, *, dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
               memory_format: Any = None, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """Uninitialised memory with the shape, dtype and (if dense) strides of `input`."""
    m = input._meta
    if layout is not strided and (layout or input.layout) is not strided:
        return sparse_like(input, "empty_like", layout, dtype or m.dtype, requires_grad)
    if m.is_dense and not m.is_contiguous and memory_format is None:
        return input._lift(empty_strided(m.shape, m.strides, dtype=dtype or m.dtype, device=device, requires_grad=requires_grad))
    made = empty(tuple(m.shape), dtype=dtype or m.dtype, device=device, requires_grad=requires_grad, memory_format=memory_format)
    return input._lift(made)


@operation(name="arange_values")
def _arange(start: Number, step: Number, length: int, dtype: Any) -> Tensor:
    index = prim.iota(shape=(length,), dim=0)
    work = dtypes.float64 if dtype.is_floating_point else dtypes.int64
    x = prim.add(convert(start, work), prim.mul(convert(index, work), convert(step, work)))
    return convert(x, dtype)


@remembered
def arange(*args: Any, out: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False, start: Any = 0, end: Any = None, step: Any = 1) -> Tensor:  # fmt: skip
    """arange(end), arange(start, end), arange(start, end, step): numbers from start up to end, without it."""
    devices.check(device)
    values = [a.item() if hasattr(a, "item") else a for a in args]
    if len(values) == 1:
        start, end = (start, values[0]) if end is None else (values[0], end)
    elif len(values) == 2:
        start, end = values
    elif len(values) == 3:
        start, end, step = values
    if end is None or len(values) > 3:
        raise TypeError("arange(): expected (end), (start, end) or (start, end, step)")
    if step == 0:
        raise RuntimeError("arange(): step must be nonzero")
    if not all(math.isfinite(v) for v in (start, end, step)):
        raise RuntimeError(f"arange(): unsupported range: {start} -> {end}")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError(f"arange(): upper bound and lower bound inconsistent with step sign: start {start}, end {end}, step {step}")
    if dtype is None:
        floating = any(isinstance(v, float) for v in (start, end, step))
        dtype = (dtypes.get_default_dtype() if floating else dtypes.int64) if out is None else out.dtype
    if dtype is dtypes.int64:  # as if the numbers were whole from the start; other dtypes count with the given ones
        start, end, step = int(start), int(end), int(step) or 1
    integral = all(isinstance(v, int) for v in (start, end, step))
    length = -(-(end - start) // step) if integral else math.ceil((end - start) / step)
    check_memory((length,), dtype)
    if dtype.category == 1 and not integral:
        start, step = int(start), int(step)
    result = _arange(start, step, length, dtype)
    if out is not None:
        from flambeau.trace.mutation import write_over

        write_over(out, result, "arange")
        return out  # type: ignore[no-any-return]
    return _finish(result, requires_grad)  # type: ignore[no-any-return]


@operation(name="linspace_values")
def _linspace(start: Number, end: Number, steps: int, dtype: Any, base: float | None) -> Tensor:
    """Counted from the nearer end, as PyTorch does, so that both ends are exact; of float32, product and sum are rounded once, as there."""
    work = dtype if dtype.is_floating_point and dtype.itemsize >= 4 else dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    if dtype.category == 1 or dtype is dtypes.complex128:
        work = dtypes.float64
    index = prim.iota(shape=(steps,), dim=0)
    a, b = convert(convert(start, dtypes.float64), work), convert(convert(end, dtypes.float64), work)
    step = prim.div(prim.sub(b, a), prim.constant(max(steps - 1, 1), work))
    if work is dtypes.float32:
        a, b, step = (convert(v, dtypes.float64) for v in (a, b, step))
    forward = prim.add(a, prim.mul(step, convert(index, dtypes.float64)))
    rest = prim.sub(prim.constant(steps - 1, dtypes.int64), index)
    backward = prim.sub(b, prim.mul(step, convert(rest, dtypes.float64)))
    x = prim.where(prim.lt(index, prim.constant(max(steps // 2, 1), dtypes.int64)), forward, backward)
    x = convert(x, work)
    if base is not None:
        x = prim.pow(prim.constant(base, work), x)
    return convert(x, dtype)


@remembered
def linspace(start: Any, end: Any, steps: int, *, out: Any = None, dtype: dtype | None = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """`steps` numbers from start to end, both included."""
    devices.check(device)
    _check_steps("linspace", steps)
    start, end = (v.item() if hasattr(v, "item") else v for v in (start, end))
    kind = dtype or (dtypes.get_default_dtype() if out is None else out.dtype)
    return _finish(into(out, _linspace(*_bounds(start, end, kind), int(steps), kind, None), "linspace"), requires_grad)  # type: ignore[no-any-return]


def _check_steps(name: str, steps: Any) -> None:
    if not hasattr(steps, "__index__"):
        raise TypeError(f"{name}(): argument 'steps' must be int, not {type(steps).__name__}")
    if steps < 0:
        raise RuntimeError(f"{name}(): number of steps must be non-negative, got {steps}")


def _bounds(start: Any, end: Any, kind: dtype) -> tuple[float, float]:
    """As floats, whole ones for a whole dtype."""
    return (float(int(start)), float(int(end))) if kind.category == 1 else (float(start), float(end))


@remembered
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, out: Any = None, dtype: dtype | None = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """base to the power of `steps` numbers from start to end."""
    devices.check(device)
    _check_steps("logspace", steps)
    kind = dtype or (dtypes.get_default_dtype() if out is None else out.dtype)
    result = _linspace(*_bounds(start, end, kind), int(steps), kind, float(base))
    return _finish(into(out, result, "logspace"), requires_grad)  # type: ignore[no-any-return]


@operation(name="eye_values")
def _eye(n: int, m: int, dtype: Any) -> Tensor:
    return convert(prim.eq(prim.iota(shape=(n, 1), dim=0), prim.iota(shape=(m,), dim=0)), dtype)


@remembered
def eye(n: int, m: int | None = None, *, out: Any = None, dtype: dtype | None = None, layout: Any = strided, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """The identity matrix, n by m."""
    devices.check(device)
    if n < 0 or (m is not None and m < 0):
        raise RuntimeError(f"eye(): n must be greater or equal to 0, got {n if n < 0 else m}")
    kind = dtype or (dtypes.get_default_dtype() if out is None else out.dtype)
    return _finish(into(out, _eye(n, n if m is None else m, kind), "eye"), requires_grad)  # type: ignore[no-any-return]


def _indices(row: int, col: int, offset: int, lower: bool) -> list[list[int]]:
    pairs = [(i, j) for i in range(row) for j in range(col) if (j - i <= offset if lower else j - i >= offset)]
    return [[i for i, _ in pairs], [j for _, j in pairs]]


def tril_indices(row: int, col: int, offset: int = 0, *, dtype: dtype = dtypes.int64, device: Any = "cpu", layout: Any = strided) -> Tensor:
    """Indices of the lower triangle, 2 by n, row by row."""
    return tensor(_indices(row, col, offset, True), dtype=dtype).reshape(2, -1)  # type: ignore[attr-defined, no-any-return]


def triu_indices(row: int, col: int, offset: int = 0, *, dtype: dtype = dtypes.int64, device: Any = "cpu", layout: Any = strided) -> Tensor:
    """Indices of the upper triangle, 2 by n, row by row."""
    return tensor(_indices(row, col, offset, False), dtype=dtype).reshape(2, -1)  # type: ignore[attr-defined, no-any-return]


# -- from data ----------------------------------------------------------------------------------------------------


def _infer_dtype(data: Any) -> dtype:
    """The dtype of nested lists of Python numbers."""
    best: dtype | None = None

    def look(x: Any) -> None:
        nonlocal best
        if isinstance(x, (list, tuple)):
            for y in x:
                look(y)
            return
        if hasattr(x, "_meta"):
            d = x.dtype
        elif hasattr(x, "dtype"):  # an array among lists, or a number of NumPy's
            d = _dtype_of_array(x)
        elif isinstance(x, (bool, int, float, complex)):
            d = dtypes.of_number(x)
        elif hasattr(x, "item") or hasattr(x, "__index__"):
            d = dtypes.of_number(x.item() if hasattr(x, "item") else x.__index__())
        else:
            raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")
        best = d if best is None else dtypes.promote_types(best, d)

    look(data)
    return best or dtypes.get_default_dtype()


def _as_lists(x: Any) -> Any:
    """Ranges, deques and other sequences at any depth as lists; tensors, arrays and numbers as they are."""
    if isinstance(x, (list, tuple)):
        return [_as_lists(y) for y in x]
    if hasattr(x, "_meta"):
        if x.numel() != 1:
            raise ValueError(
                f"only one element tensors can be converted to Python scalars: a list has a tensor of shape {tuple(x.shape)}; use torch.stack"
            )
        return x.detach().reshape(())
    if isinstance(x, str):
        raise ValueError("torch.tensor: data must be numbers, arrays or sequences of them, got a list with a str")
    if isinstance(x, (bool, int, float, complex, bytes, Mapping)) or hasattr(x, "dtype") or not hasattr(x, "__getitem__") or not hasattr(x, "__len__"):
        return x
    return [_as_lists(x[i]) for i in range(len(x))]


def _from_list(data: Any, d: dtype) -> Tensor:
    import numpy

    def plain(x: Any) -> Any:
        if isinstance(x, (list, tuple)):
            return [plain(y) for y in x]
        if hasattr(x, "_meta") or (hasattr(x, "dtype") and getattr(x, "ndim", 0)):
            return x.tolist()
        return x

    shape: list[int] = []

    def measure(x: Any, depth: int) -> None:
        if isinstance(x, (list, tuple)):
            if depth == len(shape):
                shape.append(len(x))
            elif depth > len(shape) or shape[depth] != len(x):
                raise ValueError(f"expected sequence of length {shape[depth]} at dim {depth} (got {len(x)})")
            for y in x:
                measure(y, depth + 1)
            if not x:
                return
        elif depth < len(shape) and depth:
            raise TypeError(f"expected sequence at dim {depth}, got a {type(x).__name__}")

    data = plain(data)
    measure(data, 0)
    work = d if d.numpy_name is not None else dtypes.float32
    assert work.numpy_name is not None
    try:
        array = numpy.array(data, dtype=numpy.dtype(work.numpy_name)).reshape(shape if isinstance(data, list) else ())
    except OverflowError as error:
        raise RuntimeError(f"value cannot be converted to type {d.name} without overflow") from error
    except (TypeError, ValueError) as error:
        if "NaN to integer" in str(error):
            raise RuntimeError(f"value cannot be converted to type {d.name} without overflow: it is NaN") from None
        if isinstance(error, ValueError) and "complex" not in str(error):
            raise ValueError(f"too many dimensions or ragged nested sequence in torch.tensor: {error}") from None
        raise TypeError(f"can't convert the data to {d}: {error}") from None
    t = copy_of_array(array, work)
    return t if work is d else t.to(d)  # type: ignore[attr-defined, no-any-return]


def copy_of_array(array: Any, d: dtype) -> Tensor:
    """A tensor with a copy of a NumPy array's values (of the matching NumPy dtype)."""
    import numpy

    from flambeau.runtime.memory import view_as_numpy

    buffer = allocate(array.size * d.itemsize)
    if array.size:
        raw = view_as_numpy(buffer.address, array.size * d.itemsize, buffer)
        raw.view(numpy.dtype(d.numpy_name)).reshape(array.shape)[...] = array
    return from_buffer(buffer, array.shape, d)


_FROM_NUMPY = {d.numpy_name: d for d in dtypes.ALL if d.numpy_name is not None}


def _dtype_of_array(array: Any) -> dtype:
    name = array.dtype.name
    if name in _FROM_NUMPY:
        return _FROM_NUMPY[name]
    raise TypeError(
        f"can't convert np.ndarray of type {array.dtype}. The only supported types are: {', '.join(sorted(map(str, _FROM_NUMPY)))}."
    )


_WIDER = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}


_FORMATS = {
    dtypes.float32: "f", dtypes.float64: "d", dtypes.int64: "q", dtypes.int32: "i", dtypes.int16: "h", dtypes.int8: "b", dtypes.uint8: "B",
    dtypes.bool_: "?",
}  # fmt: skip
_MOST_PACKED = 1024  # numbers; more are NumPy's


def _packed(data: Any, d: dtype | None) -> Tensor | None:
    """A few numbers of one Python type, alone, in a list, or in lists of one length, as a dtype of their kind; None for what `_from_list` must look at."""
    cls = data.__class__
    if cls is list or cls is tuple:
        numbers, shape = data, (len(data),)
        if data and (data[0].__class__ is list or data[0].__class__ is tuple):
            if len(data) > _MOST_PACKED or {*map(type, data)} - {list, tuple} or len({*map(len, data)}) != 1:
                return None
            shape = len(data), len(data[0])
            numbers = [*itertools.chain.from_iterable(data)]
        kinds = {*map(type, numbers)}
        if len(kinds) != 1 or len(numbers) > _MOST_PACKED:
            return None
        (cls,) = kinds
    else:
        numbers, shape = (data,), ()
    if cls is not float and cls is not int and cls is not bool:
        return None
    natural = dtypes.of_number(numbers[0])
    if d is None:
        d = natural
    form = _FORMATS.get(d)
    if form is None or d.category != natural.category:
        return None
    try:
        content = struct.pack(f"={len(numbers)}{form}", *numbers)
    except (struct.error, OverflowError):
        return None
    buffer = allocate(len(content))
    ctypes.memmove(buffer.address, content, len(content))
    return from_buffer(buffer, shape, d)  # type: ignore[no-any-return]


def tensor(
    data: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False
) -> Tensor:
    """A new leaf tensor with a copy of `data`: nested lists, numbers, a NumPy array or a tensor."""
    devices.check(device)
    quick = _packed(data, dtype)
    if quick is not None:
        return quick.requires_grad_() if requires_grad else quick
    if hasattr(data, "_meta"):
        result = data.detach().clone() if dtype is None else data.detach().to(dtype, copy=True)
        result._detached = False
        return _finish(result, requires_grad)  # type: ignore[no-any-return]
    if hasattr(data, "__array__") and not isinstance(data, (list, tuple)):
        import numpy

        array = numpy.asarray(data)
        if array.dtype.name in _WIDER:
            array = array.astype(_WIDER[array.dtype.name])
        result = copy_of_array(array, _dtype_of_array(array))
        if dtype is not None and dtype is not result.dtype:
            result = result.to(dtype)  # type: ignore[attr-defined]
        return _finish(result, requires_grad)  # type: ignore[no-any-return]
    if isinstance(data, (bool, int, float, complex)) or hasattr(data, "__index__") or isinstance(data, (list, tuple)):
        data = _as_lists(data)
        return _finish(_from_list(data, dtype or _infer_dtype(data)), requires_grad)  # type: ignore[no-any-return]
    if not isinstance(data, (str, bytes, Mapping)) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        items = _as_lists(data)
        return _finish(_from_list(items, dtype or _infer_dtype(items)), requires_grad)  # type: ignore[no-any-return]
    if isinstance(data, str):
        raise TypeError("new(): invalid data type 'str'")
    raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")


def as_tensor(data: Any, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Like `tensor`, but without a copy where the dtype already fits: tensors are returned, NumPy arrays are shared."""
    devices.check(device)
    if hasattr(data, "_meta"):
        return data if dtype is None else data.to(dtype)  # type: ignore[no-any-return]
    if type(data).__module__ == "numpy" and hasattr(data, "strides") and getattr(data, "ndim", 0) >= 0 and hasattr(data, "flags"):
        try:
            shared = from_numpy(data)
        except (TypeError, ValueError):
            return tensor(data, dtype=dtype)
        return shared if dtype is None else shared.to(dtype)  # type: ignore[attr-defined, no-any-return]
    return tensor(data, dtype=dtype)


def asarray(
    obj: Any, *, dtype: dtype | None = None, device: Any = None, copy: bool | None = None, requires_grad: bool | None = None
) -> Tensor:
    """A tensor of `obj`: a tensor, a NumPy array or something with a buffer (shared where `copy` is not True), numbers or nested lists.

    `copy` False: ValueError where the memory cannot be shared. `requires_grad` None: as a tensor's own, else False.
    """
    devices.check(device)
    given = hasattr(obj, "_meta")
    if not given and hasattr(obj, "__dlpack__") and not hasattr(obj, "__array_interface__"):
        shared: Any = from_dlpack(obj)
    elif given or (type(obj).__module__ == "numpy" and hasattr(obj, "strides")):
        shared = as_tensor(obj)
    elif isinstance(obj, (bytearray, bytes, memoryview)):
        shared = frombuffer(obj, dtype=dtype or dtypes.get_default_dtype())
    else:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        return tensor(obj, dtype=dtype, requires_grad=bool(requires_grad))
    if copy is False and dtype is not None and dtype is not shared.dtype:
        raise ValueError(f"can't alias tensor with dtype {shared.dtype} into dtype {dtype}.")
    result = shared if dtype is None else shared.to(dtype)
    if copy and result is shared:
        result = shared.clone()
    if requires_grad is None or result.requires_grad == requires_grad:
        return result  # type: ignore[no-any-return]
    return result.detach() if not requires_grad else result.requires_grad_() if not given else result.detach().requires_grad_()  # type: ignore[no-any-return]


def from_numpy(array: Any) -> Tensor:
    """A tensor over the memory of a NumPy array: writes are seen on both sides."""
    import numpy

    from flambeau.runtime.buffers import foreign
    from flambeau.tensor import from_storage
    from flambeau.trace.meta import meta
    from flambeau.trace.storage import Storage

    if not isinstance(array, numpy.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    d = _dtype_of_array(array)
    if any(s < 0 for s in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative strides are not currently "
            "supported. (You can probably work around this by making a copy of your array with array.copy().)"
        )
    if any(s % d.itemsize for s in array.strides):
        raise ValueError("given numpy array strides not a multiple of the element byte size. Copy the numpy array to reallocate the memory.")
    if not array.dtype.isnative:
        raise ValueError("given numpy array has byte order different from the native byte order. Conversion is not supported.")
    strides = tuple([s // d.itemsize for s in array.strides])
    count = 0 if array.size == 0 else 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    storage = Storage(foreign(array.__array_interface__["data"][0], count * d.itemsize, array))
    storage.external = True
    return from_storage(storage, meta(array.shape, strides, d))  # type: ignore[no-any-return]


def frombuffer(buffer: Any, *, dtype: dtype, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A 1-d tensor over an object that exports the buffer protocol."""
    import numpy

    name = dtype.numpy_name or "uint16"
    array = numpy.frombuffer(buffer, numpy.dtype(name), count, offset)
    if not array.flags.writeable:
        return _finish(copy_of_array(array, dtype), requires_grad)  # type: ignore[no-any-return]
    return _finish(from_numpy(array), requires_grad)  # type: ignore[no-any-return]


def from_dlpack(x: Any) -> Tensor:
    """A tensor over the memory of any object with `__dlpack__`, or of a capsule that one gave."""
    import numpy

    array = numpy.from_dlpack(_Capsule(x) if type(x).__name__ == "PyCapsule" else x)
    if not array.flags.writeable:
        return _share_readonly(array)
    return from_numpy(array)


class _Capsule:
    """A DLPack capsule as an object that hands it out."""

    def __init__(self, capsule: Any) -> None:
        self.capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self.capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # the CPU


def _share_readonly(array: Any) -> Tensor:
    """NumPy marks imported DLPack memory read-only; PyTorch shares it all the same."""
    from flambeau.runtime.buffers import foreign
    from flambeau.tensor import from_storage
    from flambeau.trace.meta import meta
    from flambeau.trace.storage import Storage

    d = _dtype_of_array(array)
    strides = tuple([s // d.itemsize for s in array.strides])
    count = 0 if array.size == 0 else 1 + sum((n - 1) * s for n, s in zip(array.shape, strides, strict=True))
    storage = Storage(foreign(array.__array_interface__["data"][0], count * d.itemsize, array))
    storage.external = True
    return from_storage(storage, meta(array.shape, strides, d))  # type: ignore[no-any-return]


def legacy_constructor(d: dtype, *args: Any, **kwargs: Any) -> Tensor:
    """`Tensor(...)`, `FloatTensor(...)`: sizes give uninitialised memory, a sequence or array its values."""
    devices.check(kwargs.pop("device", None))
    if not args:
        return empty(0, dtype=d)
    if len(args) == 1 and not isinstance(args[0], int):
        data = args[0]
        if not hasattr(data, "_meta") and hasattr(data, "__index__") and getattr(data, "ndim", 0) == 0:
            return empty(int(data), dtype=d)
        if hasattr(data, "_meta"):
            return data.detach() if data.dtype is d else data.detach().to(d)  # type: ignore[no-any-return]
        if type(data).__name__ == "Size":
            return empty(*data, dtype=d)
        if not hasattr(data, "__getitem__") or isinstance(data, (str, Mapping)) or getattr(data, "shape", None) == ():
            raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
        return tensor(data, dtype=d)
    return empty(*args, dtype=d)


def _typed(name: str, d: dtype) -> Any:
    class Typed(type):
        def __instancecheck__(cls, instance: Any) -> builtins.bool:
            return hasattr(instance, "_meta") and instance._meta.dtype is d and instance.layout is strided

    def construct(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return legacy_constructor(d, *args, **kwargs)

    made = Typed(name, (), {"__new__": construct, "__doc__": f"Legacy constructor of {d.name} tensors.", "dtype": d})
    return made


FloatTensor = _typed("FloatTensor", dtypes.float32)
DoubleTensor = _typed("DoubleTensor", dtypes.float64)
HalfTensor = _typed("HalfTensor", dtypes.float16)
BFloat16Tensor = _typed("BFloat16Tensor", dtypes.bfloat16)
LongTensor = _typed("LongTensor", dtypes.int64)
IntTensor = _typed("IntTensor", dtypes.int32)
ShortTensor = _typed("ShortTensor", dtypes.int16)
CharTensor = _typed("CharTensor", dtypes.int8)
ByteTensor = _typed("ByteTensor", dtypes.uint8)
BoolTensor = _typed("BoolTensor", dtypes.bool_)


# -- methods ------------------------------------------------------------------------------------------------------


def new_tensor(self: Tensor, data: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of `data` and this tensor's dtype."""
    return tensor(data, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad)


@remembered
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: dtype | None = None, device: Any = None,
             requires_grad: bool = False, layout: Any = None, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """A new tensor of one value, with this tensor's dtype."""
    return self._lift(full(size, fill_value, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad))


def _new_constant(name: str, value: int) -> Any:
    def make(
        self: Tensor, *sizes: Any, size: Any = None, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False,
        layout: Any = None, pin_memory: bool | None = None,
    ) -> Any:  # fmt: skip
        shape = sizes_of(sizes if size is None else (size,))
        return self._lift(full(shape, value, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A new tensor of {name[4:]}, with this tensor's dtype."
    return remembered(make)


def new_empty(
    self: Tensor, *sizes: Any, size: Any = None, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False, **_: Any
) -> Tensor:
    """Uninitialised memory, with this tensor's dtype."""
    return self._lift(empty(*sizes, size=size, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad))


def new(self: Tensor, *args: Any) -> Tensor:
    """Legacy constructor with this tensor's dtype."""
    return legacy_constructor(self.dtype, *args)


@remembered_writes
def fill_(input: Tensor, value: Tensor | Any) -> Tensor:
    """Set every element to `value`, in place."""
    m = input._meta
    if hasattr(value, "_meta"):
        if value.ndim:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
        source = value
    else:
        if m.dtype.category < 2 and isinstance(value, float):
            value = int(value) if m.dtype.category == 1 else builtins.bool(value)
        repeated = [d for d, (size, stride) in enumerate(zip(m.shape, m.strides, strict=True)) if stride == 0 and size > 1]
        if repeated:  # expanded: every element once
            once: Any = input
            for d in repeated:
                once = once.narrow(d, 0, 1)
            fill_(once, value)
            return input
        source = _full(value, tuple(m.shape), m.dtype)
    return assign(input, source, "copy_", fresh=not hasattr(value, "_meta"))


@remembered_writes
def zero_(input: Tensor) -> Tensor:
    """Set every element to 0, in place."""
    return fill_(input, 0)


def copy_(self: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite the elements with those of `other`, broadcast and cast as needed."""
    if not hasattr(other, "_meta"):
        raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}")
    return assign(self, other, "copy_")


def install_methods(cls: Any) -> None:
    """Methods of Tensor that make or fill tensors."""
    for function in (new_tensor, new_full, new_empty, new, fill_, zero_, copy_):
        setattr(cls, function.__name__, function)
    cls.new_zeros, cls.new_ones = _new_constant("new_zeros", 0), _new_constant("new_ones", 1)
    for name, d in (
        ("float", dtypes.float32), ("double", dtypes.float64), ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16),
        ("int", dtypes.int32), ("long", dtypes.int64), ("short", dtypes.int16), ("char", dtypes.int8), ("byte", dtypes.uint8),
        ("bool", dtypes.bool_), ("cfloat", dtypes.complex64), ("cdouble", dtypes.complex128),
    ):  # fmt: skip
        setattr(cls, name, _converter(name, d))

    def type_(self: Tensor, dtype: Any = None, non_blocking: builtins.bool = False) -> Any:
        """The legacy type name, or a conversion to a dtype or legacy type."""
        if dtype is None:
            return "torch." + _LEGACY_NAMES[self.dtype]
        if isinstance(dtype, str):
            dtype = next(d for d, n in _LEGACY_NAMES.items() if dtype.endswith(n))
        return self.to(getattr(dtype, "dtype", dtype))  # type: ignore[attr-defined]

    cls.type = type_


_LEGACY_NAMES = {
    dtypes.float32: "FloatTensor", dtypes.float64: "DoubleTensor", dtypes.float16: "HalfTensor",
    dtypes.bfloat16: "BFloat16Tensor", dtypes.int64: "LongTensor", dtypes.int32: "IntTensor", dtypes.int16: "ShortTensor",
    dtypes.int8: "CharTensor", dtypes.uint8: "ByteTensor", dtypes.bool_: "BoolTensor",
    dtypes.complex64: "ComplexFloatTensor", dtypes.complex128: "ComplexDoubleTensor",
}  # fmt: skip


def _converter(name: str, d: dtype) -> Any:
    def convert_to(self: Tensor, memory_format: Any = preserve_format) -> Any:
        return self.to(d)  # type: ignore[attr-defined]

    convert_to.__name__ = convert_to.__qualname__ = name
    convert_to.__doc__ = f"The same values as {d.name}; the tensor itself if it has that dtype."
    return convert_to


