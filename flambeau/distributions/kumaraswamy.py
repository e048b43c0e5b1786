"""Kumaraswamy's distribution: density a b x^(a - 1) (1 - x^a)^(b - 1) on (0, 1)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.transforms import AffineTransform, PowerTransform
from flambeau.distributions.uniform import Uniform
from flambeau.distributions.utils import broadcast_all, euler_constant

__all__ = ["Kumaraswamy"]


class Kumaraswamy(TransformedDistribution):
    """a = `concentration1`, b = `concentration0`, both positive: (1 - u^(1 / b))^(1 / a), u uniform."""

    arg_constraints: Any = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support: Any = constraints.unit_interval
    has_rsample: Any = True  # type: ignore[assignment]

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        self.concentration1, self.concentration0 = broadcast_all(concentration1, concentration0)
        base = Uniform(torch.zeros_like(self.concentration0), torch.ones_like(self.concentration0), validate_args=validate_args)
        transforms = [
            PowerTransform(exponent=self.concentration0.reciprocal()), AffineTransform(loc=1.0, scale=-1.0),
            PowerTransform(exponent=self.concentration1.reciprocal()),
        ]  # fmt: skip
        super().__init__(base, transforms, validate_args=validate_args)

    def _moment(self, n: int) -> Any:
        """E[x^n] = b B(1 + n / a, b)."""
        a, b = 1 + n / self.concentration1, self.concentration0
        return b * torch.exp(torch.lgamma(a) + torch.lgamma(b) - torch.lgamma(a + b))

    @property
    def mean(self) -> Any:
        """b B(1 + 1 / a, b)."""
        return self._moment(1)

    @property
    def mode(self) -> Any:
        """((a - 1) / (a b - 1))^(1 / a) where a, b >= 1, else NaN, as PyTorch computes it."""
        a, b = self.concentration1, self.concentration0
        logarithm = b.reciprocal() * (-b).log1p() - (-b * a).log1p()
        return torch.where((b < 1) | (a < 1), math.nan, logarithm).exp()

    @property
    def variance(self) -> Any:
        """E[x^2] - E[x]^2."""
        return self._moment(2) - self.mean.pow(2)

    def entropy(self) -> Any:
        """The differential entropy."""
        a, b = self.concentration1, self.concentration0
        harmonic = torch.digamma(b + 1) + euler_constant
        return 1 - b.reciprocal() + (1 - a.reciprocal()) * harmonic - a.log() - b.log()
