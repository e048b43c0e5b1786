"""The Dirichlet distribution: points of a simplex, density proportional to the product of x_i^(concentration_i - 1)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.nn.functional import one_hot
from flambeau.trace.meta import Size

__all__ = ["Dirichlet"]


class Dirichlet(Parametric, ExponentialFamily):
    """Dirichlet distributions of `concentration`, a tensor (..., n) of positive numbers. ValueError for a 0-d tensor."""

    arg_constraints: Any = {"concentration": constraints.independent(constraints.positive, 1)}
    support: Any = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Any, validate_args: bool | None = None) -> None:
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        return torch._sample_dirichlet(self.concentration.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        value, a = self._checked(value), self.concentration
        return torch.xlogy(a - 1.0, value).sum(-1) + torch.lgamma(a.sum(-1)) - torch.lgamma(a).sum(-1)

    @property
    def mean(self) -> Any:
        """concentration, divided by its sum."""
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Any:
        """The point of highest density; a corner where all concentrations are below 1."""
        above = (self.concentration - 1).clamp(min=0.0)
        mode = above / above.sum(-1, True)
        corner = one_hot(mode.argmax(dim=-1), above.shape[-1]).to(mode)
        return torch.where((self.concentration < 1).all(dim=-1, keepdim=True), corner, mode)

    @property
    def variance(self) -> Any:
        """a_i (s - a_i) / (s^2 (s + 1)), s the sum of a."""
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def entropy(self) -> Any:
        """The differential entropy."""
        a, n = self.concentration, self.concentration.size(-1)
        total = a.sum(-1)
        inner = torch.lgamma(a).sum(-1) - ((a - 1.0) * torch.digamma(a)).sum(-1)
        return inner - torch.lgamma(total) - (n - total) * torch.digamma(total)

    @property
    def _natural_params(self) -> Any:
        return (self.concentration,)

    def _log_normalizer(self, x: Any) -> Any:
        return x.lgamma().sum(-1) - torch.lgamma(x.sum(-1))
