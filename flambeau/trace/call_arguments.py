"""The arguments of a recorded call: their kinds, and which of them are tensors and run-time numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flambeau.trace.fragment import PARAMETER_DTYPE
from flambeau.trace.objects import _TENSOR

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def kinds_of(op: Any, key: Any) -> Sequence[str]:
    """The kinds of a call's arguments, as its key has them."""
    return op.kinds if op.changing is None else op.changing.kinds(key)  # type: ignore[no-any-return]


def sort_arguments(kinds: Sequence[str], op: Any, args: Sequence[Any], tensors: list[Tensor], numbers: list[Any]) -> None:
    """The tensors and the run-time numbers among a call's arguments, in order (as `Trace._enter` takes them)."""
    cls = _TENSOR[0]
    for kind, default, a in zip(kinds, op.defaults, args, strict=True):
        if kind == "static" or a is None:
            continue
        if kind == "tensors":
            if isinstance(a, cls):
                raise TypeError(f"{op.name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor")
            tensors.extend([x for x in a if x is not None])
        elif isinstance(a, cls):
            tensors.append(a)
        elif kind != "exponent" and type(a) is not bool and type(a) in PARAMETER_DTYPE and not (kind == "number" and a == default):
            numbers.append(a)
