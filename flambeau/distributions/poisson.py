"""The Poisson distribution: probability rate^k exp(-rate) / k!."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.distributions.utils import broadcast_all
from flambeau.trace.meta import Size

__all__ = ["Poisson"]


class Poisson(Parametric, ExponentialFamily):
    """Poisson distributions of the rate `rate` >= 0."""

    rate: Any
    arg_constraints: Any = {"rate": constraints.nonnegative}
    support: Any = constraints.nonnegative_integer

    def __init__(self, rate: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, rate=rate)

    @property
    def mean(self) -> Any:
        """rate."""
        return self.rate

    @property
    def mode(self) -> Any:
        """The whole part of the rate."""
        return self.rate.floor()

    @property
    def variance(self) -> Any:
        """rate."""
        return self.rate

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Counts, in the dtype of the rate."""
        with torch.no_grad():
            return torch.poisson(self.rate.expand(self._extended_shape(sample_shape)))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability."""
        rate, value = broadcast_all(self.rate, self._checked(value))
        return value.xlogy(rate) - rate - (value + 1).lgamma()

    @property
    def _natural_params(self) -> Any:
        return (self.rate.log(),)

    def _log_normalizer(self, x: Any) -> Any:
        return x.exp()
