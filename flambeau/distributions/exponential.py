"""The exponential distribution: density rate exp(-rate x) for x >= 0."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.trace.meta import Size

__all__ = ["Exponential"]


class Exponential(Parametric, ExponentialFamily):
    """Exponential distributions of the rate `rate` > 0."""

    rate: Any
    arg_constraints: Any = {"rate": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample = True
    _mean_carrier_measure = 0

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def mean(self) -> Any:
        """1 / rate."""
        return self.rate.reciprocal()

    @property
    def mode(self) -> Any:
        """0."""
        return torch.zeros_like(self.rate)

    @property
    def stddev(self) -> Any:
        """1 / rate."""
        return self.rate.reciprocal()

    @property
    def variance(self) -> Any:
        """1 / rate^2."""
        return self.rate.pow(-2)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        return torch.empty(self._extended_shape(sample_shape), dtype=self.rate.dtype).exponential_() / self.rate

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        return self.rate.log() - self.rate * self._checked(value)

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        return 1 - torch.exp(-self.rate * self._checked(value))

    def icdf(self, value: Any) -> Any:
        """The quantile of the probability `value`."""
        return -torch.log1p(-value) / self.rate

    def entropy(self) -> Any:
        """The differential entropy."""
        return 1.0 - self.rate.log()

    @property
    def _natural_params(self) -> Any:
        return (-self.rate,)

    def _log_normalizer(self, x: Any) -> Any:
        return -torch.log(-x)
