"""New tensors of data: numbers, nested sequences, arrays, and whatever has memory of its own (from_memory.py)."""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flambeau import devices, dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.dtypes import dtype
from flambeau.ops.from_memory import (
    check_array,
    dtype_of_array,
    finish,
    from_dlpack,
    frombuffer,
    is_array,
    over_array,
    over_storage,
    warn_of_constant_memory,
)
from flambeau.runtime.buffers import allocate
from flambeau.trace.existing import from_buffer
from flambeau.trace.limits import fit
from flambeau.trace.strides import like_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def copy_of_array(array: Any, d: dtype, keep: bool = True) -> Tensor:
    """A tensor with a copy of a NumPy array's values (of the matching NumPy dtype), its dims in the same order in memory, or row-major (`keep`)."""
    import numpy

    from flambeau.runtime.memory import view_as_numpy

    buffer = allocate(array.size * d.itemsize)
    steps = tuple([s // array.itemsize for s in array.strides])
    strides = contiguous_strides(array.shape) if not keep or min(steps, default=0) < 0 else like_strides(array.shape, steps)
    if array.size:
        raw = view_as_numpy(buffer.address, array.size * d.itemsize, buffer).view(numpy.dtype(d.numpy_name))
        numpy.lib.stride_tricks.as_strided(raw, array.shape, [s * d.itemsize for s in strides])[...] = array
    return from_buffer(buffer, array.shape, d, strides)  # type: ignore[no-any-return]


# -- nested sequences ---------------------------------------------------------------------------------------------


def _has_buffer(x: Any) -> bool:
    try:
        memoryview(x)
    except TypeError:
        return False
    return True


def _elements(x: Any) -> Any:
    """The elements of an object with the buffer protocol (array.array, bytearray, ctypes) as an array of Python's numbers: int64 or floats."""
    import numpy

    array = numpy.asarray(memoryview(x))
    if array.ndim > 1:
        raise ValueError(f"could not determine the shape of object type {type(x).__name__!r}: it has {array.ndim} dims; give numpy.asarray(it)")
    if array.dtype.kind in "iu":
        if array.dtype == numpy.uint64 and array.size and array.max() > numpy.iinfo(numpy.int64).max:
            raise ValueError("Overflow when unpacking long long: an element does not fit int64")
        return array.astype(numpy.int64, copy=False)
    if array.dtype.kind == "f":  # as Python's floats: of the default dtype
        return array.astype(dtypes.get_default_dtype().numpy_name or "float32", copy=False)
    return array


def _as_lists(x: Any) -> Any:
    """Ranges, deques and other sequences at any depth as lists, memory as arrays; tensors, arrays and numbers as they are."""
    if isinstance(x, (list, tuple)):
        return [_as_lists(y) for y in x]
    if hasattr(x, "_meta"):
        if x.numel() != 1:
            raise ValueError(f"only one element tensors can be converted to Python scalars: a list has a tensor of shape {tuple(x.shape)}; use torch.stack")
        return x.detach().reshape(())
    if isinstance(x, bytes):
        return [*x]
    if isinstance(x, str):
        raise TypeError(f"new(): invalid data type {type(x).__name__!r}: data must be numbers, arrays or sequences of them")
    if isinstance(x, (bool, int, float, complex, Mapping)) or hasattr(x, "dtype"):
        return x
    if _has_buffer(x):
        return _elements(x)
    if not (hasattr(x, "__getitem__") and hasattr(x, "__len__")):
        return x
    try:
        rows = [x[i] for i in range(len(x))]
    except Exception as error:  # whatever its class raises
        raise ValueError(f"could not determine the shape of object type '{type(x).__name__}': {type(error).__name__} of its elements: {error}") from error
    return [_as_lists(row) for row in rows]


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
        elif is_array(x) or type(x).__module__ == "numpy":  # an array among lists, or a number of NumPy's
            d = dtype_of_array(x)
        elif isinstance(x, (bool, int, float, complex)):
            d = dtypes.of_number(x)
        elif hasattr(x, "item") or hasattr(x, "__index__"):
            d = dtypes.of_number(x.item() if hasattr(x, "item") else x.__index__())
        else:
            raise RuntimeError(f"Could not infer dtype of {type(x).__name__}")
        best = d if best is None else dtypes.promote_types(best, d)

    look(data)
    return best or dtypes.get_default_dtype()


def _check_number(x: Any, d: dtype) -> None:
    """TypeError for what is no number, ValueError for an integer of more than 64 bits."""
    fits = True
    if isinstance(x, int):
        if 0 < d.category < 2 and not -(1 << 63) <= x < 1 << (64 if d is dtypes.uint64 else 63):
            raise ValueError(f"Overflow when unpacking long long: {x} does not fit 64 bits")
    elif isinstance(x, complex):
        fits = d.category in (0, 3)  # any number is a truth value
    elif not isinstance(x, float):
        fits = not isinstance(x, type) and (hasattr(x, "__index__") or hasattr(x, "item") or hasattr(x, "__float__"))
    if not fits:
        kind = type(x).__name__
        raise TypeError(f"{kind!r} object cannot be interpreted as an integer" if d.category < 2 else f"must be real number, not {kind}")


def _from_list(data: Any, d: dtype) -> Tensor:
    import numpy

    shape: list[int] = []

    def measure(x: Any, depth: int) -> Any:
        """The data with numbers for tensors; its shape goes into `shape`."""
        if hasattr(x, "_meta"):
            x = x.item()
        rows = isinstance(x, list)
        sizes = (len(x),) if rows else x.shape if is_array(x) else ()
        for at, size in enumerate(sizes, start=depth):
            if at == len(shape):
                shape.append(size)
            elif shape[at] != size:
                raise ValueError(f"expected sequence of length {shape[at]} at dim {at} (got {size})")
        if rows:
            return [measure(y, depth + 1) for y in x]
        if depth + len(sizes) < len(shape):
            raise TypeError(f"not a sequence: expected one at dim {depth}, got a {type(x).__name__}")
        if not sizes:
            _check_number(x, d)
        return x

    if d is dtypes.float4_e2m1fn_x2:
        raise RuntimeError("store_scalar: invalid type: an element of float4_e2m1fn_x2 is two numbers; make a tensor of uint8, and view(dtype) it")
    data = measure(data, 0)
    work = d if d.numpy_name is not None else dtypes.complex64 if d.is_complex else dtypes.float32
    assert work.numpy_name is not None
    try:
        with numpy.errstate(all="ignore"):  # what a narrow float does not hold is infinite
            array = numpy.array(data, dtype=numpy.dtype(work.numpy_name)).reshape(shape if isinstance(data, list) else ())
    except OverflowError as error:
        wide = numpy.array(data) if d is dtypes.uint8 else numpy.array(256)
        if wide.dtype.kind == "i" and wide.min() > -256 and wide.max() < 256:  # negative numbers wrap
            return copy_of_array(wide.astype(numpy.uint8), d)
        raise RuntimeError(f"value cannot be converted to type {d.name} without overflow") from error
    except (TypeError, ValueError) as error:
        if "NaN to integer" in str(error):
            raise RuntimeError(f"value cannot be converted to type {d.name} without overflow: it is NaN") from None
        if isinstance(error, ValueError) and "complex" not in str(error):
            raise ValueError(f"too many dimensions or ragged nested sequence in torch.tensor: {error}") from None
        raise TypeError(f"can't convert the data to {d}: {error}") from None
    t = copy_of_array(array, work, keep=False)  # NumPy's strides of an empty array are zeros
    return t if work is d else t.to(d)  # type: ignore[attr-defined, no-any-return]


_FORMATS = {
    dtypes.float32: "f", dtypes.float64: "d", dtypes.int64: "q", dtypes.int32: "i", dtypes.int16: "h", dtypes.int8: "b", dtypes.uint8: "B",
    dtypes.bool_: "?",
}  # fmt: skip
_MOST_PACKED = 1024  # numbers; more are NumPy's


def _packed(data: Any, d: dtype | None) -> Tensor | None:
    """A few numbers of one Python type, alone, in a list, or in lists of one length, as a dtype of their kind; None for what `_from_list` must look at."""
    cls = data.__class__
    shape: tuple[int, ...]
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


# -- data of any kind ---------------------------------------------------------------------------------------------


def from_any(data: Any, d: dtype | None, share: bool) -> Tensor:
    """A tensor of data that is none. `d`: its dtype (None: the data's). `share`: over the data's own memory, where it has some that fits."""
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type {type(data).__name__!r}; for its bytes use torch.frombuffer(data, dtype=torch.uint8)")
    if hasattr(data, "_storage") or hasattr(data, "_untyped"):
        return over_storage(data, d)
    made: Tensor | None = None
    array = data if is_array(data) else None
    if array is None and hasattr(data, "__dlpack__"):
        made = from_dlpack(data)
    elif array is None and not isinstance(data, (list, tuple, int, float, complex)) and (hasattr(data, "__array__") or hasattr(data, "__array_interface__")):
        import numpy

        array = numpy.asarray(data)
        share = share and hasattr(data, "__array_interface__")  # `__array__` may hand out what its owner goes on to use
        array = array if array.dtype.kind != "O" else None
    if array is not None:
        check_array(array)
        kind = dtype_of_array(array)
        aligned = not any(s % kind.itemsize for s in array.strides)
        if share and not array.flags.writeable:
            warn_of_constant_memory("NumPy array", "array")
        made = over_array(array) if share and aligned and d in (None, kind) else copy_of_array(array, kind)
        share = True  # it is a copy already
    if made is not None:
        if d is not None and d is not made.dtype:
            return made.to(d)  # type: ignore[attr-defined, no-any-return]
        return made if share else made.clone()  # type: ignore[attr-defined, no-any-return]
    numbers = isinstance(data, (bool, int, float, complex)) or hasattr(data, "__index__")
    if numbers or isinstance(data, (list, tuple)) or (not isinstance(data, Mapping) and hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        if d is None and isinstance(data, (list, tuple)) and any(isinstance(x, bytes) for x in data):
            raise TypeError("new(): invalid data type 'bytes'; for its bytes use torch.frombuffer(data, dtype=torch.uint8)")
        first = data
        while isinstance(first, (list, tuple)) and first:
            first = first[0]
        if first is not data and isinstance(first, str):
            raise ValueError("too many dimensions 'str': data must be numbers, arrays or sequences of them")
        items = _as_lists(data)
        if is_array(items):
            return from_any(items, d, share=False)
        return _from_list(items, d or _infer_dtype(items))
    if d is not None:
        _check_number(data, d)
    raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")


def tensor(data: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """A new leaf tensor with a copy of `data`: nested lists, numbers, a NumPy array or a tensor."""
    if device is not None and devices.is_meta(device):
        return finish(tensor(data, dtype=dtype).to(device), requires_grad)  # type: ignore[attr-defined, no-any-return]
    quick = _packed(data, dtype)
    if quick is not None:
        return quick.requires_grad_() if requires_grad else quick
    if dtype is not None and dtype.category == 1 and type(data).__module__ == "numpy" and not is_array(data) and data.dtype.kind == "f":
        data = fit(float(data), dtype, "tensor")  # NumPy's own conversion makes integers of NaN and infinities
    if hasattr(data, "_meta"):
        result = data.detach().clone() if dtype is None else data.detach().to(dtype, copy=True)
        if device is not None:
            result = result.to(device)
        result._detached = False
        return finish(result, requires_grad)  # type: ignore[no-any-return]
    return finish(from_any(data, dtype, share=False), requires_grad)  # type: ignore[no-any-return]


def as_tensor(data: Any, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Like `tensor`, but without a copy where the dtype already fits: tensors are returned; arrays, storages and what has `__dlpack__` are shared."""
    if hasattr(data, "_meta"):
        return data if dtype is None and device is None else data.to(dtype) if device is None else data.to(device, dtype)  # type: ignore[no-any-return]
    made = from_any(data, dtype, share=True)
    return made if device is None else made.to(device)  # type: ignore[attr-defined, no-any-return]


def asarray(obj: Any, *, dtype: dtype | None = None, device: Any = None, copy: bool | None = None, requires_grad: bool | None = None) -> Tensor:
    """A tensor of `obj`: a tensor, a NumPy array, a storage, something with `__dlpack__` or a buffer (all of them shared where `copy` is not
    True; the bytes of a buffer are elements of `dtype`), numbers or nested lists.

    `copy` False: ValueError where the memory cannot be shared. `requires_grad` None: as a tensor's own, else False.
    """
    if device is not None and devices.is_meta(device):
        made = asarray(obj, dtype=dtype, copy=copy).to(device)  # type: ignore[attr-defined]
        return made if requires_grad is None else made.requires_grad_(requires_grad)  # type: ignore[no-any-return]
    given = hasattr(obj, "_meta")
    if copy is False and type(obj).__module__ == "numpy" and not is_array(obj):
        raise RuntimeError("can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray.")
    if given:
        shared = obj
    elif (is_array(obj) and obj.ndim == 0) or (type(obj).__module__ == "numpy" and not is_array(obj)):
        shared = tensor(obj)  # NumPy's numbers are copied
    elif type(obj).__name__ == "PyCapsule":
        shared = from_dlpack(obj)
    elif hasattr(obj, "__dlpack__") or hasattr(obj, "__array_interface__") or hasattr(obj, "_storage") or hasattr(obj, "_untyped"):
        shared = from_any(obj, dtype if hasattr(obj, "untyped") else None, share=not copy)
        copy = copy and None  # it is one already
    elif _has_buffer(obj):
        shared = frombuffer(obj, dtype=dtype or dtypes.get_default_dtype())
    else:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        return tensor(obj, dtype=dtype, requires_grad=bool(requires_grad))
    if copy is False and dtype is not None and dtype is not shared.dtype:
        raise ValueError(f"can't alias tensor with dtype '{dtypes.C_NAMES[shared.dtype.name]}' into dtype '{dtypes.C_NAMES[dtype.name]}'.")
    result = shared if dtype is None else shared.to(dtype)
    if copy and result is shared:
        result = shared.clone()
    if requires_grad is None or result.requires_grad == requires_grad:
        return result  # type: ignore[no-any-return]
    return result.detach() if not requires_grad else result.requires_grad_() if not given else result.detach().requires_grad_()  # type: ignore[no-any-return]
