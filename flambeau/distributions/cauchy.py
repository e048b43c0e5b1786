"""The Cauchy distribution: density 1 / (pi scale (1 + ((x - loc) / scale)^2))."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions.location_scale import LocationScale
from flambeau.distributions.utils import _filled
from flambeau.trace.meta import Size

__all__ = ["Cauchy"]


class Cauchy(LocationScale):
    """Cauchy (Lorentz) distributions of the median `loc` and the half width `scale`. The mean is NaN, the variance infinite."""

    @property
    def mean(self) -> Any:
        """NaN: there is none."""
        return _filled(self.loc, self._extended_shape(), math.nan)

    @property
    def variance(self) -> Any:
        """Infinite."""
        return _filled(self.loc, self._extended_shape(), math.inf)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        noise = torch.empty(self._extended_shape(sample_shape), dtype=self.loc.dtype).cauchy_()
        return self.loc + noise * self.scale

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        return -math.log(math.pi) - self.scale.log() - self._standard(value).square().log1p()

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        return self._standard(value).atan() / math.pi + 0.5

    def icdf(self, value: Any) -> Any:
        """The quantile of the probability `value`."""
        return torch.tan(math.pi * (value - 0.5)) * self.scale + self.loc

    def entropy(self) -> Any:
        """The differential entropy."""
        return math.log(4 * math.pi) + self.scale.log()
