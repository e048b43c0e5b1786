"""Dtypes of which no tensor can be made: they have PyTorch's names and properties, and each call that would make a tensor says that it cannot."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from flambeau.dtypes import NAMED, QUANTIZED

D = ft.bits16
CALLS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: ft.zeros(2, dtype=D), "tensor": lambda x: ft.tensor([1], dtype=D), "to": lambda x: x.to(D), "type": lambda x: x.type(D),
    "empty": lambda x: ft.empty(2, dtype=D), "full": lambda x: ft.full((2,), 1, dtype=D), "arange": lambda x: ft.arange(3, dtype=D),
    "ones_like": lambda x: ft.ones_like(x, dtype=D), "view": lambda x: x.view(D),
    "randint": lambda x: ft.randint(0, 3, (2,), dtype=D), "sum": lambda x: x.sum(dtype=ft.uint4),
    "promote_types": lambda x: ft.promote_types(D, ft.float32), "Linear": lambda x: ft.nn.Linear(2, 2, dtype=ft.int7),
    "new_zeros": lambda x: x.new_zeros(2, dtype=D), "frombuffer": lambda x: ft.frombuffer(bytearray(4), dtype=D), "eye": lambda x: ft.eye(2, dtype=D),
    "softmax": lambda x: x.softmax(0, dtype=ft.bits8), "empty_strided": lambda x: ft.empty_strided((2,), (1,), dtype=D),
    "cumsum": lambda x: x.cumsum(0, dtype=D), "linspace": lambda x: ft.linspace(0, 1, 3, dtype=ft.bits8),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_no_tensor_is_made(name: str) -> None:
    with pytest.raises(NotImplementedError, match="flambeau has no tensors of this dtype"):
        CALLS[name](ft.ones(2, 2))
    assert ft.get_default_dtype() is ft.float32


def test_properties() -> None:
    torch = pytest.importorskip("torch")
    for d in NAMED:
        theirs = getattr(torch, d.name)
        if d.name.startswith("bits"):
            continue  # PyTorch knows nothing of them
        for attribute in ("itemsize", "is_floating_point", "is_complex", *["is_signed"] * (d not in QUANTIZED)):  # of which PyTorch does not say it
            assert getattr(d, attribute) == getattr(theirs, attribute), (d, attribute)
        assert repr(d) == repr(theirs) and pickle.loads(pickle.dumps(d)) is d and getattr(ft, d.name) is d
