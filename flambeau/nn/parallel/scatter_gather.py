"""torch.nn.parallel.scatter_gather: structures of tensors cut into a share for each device, and joined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.devices import check
from flambeau.tensor import Tensor


def on_cpu(devices: Sequence[Any]) -> int:
    """How many devices these are; RuntimeError for one that is not here."""
    for device in devices:
        check(device)
    return len(devices)


def scatter(inputs: Any, target_gpus: Sequence[Any], dim: int = 0) -> Any:
    """Tensors in any nesting cut into as many chunks as there are devices (all of them the CPU): one structure for each."""
    count = on_cpu(target_gpus)

    def cut(x: Any) -> list[Any]:
        if isinstance(x, Tensor):
            return list(x.chunk(count, dim))
        if isinstance(x, tuple) and hasattr(x, "_fields"):
            return [type(x)(*parts) for parts in zip(*map(cut, x), strict=False)]
        if isinstance(x, tuple) and x:
            return list(zip(*map(cut, x), strict=False))
        if isinstance(x, list) and x:
            return [list(parts) for parts in zip(*map(cut, x), strict=False)]
        if isinstance(x, dict) and x:
            return [type(x)(parts) for parts in zip(*map(cut, x.items()), strict=False)]
        return [x] * count

    made = cut(inputs)
    return tuple(made) if isinstance(inputs, Tensor) else made


def gather(outputs: Any, target_device: Any, dim: int = 0) -> Any:
    """The inverse of scatter: tensors of the structures joined along `dim`; numbers become vectors."""
    on_cpu([target_device])
    first = outputs[0]
    if isinstance(first, Tensor):
        return torch.cat([t.reshape(1) if t.ndim == 0 else t for t in outputs], dim)
    if first is None:
        return None
    if isinstance(first, dict):
        return type(first)((key, gather([part[key] for part in outputs], target_device, dim)) for key in first)
    joined = (gather(column, target_device, dim) for column in zip(*outputs, strict=True))
    return type(first)(*joined) if hasattr(first, "_fields") else type(first)(joined)


def scatter_kwargs(
    inputs: tuple[Any, ...], kwargs: dict[str, Any] | None, target_gpus: Sequence[Any], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """Positional and named arguments in a share for each device; of the shorter list the missing shares are empty."""
    given = list(scatter(inputs, target_gpus, dim)) if inputs else []
    named = list(scatter(kwargs, target_gpus, dim)) if kwargs else []
    given += [()] * (len(named) - len(given))
    named += [{}] * (len(given) - len(named))
    return tuple(given), tuple(named)


__all__ = ["gather", "scatter", "scatter_kwargs"]
