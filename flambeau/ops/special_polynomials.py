"""Orthogonal polynomials of an order that is a number or a tensor: three-term recurrences. No gradients, as in PyTorch.

An order that is a low number is a composition. Tensors of orders are looked at. Of high orders, Chebyshev polynomials inside [-1, 1] are cosines and sines,
and all others are loops of native code, which run at once. An order below 0 gives 0, and so does one that no int64 holds, NaN among them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.ops import primitives as prim
from flambeau.ops.arithmetic import where as torch_where
from flambeau.ops.creation import empty_strided
from flambeau.ops.creation import full as filled
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.ops.promotion import promote_float, result_type
from flambeau.ops.registry import operation
from flambeau.ops.result_strides import NUMBER, over_operands
from flambeau.ops.shape import broadcast_tensors
from flambeau.ops.special_bessel import either
from flambeau.runtime import select
from flambeau.trace.existing import from_buffer
from flambeau.trace.mutation import into
from flambeau.trace.strides import iterator_strides

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_LONG = 40  # from this order on, polynomials are no compositions of their recurrence
_HERMITE = {dtypes.float32: 128, dtypes.float64: 512}  # PyTorch has NaN from Hermite polynomials of a higher order

_IN_DOUBLE = ("laguerre_polynomial_l", "legendre_polynomial_p")

# p_1 as (factor of x, constant), and p_{k+1} from x, k, p_k, p_{k-1}
Recurrence = Callable[[Any, int, Any, Any], Any]


def _chebyshev(x: Any, k: int, p: Any, before: Any) -> Any:
    return 2 * x * p - before


RECURRENCES: dict[str, tuple[tuple[int, int], Recurrence]] = {
    "chebyshev_polynomial_t": ((1, 0), _chebyshev),
    "chebyshev_polynomial_u": ((2, 0), _chebyshev),
    "chebyshev_polynomial_v": ((2, -1), _chebyshev),
    "chebyshev_polynomial_w": ((2, 1), _chebyshev),
    "hermite_polynomial_h": ((2, 0), lambda x, k, p, before: 2 * x * p - 2 * k * before),
    "hermite_polynomial_he": ((1, 0), lambda x, k, p, before: x * p - k * before),
    "laguerre_polynomial_l": ((-1, 1), lambda x, k, p, before: ((2 * k + 1 - x) * p - k * before) / (k + 1)),
    "legendre_polynomial_p": ((1, 0), lambda x, k, p, before: ((2 * k + 1) * x * p - k * before) / (k + 1)),
}


def _low(x: Any, n: int, first: tuple[int, int], step: Recurrence) -> Any:
    """p_n(x) for an order that is a number."""
    shape = tuple(x._meta.shape)
    if n < 0:
        return prim.full_of(shape, prim.constant(0, x.dtype))
    p: Any = prim.full_of(shape, prim.constant(1, x.dtype))
    if n > 0:
        before, p = p, x * first[0] + first[1]
        for k in range(1, n):
            before, p = p, step(x, k, p, before)
    return p


def _closed(kind: str, x: Any, n: Any) -> Any:
    """A Chebyshev polynomial of a high order in [-1, 1], by the angle whose cosine is x."""
    edge = prim.eq(prim.abs(x), 1.0)
    angle = prim.acos(prim.where(prim.lt(prim.abs(x), 1.0), x, 0.0))
    even = prim.eq(prim.remainder(n, 2.0), 0.0)
    sign = either(prim.bitwise_or(even, prim.gt(x, 0.0)), 1.0, -1.0, x)
    if kind == "t":
        return prim.where(edge, sign, prim.cos(n * angle))
    if kind == "u":
        return prim.where(edge, sign * (n + 1), prim.sin((n + 1) * angle) / prim.where(edge, 1.0, prim.sin(angle)))
    # V_n = U_n - U_{n-1}, W_n = U_n + U_{n-1}
    other = _closed("u", x, n - 1)
    return _closed("u", x, n) - other if kind == "v" else _closed("u", x, n) + other


def _high(name: str, x: Tensor, n: Tensor) -> Any:
    """p_n(x) for int64 orders n, some of them high; x and n have one shape."""
    if x.is_meta:
        return x.new_empty(x.shape)
    first, step = RECURRENCES[name]
    apart, value = x.new_zeros(x.shape, dtype=dtypes.bool_), x  # elements that need no loop, and what they are
    if name.startswith("chebyshev"):
        apart = (x.abs() <= 1) & (n >= _LONG)
        value = CLOSED[name[-1]](x, n.clamp(min=_LONG).to(x.dtype))
    elif name == "legendre_polynomial_p":
        apart = (x.abs() == 1) & (n > 0)
        value = torch_where((x > 0) | (n.remainder(2) == 0), filled((), 1.0, dtype=x.dtype), filled((), -1.0, dtype=x.dtype))
    elif name.startswith("hermite"):
        apart = n > _HERMITE[x.dtype]
        value = filled((), math.nan, dtype=x.dtype)
    data, orders = x._plain().contiguous(), n.masked_fill(apart, 0).contiguous()
    buffer = select.recurrence(name, first, step, data._address(), orders._address(), x.dtype, x.numel())
    return torch_where(apart, value, from_buffer(buffer, tuple(x.shape), x.dtype))


def _make_closed(kind: str) -> Any:
    def body(x: Tensor, n: Tensor) -> Tensor:
        return _closed(kind, x, n)  # type: ignore[no-any-return]

    return operation(name=f"special_chebyshev_closed_{kind}", public=False)(body)


CLOSED = {kind: _make_closed(kind) for kind in "tuvw"}


def _whole(n: Tensor) -> Tensor:
    """Orders as int64, by C's conversion, which gives what does not fit its least number."""
    if not n.dtype.is_floating_point:
        return n.to(dtypes.int64)
    return torch_where(n.abs() < 2.0**63, n, -1.0).to(dtypes.int64)


def _make(name: str, shifted: bool) -> Any:
    first, step = RECURRENCES[name]
    full = ("shifted_" if shifted else "") + name

    def of_number(x: Tensor, n: int) -> Tensor:
        (y,) = promote_float(x)
        y = prim.detach(y)
        return _low(2 * y - 1 if shifted else y, n, first, step)  # type: ignore[no-any-return]

    one = operation(name=f"special_{full}", public=False)(over_operands(of_number))

    def function(input: Any, n: Any, *, out: Any = None) -> Any:
        refuse_dtype(one.operation.name, result_type(*[t for t in (input, n) if hasattr(t, "_meta")] or [input]))
        for given in (input, n):
            if isinstance(given, complex):
                raise NotImplementedError(f'{name}(): "{full}_cpu" not implemented for complex numbers, got {given}')
            if isinstance(given, int) and not -(2**63) <= given < 2**63:
                raise OverflowError(f"{name}(): {given} is an int too big to convert: it must lie within 64 bits")
        if not hasattr(n, "_meta") and abs(n) < _LONG:
            result = one(input, math.trunc(n))
        else:
            order = n.detach() if hasattr(n, "_meta") else filled((), n, dtype=dtypes.float64 if isinstance(n, float) else dtypes.int64)
            x = input if hasattr(input, "_meta") else filled((), float(input), dtype=order.dtype if order.dtype.is_floating_point else None)
            kind = result_type(*[t for t in (input, n) if hasattr(t, "_meta")])  # of the tensors that were given: numbers do not count
            kind = kind if kind.is_floating_point else dtypes.get_default_dtype()
            if x.is_meta or order.is_meta:
                return into(out, (x + order).to(kind), full)
            # in float32 the errors of a million steps of these two add up to more than the polynomial
            wide = dtypes.float64 if kind is dtypes.float64 or name in _IN_DOUBLE else dtypes.float32
            y, whole = broadcast_tensors(x.detach().to(wide), _whole(order))
            result = _high(name, 2 * y - 1 if shifted else y, whole).to(kind)
            strides = iterator_strides([t._meta if hasattr(t, "_meta") else NUMBER for t in (input, n)], tuple(result.shape))
            if strides != result.stride():
                result = empty_strided(tuple(result.shape), strides, dtype=kind).copy_(result)
        return into(out, result, one.operation.name)

    function.__name__ = function.__qualname__ = full
    who, letter = name.split("_polynomial_")
    where = "2 x - 1 for x the input" if shifted else "the input"
    function.__doc__ = f"The {who.capitalize()} polynomial {letter.capitalize()} of order n (a number or a tensor) at {where}."
    return function


POLYNOMIALS = {name: _make(name, False) for name in RECURRENCES} | {
    f"shifted_{name}": _make(name, True) for name in RECURRENCES if name.startswith("chebyshev")
}
"""By their names in torch.special."""
