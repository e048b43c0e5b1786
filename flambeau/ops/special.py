"""Special functions that are compositions, and those that gradients of others need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flambeau.ops import primitives as prim
from flambeau.ops.promotion import in_float32, promote_float
from flambeau.ops.registry import operation

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

# Bernoulli numbers B2, B4, ..., B14 of the asymptotic series of trigamma (Abramowitz and Stegun 6.4.12).
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_SHIFT = 12  # the series is used from here on; error below 1e-16 there


@operation()
@in_float32
def trigamma(input: Tensor) -> Tensor:
    """The second derivative of lgamma: recurrence up to 12, then the asymptotic series; reflection for negative x."""
    import math

    (x,) = promote_float(input)
    reflect = x < 0.5
    y = prim.where(reflect, 1 - x, x)
    total = 1 / (y * y)
    for i in range(1, _SHIFT):
        shifted = y + i
        total = total + 1 / (shifted * shifted)
    z = y + _SHIFT
    inverse = 1 / z
    square = inverse * inverse
    series = square * _BERNOULLI[-1]
    for b in reversed(_BERNOULLI[:-1]):
        series = (series + b) * square
    value = total + inverse + square / 2 + series * inverse
    sine = prim.sin((x - prim.round(x)) * math.pi)  # the period first, which is exact; the sign is squared away
    sine = prim.where(reflect, sine, 1.0)  # the branch that is not taken must not be infinite, or its gradient is NaN
    return prim.where(reflect, (math.pi**2) / (sine * sine) - value, value)
