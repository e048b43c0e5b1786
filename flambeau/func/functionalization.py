"""functionalize: a function without in-place operations and views. The recorder makes every function one, see docs/design.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.func.reverse import like


def functionalize(func: Callable[..., Any], *, remove: str = "mutations") -> Callable[..., Any]:
    """`func` itself: what is recorded has values, not memory, so in-place writes and views are gone before anything is compiled.

    `remove`: "mutations" or "mutations_and_views", as in PyTorch; RuntimeError for any other.
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(
            f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid options are:\n"
            "     remove='mutations': all inplace and out= operators will be removed from the program, and replaced with their out-of-place "
            "equivalents.\n     remove='mutations_and_views': In addition to the above, all aliasing operators {view} will be replaced with "
            "their non-aliasing counterparts, {view}_copy.\n"
        )

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return func(*args, **kwargs)

    return like(func, wrapped)
