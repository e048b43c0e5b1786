"""`cumsum_` and `cumprod_` of each dtype and of shapes with and without elements: PyTorch's values, dtypes and errors."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "float16", "complex64"])
@pytest.mark.parametrize("name", ["cumsum_", "cumprod_"])
def test_scan(name: str, dtype: str) -> None:
    """Without elements, or without dims, PyTorch takes bools, too: it computes in the tensor's own dtype."""

    def call(m: Any, shape: tuple[int, ...]) -> Any:
        x = m.ones(shape, dtype=getattr(m, dtype))
        try:
            result = getattr(x, name)(0)
        except NotImplementedError:
            return "not implemented"
        return result is x, str(result.dtype), result.tolist()

    for shape in ((0,), (0, 2), (2, 0), (), (2,), (3, 2)):
        assert call(flambeau, shape) == call(torch, shape), shape
