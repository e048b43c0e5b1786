"""torch.nn.parallel.scatter_gather."""

from __future__ import annotations

from typing import Any

from flambeau.nn.parallel.data_parallel import gather as gather
from flambeau.nn.parallel.data_parallel import scatter as scatter


def scatter_kwargs(inputs: Any, kwargs: dict[str, Any] | None, target_gpus: Any, dim: int = 0) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Positional and named inputs as the one share of one device."""
    return scatter(inputs, target_gpus, dim), scatter(kwargs or {}, target_gpus, dim)
