"""Orders of arguments that PyTorch has deprecated and takes all the same: numbers by position, before the tensors that they multiply.

    x.add_(0.5, y)                     x.add_(y, alpha=0.5)
    x.addcmul_(0.5, a, b)              x.addcmul_(a, b, value=0.5)
    addmm(2, x, 0.5, a, b)             addmm(x, a, b, beta=2, alpha=0.5)

A call of this kind has more arguments by position than the function has now, so others pay nothing but a look at an empty tuple. The orders are those of
PyTorch's tools/autograd/deprecated.yaml.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau.trace.recorder import _TENSOR

_SUMS: Final = frozenset("addbmm addmm addmv addr baddbmm".split())
# By name: the orders (n: a number, t: a tensor) and the keywords that the numbers have now.
_ORDERS: Final[dict[str, tuple[frozenset[str], tuple[str, ...]]]] = {
    **dict.fromkeys(("add", "sub"), (frozenset(("tnt",)), ("alpha",))),
    **dict.fromkeys(("addcdiv", "addcmul"), (frozenset(("tntt",)), ("value",))),
    **dict.fromkeys(sorted(_SUMS), (frozenset(("ntntt", "nttt", "tnntt", "tntt")), ("beta", "alpha"))),
}


def has(name: str) -> bool:
    """Whether a function has former orders."""
    return name.rstrip("_") in _ORDERS


def formerly(name: str, function: Callable[..., Any], places: int, given: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """The call of a function that was given more arguments than it has places for. TypeError if they are in none of the former orders."""
    orders, names = _ORDERS[name.rstrip("_")]
    order = "".join(["t" if isinstance(a, _TENSOR[0]) else "n" for a in given])
    if order not in orders:
        raise TypeError(f"{name}() takes {places} positional arguments but {len(given)} were given; numbers are given as {' and '.join(names)}=...")
    numbers = dict(zip(names, [a for a, kind in zip(given, order, strict=True) if kind == "n"], strict=False))
    former = ", ".join(["Tensor" if kind == "t" else "Number" for kind in order])
    warnings.warn(
        f"This overload of {name} is deprecated: {name}({former}). Give the numbers as {' and '.join([f'{n}=...' for n in numbers])}, after the tensors.",
        UserWarning, stacklevel=3,
    )  # fmt: skip
    return function(*[a for a, kind in zip(given, order, strict=True) if kind == "t"], **{**keywords, **numbers})
