"""torch._subclasses.meta_utils.assert_metadata_eq finds each difference that is none of values, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from flambeau._subclasses.meta_utils import assert_eq, assert_metadata_eq


def _with_grad() -> Any:
    x = ft.zeros(2, 3, requires_grad=True)
    x.sum().backward()
    return x


CASES: dict[str, Callable[[], Any]] = {
    "plain": lambda: ft.zeros(2, 3), "values": lambda: ft.ones(2, 3), "meta": lambda: ft.empty(2, 3, device="meta"), "dtype": lambda: ft.zeros(2, 3).double(),
    "shape": lambda: ft.zeros(3, 2), "strides": lambda: ft.empty_strided((2, 3), (1, 2)), "view": lambda: ft.zeros(6).view(2, 3),
    "offset": lambda: ft.zeros(7)[1:].view(2, 3), "requires_grad": lambda: ft.zeros(2, 3, requires_grad=True), "computed": lambda: _with_grad() * 2,
    "grad": _with_grad, "sparse": lambda: ft.zeros(2, 3).to_sparse(), "conj": lambda: ft.zeros(2, 3, dtype=ft.complex64).conj(),
    "complex": lambda: ft.zeros(2, 3, dtype=ft.complex64),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_only_what_is_no_value(name: str) -> None:
    for other in CASES:
        same = name == other or {name, other} <= {"plain", "values", "meta"}
        if same:
            assert_metadata_eq(assert_eq, CASES[name](), CASES[other]())
        else:
            with pytest.raises(AssertionError):
                assert_metadata_eq(assert_eq, CASES[name](), CASES[other]())
