"""scan: a function of a carry and of each slice along a dim, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.utils import _pytree as pytree


def scan(combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> tuple[Any, Any]:
    """(the last carry, the outputs stacked along `dim`): `combine_fn(carry, slice)` gives the next carry and an output, from `init` on, along `dim` of `xs`.

    `init` and `xs` are structures of tensors; the carry keeps the structure, shapes and dtypes of `init`. `reverse`: from the last slice to the first.
    """
    if not callable(combine_fn):
        raise RuntimeError(f"scan(): combine_fn must be a callable, but got {combine_fn!r}")
    carry, carried = pytree.tree_flatten(init)
    leaves, structure = pytree.tree_flatten(xs)
    for name, found in (("init", carry), ("xs", leaves)):
        if not found or not all(isinstance(t, torch.Tensor) for t in found):
            raise RuntimeError(f"scan(): {name} must be a tensor, or a structure of tensors, and hold at least one")
    shapes = [tuple(t.shape) for t in leaves]
    if any(not -t.ndim <= dim < t.ndim for t in leaves):
        raise IndexError(f"scan(): dim {dim} is out of range for tensors of shapes {shapes}")
    if len({t.shape[dim] for t in leaves}) > 1 or not leaves[0].shape[dim]:
        raise RuntimeError(f"scan(): all tensors must have the same size in dim {dim}, which is not zero, but got shapes {shapes}")
    kinds = [(tuple(t.shape), t.dtype) for t in carry]
    outputs: list[list[Any]] = []
    order = range(leaves[0].shape[dim])
    for i in reversed(order) if reverse else order:
        result = combine_fn(pytree.tree_unflatten(carry, carried), pytree.tree_unflatten([t.select(dim, i) for t in leaves], structure))
        if not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError(f"scan(): combine_fn must return (the next carry, an output), but returned {type(result).__name__}")
        carry, returned = pytree.tree_flatten(result[0])
        if returned != carried or [(tuple(t.shape), t.dtype) for t in carry] != kinds:
            raise RuntimeError(
                f"scan(): the carry that combine_fn returns must have the structure, shapes and dtypes of init, {kinds}, but has "
                f"{[(tuple(t.shape), t.dtype) for t in carry]}"
            )
        parts, made = pytree.tree_flatten(result[1])
        outputs.append(parts)
    at = dim % leaves[0].ndim
    stacked = [torch.stack(list(part[::-1] if reverse else part), at if at <= part[0].ndim else 0) for part in zip(*outputs, strict=True)]
    return pytree.tree_unflatten(carry, carried), pytree.tree_unflatten(stacked, made)
