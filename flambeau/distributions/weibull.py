"""The Weibull distribution: distribution function 1 - exp(-(x / scale)^concentration)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.exponential import Exponential
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.transforms import AffineTransform, PowerTransform
from flambeau.distributions.utils import broadcast_all, euler_constant

__all__ = ["Weibull"]


class Weibull(TransformedDistribution):
    """scale x^(1 / concentration), x exponential of the rate 1."""

    arg_constraints: Any = {"scale": constraints.positive, "concentration": constraints.positive}
    support: Any = constraints.positive

    def __init__(self, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self.scale, self.concentration = broadcast_all(scale, concentration)
        transforms = [PowerTransform(exponent=self.concentration_reciprocal), AffineTransform(loc=0, scale=self.scale)]
        super().__init__(Exponential(torch.ones_like(self.scale), validate_args=validate_args), transforms, validate_args=validate_args)

    @property
    def concentration_reciprocal(self) -> Any:
        """1 / concentration."""
        return self.concentration.reciprocal()

    def _moment(self, n: int) -> Any:
        """E[(x / scale)^n] = Gamma(1 + n / concentration)."""
        return torch.lgamma(1 + n * self.concentration_reciprocal).exp()

    @property
    def mean(self) -> Any:
        """scale Gamma(1 + 1 / concentration)."""
        return self.scale * self._moment(1)

    @property
    def mode(self) -> Any:
        """scale ((concentration - 1) / concentration)^(1 / concentration)."""
        return self.scale * ((self.concentration - 1) / self.concentration) ** self.concentration_reciprocal

    @property
    def variance(self) -> Any:
        """scale^2 (E[(x / scale)^2] - E[x / scale]^2)."""
        return self.scale.pow(2) * (self._moment(2) - self._moment(1).pow(2))

    def entropy(self) -> Any:
        """The differential entropy."""
        inverse = self.concentration_reciprocal
        return euler_constant * (1 - inverse) + (self.scale * inverse).log() + 1
