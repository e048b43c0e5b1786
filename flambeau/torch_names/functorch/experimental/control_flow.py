"""functorch.experimental.control_flow: a branch by a tensor's value, and a function of every slice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.settings import cond as cond
from flambeau.utils._pytree import tree_flatten, tree_unflatten


def map(f: Callable[..., Any], xs: Any, *args: Any) -> Any:
    """`f(slice, *args)` of every slice of the tensors in `xs` along their first dim, the results stacked. ValueError without slices."""
    leaves, structure = tree_flatten(xs)
    lengths = {x.shape[0] if x.ndim else 0 for x in leaves}
    if len(lengths) != 1 or lengths == {0}:
        raise ValueError(f"map: xs needs tensors of one first size that is not zero, got shapes {[tuple(x.shape) for x in leaves]}")
    results = [tree_flatten(f(tree_unflatten([x[i] for x in leaves], structure), *args)) for i in range(*lengths)]
    stacked = [flambeau.stack(parts) for parts in zip(*[flat for flat, _ in results], strict=True)]
    return tree_unflatten(stacked, results[0][1])
