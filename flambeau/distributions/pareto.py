"""The Pareto distribution: density alpha scale^alpha / x^(alpha + 1) for x >= scale."""

from __future__ import annotations

from typing import Any

from flambeau.distributions import constraints
from flambeau.distributions.exponential import Exponential
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.transforms import AffineTransform, ExpTransform
from flambeau.distributions.utils import broadcast_all

__all__ = ["Pareto"]


class Pareto(TransformedDistribution):
    """Pareto distributions of type 1: scale exp(x), x exponential of the rate `alpha`."""

    arg_constraints: Any = {"alpha": constraints.positive, "scale": constraints.positive}

    def __init__(self, scale: Any, alpha: Any, validate_args: bool | None = None) -> None:
        self.scale, self.alpha = broadcast_all(scale, alpha)
        transforms = [ExpTransform(), AffineTransform(loc=0, scale=self.scale)]
        super().__init__(Exponential(self.alpha, validate_args=validate_args), transforms, validate_args=validate_args)

    @property
    def mean(self) -> Any:
        """alpha scale / (alpha - 1); infinite up to alpha = 1."""
        a = self.alpha.clamp(min=1)
        return a * self.scale / (a - 1)

    @property
    def mode(self) -> Any:
        """scale."""
        return self.scale

    @property
    def variance(self) -> Any:
        """scale^2 alpha / ((alpha - 1)^2 (alpha - 2)); infinite up to alpha = 2."""
        a = self.alpha.clamp(min=2)
        return self.scale.pow(2) * a / ((a - 1).pow(2) * (a - 2))

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From scale on."""
        return constraints.greater_than_eq(self.scale)

    def entropy(self) -> Any:
        """The differential entropy."""
        return (self.scale / self.alpha).log() + (1 + self.alpha.reciprocal())
