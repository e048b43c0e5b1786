"""The Laplace distribution: density exp(-|x - loc| / scale) / (2 scale)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions.location_scale import LocationScale
from flambeau.trace.meta import Size

__all__ = ["Laplace"]


class Laplace(LocationScale):
    """Laplace distributions around `loc`."""

    @property
    def variance(self) -> Any:
        """2 scale^2."""
        return 2 * self.scale.pow(2)

    @property
    def stddev(self) -> Any:
        """sqrt(2) scale."""
        return math.sqrt(2) * self.scale

    def _from_uniform(self, u: Any) -> Any:
        """The value of which u / 2, u in (-1, 1), is the probability between it and loc, with its sign."""
        return self.loc - self.scale * u.sign() * torch.log1p(-u.abs())

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        shape = self._extended_shape(sample_shape)
        low = torch.finfo(self.loc.dtype).eps - 1
        return self._from_uniform(torch.empty(shape, dtype=self.loc.dtype).uniform_(low, 1))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        return -self._standard(value).abs() - (2 * self.scale).log()

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        z = self._standard(value)
        return 0.5 - 0.5 * z.sign() * torch.expm1(-z.abs())

    def icdf(self, value: Any) -> Any:
        """The quantile of the probability `value`."""
        return self._from_uniform(2 * value - 1)

    def entropy(self) -> Any:
        """The differential entropy."""
        return 1 + (2 * self.scale).log()
