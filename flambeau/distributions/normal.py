"""The normal distribution: density exp(-((x - loc) / scale)^2 / 2) / (scale sqrt(2 pi))."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.distributions.location_scale import LocationScale
from flambeau.distributions.utils import _standard_normal
from flambeau.trace.meta import Size

__all__ = ["Normal"]


class Normal(LocationScale, ExponentialFamily):
    """Normal distributions of the mean `loc` and the standard deviation `scale`."""

    _mean_carrier_measure = 0

    @property
    def stddev(self) -> Any:
        """scale."""
        return self.scale

    @property
    def variance(self) -> Any:
        """scale squared."""
        return self.scale.pow(2)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws without gradients."""
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            return torch.normal(self.loc.expand(shape), self.scale.expand(shape))

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        noise = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype)
        return self.loc + noise * self.scale

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        return -0.5 * self._standard(value).square() - self.scale.log() - 0.5 * math.log(2 * math.pi)

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        return 0.5 * (1 + torch.erf(self._standard(value) / math.sqrt(2)))

    def icdf(self, value: Any) -> Any:
        """The quantile of the probability `value`."""
        return self.loc + self.scale * torch.erfinv(2 * value - 1) * math.sqrt(2)

    def entropy(self) -> Any:
        """The differential entropy."""
        return 0.5 * math.log(2 * math.pi * math.e) + self.scale.log()

    @property
    def _natural_params(self) -> Any:
        variance = self.scale.pow(2)
        return (self.loc / variance, -0.5 / variance)

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return -0.25 * x.pow(2) / y + 0.5 * torch.log(-math.pi / y)
