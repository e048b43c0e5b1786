"""Numbers that a tensor cannot hold are refused by the call that is given them, with PyTorch's type of error; nothing is lost by it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft

NUMBERS: tuple[Any, ...] = (
    2**63, 2**64, -(2**63) - 1, 2**1000, 2**31, 300, 256, 255, -1, -128, -200, -255, -256, 70000, 65504, 1e5, 1e39, -1e39, 2.5, -0.5, math.nan, math.inf,
    -math.inf, 1j, 2 + 0j, True,
)  # fmt: skip
DTYPES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "fill_": lambda m, x, v: x.fill_(v),
    "full": lambda m, x, v: m.full((2,), v, dtype=x.dtype),
    "full_like": lambda m, x, v: m.full_like(x, v),
    "new_full": lambda m, x, v: x.new_full((2,), v),
    "fill_ of one": lambda m, x, v: x[0].fill_(v),
    "fill_diagonal_": lambda m, x, v: x.reshape(1, 2).fill_diagonal_(v),
    "setitem": lambda m, x, v: x.__setitem__(0, v),
    "setitem of all": lambda m, x, v: x.__setitem__(slice(None), v),
    "setitem by index": lambda m, x, v: x.__setitem__(m.tensor([0]), v),
    "setitem by mask": lambda m, x, v: x.__setitem__(x == x, v),
}  # fmt: skip
# Numbers that are data of a kernel: no error may come late, whatever it is.
DATA: dict[str, Callable[[Any, Any], Any]] = {
    "add alpha": lambda x, v: ft.add(x, x, alpha=v),
    "addcmul": lambda x, v: ft.addcmul(x, x, x, value=v),
    "addmm": lambda x, v: ft.addmm(ft.ones(1, 1, dtype=x.dtype), x.reshape(1, 2), x.reshape(2, 1), beta=v),
    "index_add": lambda x, v: x.index_add(0, ft.tensor([0]), x[:1], alpha=v),
    "masked_fill": lambda x, v: x.masked_fill(x == x, v),
    "fmod": lambda x, v: ft.fmod(x, v),
    "floor_divide": lambda x, v: x // v,
    "copysign": lambda x, v: ft.copysign(x, v),
    "xlogy": lambda x, v: ft.xlogy(x, v),
}  # fmt: skip


def _of(m: Any, call: Callable[[Any, Any, Any], Any], d: str, v: Any) -> Any:
    """The values, or the error's type."""
    x = m.ones(2, dtype=getattr(m, d))
    x.tolist()
    try:
        made = call(m, x, v)
    except Exception as error:
        return type(error)
    return str((x if made is None else made).tolist())


@pytest.mark.parametrize("name", CALLS)
def test_as_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    wrong = []
    for d in DTYPES:
        for v in NUMBERS:
            ours, theirs = _of(ft, CALLS[name], d, v), _of(torch, CALLS[name], d, v)
            if ours != theirs:
                wrong.append((d, v, ours, theirs))
    assert not wrong, wrong[:10]


@pytest.mark.parametrize("name", DATA)
def test_no_error_comes_late(name: str) -> None:
    for d in DTYPES:
        for v in NUMBERS:
            x, pending = ft.ones(2, dtype=getattr(ft, d)), ft.ones(2)
            x.tolist()
            pending.mul_(2)
            try:
                made = DATA[name](x, v)
            except (RuntimeError, OverflowError, TypeError, ValueError):
                assert pending.tolist() == [2.0, 2.0]
                continue
            made.tolist()


def test_the_text_names_function_and_value() -> None:
    w, m = ft.ones(2), ft.zeros(2, dtype=ft.int64)
    for _ in range(3):
        w.mul_(2)
        with pytest.raises(RuntimeError, match=r"fill_\(\): value cannot be converted to type int64_t without overflow: got 9223372036854775808"):
            m.fill_(2**63)
    assert w.tolist() == [8.0, 8.0] and m.tolist() == [0, 0]
