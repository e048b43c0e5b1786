"""Type promotion: tensors, zero-dim tensors and Python numbers as three categories (PyTorch's result_type).

A higher category of dtype (bool < integer < floating < complex) wins whatever the rank; within one category dimensioned
tensors win over zero-dim tensors, and those over Python numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau import dtypes
from flambeau.dtypes import dtype, promote_types
from flambeau.trace.limits import fit
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


def is_changing(x: Any) -> bool:
    """Whether an operand in an operation's body is a number that was a constant before it changed: special values of it have to be asked for as ever."""
    return bool(local.trace.changes(x))


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


def fitted(x: Any, d: dtype, name: str, single: bool = False) -> Any:
    """An operand of a body in dtype `d`, where PyTorch refuses numbers that do not fit there: who calls the operation sees to it (trace/limits.py)."""
    if isinstance(x, (int, float, complex)):
        return convert(fit(x, d, name, single), d)
    if x._meta.wrapped:
        local.trace.limit(x, d, name, single)
    return convert(x, d)


def fitting(name: str, d: dtype, *numbers: Any) -> None:
    """Inside a body: RuntimeError if a number has no place in a dtype."""
    for x in numbers:
        if isinstance(x, (int, float, complex)):
            fit(x, d, name)
        elif x._meta.wrapped:
            local.trace.limit(x, d, name, False)


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
        tensors = [x for x in args if hasattr(x, "_meta") and not x._meta.wrapped]
        kind = result_type(*tensors) if tensors else None
        if kind not in (dtypes.float16, dtypes.bfloat16):
            return body(*args, **kwargs)
        result = body(*[convert(x, dtypes.float32) if hasattr(x, "_meta") and x._meta.dtype.is_floating_point else x for x in args], **kwargs)
        return convert(result, kind) if result._meta.dtype is dtypes.float32 else result

    return wide
