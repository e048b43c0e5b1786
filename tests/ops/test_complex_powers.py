"""Powers of complex numbers: exponents that PyTorch computes in a short way, bases of 0, infinity and NaN, in each form of the call."""

from __future__ import annotations

import math
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

BASES = [-1 + 0j, 0j, complex(math.nan, 0), 1j, complex(-0.0, 0.0), 2 - 3j, complex(math.inf, 0), complex(0, math.inf), complex(0, math.nan), -2.5j, 1e-8 + 0j]
EXPONENTS: list[Any] = [0, 1, 2, 3, 4, -1, -2, -3, True, 0.5, -0.5, -1.5, 2.5, 1.0, 2.0, 2 + 0j, 0.5 + 0j, 1j, 1 - 2j, -1 - 1j, 0j, math.inf, -math.inf]
FORMS = {
    "number": lambda m, x, n: x.pow(n), "tensor": lambda m, x, n: x ** m.full((len(BASES),), n, dtype=x.dtype),
    "in place": lambda m, x, n: x.clone().pow_(n), "of a number": lambda m, x, n: m.pow(n, x),
}  # fmt: skip


def _near(a: float, b: float, tolerance: float, size: float) -> bool:
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b if math.isinf(a) or math.isinf(b) else abs(a - b) <= tolerance * max(1, abs(a), size)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_values(dtype: str, form: str) -> None:
    tolerance = 1e-4 if dtype == "complex64" else 1e-11
    for n in EXPONENTS:
        rows = [m.view_as_real(FORMS[form](m, m.tensor(BASES, dtype=getattr(m, dtype)), n)).tolist() for m in (torch, flambeau)]
        for base, theirs, ours in zip(BASES, *rows, strict=True):
            if (form == "of a number" and (n == 0 or (dtype == "complex64" and abs(base) > 3))) or (form == "tensor" and n == 0):
                continue  # 0 ** 0 is NaN in PyTorch's vectors, 1 here and as a number; great powers in float32
            if form == "of a number" and (n is True or (isinstance(n, float) and math.isinf(n))) and (base == 0 or not abs(base) < math.inf):
                continue
            size = max(map(abs, theirs))
            assert all(_near(a, b, tolerance, size) for a, b in zip(theirs, ours, strict=True)), (n, base, theirs, ours)


def test_gradients_of_short_powers() -> None:
    for n in (0, 1, 2, 3, -1, -2, 0.5, -0.5):
        found = []
        for m in (torch, flambeau):
            x = m.tensor([1 + 2j, -0.5j, -3 + 0j], dtype=m.complex128, requires_grad=True)
            (x**n).backward(m.tensor([1 + 0j, 2 - 1j, 0.5j], dtype=m.complex128))
            found.append(m.view_as_real(x.grad).flatten().tolist())
        assert found[1] == pytest.approx(found[0], abs=1e-12), n
