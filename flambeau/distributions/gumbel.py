"""The Gumbel distribution: distribution function exp(-exp(-(x - loc) / scale))."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.transforms import AffineTransform, ExpTransform
from flambeau.distributions.uniform import Uniform
from flambeau.distributions.utils import broadcast_all, euler_constant

__all__ = ["Gumbel"]


class Gumbel(TransformedDistribution):
    """Gumbel distributions: loc - scale log(-log u), u uniform."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self.loc, self.scale = broadcast_all(loc, scale)
        info = torch.finfo(self.loc.dtype)
        low, high = torch.full_like(self.loc, info.tiny), torch.full_like(self.loc, 1 - info.eps)
        log = ExpTransform().inv
        negative = AffineTransform(loc=0, scale=-torch.ones_like(self.scale))
        transforms = [log, negative, log, AffineTransform(loc=loc, scale=-self.scale)]
        super().__init__(Uniform(low, high, validate_args=validate_args), transforms, validate_args=validate_args)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        z = (self.loc - self._checked(value)) / self.scale
        return z - z.exp() - self.scale.log()

    @property
    def mean(self) -> Any:
        """loc + Euler's constant times the scale."""
        return self.loc + self.scale * euler_constant

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @property
    def stddev(self) -> Any:
        """pi / sqrt(6) scale."""
        return math.pi / math.sqrt(6) * self.scale

    @property
    def variance(self) -> Any:
        """pi^2 / 6 scale^2."""
        return self.stddev.pow(2)

    def entropy(self) -> Any:
        """The differential entropy."""
        return self.scale.log() + (1 + euler_constant)
