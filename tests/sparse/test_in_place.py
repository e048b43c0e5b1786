"""Functions that keep zeros, in place and into `out`, of sparse tensors: PyTorch's values, dtypes and errors."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import flambeau as ft

NAMES = "abs asin asinh atan atanh ceil deg2rad erf erfinv expm1 floor frac log1p neg rad2deg round sgn sign sin sinh sqrt tan tanh trunc nan_to_num".split()


def _new(m: Any, layout: str, dtype: str) -> Any:
    x = m.tensor([[0, 1, 0], [-2, 0, 3]], dtype=getattr(m, dtype))
    return x.to_sparse() if layout == "coo" else x.to_sparse_csr()


def _seen(x: Any) -> Any:
    return str(x.dtype).rpartition(".")[2], str(x.layout).rpartition(".")[2], repr([[round(v, 4) for v in row] for row in x.to_dense().tolist()])


def _tried(call: Any) -> Any:
    try:
        return call()
    except (RuntimeError, NotImplementedError) as error:
        return RuntimeError, "can't be cast" in str(error)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize(("name", "layout"), [(n, layout) for n in NAMES for layout in ("coo", "csr") if (n, layout) != ("nan_to_num", "csr")])  # not there
def test_in_place(name: str, layout: str, dtype: str) -> None:
    def program(m: Any) -> Any:
        x = _new(m, layout, dtype)

        def call() -> Any:
            result = getattr(x, name + "_")()
            return result is x, _seen(result)

        return _tried(call), _seen(x)

    assert program(ft) == program(torch)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
@pytest.mark.parametrize("name", NAMES)
def test_out(name: str, dtype: str) -> None:
    def program(m: Any) -> Any:
        x, out = _new(m, "coo", dtype), m.zeros_like(_new(m, "coo", dtype))
        return _tried(lambda: (getattr(m, name)(x, out=out) is out, _seen(out)))

    assert program(ft) == program(torch)
