"""Checks of arguments that the transforms share, in PyTorch's words."""

from __future__ import annotations

from typing import Any

from flambeau.tensor import Tensor
from flambeau.utils._pytree import tree_leaves


def argument_number(argnum: Any, count: int) -> int:
    """A position counted from 0."""
    if not isinstance(argnum, int):
        raise RuntimeError(f"argnum must be int, got: {type(argnum)}")
    if not -count <= argnum < count:
        raise RuntimeError(f"Got argnum={argnum}, but only {count} positional inputs")
    return argnum % count


def chosen(args: tuple[Any, ...], argnums: Any, as_tuple: bool = True) -> Any:
    """The arguments that `argnums` names: one, or a tuple of them."""
    if not isinstance(argnums, (int, tuple)):
        raise RuntimeError(f"argnums must be int or Tuple[int, ...], got: {type(argnums)}")
    if isinstance(argnums, int):
        found = args[argument_number(argnums, len(args))]
        return (found,) if as_tuple else found
    numbers = [argument_number(n, len(args)) for n in argnums]
    if not numbers:
        raise RuntimeError("argnums must be non-empty")
    if len(set(numbers)) != len(numbers):
        raise RuntimeError(f"argnums elements must be unique, got {argnums}")
    return tuple([args[n] for n in numbers])


def replaced(args: tuple[Any, ...], new: Any, argnums: Any) -> tuple[Any, ...]:
    """The arguments with those that `argnums` names exchanged."""
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)
    values = [new] if isinstance(argnums, int) else list(new)
    made = list(args)
    for n, value in zip(numbers, values, strict=True):
        made[argument_number(n, len(args))] = value
    return tuple(made)


def require_real(name: str, args: Any, what: str) -> None:
    """Jacobians are of real numbers."""
    for i, a in enumerate(tree_leaves(args)):
        if isinstance(a, Tensor) and a.dtype.is_complex:
            raise RuntimeError(f"{name}: Expected all {what} to be real but received complex tensor at flattened input idx: {i}")


def require_tensors(flat: list[Any], api: str) -> None:
    """Results are tensors, at least one."""
    if not flat or (len(flat) == 1 and flat[0] is None):
        raise RuntimeError(f"{api}: Expected f to be a function that has non-empty output (got output = {flat})")
    for o in flat:
        if not isinstance(o, Tensor):
            raise RuntimeError(f"{api}: expected f(*primals) to return only tensors, got unsupported type {type(o)}")


def with_aux(result: Any, api: str) -> tuple[Any, Any]:
    """(output, aux) of a function with has_aux."""
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(f"{api}: output of function f should be a tuple: (output, aux) if has_aux is True")
    return result
