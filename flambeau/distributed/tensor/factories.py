"""DTensors made of nothing: each process makes its part only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.distributed.tensor.api import DTensor, _whole_mesh
from flambeau.distributed.tensor.placement_types import Partial
from flambeau.distributed.tensor.spec import Spec, normalized


def _made(name: str, size: Any, device_mesh: Any, placements: Any, requires_grad: bool, fill: Callable[[tuple[int, ...], Spec], Any]) -> DTensor:
    sizes = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
    mesh = device_mesh or _whole_mesh()
    spec = Spec(mesh, normalized(placements, mesh, len(sizes), name), sizes)
    if any(isinstance(p, Partial) for p in spec.placements) and name not in ("zeros", "empty"):
        raise ValueError(f"torch.distributed.tensor.{name}: placements are Shard or Replicate, got {spec.placements}")
    return DTensor(fill(spec.local_shape(), spec), spec, requires_grad=requires_grad)


def zeros(*size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = None, device_mesh: Any = None, placements: Any = None) -> DTensor:
    """Zeros."""
    return _made("zeros", size, device_mesh, placements, requires_grad, lambda sizes, spec: flambeau.zeros(sizes, dtype=dtype))


def ones(*size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = None, device_mesh: Any = None, placements: Any = None) -> DTensor:
    """Ones."""
    return _made("ones", size, device_mesh, placements, requires_grad, lambda sizes, spec: flambeau.ones(sizes, dtype=dtype))


def empty(*size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = None, device_mesh: Any = None, placements: Any = None) -> DTensor:
    """Whatever is there."""
    return _made("empty", size, device_mesh, placements, requires_grad, lambda sizes, spec: flambeau.empty(sizes, dtype=dtype))


def full(
    size: Any, fill_value: Any, *, requires_grad: bool = False, dtype: Any = None, layout: Any = None, device_mesh: Any = None, placements: Any = None
) -> DTensor:
    """One number everywhere."""
    return _made("full", (size,), device_mesh, placements, requires_grad, lambda sizes, spec: flambeau.full(sizes, fill_value, dtype=dtype))


def _random(spec: Spec, dtype: Any, sizes: tuple[int, ...], method: str) -> Any:
    from flambeau.distributed.tensor.rules.filling import seeded

    return getattr(flambeau.empty(sizes, dtype=dtype), method)(generator=seeded(spec))


def rand(*size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = None, device_mesh: Any = None, placements: Any = None) -> DTensor:
    """Uniform in [0, 1). The processes' default generators must be at the same place."""
    return _made("rand", size, device_mesh, placements, requires_grad, lambda sizes, spec: _random(spec, dtype, sizes, "uniform_"))


def randn(*size: Any, requires_grad: bool = False, dtype: Any = None, layout: Any = None, device_mesh: Any = None, placements: Any = None) -> DTensor:
    """Normal with mean 0 and variance 1. The processes' default generators must be at the same place."""
    return _made("randn", size, device_mesh, placements, requires_grad, lambda sizes, spec: _random(spec, dtype, sizes, "normal_"))


__all__ = ["empty", "full", "ones", "rand", "randn", "zeros"]
