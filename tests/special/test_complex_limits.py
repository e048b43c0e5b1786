"""Complex functions at infinities and NaN: limits as PyTorch (and C99, annex G) has them, and no finite number out of NaN."""

from __future__ import annotations

import cmath
import math
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e20, -1e20, 1e30, math.inf, -math.inf)
LIMITS = "asin acos atan asinh acosh atanh sqrt log log2 log10 abs angle".split()
ALL = [*LIMITS, *"exp sin cos tan sinh cosh tanh log1p expm1 reciprocal rsqrt sigmoid square exp2".split()]


def _close(x: float, y: float) -> bool:
    return (x != x and y != y) or x == y or abs(x - y) <= max(1e-5 * abs(y), 1e-19)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", LIMITS)
def test_limits(name: str, dtype: str) -> None:
    points = [complex(x, y) for x in PARTS for y in PARTS]

    def values(m: Any) -> list[complex]:
        return [complex(v) for v in getattr(m, name)(m.tensor(points, dtype=getattr(m, dtype))).tolist()]

    pairs = zip(points, values(flambeau), values(torch), strict=True)
    found = [f"{name}({z}) = {a}, expected {b}" for z, a, b in pairs if not (_close(a.real, b.real) and _close(a.imag, b.imag))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", ALL)
def test_nan_stays(name: str) -> None:
    points = [complex(math.nan, y) for y in (0.0, 1.0, -2.0)] + [complex(x, math.nan) for x in (0.0, 1.0, -2.0)]
    for z, w in zip(points, getattr(flambeau, name)(flambeau.tensor(points, dtype=flambeau.complex128)).tolist(), strict=True):
        assert cmath.isnan(complex(w)), (name, z, w)
