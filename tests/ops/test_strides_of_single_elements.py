"""Strides of results whose dims have 1 or 0 elements, of pointwise functions over many layouts and of `out=` that is resized: PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")

SHAPES = ((1, 3), (3, 1), (1, 1), (2, 1, 3), (1,), (1, 0), (0, 1))
LAYOUTS: dict[str, Any] = {
    "plain": lambda x: x[0],
    "turned": lambda x: x[0].movedim(0, -1),
    "steps of all dims": lambda x: x[0][tuple([slice(None, None, 2)] * (x.ndim - 1))],
    "expanded": lambda x: x[:1].expand(2, *x.shape[1:]),
    "a step of a batch": lambda x: x[:, ::2].movedim(0, -1),
}
UNARY = "angle abs neg logical_not sgn isnan isfinite signbit".split()
BINARY = "logical_or logical_and logical_xor eq maximum".split()
OUT: dict[str, Any] = {"empty": (0,), "ones": (1, 1, 1, 1), "none": None}


def strides(m: Any, name: str, layout: str, shape: tuple[int, ...], dtype: str, out: str) -> Any:
    x = LAYOUTS[layout](m.ones((2, *shape), dtype=getattr(m, dtype)))
    given = () if name in UNARY else (x,)
    keywords = {} if OUT[out] is None else {"out": m.empty(OUT[out], dtype=m.bool)}
    try:
        result = getattr(m, name)(x, *given, **keywords)
    except (RuntimeError, TypeError):
        return "refused"
    return tuple(result.shape), result.stride()


@pytest.mark.parametrize("dtype", ["float32", "complex64", "int64", "bool"])
@pytest.mark.parametrize("name", [*UNARY, *BINARY])
def test_strides(name: str, dtype: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of resized results
        for layout in LAYOUTS:
            for shape in SHAPES:
                for out in ("none",) if name in UNARY else OUT:
                    case = (name, layout, shape, dtype, out)
                    assert strides(flambeau, *case) == strides(torch, *case), case
