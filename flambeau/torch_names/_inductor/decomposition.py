"""torch._inductor.decomposition: what packages say of their operators to PyTorch's code generator: of which others one is made.

flambeau compiles an operator as it runs, by the function that it has; what is said here can be read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.utils._pytree import tree_leaves

decompositions: dict[Any, Callable[..., Any]] = {}


def register_decomposition(ops: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that puts a function into `decompositions` for one operator or some."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        decompositions.update(dict.fromkeys(tree_leaves(ops), function))
        return function

    return register
