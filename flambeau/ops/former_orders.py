"""Orders of arguments that PyTorch has deprecated and takes all the same: numbers by position, before the tensors that they multiply.

    x.add_(0.5, y)                     x.add_(y, alpha=0.5)
    x.addcmul_(0.5, a, b)              x.addcmul_(a, b, value=0.5)
    addmm(2, x, 0.5, a, b)             addmm(x, a, b, beta=2, alpha=0.5)
    rsub(x, 2, 0.5)                    rsub(x, 2, alpha=0.5)
    x.squeeze(0, 1)                    x.squeeze((0, 1)), not deprecated

A call of this kind has more arguments by position than the function has now, so others pay nothing but a look at an empty tuple. The orders are those of
PyTorch's tools/autograd/deprecated.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau.trace.objects import _TENSOR
from flambeau.trace.once import warn_here

_SUMS: Final = frozenset("addbmm addmm addmv addr baddbmm".split())
# By name: the orders (n: a number, t: a tensor) and the keywords that the numbers have now.
_ORDERS: Final[dict[str, tuple[frozenset[str], tuple[str, ...]]]] = {
    **dict.fromkeys(("add", "sub"), (frozenset(("tnt",)), ("alpha",))),
    **dict.fromkeys(("addcdiv", "addcmul"), (frozenset(("tntt",)), ("value",))),
    **dict.fromkeys(sorted(_SUMS), (frozenset(("ntntt", "nttt", "tnntt", "tntt")), ("beta", "alpha"))),
}


# Functions of one dim or several, which may be given one after the other.
_DIMS: Final = frozenset(("squeeze", "count_nonzero"))


def has(name: str) -> bool:
    """Whether a function takes more arguments by position than it has places for."""
    return (plain := name.rstrip("_")) in _ORDERS or plain in _DIMS or plain == "rsub"


def _scale(name: str, scale: Any) -> Any:
    """The number of a former order, which may be a tensor without dims: to PyTorch a number like others."""
    if isinstance(scale, _TENSOR[0]):
        if scale.ndim or scale.requires_grad:
            raise TypeError(f"{name}(): argument 'alpha' must be Number, not Tensor of shape {tuple(scale.shape)}")
        return scale.item()
    return scale


def formerly(name: str, function: Callable[..., Any], places: int, given: Sequence[Any], keywords: dict[str, Any]) -> Any:
    """The call of a function that was given more arguments than it has places for. TypeError if they are in none of the former orders."""
    plain = name.rstrip("_")
    if plain in _DIMS:
        bad = [type(d).__name__ for d in given[1:] if isinstance(d, (float, str, list, tuple)) or d is None] + ["bool"] * isinstance(given[1], bool)
        if bad:
            raise TypeError(f"{name}(): argument 'dim' must be one int, a tuple of ints, or ints one after the other, but found {bad[0]}")
        return function(given[0], tuple(given[1:]), **keywords)
    if plain == "rsub" and len(given) == 3 and not isinstance(given[1], _TENSOR[0]):
        return function(given[0], given[1], **{**keywords, "alpha": _scale(name, given[2])})
    orders, names = _ORDERS.get(plain, (frozenset[str](), ("alpha",)))
    order = "".join(["t" if isinstance(a, _TENSOR[0]) else "n" for a in given])
    if plain in ("add", "sub") and len(given) == 3 and (order[2] == "t" or isinstance(given[2], (int, float, complex))):
        given, order = (given[0], _scale(name, given[1]), given[2]), "tnt"  # what is added may be a number
    if order not in orders:
        raise TypeError(f"{name}() takes {places} positional arguments but {len(given)} were given; numbers are given as {' and '.join(names)}=...")
    numbers = dict(zip(names, [_scale(name, a) for a, kind in zip(given, order, strict=True) if kind == "n"], strict=False))
    former = ", ".join(["Tensor" if kind == "t" else "Number" for kind in order])
    warn_here(
        f"This overload of {name} is deprecated: {name}({former}). Give the numbers as {' and '.join([f'{n}=...' for n in numbers])}, after the tensors.",
    )  # fmt: skip
    return function(*[a for a, kind in zip(given, order, strict=True) if kind == "t"], **{**keywords, **numbers})
