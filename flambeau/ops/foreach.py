"""`torch._foreach_*`: one operation over the tensors of a list, as optimizers written for PyTorch use them.

The tensors are recorded one after the other, so that the compiler fuses and schedules them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt "
    "tan tanh trunc zero clone"
).split()
BINARY = "add sub mul div maximum minimum clamp_max clamp_min pow lerp copy".split()
TERNARY = "addcmul addcdiv lerp".split()
OF_TENSORS = ("lerp", "addcmul", "addcdiv", "copy")  # whose first lists are never of numbers
ONE_FORM = {"zero": "_", "copy": "_", "clone": ""}  # in place only, and only so
NAMES = "tensor1 tensors1 tensor2 other scalar scalars exponent weight weights src".split()  # of what follows the first list, in its order
SCALAR_TENSORS = ("add", "mul", "div")  # take one tensor for all, without dims

# clamp_max of tensors is minimum; the names of the list are PyTorch's, the methods ours
_SAME = {"maximum": "clamp_min", "minimum": "clamp_max"}


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
    stem = name.rstrip("_")
    for a in others:
        if not isinstance(a, (list, tuple)):
            if hasattr(a, "_meta") and a.ndim and stem in SCALAR_TENSORS:
                raise RuntimeError(f"_foreach_{name}: scalar tensor expected to be 0 dim but it has {a.ndim} dimensions and {a.numel()} elements.")
            columns.append([a] * len(first))
            continue
        tensors = any(hasattr(x, "_meta") for x in a) or (not columns and stem in OF_TENSORS)
        if not first and (not tensors or not a):
            raise RuntimeError(f"_foreach_{name}: Tensor list must have at least one tensor.")
        if len(a) != len(first):
            if tensors:
                raise RuntimeError(f"_foreach_{name}: Tensor lists must have the same number of tensors, got {len(first)} and {len(a)}")
            raise RuntimeError(f"_foreach_{name}: Tensor list must have same number of elements as scalar list. Got {len(first)} tensors and {len(a)} scalars")
        columns.append(list(a))
    if not first:
        raise RuntimeError(f"_foreach_{name}: Tensor list must have at least one tensor.")
    return list(zip(first, *columns, strict=True))


def _function(name: str, method: str) -> Any:
    """`_foreach_name`: the results as a tuple; of the in-place form the list that was given."""

    def call(self: Sequence[Any], *others: Any, **keywords: Any) -> Any:
        if keywords:
            others += tuple([keywords.pop(k) for k in NAMES if k in keywords])
        if name == "pow" and len(others) == 1 and isinstance(self, (int, float, complex)):  # one number to the powers of a list
            check_tensors("_foreach_pow", others[0])
            return tuple([self**x for _, x in _lists(name, [self] * len(others[0]), others)])
        check_tensors(f"_foreach_{name}", self)
        if name.rstrip("_") in ("addcmul", "addcdiv") and len(others) == 3:  # the scalars, by position
            scalars = others[2].tolist() if hasattr(others[2], "_meta") else others[2]
            rows = _lists(name, self, (*others[:2], scalars))
            results = [getattr(x, method)(a, b, value=value) for x, a, b, value in rows]
        else:
            results = [getattr(x, method)(*rest, **keywords) for x, *rest in _lists(name, self, others)]
        return self if method.endswith("_") else tuple(results)

    call.__name__ = call.__qualname__ = f"_foreach_{name}"
    call.__doc__ = f"Tensor.{method} for each tensor of a list; the other arguments may be lists too."
    return call


def _norm(self: Sequence[Any], ord: Any = 2, dtype: Any = None) -> tuple[Any, ...]:
    """The vector norm of each tensor."""
    check_tensors("_foreach_norm", self)
    if not isinstance(ord, (int, float)):
        raise TypeError(f"_foreach_norm(): argument 'ord' (position 2) must be Number, not {type(ord).__name__}")
    return tuple([x.norm(ord, dtype=dtype) for (x,) in _lists("norm", self, ())])


def _powsum(self: Sequence[Any], ord: Any = 2, dtype: Any = None) -> tuple[Any, ...]:
    """The sum of the powers of each tensor's absolute values."""
    check_tensors("_foreach_powsum", self)
    for x in self:
        if not (x.is_floating_point() or x.is_complex()):
            raise NotImplementedError(f"_foreach_powsum(): not implemented for {x.dtype}: the tensors must be floating or complex")
    return tuple([x.abs().pow(ord).sum(dtype=dtype) for (x,) in _lists("powsum", self, ())])


def _max(self: Sequence[Any]) -> tuple[Any, ...]:
    """The largest element of each tensor."""
    check_tensors("_foreach_max", self)
    return tuple([x.max() for (x,) in _lists("max", self, ())])


def _mm(self: Sequence[Any], mat2: Sequence[Any]) -> tuple[Any, ...]:
    """The products of the matrices of two lists."""
    check_tensors("_foreach_mm", self)
    return tuple([x.mm(y) for x, y in _lists("mm", self, (mat2,))])


def functions() -> dict[str, Any]:
    """The functions by name."""
    found: dict[str, Any] = {"_foreach_norm": _norm, "_foreach_powsum": _powsum, "_foreach_max": _max, "_foreach_mm": _mm}
    for name in dict.fromkeys([*UNARY, *BINARY, *TERNARY]):
        for end in [ONE_FORM[name]] if name in ONE_FORM else ["", "_"]:
            found[f"_foreach_{name}{end}"] = _function(name + end, _SAME.get(name, name) + end)
    return found
