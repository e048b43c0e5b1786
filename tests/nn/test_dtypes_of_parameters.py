"""Normalising functions take parameters of one dtype: the input's, or float32 beside an input of 16 bits. All combinations, as PyTorch takes them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import flambeau as ft

torch = pytest.importorskip("torch")

DTYPES = ("float32", "float64", "bfloat16", "int64")


def _outcome(call: Callable[[], Any]) -> str:
    try:
        return str(call().dtype)
    except RuntimeError:
        return "refused"


def _ones(m: Any, shape: tuple[int, ...], dtype: str | None) -> Any:
    return None if dtype is None else m.ones(*shape, dtype=getattr(m, dtype))


CALLS: dict[str, Callable[[Any, Any, Any, Any, Any], Any]] = {
    "layer_norm": lambda m, x, w, b, s: m.nn.functional.layer_norm(x, (4,), w, b),
    "group_norm": lambda m, x, w, b, s: m.nn.functional.group_norm(x.transpose(1, 2), 2, w, b),
    "batch_norm": lambda m, x, w, b, s: m.nn.functional.batch_norm(x.transpose(1, 2), s, s, w, b, s is None),
    "batch_norm_train": lambda m, x, w, b, s: m.nn.functional.batch_norm(x.transpose(1, 2), s, None if s is None else s.clone(), w, b, True),
    "instance_norm": lambda m, x, w, b, s: m.nn.functional.instance_norm(x.transpose(1, 2), s, s, w, b, s is None),
    "rms_norm": lambda m, x, w, b, s: m.nn.functional.rms_norm(x, (4,), w),
}


@pytest.mark.parametrize("name", CALLS)
def test_dtypes_of_parameters(name: str) -> None:
    for kinds in itertools.product(DTYPES, (*DTYPES, None), (*DTYPES, None), (*DTYPES[:3], None) if name.startswith("batch") else (None,)):
        shapes = ((2, 3, 4), (4,), (4,), (4,))
        outcomes = [_outcome(partial(CALLS[name], m, *[_ones(m, shape, kind) for shape, kind in zip(shapes, kinds, strict=True)])) for m in (ft, torch)]
        assert outcomes[0] == outcomes[1], (kinds, outcomes)


def test_the_error_names_the_parameter_and_both_dtypes() -> None:
    with pytest.raises(RuntimeError, match=r"layer_norm: expected scalar type BFloat16 but found Double: weight is .*float64, the input .*bfloat16"):
        ft.nn.functional.layer_norm(ft.ones(2, 4, dtype=ft.bfloat16), (4,), ft.ones(4, dtype=ft.float64))
    with pytest.raises(RuntimeError, match=r"mixed dtype \(CPU\): expect parameter to have scalar type of Float.*weight is .*bfloat16, bias is .*float32"):
        ft.nn.functional.layer_norm(ft.ones(2, 4, dtype=ft.bfloat16), (4,), ft.ones(4, dtype=ft.bfloat16), ft.ones(4))
