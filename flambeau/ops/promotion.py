"""Type promotion: tensors, zero-dim tensors and Python numbers as three categories (PyTorch's result_type).

A higher category of dtype (bool < integer < floating < complex) wins whatever the rank; within one category dimensioned
tensors win over zero-dim tensors, and those over Python numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import inf
from typing import Any

from flambeau import dtypes
from flambeau.dtypes import dtype, promote_types
from flambeau.trace.recorder import local


def _number_dtype(d: dtype) -> dtype:
    """A Python number's dtype in promotion: floats count as the default dtype, but among themselves inside a body they keep their precision."""
    if d.category < 2:
        return d
    real = dtypes.float64 if _among_numbers() else dtypes.get_default_dtype()
    return real.to_complex() if d.is_complex else real


def _among_numbers() -> bool:
    return getattr(local.trace, "numbers", False)


def result_type(*operands: Any) -> dtype:
    """The common dtype of tensors and Python numbers."""
    dims: dtype | None = None
    zero: dtype | None = None
    wrapped: dtype | None = None
    for x in operands:
        if isinstance(x, (int, float, complex)):
            d = _number_dtype(dtypes.of_number(x))
            wrapped = d if wrapped is None else promote_types(wrapped, d)
            continue
        m = x._meta
        if m.wrapped:
            d = _number_dtype(m.dtype)
            wrapped = d if wrapped is None else promote_types(wrapped, d)
        elif m.ndim == 0:
            zero = m.dtype if zero is None else promote_types(zero, m.dtype)
        else:
            dims = m.dtype if dims is None else promote_types(dims, m.dtype)
    result = dims
    for lower in (zero, wrapped):
        if lower is None:
            continue
        if result is None:
            result = lower
        elif lower.category > result.category:
            if lower.is_complex and result.is_floating_point:
                result = result.to_complex()
            else:
                result = lower
    assert result is not None
    return result


def is_number(x: Any) -> bool:
    """Whether an operand in an operation's body was a Python number."""
    return isinstance(x, (int, float, complex)) or x._meta.wrapped


def need_tensor(name: str, *operands: Any) -> None:
    """TypeError if all of the operands are Python numbers, and a program gave them (not another operation's body)."""
    if not getattr(local.trace, "nested", True) and all(is_number(x) for x in operands):
        raise TypeError(
            f"{name}() received an invalid combination of arguments: argument 'input' (position 1) must be Tensor, not a number"
            + (", or 'other' (position 2) must be one" if len(operands) > 1 else "")
        )


def need_order(name: str, x: Any, error: type[RuntimeError] = NotImplementedError) -> None:
    """The error of PyTorch's function `name` if x is complex: such numbers have no order."""
    if x._meta.dtype.is_complex:
        raise error(f"{name}() is not implemented for {x._meta.dtype.name}: complex numbers have no order; use it on .real, .imag or .abs()")


def convert(x: Any, d: dtype) -> Any:
    """A tensor (or number) as a tensor of dtype `d`, inside an operation's body."""
    from flambeau.ops import primitives as prim

    if isinstance(x, (int, float, complex)):
        return prim.constant(x, d)
    return x if x._meta.dtype is d else prim.cast(x, dtype=d)


# What PyTorch calls the C++ types of dtypes, in its errors.
_C_TYPES = {
    "uint8": "uint8_t", "int8": "int8_t", "int16": "int16_t", "int32": "int", "int64": "int64_t", "float16": "c10::Half", "bfloat16": "c10::BFloat16",
    "float32": "float", "float64": "double", "complex64": "c10::complex<float>", "complex128": "c10::complex<double>",
}  # fmt: skip
_MOST_FLOAT = {"float16": 65504.0, "bfloat16": 2.0**127 * (2 - 2.0**-7), "float32": 2.0**127 * (2 - 2.0**-23), "complex64": 2.0**127 * (2 - 2.0**-23)}


def fit(x: Any, d: dtype, name: str, single: bool = False) -> Any:
    """A Python number as an element of dtype `d` is given it. RuntimeError in PyTorch's words if it overflows there (NaN and infinities in integers,
    too), OverflowError if it is an int of more than 64 bits. Unsigned integers take negative ints of their size, which wrap. `single`: of one
    element, which PyTorch fills in another way: floats of 16 bits overflow to infinities there."""
    if isinstance(x, int) and not -(2**63) <= x < 2**64:
        what = "int too big to convert" if x > 0 else "can't convert negative int to unsigned"
        raise OverflowError(f"{name}(): {what}: {x} has more than 64 bits")
    if d.category == 0:
        return bool(x)
    parts = [x.real, x.imag] if isinstance(x, complex) else [x]
    if d.category == 1:
        bits = 8 * d.itemsize
        least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if d.is_signed else ((1 - 2**bits) * isinstance(x, int), 2**bits - 1)
        fits = len(parts) == 1 or not x.imag
        fits = fits and least <= parts[0] <= most  # false for NaN
        made: Any = int(parts[0]) if fits else 0
    else:
        limit = inf if single and d.itemsize == 2 else _MOST_FLOAT.get(d.name, inf)
        fits = all(abs(float(part)) <= limit or part != part or abs(part) == inf for part in parts) and (d.is_complex or len(parts) == 1 or not x.imag)
        made = x if d.is_complex or len(parts) == 1 else x.real
        made = float(made) if isinstance(made, int) and made >= 2**63 else made
    if not fits:
        raise RuntimeError(f"{name}(): value cannot be converted to type {_C_TYPES.get(d.name, d.name)} without overflow: got {x} for dtype {d.name}")
    return made


def promote(*operands: Any) -> list[Any]:
    """The operands, all of their common dtype."""
    d = result_type(*operands)
    return [convert(x, d) for x in operands]


def promote_float(*operands: Any) -> list[Any]:
    """The same, with integers and booleans taken to the default floating dtype."""
    d = result_type(*operands)
    if d.category < 2:
        d = dtypes.float64 if _among_numbers() else dtypes.get_default_dtype()
    return [convert(x, d) for x in operands]


def in_float32(body: Callable[..., Any]) -> Callable[..., Any]:
    """A composition of several steps: tensors of 16 bits are computed in float32 and rounded once, as in PyTorch's kernels."""

    @functools.wraps(body)
    def wide(*args: Any, **kwargs: Any) -> Any:
        narrow = {x._meta.dtype for x in args if hasattr(x, "_meta") and x._meta.dtype.is_floating_point and not x._meta.wrapped}
        if not narrow or not narrow <= {dtypes.float16, dtypes.bfloat16}:
            return body(*args, **kwargs)
        kind = functools.reduce(promote_types, narrow)
        result = body(*[convert(x, dtypes.float32) if hasattr(x, "_meta") and x._meta.dtype in narrow else x for x in args], **kwargs)
        return convert(result, kind) if result._meta.dtype is dtypes.float32 else result

    return wide
