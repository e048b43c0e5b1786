"""What `empty` and its like hold under use_deterministic_algorithms, beside PyTorch's; parts of complex tensors that are set; `in`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import flambeau as ft
from flambeau.utils import deterministic

WORLDS = (ft, torch)


@pytest.fixture
def _filled() -> Iterator[None]:
    for w in WORLDS:
        w.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        for w in WORLDS:
            w.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("_filled")
@pytest.mark.parametrize("name", ["float32", "bfloat16", "complex64", "int8", "uint8", "int64", "uint16", "uint64", "bool"])
def test_new_memory_is_filled(name: str) -> None:
    found = []
    for w in WORLDS:
        d = getattr(w, name)
        made = [
            w.empty(3, 2, dtype=d), w.empty_like(w.zeros(2, dtype=d)), w.empty_strided((3, 2), (1, 4), dtype=d), w.zeros(1, dtype=d).new_empty(2),
            w.empty(0, dtype=d),
        ]  # fmt: skip
        found.append([str(t.tolist()) for t in made])
    assert found[0] == found[1]


def test_only_when_it_is_asked_for(_filled: None) -> None:
    deterministic.fill_uninitialized_memory = False
    try:
        x = ft.empty(2)
        x.zero_()
        assert x.tolist() == [0, 0]
    finally:
        deterministic.fill_uninitialized_memory = True
    assert ft.empty(2).isnan().all()
    ft.use_deterministic_algorithms(False)
    memory: Any = ft.ones(1000)
    del memory
    assert not ft.empty(1000).isnan().all()


def test_parts_and_membership() -> None:
    for w in WORLDS:
        x = w.ones(2, dtype=w.complex64)
        x.real, x.imag = 0, 2.5
        assert x.tolist() == [2.5j, 2.5j]
        y = w.arange(3)
        assert 2 in y and 5 not in y and y[1] in y
        for wrong in ("foo", [1, 2]):
            with pytest.raises(RuntimeError, match=r"Tensor.__contains__ only supports Tensor or scalar, but you passed in a <class"):
                wrong in y  # noqa: B015
