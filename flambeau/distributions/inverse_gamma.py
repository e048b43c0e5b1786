"""The inverse gamma distribution: 1 / x, x of a gamma distribution."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.gamma import Gamma
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.transforms import PowerTransform

__all__ = ["InverseGamma"]


class InverseGamma(TransformedDistribution):
    """1 / x, x of Gamma(concentration, rate)."""

    arg_constraints: Any = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.positive
    has_rsample: Any = True  # type: ignore[assignment]

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        base = Gamma(concentration, rate, validate_args=validate_args)
        super().__init__(base, PowerTransform(-torch.ones((), dtype=base.rate.dtype)), validate_args=validate_args)

    @property
    def concentration(self) -> Any:
        """The shape."""
        return self.base_dist.concentration

    @property
    def rate(self) -> Any:
        """The scale of 1 / x."""
        return self.base_dist.rate

    @property
    def mean(self) -> Any:
        """rate / (concentration - 1); infinite up to a concentration of 1."""
        return torch.where(self.concentration > 1, self.rate / (self.concentration - 1), torch.inf)

    @property
    def mode(self) -> Any:
        """rate / (concentration + 1)."""
        return self.rate / (self.concentration + 1)

    @property
    def variance(self) -> Any:
        """rate^2 / ((concentration - 1)^2 (concentration - 2)); infinite up to a concentration of 2."""
        a = self.concentration
        return torch.where(a > 2, self.rate.square() / ((a - 1).square() * (a - 2)), torch.inf)

    def entropy(self) -> Any:
        """The differential entropy."""
        a = self.concentration
        return a + self.rate.log() + a.lgamma() - (1 + a) * a.digamma()
