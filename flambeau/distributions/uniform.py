"""The uniform distribution on [low, high)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.trace.meta import Size

__all__ = ["Uniform"]


class Uniform(Parametric):
    """Uniform distributions between `low` and `high` > low."""

    low: Any
    high: Any
    has_rsample = True

    @property
    def arg_constraints(self) -> Any:
        """Each bound lies on its side of the other."""
        return {"low": constraints.less_than(self.high), "high": constraints.greater_than(self.low)}

    def __init__(self, low: Any, high: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, low=low, high=high)

    @constraints.dependent_property(is_discrete=False, event_dim=0)
    def support(self) -> Any:
        """The interval."""
        return constraints.interval(self.low, self.high)

    @property
    def _width(self) -> Any:
        return self.high - self.low

    @property
    def mean(self) -> Any:
        """The middle."""
        return (self.high + self.low) / 2

    @property
    def mode(self) -> Any:
        """NaN: all values are as probable."""
        return math.nan * self.high

    @property
    def stddev(self) -> Any:
        """The width by sqrt(12)."""
        return self._width / math.sqrt(12)

    @property
    def variance(self) -> Any:
        """The squared width by 12."""
        return self._width.pow(2) / 12

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        return self.icdf(torch.rand(self._extended_shape(sample_shape), dtype=self.low.dtype))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density; -inf outside."""
        value = self._checked(value)
        inside = (self.low <= value) & (value < self.high)
        return inside.type_as(self.low).log() - self._width.log()

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        return ((self._checked(value) - self.low) / self._width).clamp(min=0, max=1)

    def icdf(self, value: Any) -> Any:
        """The quantile of the probability `value`."""
        return self.low + value * self._width

    def entropy(self) -> Any:
        """The differential entropy."""
        return self._width.log()
