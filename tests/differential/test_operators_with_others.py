"""Python's operators between tensors and what is no tensor: the other operand's own methods get their chance, NumPy's arrays too, as in PyTorch."""

from __future__ import annotations

import decimal
import fractions
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import flambeau as ft

BINARY = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift lt le gt ge eq ne".split()
IN_PLACE = "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()


class Others:
    """Answers every operator, from either side."""


for _name in BINARY:
    setattr(Others, f"__{_name}__", lambda self, other, name=_name: f"{name} of the other")
    setattr(Others, f"__r{_name}__", lambda self, other, name=_name: f"r{name} of the other")

OTHERS: dict[str, Any] = {
    "str": "a", "None": None, "others": Others(), "list": [1, 2], "tuple": (1, 2), "dict": {}, "object": object(), "bytes": b"a", "set": {1}, "type": int,
    "ellipsis": ..., "float64": np.array([2.0, 3.0]), "float32": np.array([2.0, 3.0], dtype=np.float32), "int64": np.array([2, 3]),
    "bool": np.array([True, True]), "of another shape": np.array([2.0, 3.0, 4.0]), "without dims": np.array(3.0),
    "of objects": np.array([1, "a"], dtype=object), "a float of NumPy's": np.float32(2), "an int of NumPy's": np.int64(2),
    "decimal": decimal.Decimal(2), "fraction": fractions.Fraction(1, 2), "2": 2, "1.5": 1.5,
}  # fmt: skip
TENSORS: dict[str, Callable[[Any], Any]] = {
    "floats": lambda m: m.tensor([1.5, 2.5]), "ints": lambda m: m.tensor([3, 4]), "bools": lambda m: m.tensor([True, True]), "a number": lambda m: m.tensor(2),
}  # fmt: skip


def _plain(x: Any) -> Any:
    if isinstance(x, (torch.Tensor, ft.Tensor)):
        return "tensor", str(x.dtype).rpartition(".")[2], repr(x.tolist())
    if isinstance(x, np.ndarray):
        return "array", str(x.dtype), [_plain(v) for v in x.tolist()] if x.ndim else x.tolist()
    return type(x).__name__, x


def _tried(f: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return _plain(f())
        except Exception as error:
            return type(error) if not isinstance(error, NotImplementedError) else RuntimeError  # PyTorch's own is one as well as the other


def _calls(m: Any, tensor: str, other: Any) -> dict[str, Any]:
    def new() -> Any:
        return TENSORS[tensor](m)

    found: dict[str, Any] = {}
    for name in BINARY:
        function = getattr(operator, name if name not in ("and", "or") else name + "_")
        if not (name == "ne" and isinstance(other, np.ndarray)):  # PyTorch's `!=` answers True there, of the whole array
            found[f"{name}"] = _tried(lambda function=function: function(new(), other))
            found[f"{name} from the left"] = _tried(lambda function=function: function(other, new()))
            for method in (f"__{name}__", f"__r{name}__"):
                if hasattr(torch.Tensor, method):
                    found[method] = _tried(lambda method=method: getattr(m.Tensor, method)(new(), other))
    for name in IN_PLACE:
        found[f"i{name}"] = _tried(lambda name=name: getattr(operator, "i" + name)(new(), other))
        found[f"__i{name}__"] = _tried(lambda name=name: getattr(m.Tensor, f"__i{name}__")(new(), other))
    return found


@pytest.mark.parametrize("tensor", TENSORS)
@pytest.mark.parametrize("other", OTHERS)
def test_operators(other: str, tensor: str) -> None:
    ours, theirs = _calls(ft, tensor, OTHERS[other]), _calls(torch, tensor, OTHERS[other])
    assert {k: (v, theirs[k]) for k, v in ours.items() if v != theirs[k]} == {}


@pytest.mark.parametrize("other", ["a", None, np.array([1.0, 2.0]), [1, 2]])
@pytest.mark.parametrize("name", ["add", "mul", "pow", "eq", "bitwise_and", "matmul"])
def test_functions_by_name_still_refuse(name: str, other: Any) -> None:
    for m in (torch, ft):
        with pytest.raises(TypeError):
            getattr(m, name)(m.tensor([1, 2]), other)


def test_a_subclass_sees_the_public_function() -> None:
    def seen(m: Any) -> list[str]:
        names: list[str] = []

        class Seen(m.Tensor):  # type: ignore[misc]
            @classmethod
            def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                names.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        x = m.tensor([1.0, 2.0]).as_subclass(Seen)
        names.clear()
        _ = x + 1, 1 + x, x * x, x @ x, 1 - x, x < 2
        x += 1
        return [n for n in names if not n.startswith("__")]

    assert seen(ft) == seen(torch)
