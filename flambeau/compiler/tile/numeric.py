"""Numbers of the interpreter: one operation on NumPy arrays, with the bits of the compiled code.

A block is an array in register form (emit/convert.py): narrow floats are float32 that the narrow dtype can hold, bool is bool, pointers are int64.
What NumPy computes exactly as the emitters do is NumPy's; the rest (our polynomials, integer division, casts from floats) is the emitters' code,
one operation at a time.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

import numpy

from flambeau.compiler.emit import convert, scalar
from flambeau.compiler.emit.builder import MEMORY_TYPE
from flambeau.compiler.emit.code import Code
from flambeau.compiler.tile.infer import COMPARISONS
from flambeau.compiler.tile.ir import Element, Pointer
from flambeau.dtypes import BY_NAME, bool_, dtype, float32
from flambeau.runtime.target import Target

Array = Any  # numpy.ndarray


def register_dtype(e: Element) -> dtype:
    """The dtype of an array that holds elements in register form."""
    if isinstance(e, Pointer):
        return BY_NAME["int64"]
    return float32 if e.name in convert.NARROW else e


def array_type(e: Element) -> Any:
    """The same, as NumPy's."""
    return numpy.dtype(register_dtype(e).numpy_name)


_NUMPY: Final[dict[str, Callable[..., Array]]] = {
    "add": numpy.add, "sub": numpy.subtract, "mul": numpy.multiply, "neg": numpy.negative, "eq": numpy.equal, "ne": numpy.not_equal,
    "lt": numpy.less, "le": numpy.less_equal, "gt": numpy.greater, "ge": numpy.greater_equal, "bitwise_and": numpy.bitwise_and,
    "bitwise_or": numpy.bitwise_or, "bitwise_xor": numpy.bitwise_xor, "where": numpy.where,
}  # fmt: skip


def apply(op: str, d: Element, arrays: list[Array], to: dtype | None) -> Array:
    """A pointwise primitive on arrays of one shape; `d`: the dtype of the last operand."""
    if isinstance(d, Pointer):
        d = BY_NAME["int64"]
    if op == "cast":
        assert to is not None
        if d is to:
            return arrays[0]
        if d.category == 1 and to.category == 1:
            return arrays[0].astype(array_type(to))
        return _compiled(op, d, to, arrays)
    exact = op in _NUMPY and (d is not bool_ or op in COMPARISONS or op == "where" or op.startswith("bitwise"))
    if exact:
        with numpy.errstate(all="ignore"):
            result = _NUMPY[op](*arrays)
        return result if op in COMPARISONS or op == "where" else rounded(result, d)
    return _compiled(op, d, bool_ if op in COMPARISONS or op == "isnan" else d, arrays)


def rounded(x: Array, d: dtype) -> Array:
    """float32 to what a narrow dtype can hold."""
    if d.name == "float16":
        with numpy.errstate(all="ignore"):
            return x.astype(numpy.float16).astype(numpy.float32)
    return _compiled("cast", float32, d, [x]) if d.name in convert.NARROW else x


def _compiled(op: str, d: dtype, to: dtype, arrays: list[Array]) -> Array:
    shape = arrays[0].shape
    given = [numpy.ascontiguousarray(a) for a in arrays]
    result = numpy.empty(shape, array_type(to))
    words = (ctypes.c_int64 * (len(given) + 1))(*[a.ctypes.data for a in given], result.ctypes.data)
    _function(op, d, to, len(given))(ctypes.addressof(words), 0, result.size, 0)
    return result


@cache
def _function(op: str, d: dtype, to: dtype, count: int) -> Callable[..., int]:
    from flambeau.runtime import jit

    key = f"tile:pointwise:{op}:{d.name}:{to.name}:{count}"
    signature = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    return signature(jit.function(key, partial(_emit, key, op, d, to, count)))


def _emit(key: str, op: str, d: dtype, to: dtype, count: int) -> str:
    """The kernel of one operation on arrays in register form."""
    from flambeau.runtime.jit import symbol

    names = [f"x{i}" for i in range(count)]
    c = Code([*names, "to"], Target.host())
    held, target = register_dtype(d), register_dtype(to)
    with c.for_(c.named("i64", "%begin"), c.named("i64", "%end")) as i:
        values = [convert.load(c.b, held, c.array(name, MEMORY_TYPE[held.name]).address(i), 1) for name in names]
        result = scalar.apply(c.b, op, d, values, 1, {"dtype": to})
        convert.store(c.b, target, result, c.array("to", MEMORY_TYPE[target.name]).address(i), 1)
    return c.kernel(symbol(key))


# -- memory -----------------------------------------------------------------------------------------------------------
def from_bytes(raw: Array, e: Element) -> Array:
    """(..., itemsize) bytes as an array in register form."""
    if isinstance(e, Pointer):
        return raw.view(numpy.int64)[..., 0]
    if e is bool_:
        return raw[..., 0] != 0
    if e.name == "bfloat16":
        return (raw.view(numpy.uint16)[..., 0].astype(numpy.uint32) << 16).view(numpy.float32)
    if e.name in convert.NARROW and e.name != "float16":
        from flambeau.small_floats import numbers

        return numpy.array(numbers(e.name), numpy.float32)[raw[..., 0]]
    return raw.view(e.numpy_name)[..., 0].astype(array_type(e))


def to_bytes(x: Array, e: Element) -> Array:
    """An array in register form as (..., itemsize) bytes."""
    if isinstance(e, Pointer) or e.name not in convert.NARROW:
        return numpy.ascontiguousarray(x).view(numpy.uint8).reshape(*x.shape, x.dtype.itemsize)
    if e.name == "float16":
        with numpy.errstate(all="ignore"):
            half = x.astype(numpy.float16)
        return half.view(numpy.uint8).reshape(*x.shape, 2)
    if e.name == "bfloat16":
        bits = (numpy.ascontiguousarray(rounded(x, e)).view(numpy.uint32) >> 16).astype(numpy.uint16)
        return bits.view(numpy.uint8).reshape(*x.shape, 2)
    return _encoded(x, e)


def _encoded(x: Array, d: dtype) -> Array:
    """Floats of one byte: the byte whose number is x (a NaN is the byte of a NaN)."""
    from flambeau.small_floats import numbers

    table = numpy.array(numbers(d.name), numpy.float32)
    byte_of = {t.tobytes(): i for i, t in reversed(list(enumerate(table)))}
    nan = next((i for i, t in enumerate(table) if numpy.isnan(t)), 0)
    flat = [nan if numpy.isnan(v) else byte_of[v.tobytes()] for v in numpy.ravel(rounded(x, d))]
    return numpy.array(flat, numpy.uint8).reshape(*x.shape, 1)


def bitcast(x: Array, source: Element, target: Element) -> Array:
    """The same bits in memory as another dtype."""
    return from_bytes(numpy.ascontiguousarray(to_bytes(x, source)), target)
