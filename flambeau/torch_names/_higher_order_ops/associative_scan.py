"""associative_scan: what an associative function makes of all prefixes along a dim, in a number of calls that grows with its logarithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.utils import _pytree as pytree


def associative_scan(
    combine_fn: Callable[[Any, Any], Any], xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise"
) -> Any:  # fmt: skip
    """The inclusive scan of `xs` (a tensor, or a structure of tensors of one length along `dim`) by `combine_fn`, which takes two such structures."""
    if not callable(combine_fn):
        raise ValueError(f"associative_scan(): combine_fn must be a callable, but got {combine_fn!r}")
    if combine_mode not in ("pointwise", "generic"):
        raise ValueError(f"associative_scan(): combine_mode must be 'pointwise' or 'generic', but got {combine_mode!r}")
    leaves, spec = pytree.tree_flatten(xs)
    if not leaves or not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise RuntimeError("associative_scan(): xs must be a tensor, or a structure of tensors, and hold at least one")
    shapes = [tuple(leaf.shape) for leaf in leaves]
    if any(not -leaf.ndim <= dim < leaf.ndim for leaf in leaves):
        raise IndexError(f"associative_scan(): dim {dim} is out of range for tensors of shapes {shapes}")
    if len({leaf.shape[dim] for leaf in leaves}) > 1:
        raise RuntimeError(f"associative_scan(): all tensors must have the same size in dim {dim}, but got shapes {shapes}")
    moved = [leaf.movedim(dim, 0) for leaf in leaves]
    if reverse:
        moved = [leaf.flip(0) for leaf in moved]

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        """Of elements along the first dim: the function sees it where it was."""
        back = [[t.movedim(0, dim) for t in side] for side in (a, b)]
        made, made_spec = pytree.tree_flatten(combine_fn(pytree.tree_unflatten(back[0], spec), pytree.tree_unflatten(back[1], spec)))
        if made_spec != spec:
            raise RuntimeError(f"associative_scan(): combine_fn must return the structure of its arguments, {spec}, but returned {made_spec}")
        return [t.movedim(dim, 0) for t in made]

    def scan(elements: list[Any]) -> list[Any]:
        """Pairs are combined and scanned; an even place is the pair before it and itself (Blelloch, 1990)."""
        count = elements[0].shape[0]
        if count < 2:
            return elements
        pairs = scan(combine([e[: count - 1 : 2] for e in elements], [e[1::2] for e in elements]))
        if count == 2:
            later = []
        else:
            later = combine([p[: (count - 1) // 2] for p in pairs], [e[2::2] for e in elements])
        out = []
        for i, (element, pair) in enumerate(zip(elements, pairs, strict=True)):
            even = torch.cat([element[:1], later[i]]) if later else element[:1]
            both = torch.stack([even[: pair.shape[0]], pair], 1).flatten(0, 1)
            out.append(both if count % 2 == 0 else torch.cat([both, even[-1:]]))
        return out

    results = scan(moved)
    if reverse:
        results = [t.flip(0) for t in results]
    return pytree.tree_unflatten([t.movedim(0, dim) for t in results], spec)
