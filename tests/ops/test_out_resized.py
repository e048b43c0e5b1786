"""`out=` of another shape beside PyTorch: it is resized in its own storage, which grows where it must, and takes the result's strides."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")


def _of_view(n: int) -> Callable[[Any], Any]:
    def case(m: Any) -> Any:
        base = m.arange(8.0)
        other, out = base[:3], base[1:4]
        m.add(m.ones(n), 1, out=out)
        return base.tolist(), other.tolist(), out.tolist(), out.storage_offset(), out.stride(), out.untyped_storage().nbytes()

    return case


def _of_transposed(m: Any) -> Any:
    base = m.arange(12.0).reshape(3, 4)
    out = base.t()
    m.mul(m.ones(2, 2), base[1:, 1:3], out=out)
    return base.tolist(), out.tolist(), out.stride()


def _no_elements(m: Any) -> Any:
    base = m.arange(6.0)
    view = base[2:]
    m.cumsum(base, 0, out=base[:0])
    return base.tolist(), view.tolist()


def _strides(m: Any) -> Any:
    out = m.zeros(0)
    m.exp(m.arange(12.0).reshape(3, 4).t(), out=out)
    again = m.zeros(2, 2)
    m.mul(m.arange(12.0).reshape(3, 4).t().unsqueeze(1), 2, out=again)
    return out.tolist(), out.stride(), again.tolist(), again.stride()


def _other_dtype(m: Any) -> Any:
    base = m.zeros(6, dtype=m.float64)
    out = base[2:4]
    m.add(m.ones(3), 1, out=out)
    return base.tolist(), out.tolist(), str(out.dtype)[-7:]


CASES = {f"view, {n}": _of_view(n) for n in (2, 3, 5, 8, 12)} | {
    "transposed": _of_transposed, "no elements": _no_elements, "strides": _strides, "another dtype": _other_dtype,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_out_resized(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both warn of it
        for _ in range(2):
            assert CASES[name](ft) == CASES[name](torch)
