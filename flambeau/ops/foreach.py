"""`torch._foreach_*`: one operation over the tensors of a list, as optimizers written for PyTorch use them.

The tensors are recorded one after the other, so that the compiler fuses and schedules them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNARY = (
    "abs ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"
).split()
BINARY = "add sub mul div maximum minimum clamp_max clamp_min pow lerp copy".split()
TERNARY = "addcmul addcdiv lerp".split()


def check_tensors(function: str, tensors: Any) -> None:
    """TypeError unless `tensors`, the first argument of `function`, is a list or tuple of tensors."""
    if not isinstance(tensors, (list, tuple)):
        raise TypeError(f"{function}(): argument 'self' (position 1) must be tuple of Tensors, not {type(tensors).__name__}")
    for i, x in enumerate(tensors):
        if not hasattr(x, "_meta"):
            raise TypeError(f"{function}(): expected Tensor as element {i} in argument 'self' (position 1), but got {type(x).__name__}")


def _lists(name: str, first: Sequence[Any], others: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The arguments of each tensor's call: lists go along, anything else is given to all."""
    columns = []
    for a in others:
        if isinstance(a, (list, tuple)):
            if len(a) != len(first):
                raise RuntimeError(f"_foreach_{name}: Tensor lists must have the same number of tensors, got {len(first)} and {len(a)}")
            columns.append(list(a))
        else:
            columns.append([a] * len(first))
    return list(zip(first, *columns, strict=True))


def _function(name: str, method: str) -> Any:
    """`_foreach_name`: the results as a list, or None for the in-place form."""

    def call(self: Sequence[Any], *others: Any, **keywords: Any) -> Any:
        check_tensors(f"_foreach_{name}", self)
        if not self:
            raise RuntimeError(f"_foreach_{name}: Tensor list must have at least one tensor.")
        if name.rstrip("_") in ("addcmul", "addcdiv") and len(others) == 3:  # the scalars, by position
            scalars = others[2].tolist() if hasattr(others[2], "_meta") else others[2]
            rows = _lists(name, self, (*others[:2], scalars))
            results = [getattr(x, method)(a, b, value=value) for x, a, b, value in rows]
        else:
            results = [getattr(x, method)(*rest, **keywords) for x, *rest in _lists(name, self, others)]
        return None if method.endswith("_") else tuple(results)

    call.__name__ = call.__qualname__ = f"_foreach_{name}"
    call.__doc__ = f"Tensor.{method} for each tensor of a list; the other arguments may be lists too."
    return call


def _zero(self: Sequence[Any]) -> None:
    """Set the elements of each tensor to 0."""
    check_tensors("_foreach_zero_", self)
    for x in self:
        x.zero_()


def _norm(self: Sequence[Any], ord: Any = 2, dtype: Any = None) -> tuple[Any, ...]:
    """The vector norm of each tensor."""
    check_tensors("_foreach_norm", self)
    return tuple([x.norm(ord, dtype=dtype) for x in self])


# clamp_max of tensors is minimum; the names of the list are PyTorch's, the methods ours
_SAME = {"maximum": "clamp_min", "minimum": "clamp_max"}


def functions() -> dict[str, Any]:
    """The functions by name."""
    found: dict[str, Any] = {"_foreach_zero_": _zero, "_foreach_norm": _norm}
    for name in dict.fromkeys([*UNARY, *BINARY, *TERNARY]):
        method = _SAME.get(name, name)
        if name != "copy":
            found[f"_foreach_{name}"] = _function(name, method)
        found[f"_foreach_{name}_"] = _function(name + "_", method + "_")
    return found
