"""The dtype and the strides of a function's result over two operands of all pairs of dtypes, with and without dims, beside PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

KINDS = ("float16", "bfloat16", "float32", "float64", "int64", "uint8", "bool", "complex64")
POLYNOMIALS = (
    "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he "
    "laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
    "shifted_chebyshev_polynomial_w"
).split()
NAMES = [*POLYNOMIALS, *"zeta xlog1py xlogy gammainc gammaincc".split()]
PLAIN = (
    "add mul sub div pow float_power atan2 hypot copysign fmod remainder floor_divide maximum minimum fmax fmin logaddexp logaddexp2 nextafter ldexp "
    "xlogy igamma igammac heaviside rsub true_divide eq lt bitwise_and logical_and gcd"
).split()


def _result(call: Any) -> str:
    try:
        return str(call().dtype)
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return "refused" if isinstance(error, RuntimeError) else type(error).__name__


@pytest.mark.parametrize("name", [*[f"special.{name}" for name in NAMES], *PLAIN])
def test_dtypes(name: str) -> None:
    wrong = []
    for a in KINDS:
        for b in KINDS:
            if {a, b} == {"float16", "complex64"}:
                continue  # they have complex32 in common, for which PyTorch has few kernels
            for first, second in (((2,), (2,)), ((2,), ()), ((), (2,)), ((), ())):
                found = []
                for m in (torch, ft):
                    function: Any = m
                    for part in name.split("."):
                        function = getattr(function, part)
                    x, y = m.ones(first, dtype=getattr(m, a)), m.ones(second, dtype=getattr(m, b))
                    found.append(_result(lambda function=function, x=x, y=y: function(x, y)))  # type: ignore[misc]
                if found[0] != found[1]:
                    wrong.append((a, b, first, second, *found))
    assert not wrong, wrong


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_strides_of_polynomials(name: str) -> None:
    for kinds in (("float32", "float32"), ("float64", "float32"), ("float32", "int64")):
        strides = []
        for m in (torch, ft):
            function = getattr(m.special, name)
            kind, order = (getattr(m, k) for k in kinds)
            turned, orders = m.ones(4, 5).t().to(kind), m.ones(4, 5).t().to(order)
            wide = m.ones(5, 10).t().to(order)
            calls = (function(turned, orders), function(turned, 2), function(turned, 45), function(2.0, orders), function(m.ones(1, 1, 5, dtype=kind), wide))
            strides.append([y.stride() for y in calls])
        assert strides[0] == strides[1], kinds


def test_a_vector_without_dims_counts_in_addr() -> None:
    for kind in KINDS:
        found = [
            _result(lambda m=m, kind=kind: m.addr(m.tensor(1).to(getattr(m, kind)), m.ones(2), m.ones(2)))  # type: ignore[misc]
            for m in (torch, ft)
        ]
        assert found[0] == found[1], kind


def test_edges_of_a_histogram_are_its_own() -> None:
    for m in (torch, ft):
        edges = m.tensor([0.0, 9.0, 1.0, 9.0, 2.0])[::2]
        found = m.histogram(m.tensor([0.5, 1.5]), edges).bin_edges
        found.zero_()
        assert edges.tolist() == [0.0, 1.0, 2.0] and found.stride() == (1,)


def test_a_rounded_quotient_has_no_slope_by_its_own_name() -> None:
    """`//` says so in the backward pass; `div` with a rounding mode has zeros."""
    for m in (torch, ft):
        x = m.ones(2, requires_grad=True)
        for call in (lambda x: x // 2.0, lambda x, m=m: m.floor_divide(x, x), lambda x: 2.0 // x):
            y = call(x)
            assert y.requires_grad
            with pytest.raises(RuntimeError, match="derivative for aten::floor_divide is not implemented"):
                y.sum().backward()
        m.div(x, 2.0, rounding_mode="floor").sum().backward()
        assert x.grad.tolist() == [0.0, 0.0]
