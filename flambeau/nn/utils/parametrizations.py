"""Parametrisations: weight_norm in its newer form."""

from __future__ import annotations

from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.nn.utils.parametrize import register_parametrization
from flambeau.nn.utils.weight_norm import _weight_norm, norm_except_dim
from flambeau.tensor import Tensor


class _WeightNorm(Module):
    """g v / |v|, the norm taken over all dimensions but `dim`."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return _weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Parametrise `name` by its norm (original0) and direction (original1)."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)
