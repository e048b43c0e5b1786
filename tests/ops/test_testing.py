"""torch.testing: closeness with PyTorch's texts, test tensors with its values, and the differential tester itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.testing import Input, assert_close, compare, describe, make_tensor

torch: Any = pytest.importorskip("torch")

CASES: dict[str, Callable[[Any, Any], Any]] = {
    "equal": lambda m, x: (x, x.clone()),
    "values": lambda m, x: (x, x + 1),
    "shape": lambda m, x: (x, x[:1]),
    "dtype": lambda m, x: (x, x.double()),
    "list": lambda m, x: ([x, 1.0], [x, 2.0]),
    "keys": lambda m, x: ({"a": x}, {"b": x}),
    "numbers of two types": lambda m, x: (1, 1.5),
    "text": lambda m, x: (x, "a"),
    "integers": lambda m, x: (x.long(), x.long() + 1),
    "scalars": lambda m, x: (m.tensor(1.0), m.tensor(2.0)),
    "not a number": lambda m, x: (x, x.clone().index_fill_(0, m.tensor([0]), float("nan"))),
    "bools": lambda m, x: (True, False),
    "lengths": lambda m, x: ([1], [1, 2]),
    "nested": lambda m, x: ({"a": [x]}, {"a": [x + 1]}),
    "one of many": lambda m, x: (x, x + m.tensor([[0.0, 0.0, 0.0], [0.0, 3.0, 0.0]])),
    "none": lambda m, x: (None, x),
}


def outcome(module: Any, case: Callable[[Any, Any], Any], **options: Any) -> tuple[str, str]:
    try:
        module.testing.assert_close(*case(module, module.arange(6.0).reshape(2, 3)), **options)
    except Exception as error:
        return type(error).__name__, str(error).rstrip()
    return "", ""


@pytest.mark.parametrize("name", [n for n in CASES if n != "none"])
def test_assert_close(name: str) -> None:
    ours, theirs = outcome(ft, CASES[name]), outcome(torch, CASES[name])
    assert ours[0] == theirs[0]
    assert ours[1].replace("flambeau.tensor.Tensor", "torch.Tensor") == theirs[1].replace("torch.Tensor", "torch.Tensor")


@pytest.mark.parametrize(
    "options", [{"rtol": 0.0}, {"rtol": 0.0, "atol": 1.5}, {"msg": "hello"}, {"equal_nan": True}, {"check_dtype": False}, {"rtol": 0.0, "atol": 0.0}]
)
def test_options_of_assert_close(options: dict[str, Any]) -> None:
    for name in ("values", "dtype", "not a number"):
        ours, theirs = outcome(ft, CASES[name], **options), outcome(torch, CASES[name], **options)
        assert ours == theirs, name
    with pytest.raises(AssertionError, match="stride"):
        assert_close(ft.ones(2, 3).t(), ft.ones(3, 2), check_stride=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32", "uint8", "bool", "complex64", "float16", "bfloat16"])
def test_make_tensor_is_pytorchs(dtype: str) -> None:
    for options in ({}, {"low": 1, "high": 5}, {"noncontiguous": True}, {"exclude_zero": True}):
        if dtype == "bool" and "high" in options:
            continue
        ft.manual_seed(5)
        torch.manual_seed(5)
        ours = make_tensor(4, 6, dtype=getattr(ft, dtype), device="cpu", **options)
        theirs = torch.testing.make_tensor(4, 6, dtype=getattr(torch, dtype), device="cpu", **options)
        assert ours.stride() == theirs.stride()
        assert ours.tolist() == theirs.tolist()
    with pytest.raises(ValueError, match="requires_grad"):
        make_tensor(2, dtype=ft.int64, requires_grad=True)


def test_an_input_is_built_alike() -> None:
    for given in (
        Input([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], strides=(1, 2), offset=3, requires_grad=True), Input(np.ones((2, 3)), strides=(1, 0)),
        Input([1, 2], "bfloat16"), Input(True), Input(np.zeros((0, 3)), "int32"),
    ):  # fmt: skip
        ours, theirs = given.build(ft), given.build(torch)
        assert ours.tolist() == theirs.tolist() and (ours.stride() == theirs.stride() or not ours.numel()) and ours.requires_grad == theirs.requires_grad
        assert ours.storage_offset() == theirs.storage_offset() and str(ours.dtype) == str(theirs.dtype)
        again = describe(theirs)
        assert again.dtype == given.dtype and np.array_equal(again.values, given.values)


def test_the_tester_sees_differences() -> None:
    x = Input([1.0, -2.0, 3.0], requires_grad=True)
    assert compare("abs", x, reference=torch, forms=("function", "method", "inplace", "out")) == []
    assert compare("softmax", Input([[1.0, 2.0]], requires_grad=True), reference=torch, dim=-1) == []
    wrong = {
        "values": lambda t: t * 2 + 1e-3, "dtype": lambda t: (t * 2).double(), "shape": lambda t: (t * 2)[None], "more": lambda t: (t, t),
        "gradient": lambda t: t * 2 + (t - t.detach()), "second gradient": lambda t: t * 2 + (t - t.detach()) ** 2,
    }  # fmt: skip
    for name, function in wrong.items():
        assert len(compare((function, lambda t: t * 2), x, reference=torch)) == 1, name
    (strides,) = compare((lambda t: t.t().contiguous().t(), lambda t: t.t().t()), Input([[1.0, 2.0], [3.0, 4.0]]), reference=torch)
    assert "strides" in strides.text
    (error,) = compare("sum", Input([1.0]), 5, reference=torch, forms=("function",)) or [None]
    assert error is None  # IndexError on both sides
    (missing,) = compare("no_such_thing", Input([1.0]), reference=type("Reference", (), {"Tensor": torch.Tensor, "no_such_thing": abs}))
    assert "does not exist" in missing.text
    with pytest.raises(ValueError, match="unknown form"):
        compare("abs", x, reference=torch, forms=("sideways",))


@pytest.mark.parametrize("actual", [True, 1.0, [1.0], np.ones(2)])
def test_things_of_different_kinds_are_not_compared(actual: Any) -> None:
    with pytest.raises(TypeError, match="No comparison pair"):
        assert_close(actual, ft.ones(2))
