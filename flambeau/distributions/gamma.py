"""The gamma distribution: density rate^a x^(a - 1) exp(-rate x) / Gamma(a), a = concentration."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.trace.meta import Size

__all__ = ["Gamma"]


def _standard_gamma(concentration: Any) -> Any:
    """Draws of Gamma(concentration, 1), with gradients."""
    return torch._standard_gamma(concentration)


class Gamma(Parametric, ExponentialFamily):
    """Gamma distributions of the shape `concentration` and the inverse scale `rate`, both positive."""

    concentration: Any
    rate: Any
    arg_constraints: Any = {"concentration": constraints.positive, "rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, concentration=concentration, rate=rate)

    @property
    def mean(self) -> Any:
        """concentration / rate."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Any:
        """(concentration - 1) / rate, at least 0."""
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Any:
        """concentration / rate^2."""
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients, at least the smallest normal number."""
        shape = self._extended_shape(sample_shape)
        value = _standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)
        tiny = torch.finfo(value.dtype).tiny
        # The bound changes the value and not its gradient.
        return value + (value.detach().clamp(min=tiny) - value.detach())

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        value = self._checked(torch.as_tensor(value, dtype=self.rate.dtype))
        a = self.concentration
        return torch.xlogy(a, self.rate) + torch.xlogy(a - 1, value) - self.rate * value - torch.lgamma(a)

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        return torch.special.gammainc(self.concentration, self.rate * self._checked(value))

    def entropy(self) -> Any:
        """The differential entropy."""
        a = self.concentration
        return a - self.rate.log() + torch.lgamma(a) + (1.0 - a) * torch.digamma(a)

    @property
    def _natural_params(self) -> Any:
        return (self.concentration - 1, -self.rate)

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return torch.lgamma(x + 1) + (x + 1) * torch.log(-y.reciprocal())
