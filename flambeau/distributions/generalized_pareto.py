"""The generalised Pareto distribution: survival function (1 + c z)^(-1 / c), z = (x - loc) / scale; exp(-z) for c = 0."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.trace.meta import Size

__all__ = ["GeneralizedPareto"]


class GeneralizedPareto(Parametric):
    """Excesses over a threshold: `loc` and `scale`, and c, the real `concentration`. For c < 0 they end at loc - scale / c."""

    loc: Any
    scale: Any
    concentration: Any
    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive, "concentration": constraints.real}
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale, concentration=concentration)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """From loc on, to the end."""
        end = torch.where(self.concentration < 0, self.loc - self.scale / self.concentration, math.inf)
        return constraints.interval(self.loc, end)

    def _shape(self) -> tuple[Any, Any]:
        """(whether c counts as 0, c or else 1)."""
        zero = torch.isclose(self.concentration, torch.zeros_like(self.concentration))
        return zero, torch.where(zero, 1.0, self.concentration)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        return self.icdf(torch.rand(self._extended_shape(sample_shape), dtype=self.loc.dtype))

    def _z(self, x: Any) -> Any:
        return (x - self.loc) / self.scale

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        z = self._z(self._checked(value))
        zero, c = self._shape()
        factor = 1 / c + torch.ones_like(z)
        power = torch.where(factor == 0, 0.0, factor * torch.log1p(c * z))
        return -self.scale.log() - torch.where(zero, z, power)

    def log_survival_function(self, value: Any) -> Any:
        """The logarithm of the probability of more than `value`."""
        z = self._z(self._checked(value))
        zero, c = self._shape()
        return torch.where(zero, -z, -torch.log1p(c * z) / c)

    def log_cdf(self, value: Any) -> Any:
        """The logarithm of `cdf`."""
        return torch.log1p(-self.log_survival_function(value).exp())

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        return self.log_cdf(value).exp()

    def icdf(self, value: Any) -> Any:
        """The quantile of the probability `value`."""
        zero, c = self._shape()
        rest = torch.log1p(-value)
        return self.loc + self.scale * torch.where(zero, -rest, torch.expm1(-c * rest) / c)

    @property
    def mean(self) -> Any:
        """loc + scale / (1 - c); NaN from c = 1 on."""
        c = self.concentration
        inner = torch.where(c < 1, c, 0.5)
        return torch.where(c < 1, self.loc + self.scale / (1 - inner), math.nan)

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Any:
        """scale^2 / ((1 - c)^2 (1 - 2 c)); NaN from c = 1/2 on."""
        c = self.concentration
        inner = torch.where(c < 0.5, c, 0.25)
        return torch.where(c < 0.5, self.scale**2 / ((1 - inner) ** 2 * (1 - 2 * inner)), math.nan)

    def entropy(self) -> Any:
        """The differential entropy."""
        return (self.scale.log() + self.concentration + 1).broadcast_to(self._batch_shape)
