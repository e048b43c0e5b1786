"""Functions of each element: most are those of the torch namespace; here are their names, and those that differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.tensor import Tensor

# (name of the standard, name in torch); the numbers of arguments are the same.
_UNARY = {
    name: name
    for name in "abs acos acosh asin asinh atan atanh cos cosh exp expm1 isfinite isinf isnan log log1p log2 log10 logical_not positive "
    "reciprocal signbit sin sinh square sqrt tan tanh real imag".split()
} | {"bitwise_invert": "bitwise_not", "negative": "neg", "sign": "sgn", "conj": "conj_physical"}  # fmt: skip
_BINARY = {
    name: name
    for name in "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide floor_divide "
    "greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal "
    "pow remainder subtract".split()
} | {"equal": "eq"}  # fmt: skip


def _unary(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x: Tensor, /) -> Any:
        return function(x)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`torch.{_UNARY[name]}` of each element."
    return call


def _binary(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(x1: Any, x2: Any, /) -> Any:
        if not isinstance(x1, Tensor):
            x1 = _beside(x1, x2)
        elif not isinstance(x2, Tensor):
            x2 = _beside(x2, x1)
        return function(x1, x2)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`torch.{_BINARY[name]}` of each pair of elements; one of the two may be a Python number."
    return call


def _beside(number: Any, x: Any) -> Tensor:
    """A Python number as a zero-dimensional array of the dtype that it takes beside x."""
    if not isinstance(x, Tensor):
        raise TypeError(f"array_api: one argument at least must be an array, got {type(number).__name__} and {type(x).__name__}")
    return torch.tensor(number, dtype=torch.result_type(x, number))


def _rounding(name: str) -> Callable[..., Any]:
    function = getattr(torch, name)

    def call(x: Tensor, /) -> Any:
        if x.dtype.is_complex:
            return torch.complex(function(x.real), function(x.imag))
        return function(x) if x.dtype.is_floating_point else x.clone()

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"`torch.{name}` of each element; whole numbers stay, complex ones by their parts."
    return call


ceil, floor, trunc, round = (_rounding(name) for name in ("ceil", "floor", "trunc", "round"))


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """Each element brought into [min, max], in the dtype of x."""
    if min is None and max is None:
        return x.clone()
    bounds = [torch.as_tensor(b, dtype=x.dtype) if b is not None else None for b in (min, max)]
    return torch.clamp(x, *bounds)


globals().update({name: _unary(name, getattr(torch, other)) for name, other in _UNARY.items()})
globals().update({name: _binary(name, getattr(torch, other)) for name, other in _BINARY.items()})

__all__ = sorted([*_UNARY, *_BINARY, "ceil", "clip", "floor", "round", "trunc"])
