"""`dtype` and an `out` of another dtype are refused where both may be given; either alone decides, as in PyTorch."""

from __future__ import annotations

from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

DTYPES = ("float32", "float64", "int64", "complex64", None)


def _outcome(m: Any, name: str, kind: str, dtype: str | None, out: str | None) -> str:
    keywords = {} if dtype is None else {"dtype": getattr(m, dtype)}
    if out is not None:
        keywords["out"] = m.empty(0, dtype=getattr(m, out))
    try:
        return str(getattr(m, name)(m.ones(3, 4, dtype=getattr(m, kind)), 0, **keywords).dtype)
    except RuntimeError:
        return "refused"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["sum", "nansum", "mean", "nanmean", "prod", "cumsum", "cumprod"])
def test_dtype_and_out(name: str) -> None:
    for kind in ("float32", "int64"):
        for dtype in DTYPES:
            for out in DTYPES:
                if "nan" in name and not {"complex64", "int64"}.isdisjoint((dtype, out)):
                    continue
                assert _outcome(ft, name, kind, dtype, out) == _outcome(torch, name, kind, dtype, out), (kind, dtype, out)
