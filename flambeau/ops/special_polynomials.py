"""Orthogonal polynomials of an order that is a number or a tensor: three-term recurrences. No gradients, as in PyTorch.

The recurrence runs to the largest order, so a tensor of orders is looked at. Chebyshev polynomials of high order inside
[-1, 1] are cosines and sines. An order below 0 gives 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.ops import primitives as prim
from flambeau.ops.creation import full as filled
from flambeau.ops.promotion import promote_float
from flambeau.ops.registry import operation
from flambeau.ops.special_bessel import either
from flambeau.trace.mutation import into

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

_LONG = 40  # from this order on, Chebyshev polynomials are computed in closed form

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


def _select(x: Any, n: Any, top: int, first: tuple[int, int], step: Recurrence) -> Any:
    """p_n(x) for the orders n (a tensor, or the number `top`)."""
    p: Any = x * 0 + 1
    values = [(0, p)]
    if top > 0:
        before, p = p, x * first[0] + first[1]
        values.append((1, p))
        for k in range(1, top):
            before, p = p, step(x, k, p, before)
            values.append((k + 1, p))
    if not hasattr(n, "_meta"):
        return values[-1][1] if top >= 0 else x * 0
    result: Any = x * 0
    for k, value in values:
        result = prim.where(prim.eq(n, prim.constant(k, n.dtype)), value, result)
    return result


def _closed(kind: str, x: Any, n: Any) -> Any:
    """A Chebyshev polynomial of a high order, by the angle whose cosine is x; outside [-1, 1] by hyperbolic functions."""
    inside = prim.le(prim.abs(x), 1.0)
    angle = prim.acos(prim.where(inside, x, 0.0))
    size = prim.acosh(prim.where(inside, 2.0, prim.abs(x)))
    even = prim.eq(prim.remainder(n, 2.0), 0.0)
    sign = either(prim.bitwise_or(even, prim.gt(x, 0.0)), 1.0, -1.0, x)
    if kind == "t":
        return prim.where(inside, prim.cos(n * angle), sign * prim.cosh(n * size))
    if kind == "u":
        sine = prim.sin(angle)
        edge = prim.eq(prim.abs(x), 1.0)
        value = prim.sin((n + 1) * angle) / prim.where(edge, 1.0, sine)
        return prim.where(edge, sign * (n + 1), prim.where(inside, value, sign * (prim.sinh((n + 1) * size) / prim.sinh(size))))
    # V_n = U_n - U_{n-1}, W_n = U_n + U_{n-1}
    other = _closed("u", x, n - 1)
    return _closed("u", x, n) - other if kind == "v" else _closed("u", x, n) + other


def _make(name: str, shifted: bool) -> Any:
    first, step = RECURRENCES[name]
    kind = name[-1] if name.startswith("chebyshev") else ""
    full = ("shifted_" if shifted else "") + name

    def values(x: Any, n: Any, top: int) -> Any:
        x = prim.detach(x)
        if shifted:
            x = 2 * x - 1
        if kind and top >= _LONG:
            order = prim.constant(top, x.dtype) if not hasattr(n, "_meta") else prim.cast(n, dtype=x.dtype) if n.dtype is not x.dtype else n
            low = _select(x, n, _LONG - 1, first, step) if hasattr(n, "_meta") else x * 0
            return prim.where(prim.ge(order, float(_LONG)), _closed(kind, x, prim.maximum(order, float(_LONG))), low)
        return _select(x, n, top, first, step)

    def of_number(x: Tensor, n: int) -> Tensor:
        (y,) = promote_float(x)
        return values(y, n, n)  # type: ignore[no-any-return]

    def of_tensor(x: Tensor, n: Tensor, top: int) -> Tensor:
        y, order = promote_float(x, n)
        return values(y, prim.trunc(prim.detach(order)), top)  # type: ignore[no-any-return]

    one = operation(name=f"special_{full}", public=False)(of_number)
    many = operation(name=f"special_{full}_orders", public=False)(of_tensor)

    def function(input: Any, n: Any, *, out: Any = None) -> Any:
        if hasattr(n, "_meta"):
            x = input if hasattr(input, "_meta") else filled((), float(input), dtype=n.dtype if n.dtype.is_floating_point else None)
            result = many(x, n, math.trunc(n.detach().max().item()) if n.numel() else 0)
        else:
            result = one(input, math.trunc(n))
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
