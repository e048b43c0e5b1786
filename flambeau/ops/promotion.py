"""Type promotion: tensors, zero-dim tensors and Python numbers as three categories (PyTorch's result_type).

A higher category of dtype (bool < integer < floating < complex) wins whatever the rank; within one category dimensioned
tensors win over zero-dim tensors, and those over Python numbers.
"""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.dtypes import dtype, promote_types


def _number_dtype(d: dtype) -> dtype:
    """A Python number's dtype in promotion: floats count as the default dtype."""
    if d.is_floating_point:
        return dtypes.get_default_dtype()
    if d.is_complex:
        return dtypes.get_default_dtype().to_complex()
    return d


def result_type(*operands: Any) -> dtype:
    """The common dtype of tensors and Python numbers."""
    dims: dtype | None = None
    zero: dtype | None = None
    wrapped: dtype | None = None
    for x in operands:
        if isinstance(x, (int, float, complex)):
            d = dtypes.of_number(x)
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


def convert(x: Any, d: dtype) -> Any:
    """A tensor (or number) as a tensor of dtype `d`, inside an operation's body."""
    from flambeau.ops import primitives as prim

    if isinstance(x, (int, float, complex)):
        return prim.constant(x, d)
    return x if x._meta.dtype is d else prim.cast(x, dtype=d)


def promote(*operands: Any) -> list[Any]:
    """The operands, all of their common dtype."""
    d = result_type(*operands)
    return [convert(x, d) for x in operands]


def promote_float(*operands: Any) -> list[Any]:
    """The same, with integers and booleans taken to the default floating dtype."""
    d = result_type(*operands)
    if d.category < 2:
        d = dtypes.get_default_dtype()
    return [convert(x, d) for x in operands]
