"""Doubles that become float16: LLVM may call a function for it, which C libraries seldom have, so flambeau brings its own."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

import flambeau as torch
from flambeau.compiler.emit.builder import Builder
from tests.runtime import kernels

CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def test_a_double_is_rounded_once() -> None:
    """As NumPy does, at numbers near the middle between two float16, and at the ends."""

    def write(b: Builder) -> None:
        for i in range(count):
            x = b.load("double", b.gep("double", kernels.word(b, 0, "ptr"), i), 8)
            half = b.call("half", "__truncdfhf2", [("double", x)])
            b.store("half", half, b.gep("half", kernels.word(b, 1, "ptr"), i), 2)

    middles = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 65520.0, 2.0**-25, 3 * 2.0**-25, 2.0**-14 * (1 - 2.0**-12), 1.5 + 2.0**-11]
    near = [m * (1 + s * 2.0**-e) for m in middles for e in (24, 25, 26, 40, 52) for s in (-1, 0, 1)]
    values = np.array([*near, *(-x for x in near), 0.0, -0.0, 1e300, -1e300, 1e-320, np.inf, -np.inf, np.nan, *np.random.default_rng(0).standard_normal(50)])
    count, result = len(values), np.zeros(len(values), np.float16)
    words = np.array([kernels.address(values), kernels.address(result)])
    assert CALL(kernels.compiled("test to half", write))(kernels.address(words), 0, 1, 0) == 0
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result, values.astype(np.float16))
    np.testing.assert_array_equal(np.signbit(result[:-51]), np.signbit(values[:-51]))


INNER = ("lgamma", "log2", "asinh", "sinh")
OUTER = ("tanh", "asinh", "atan", "erf", "sign")


@pytest.mark.parametrize("inner", ["atan2", *INNER])
def test_what_is_rounded_from_a_double_gives_its_sign(inner: str) -> None:
    """One kernel of both functions has the bits of two: its sign may be taken from the double."""
    x = torch.tensor([0.3, -0.3, 1.5, 0.0, -0.0, -2.5], dtype=torch.float16)
    for shape in ((6,), (1,)):
        for outer in OUTER:
            found = []
            for apart in (False, True):
                z = x[: shape[0]] * 1
                y = torch.atan2(z, z.abs() + 1) if inner == "atan2" else getattr(torch, inner)(z)
                if apart:
                    y.tolist()
                found.append(getattr(torch, outer)(y).view(torch.int16).tolist())
            assert found[0] == found[1], (outer, shape)
