"""The LKJ distribution of correlation matrices, by their Cholesky factors (Lewandowski, Kurowicka and Joe 2009)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.beta import Beta
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.utils import broadcast_all
from flambeau.trace.meta import Size

__all__ = ["LKJCholesky"]


class LKJCholesky(Parametric):
    """Lower triangular `dim` x `dim` matrices with rows of length 1: L L^T is a correlation matrix of the density det^(concentration - 1).

    1 is uniform over correlation matrices; more prefers small correlations. ValueError for dim < 2."""

    arg_constraints: Any = {"concentration": constraints.positive}
    support: Any = constraints.corr_cholesky
    _constants = ("dim",)

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        # The onion method (section 3.2 there): row i points in a uniform direction of i dims, and its squared length is a beta number.
        # PyTorch's first parameter is i - 1/2 instead of i / 2 (docs/differences.md).
        half = 0.5 * torch.arange(-1, dim - 1, dtype=self.concentration.dtype).clamp(min=0)
        spread = (self.concentration + 0.5 * (dim - 2)).unsqueeze(-1)
        self._beta = Beta(half + 0.5, spread - half)
        super().__init__(self.concentration.size(), Size((dim, dim)), validate_args)

    def _expand_into(self, new: Any, batch_shape: Any) -> None:
        new._beta = self._beta.expand((*batch_shape, self.dim))
        super()._expand_into(new, batch_shape)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Cholesky factors."""
        with torch.no_grad():
            length = self._beta.sample(sample_shape).unsqueeze(-1)
            noise = torch.randn(self._extended_shape(sample_shape), dtype=length.dtype).tril(-1)
            direction = noise / noise.norm(dim=-1, keepdim=True)
            first = torch.arange(self.dim).unsqueeze(-1) == 0
            rows = length.sqrt() * torch.where(first, 0.0, direction)
            rest = (1 - rows.square().sum(dim=-1)).clamp(min=torch.finfo(rows.dtype).tiny)
            return rows + rest.sqrt().diag_embed()

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density of the factor (with its Jacobian: L_ii has the exponent 2 (concentration - 1) + dim - i)."""
        diagonal = self._checked(value).diagonal(dim1=-1, dim2=-2)[..., 1:]
        n = self.dim - 1
        order = torch.arange(n - 1, -1, -1, dtype=self.concentration.dtype)
        order = 2 * (self.concentration - 1).unsqueeze(-1) + order
        alpha = self.concentration + 0.5 * n
        norm = 0.5 * n * math.log(math.pi) + torch.mvlgamma(alpha - 0.5, n) - n * torch.lgamma(alpha)
        return (order * diagonal.log()).sum(-1) - norm
