"""torch._functorch.apis: torch.func's functions that return functions, and vmap by chunks under its older name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.func.mapping import mapped_size
from flambeau.func.mapping import vmap as vmap
from flambeau.func.reverse import grad as grad
from flambeau.func.reverse import grad_and_value as grad_and_value


def chunk_vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error", chunks: int = 2) -> Callable[..., Any]:
    """vmap whose calls take the mapped dim in so many pieces, one after the other, for the memory of a piece."""
    if not isinstance(chunks, int) or isinstance(chunks, bool) or chunks < 1:
        raise ValueError(f"chunk_vmap: chunks must be a number of at least 1, got {chunks!r}")

    def mapped(*args: Any, **kwargs: Any) -> Any:
        size = mapped_size(func, in_dims, args)
        return vmap(func, in_dims, out_dims, randomness, chunk_size=max(1, -(-size // chunks)))(*args, **kwargs)

    return mapped
