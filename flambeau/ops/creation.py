"""New tensors: from data, of a constant, ranges, and the legacy constructors."""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from flambeau import devices, dtypes
from flambeau.dtypes import dtype
from flambeau.foreign import refuse
from flambeau.layouts import strided
from flambeau.ops import primitives as prim
from flambeau.ops.dispatch import Dispatched
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.from_data import from_any, tensor
from flambeau.ops.from_memory import finish as _finish
from flambeau.ops.from_memory import is_array
from flambeau.ops.given_out import given_back, must_fit
from flambeau.ops.promotion import convert
from flambeau.ops.registry import Number, operation
from flambeau.ops.remembered import remembered, remembered_writes
from flambeau.ops.shape import sizes_of
from flambeau.ops.signatures import must_be, type_name, whole
from flambeau.ops.wrapper import from_numpy_scalar
from flambeau.queries import preserve_format
from flambeau.runtime.buffers import allocate
from flambeau.symbols import Sym, as_int
from flambeau.trace.existing import blank_tensor, from_buffer
from flambeau.trace.limits import fit
from flambeau.trace.mutation import assign, into
from flambeau.trace.recorder import Fragment, local
from flambeau.trace.strides import format_strides
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


@upward
def without_elements(shape: tuple[int, ...], layout: Any, dtype: Any, requires_grad: bool = False) -> Tensor:
    """A sparse tensor of zeros (sparse/construct.py)."""
    raise NotImplementedError


@upward
def fills_memory() -> bool:
    """Whether uninitialised memory is filled under deterministic algorithms (utils/deterministic.py)."""
    raise NotImplementedError


def _check_sizes(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    for s in shape:
        if s < 0:
            raise RuntimeError(f"{name}: Trying to create tensor with negative dimension {s}: {list(shape)}")
    return shape


def check_counts(shape: Sequence[int], itemsize: int = 1) -> None:
    """PyTorch counts in 64 bits, also where there are no elements: TypeError of a size beyond them, RuntimeError of strides and numbers of bytes."""
    most = (1 << 63) - 1
    if max(shape) > most:
        raise TypeError(f"argument 'size' must be a tuple of ints of 64 bits, but found {max(shape)} at position {list(shape).index(max(shape)) + 1}")
    if math.prod([max(s, 1) for s in shape[1:]]) > most:
        raise RuntimeError(f"Stride calculation overflowed: a tensor of shape {list(shape)} has strides beyond 64 bits")
    if math.prod(shape[: list(shape).index(0)] if 0 in shape else shape) * itemsize > most:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")


@operation(name="full_values")
def _full(value: Number, shape: tuple[int, ...], dtype: Any) -> Tensor:
    return prim.full_of(shape, convert(value, dtype))


@operation(name="full_like_values")
def _full_like(value: Number, shape: tuple[int, ...], dtype: Any, strides: tuple[int, ...]) -> Tensor:
    return prim.copy(prim.expand(convert(value, dtype), shape=shape), strides=strides)


def _bare(device: Any) -> bool:
    """Whether new tensors of this device have no elements. Inside another operation's body they are recorded, as those of the CPU are."""
    return devices.is_meta(device) and not isinstance(local.trace, Fragment)


def check_memory(shape: Sequence[int], d: dtype) -> None:
    """PyTorch's RuntimeError at the call, if so many bytes cannot be had."""
    count = math.prod(shape)
    if count * d.itemsize > 1 << 33:
        from flambeau.runtime.buffers import check_available

        check_available(count * d.itemsize)
    if not count:
        check_counts(shape)


@remembered
def full(
    size: Any, fill_value: Any, *, out: Any = None, dtype: dtype | None = None, layout: Any = strided, device: Any = None,
    requires_grad: bool = False, pin_memory: bool = False, names: Any = None,
) -> Tensor:  # fmt: skip
    """`fill_value` in every element; the dtype follows the value unless given."""
    shape, given = _check_sizes("full", (size,) if isinstance(size, int) else sizes_of((size,))), dtype
    if dtype is None:
        # A tensor counts as the number that is in it: of an int32 it is an int64.
        dtype = dtypes.of_number((False, 0, 0.0, 0j)[fill_value.dtype.category] if hasattr(fill_value, "_meta") else fill_value)
    if out is None and device is not None and _bare(device):
        return blank_tensor(shape, dtype, None, requires_grad)  # type: ignore[no-any-return]
    if out is not None:
        must_fit("full", out, given, layout, device)
        made = blank_tensor(shape, dtype) if _bare(out.device) else _filled(shape, fill_value, dtype, None, False)
        return given_back(into(out, made, "full"), requires_grad)  # type: ignore[no-any-return]
    return _filled(shape, fill_value, dtype, None, requires_grad)


def _filled(shape: tuple[int, ...], value: Any, d: dtype, strides: tuple[int, ...] | None, requires_grad: bool) -> Any:
    """A new tensor with a number in every element."""
    if hasattr(value, "_meta"):
        value = value.item()
    value = from_numpy_scalar(value)
    check_memory(shape, d)
    if isinstance(value, (int, float, complex)):
        value = fit(value, d, "full")
    return _finish(_full(value, shape, d) if strides is None else _full_like(value, shape, d, strides), requires_grad)


def _constant_maker(name: str, value: int, text: str) -> Any:
    def make(
        *sizes: Any, size: Any = None, out: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False, names: Any = None, memory_format: Any = None,
    ) -> Any:  # fmt: skip
        d = dtype or dtypes.get_default_dtype()
        shape = sizes_of(sizes if size is None else (size,))
        if out is None and layout is None and (device is None or device is devices.CPU) and min(shape, default=0) >= 0:  # the usual case
            check_memory(shape, d)
            if value and d is dtypes.float4_e2m1fn_x2:
                refuse_dtype("fill", d)
            return _finish(_full(value, shape, d), requires_grad)
        if out is not None:
            must_fit(name, out, dtype, layout, device)
        elif layout is not None and layout is not strided:
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
    shape = _check_sizes("empty", sizes_of(sizes if size is None else (size,)))
    d = dtype or dtypes.get_default_dtype()
    if out is not None:
        must_fit("empty", out, dtype, layout, device)
    elif layout is not None and layout is not strided:
        return without_elements(shape, layout, d, requires_grad)
    strides = None if memory_format is None else format_strides(shape, None, memory_format)
    if 0 in shape:
        check_counts(shape)
    if out is not None:
        return given_back(_uninitialised(out.resize_(shape)), requires_grad)  # type: ignore[no-any-return]  # of what it holds nothing is promised
    if device is not None and _bare(device):
        return blank_tensor(shape, d, strides, requires_grad)  # type: ignore[no-any-return]
    return _finish(_uninitialised(from_buffer(allocate(math.prod(shape) * d.itemsize), shape, d, strides)), requires_grad)  # type: ignore[no-any-return]


fills = [False]  # whether use_deterministic_algorithms was asked for


def _uninitialised(t: Tensor) -> Tensor:
    """New memory that nobody has written to. Under deterministic algorithms it holds what is seen when it is read, as in PyTorch."""
    if not fills[0]:
        return t
    d = t.dtype
    integer = d.category == 1 and d.numpy_name is not None
    if not fills_memory() or (d.itemsize < 2 and not (integer or d is dtypes.bool_)) or not t.numel():
        return t
    whole = t.as_strided((t.untyped_storage().nbytes() // d.itemsize,), (1,))  # type: ignore[attr-defined]
    if d is dtypes.uint64:
        whole.view(dtypes.int64).fill_(-1)
    else:
        whole.fill_(2 ** (8 * d.itemsize - d.is_signed) - 1 if integer else True if d is dtypes.bool_ else math.nan)
    return t


def empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype: dtype | None = None, device: Any = None,
                  layout: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """Uninitialised memory with the given strides."""
    d = dtype or dtypes.get_default_dtype()
    size = _check_sizes("empty_strided", sizes_of((size,)))
    if min(stride, default=0) < 0:
        raise RuntimeError(f"empty_strided(): strides must be non-negative, got {tuple(stride)}")
    if device is not None and _bare(device):
        return blank_tensor(tuple(size), d, tuple(stride), requires_grad)  # type: ignore[no-any-return]
    last = sum((n - 1) * s for n, s in zip(size, stride, strict=True)) + 1 if 0 not in tuple(size) else 0
    t = _uninitialised(from_buffer(allocate(last * d.itemsize), tuple(size), d, tuple(stride)))
    return _finish(t, requires_grad)  # type: ignore[no-any-return]


def _like_dtype(input: Tensor, d: dtype | None) -> dtype:
    return d or input.dtype


def sparse_like(input: Tensor, name: str, layout: Any, d: dtype, requires_grad: bool) -> Any:
    """zeros_like and empty_like where the result is sparse: without elements."""
    if name == "ones_like":
        raise NotImplementedError("ones_like: a sparse tensor of ones would have every element; give layout=torch.strided")
    return without_elements(tuple(input.shape), layout or input.layout, d, requires_grad)


def _like(name: str, value: int, text: str) -> Any:
    def make(
        input: Tensor, *, dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
        memory_format: Any = None, pin_memory: bool | None = None,
    ) -> Any:  # fmt: skip
        m = input._meta
        d = dtype or m.dtype
        if layout is not strided and (layout or input.layout) is not strided:
            return sparse_like(input, name, layout, d, requires_grad)
        if _bare(device if device is not None else m.device):
            return input._lift(blank_tensor(tuple(m.shape), d, format_strides(tuple(m.shape), m.strides, memory_format), requires_grad))
        return _finish(input._lift(_full_like(value, tuple(m.shape), d, format_strides(tuple(m.shape), m.strides, memory_format))), requires_grad)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = text
    return remembered(make)


zeros_like = _like("zeros_like", 0, "Zeros with the shape and dtype of `input`.")
ones_like = _like("ones_like", 1, "Ones with the shape and dtype of `input`.")


@operation(name="unit_gradient", public=False)
def unit_gradient(input: Tensor) -> Tensor:
    """Ones like `input`, as static numbers that the compiler can see: where a backward pass starts."""
    return prim.full_of(tuple(input._meta.shape), prim.constant(1, input.dtype))


@remembered
def full_like(input: Tensor, fill_value: Any, *, dtype: dtype | None = None, layout: Any = None, device: Any = None,
              requires_grad: bool = False, memory_format: Any = None, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """`fill_value` with the shape, dtype and order of dims of `input`."""
    m = input._meta
    if _bare(device if device is not None else m.device):
        return input._lift(blank_tensor(tuple(m.shape), dtype or m.dtype, format_strides(tuple(m.shape), m.strides, memory_format), requires_grad))
    return input._lift(_filled(tuple(m.shape), fill_value, dtype or m.dtype, format_strides(tuple(m.shape), m.strides, memory_format), requires_grad))


def empty_like(input: Tensor, *, dtype: dtype | None = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
               memory_format: Any = None, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """Uninitialised memory with the shape, dtype and order of dims of `input`."""
    m = input._meta
    if layout is not strided and (layout or input.layout) is not strided:
        return sparse_like(input, "empty_like", layout, dtype or m.dtype, requires_grad)
    strides = format_strides(tuple(m.shape), m.strides, memory_format)
    return input._lift(empty_strided(m.shape, strides, dtype=dtype or m.dtype, device=m.device if device is None else device, requires_grad=requires_grad))


@operation(name="arange_values")
def _arange(start: Number, step: Number, length: int, dtype: Any) -> Tensor:
    index = prim.iota(shape=(length,), dim=0)
    work = dtypes.float64 if dtype.is_floating_point else dtypes.int64
    x = prim.add(convert(start, work), prim.mul(convert(index, work), convert(step, work)))
    return convert(x, dtype)


def check_range(name: str, start: Any, end: Any, step: Any) -> tuple[Any, Any, Any]:
    """The ends and the step of a range, as Python's numbers; RuntimeError if they are no range."""
    start, end, step = [v.item() if hasattr(v, "item") else v for v in (start, end, step)]
    for v in (start, end, step):
        if isinstance(v, complex):
            raise RuntimeError(f"{name}(): value cannot be converted to type double without overflow: {v} is complex")
    if step == 0:
        raise RuntimeError(f"{name}(): step must be nonzero")
    if not (all(v.__class__ is Sym or math.isfinite(v) for v in (start, end)) and step == step):  # an infinite step reaches nothing beyond the start
        raise RuntimeError(f"{name}(): unsupported range: {start} -> {end}")
    if (step > 0 and start > end) or (step < 0 and start < end):
        raise RuntimeError(f"{name}(): upper bound and lower bound inconsistent with step sign: start {start}, end {end}, step {step}")
    return start, end, step


@remembered
def arange(*args: Any, out: Any = None, dtype: dtype | None = None, layout: Any = None, device: Any = None,
           requires_grad: bool = False, pin_memory: bool = False, start: Any = 0, end: Any = None, step: Any = 1) -> Tensor:  # fmt: skip
    """arange(end), arange(start, end), arange(start, end, step): numbers from start up to end, without it."""
    values = [a.item() if hasattr(a, "item") else a for a in args]
    if len(values) == 1:
        start, end = (start, values[0]) if end is None else (values[0], end)
    elif len(values) == 2:
        start, end = values
    elif len(values) == 3:
        start, end, step = values
    if end is None or len(values) > 3:
        raise TypeError("arange(): expected (end), (start, end) or (start, end, step)")
    start, end, step = check_range("arange", start, end, step)
    if out is not None:
        must_fit("arange", out, dtype, layout, device)
    if dtype is None:
        floating = any(isinstance(v, float) for v in (start, end, step))
        dtype = (dtypes.get_default_dtype() if floating else dtypes.int64) if out is None else out.dtype
    refuse_dtype("arange", dtype)
    for v in (start, end, step):
        fit(v, dtypes.float32 if dtype.is_floating_point and dtype.itemsize == 2 else dtypes.int64 if dtype.category == 1 else dtypes.float64, "arange")
    if dtype is dtypes.int64:  # as if the numbers were whole from the start; other dtypes count with the given ones
        if not as_int(step):
            raise ValueError(f"arange(): step must be nonzero: {step} is 0 as an int64")
        start, end, step = as_int(start), as_int(end), as_int(step)
    integral = all(isinstance(v, int) for v in (start, end, step))
    length = -(-(end - start) // step) if integral else math.ceil((end - start) / step)
    if out is None and device is not None and _bare(device):
        return blank_tensor((length,), dtype, None, requires_grad)  # type: ignore[no-any-return]
    check_memory((length,), dtype)
    if dtype.category == 1 and not integral:
        start, step = int(start), int(step)
    result = blank_tensor((length,), dtype) if out is not None and _bare(out.device) else _arange(start, step, length, dtype)
    if out is not None:
        return given_back(into(out, result, "arange"), requires_grad)  # type: ignore[no-any-return]
    return _finish(result, requires_grad)  # type: ignore[no-any-return]


@operation(name="linspace_values")
def _linspace(start: Number, end: Number, steps: int, dtype: Any, base: float | None) -> Tensor:
    """Counted from the nearer end, as PyTorch does, so that both ends are exact; of float32, product and sum are rounded once, as there."""
    work = dtype if dtype.is_floating_point and dtype.itemsize >= 4 else dtypes.float64 if dtype is dtypes.float64 else dtypes.float32
    if dtype.category == 1 or dtype is dtypes.complex128:
        work = dtypes.float64
    index = prim.iota(shape=(steps,), dim=0)
    a, b = convert(convert(start, dtypes.float64), work), convert(convert(end, dtypes.float64), work)
    step = prim.div(prim.sub(b, a), prim.constant(steps - 1, work)) if steps > 1 else prim.constant(-0.0, work)
    if work is dtypes.float32:
        a, b, step = (convert(v, dtypes.float64) for v in (a, b, step))
    forward = prim.add(a, prim.mul(step, convert(index, dtypes.float64)))
    rest = prim.sub(prim.constant(steps - 1, dtypes.int64), index)
    backward = prim.sub(b, prim.mul(step, convert(rest, dtypes.float64)))
    x = prim.where(prim.lt(index, prim.constant(max(steps // 2, 1), dtypes.int64)), forward, backward)
    if base is not None:
        return convert(prim.pow(prim.constant(base, dtypes.float64), convert(x, dtypes.float64)), dtype)
    return convert(convert(x, work), dtype)


def _spaced(start: Any, end: Any, steps: int, kind: dtype, base: float | None) -> Any:
    """The numbers of linspace, and of logspace if there is a base."""
    from flambeau.ops import elementwise

    if not (isinstance(start, complex) or isinstance(end, complex)):
        return _linspace(*_bounds(start, end, kind), steps, kind, base)
    start, end, real = complex(start), complex(end), kind.to_real()
    parts = [_linspace(a, b, steps, real, None) for a, b in ((start.real, end.real), (start.imag, end.imag))]
    line = elementwise.complex(*parts)
    return line if base is None else complex(base) ** line


@remembered
def linspace(start: Any, end: Any, steps: int, *, out: Any = None, dtype: dtype | None = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """`steps` numbers from start to end, both included."""
    _check_steps("linspace", steps)
    start, end = _ends("linspace", start, end)
    if out is not None:
        must_fit("linspace", out, dtype, layout, device)
    kind = _spaced_dtype("linspace", start, end, out, dtype)
    if steps > 1:
        refuse_dtype("linspace", kind)
    start, end = fit(start, kind, "linspace"), fit(end, kind, "linspace")
    bare = _bare(device if out is None else out.device)
    values = blank_tensor((int(steps),), kind) if bare else _spaced(start, end, int(steps), kind, None)
    return _finish(into(out, values, "linspace"), requires_grad)  # type: ignore[no-any-return]


def _spaced_dtype(name: str, start: Any, end: Any, out: Any, given: dtype | None) -> dtype:
    """The dtype of linspace and logspace: of complex numbers the default one is complex; RuntimeError for another."""
    inexact = isinstance(start, complex) or isinstance(end, complex)
    kind = given or (out.dtype if out is not None else dtypes.get_default_dtype())
    if not inexact or kind.is_complex:
        return kind  # type: ignore[no-any-return]
    if given is None and out is None:
        return kind.to_complex()  # type: ignore[no-any-return]
    raise RuntimeError(f"{name}(): inferred dtype complex can't be safely cast to {kind.name}: got start {start}, end {end}")


def _ends(name: str, start: Any, end: Any) -> list[Any]:
    """The first and the last number as Python's; PyTorch's RuntimeError of a tensor that is not 0-d."""
    for what, v in (("start", start), ("end", end)):
        if hasattr(v, "_meta") and v.ndim:
            raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors, but got {what} with {v.ndim} dimension(s)")
    return [v.item() if hasattr(v, "item") else v for v in (start, end)]


def _check_steps(name: str, steps: Any) -> None:
    if whole(name, "steps", steps) < 0:
        raise RuntimeError(f"{name}(): number of steps must be non-negative, got {steps}")


def _bounds(start: Any, end: Any, kind: dtype) -> tuple[float, float]:
    """As floats, whole ones for a whole dtype."""
    return (float(int(start)), float(int(end))) if kind.category == 1 else (float(start), float(end))


@remembered
def logspace(start: Any, end: Any, steps: int, base: float = 10.0, *, out: Any = None, dtype: dtype | None = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """base to the power of `steps` numbers from start to end."""
    _check_steps("logspace", steps)
    start, end = _ends("logspace", start, end)
    if out is not None:
        must_fit("logspace", out, dtype, layout, device)
    kind = _spaced_dtype("logspace", start, end, out, dtype)
    if steps > 1:
        refuse_dtype("logspace", kind)
    start, end = fit(start, kind, "logspace"), fit(end, kind, "logspace")
    bare = _bare(device if out is None else out.device)
    values = blank_tensor((int(steps),), kind) if bare else _spaced(start, end, int(steps), kind, float(base))
    return _finish(into(out, values, "logspace"), requires_grad)  # type: ignore[no-any-return]


@operation(name="eye_values")
def _eye(n: int, m: int, dtype: Any) -> Tensor:
    return convert(prim.eq(prim.iota(shape=(n, 1), dim=0), prim.iota(shape=(m,), dim=0)), dtype)


@remembered
def eye(n: int, m: int | None = None, *, out: Any = None, dtype: dtype | None = None, layout: Any = strided, device: Any = None,
        requires_grad: bool = False, pin_memory: bool = False) -> Tensor:  # fmt: skip
    """The identity matrix, n by m."""
    n, m = whole("eye", "n", n), m if m is None else whole("eye", "m", m)
    if n < 0 or (m is not None and m < 0):
        raise RuntimeError(f"eye(): n must be greater or equal to 0, got {n if n < 0 else m}")
    if out is not None:
        must_fit("eye", out, dtype, layout, device)
    kind = dtype or (dtypes.get_default_dtype() if out is None else out.dtype)
    wide = n if m is None else m
    values = blank_tensor((n, wide), kind) if _bare(device if out is None else out.device) else _eye(n, wide, kind)
    return _finish(into(out, values, "eye"), requires_grad)  # type: ignore[no-any-return]


def _indices(row: int, col: int, offset: int, lower: bool) -> list[list[int]]:
    """Row and column of every element of a triangle, as two lists; RuntimeError for sizes whose result no memory holds."""
    name = "tril_indices" if lower else "triu_indices"
    row, col, offset = whole(name, "row", row), whole(name, "col", col), whole(name, "offset", offset)
    if row < 0 or col < 0:
        raise RuntimeError(f"{name}: row and col must be non-negative, got {row} and {col}")
    rows = range(min(max(-offset, 0), row), row) if lower else range(min(row, max(col - offset, 0)))
    most = min(col, max(row + offset, 0)) if lower else min(col, max(col - offset, 0))
    if not most:
        return [[], []]
    if len(rows) * most > 1 << 36:
        raise RuntimeError(f"{name}: the indices of {row} rows and {col} columns need more than {1 << 40} bytes of memory")
    columns = [range(min(col, i + offset + 1)) if lower else range(max(0, i + offset), col) for i in rows]
    return [[i for i, js in zip(rows, columns, strict=True) for _ in js], [j for js in columns for j in js]]


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: dtype = dtypes.int64, device: Any = "cpu", layout: Any = strided, pin_memory: bool = False
) -> Tensor:
    """Indices of the lower triangle, 2 by n, row by row."""
    return tensor(_indices(row, col, offset, True), dtype=dtypes.int64 if dtype is None else dtype, device=device).reshape(2, -1)  # type: ignore[attr-defined, no-any-return]


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: dtype = dtypes.int64, device: Any = "cpu", layout: Any = strided, pin_memory: bool = False
) -> Tensor:
    """Indices of the upper triangle, 2 by n, row by row."""
    return tensor(_indices(row, col, offset, False), dtype=dtypes.int64 if dtype is None else dtype, device=device).reshape(2, -1)  # type: ignore[attr-defined, no-any-return]


# -- older constructors -------------------------------------------------------------------------------------------


def legacy_constructor(d: dtype, *args: Any, any_dtype: builtins.bool = False, **kwargs: Any) -> Tensor:
    """`Tensor(...)`, `FloatTensor(...)`: sizes give uninitialised memory, a sequence or array its values, a tensor its alias (`Tensor`: of `any_dtype`)."""
    where = kwargs.pop("device", None)
    if where is not None and len(args) == 1 and hasattr(args[0], "_meta"):
        raise RuntimeError(
            "Legacy tensor constructor of the form torch.Tensor(tensor, device=device) is not supported.  "
            "Use torch.tensor(...) or torch.as_tensor(...) instead."
        )
    if devices.is_meta(where):
        return legacy_constructor(d, *args, **kwargs).to(where)  # type: ignore[attr-defined, no-any-return]
    if not args:
        return empty(0, dtype=d)
    if len(args) == 1 and not isinstance(args[0], int):
        data = args[0]
        if hasattr(data, "_meta"):
            if data.dtype is not d and not any_dtype:
                raise TypeError(f"new(): expected a tensor of dtype {d}, got one of {data.dtype}; use its .to({d})")
            return _plain_alias(data)
        if hasattr(data, "__index__") and not is_array(data):
            return empty(int(data), dtype=d)
        if type(data).__name__ == "Size":
            return empty(*data, dtype=d)
        sequence = is_array(data) or hasattr(data, "__dlpack__") or (hasattr(data, "__getitem__") and type(data).__module__ != "numpy")
        if not sequence or isinstance(data, (str, Mapping)):
            raise TypeError(f"new(): data must be a sequence (got {type(data).__name__})")
        return from_any(data, d, share=True)
    return empty(*args, dtype=d)


def _plain_alias(t: Any) -> Tensor:
    """A tensor's memory and history under another name, of class Tensor."""
    from flambeau.ops.dispatch import DisableTorchFunctionSubclass
    from flambeau.ops.indexing import _alias
    from flambeau.tensor import Tensor

    with DisableTorchFunctionSubclass():
        made: Tensor = _alias(t)
    return made if type(made) is Tensor else made.as_subclass(Tensor)  # type: ignore[no-any-return]


def _typed(name: str, d: dtype) -> Any:
    class Typed(type):
        def __instancecheck__(cls, instance: Any) -> builtins.bool:
            return hasattr(instance, "_meta") and instance._meta.dtype is d and instance.layout is strided

    def construct(cls: Any, *args: Any, **kwargs: Any) -> Any:
        return legacy_constructor(d, *args, **kwargs)

    def inherit(cls: type[Any], /, **kwargs: Any) -> NoReturn:
        raise TypeError(f"type 'torch.{name}' is not an acceptable base type: it only makes tensors; inherit from torch.Tensor")

    made = Typed(name, (), {"__new__": construct, "__init_subclass__": classmethod(inherit), "__doc__": f"Legacy constructor of {d.name} tensors.", "dtype": d})
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


def _where(t: Tensor, device: Any) -> Any:
    """The device of a new tensor like `t`: the one given, or that of `t`; None: the CPU."""
    return t._meta.device if device is None and t._meta.device is not devices.CPU else device


# -- methods ------------------------------------------------------------------------------------------------------


def new_tensor(self: Tensor, data: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A new tensor with a copy of `data` and this tensor's dtype."""
    return tensor(data, dtype=dtype or self.dtype, device=_where(self, device), requires_grad=requires_grad)


@remembered
def new_full(self: Tensor, size: Any, fill_value: Any, *, dtype: dtype | None = None, device: Any = None,
             requires_grad: bool = False, layout: Any = None, pin_memory: bool | None = None) -> Tensor:  # fmt: skip
    """A new tensor of one value, with this tensor's dtype."""
    return self._lift(full(size, fill_value, dtype=dtype or self.dtype, device=_where(self, device), requires_grad=requires_grad))


def _new_constant(name: str, value: int) -> Any:
    def make(
        self: Tensor, *sizes: Any, size: Any = None, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False,
        layout: Any = None, pin_memory: bool | None = None,
    ) -> Any:  # fmt: skip
        shape = sizes_of(sizes if size is None else (size,))
        return self._lift(full(shape, value, dtype=dtype or self.dtype, device=_where(self, device), requires_grad=requires_grad))

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"A new tensor of {name[4:]}, with this tensor's dtype."
    return remembered(make)


def new_empty(self: Tensor, *sizes: Any, size: Any = None, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Tensor:
    """Uninitialised memory, with this tensor's dtype."""
    return self._lift(empty(*sizes, size=size, dtype=dtype or self.dtype, device=_where(self, device), requires_grad=requires_grad))


def new(self: Tensor, *args: Any, size: Any = None) -> Tensor:
    """Legacy constructor with this tensor's dtype."""
    if size is not None:
        return empty(size, dtype=self.dtype, device=_where(self, None))
    return legacy_constructor(self.dtype, *args, device=_where(self, None))


@remembered_writes
def fill_(input: Tensor, value: Tensor | Any) -> Tensor:
    """Set every element to `value`, in place."""
    m = input._meta
    if hasattr(value, "_meta"):
        if value.ndim:
            raise RuntimeError(f"fill_ only supports 0-dimension value tensor but got tensor with {value.ndim} dimensions.")
        source = value
    else:
        if isinstance(value, (int, float, complex)):
            value = fit(value, m.dtype, "fill_", single=m.numel == 1)
        repeated = [d for d, (size, stride) in enumerate(zip(m.shape, m.strides, strict=True)) if stride == 0 and size > 1]
        if repeated and not m.bits:  # expanded: every element once. Of conjugate and negative views PyTorch refuses it
            once: Any = input
            for d in repeated:
                once = once.narrow(d, 0, 1)
            fill_(once, value)
            return input
        source = _full(value, tuple(m.shape), m.dtype)
    return assign(input, source, "fill_", fresh=not hasattr(value, "_meta"))


@remembered_writes
def zero_(input: Tensor) -> Tensor:
    """Set every element to 0, in place."""
    return fill_(input, 0)


def copy_(self: Tensor, other: Any, non_blocking: bool = False) -> Tensor:
    """Overwrite the elements with those of `other` (a tensor or a number), broadcast and cast as needed."""
    if isinstance(self, Dispatched) or isinstance(other, Dispatched):  # called again by its own `__torch_function__`: what is below is asked
        from flambeau.ops.below import redispatch

        return redispatch(copy_, (self, other), {"non_blocking": non_blocking} if non_blocking else {})  # type: ignore[no-any-return]
    if not hasattr(other, "_meta"):
        refuse((other,), "copy_()")
        number = other if is_array(other) else from_numpy_scalar(other)
        if not isinstance(number, (int, float, complex)):
            raise TypeError(f"copy_(): argument 'other' (position 1) must be Tensor, not {type(other).__name__}")
        kind = dtypes.complex128 if isinstance(number, complex) else dtypes.int64 if isinstance(number, int) else dtypes.float64
        other = tensor(fit(number, kind, "copy_"), dtype=kind)
    return assign(self, other, "copy_")


def install_methods(cls: Any) -> None:
    """Methods of Tensor that make or fill tensors."""
    for function in (new_tensor, new_full, new_empty, new, fill_, zero_, copy_):
        setattr(cls, function.__name__, function)
    cls.new_zeros, cls.new_ones = _new_constant("new_zeros", 0), _new_constant("new_ones", 1)
    for name, d in (
        ("float", dtypes.float32), ("double", dtypes.float64), ("half", dtypes.float16), ("bfloat16", dtypes.bfloat16),
        ("int", dtypes.int32), ("long", dtypes.int64), ("short", dtypes.int16), ("char", dtypes.int8), ("byte", dtypes.uint8), ("chalf", dtypes.complex32),
        ("bool", dtypes.bool_), ("cfloat", dtypes.complex64), ("cdouble", dtypes.complex128),
    ):  # fmt: skip
        setattr(cls, name, _converter(name, d))

    def type_(self: Tensor, dtype: Any = None, non_blocking: builtins.bool = False) -> Any:
        """The legacy type name, or a conversion to a dtype or legacy type."""
        must_be("type", "non_blocking bool", non_blocking)
        if dtype is None:
            return ("torch." if self._meta.device is devices.CPU else f"torch.{self.device.type}.") + _LEGACY_NAMES[self.dtype]
        if isinstance(dtype, str):
            named = [d for d, n in _LEGACY_NAMES.items() if dtype.endswith(n)]
            if not named:
                raise ValueError(f"type(): invalid type: {dtype!r}")
            dtype = named[0]
        elif dtype is cls:
            dtype = dtypes.get_default_dtype()
        elif isinstance(dtype, builtins.type) and not hasattr(dtype, "dtype"):
            raise ValueError(f"type(): invalid type: {dtype.__name__!r}")
        elif not isinstance(dtype, (builtins.type, dtypes.dtype)):
            raise TypeError(f"type(): dtype must be a type, str, or dtype object, not {type_name(dtype)}")
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
        if memory_format is not preserve_format:
            must_be(name, "memory_format MemoryFormat", memory_format)
        return self.to(d, memory_format=memory_format)  # type: ignore[attr-defined]

    convert_to.__name__ = convert_to.__qualname__ = name
    convert_to.__doc__ = f"The same values as {d.name}; the tensor itself if it has that dtype."
    return convert_to
