"""The negative binomial distribution: successes before `total_count` failures."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.binomial import CountedTrials
from flambeau.distributions.gamma import Gamma
from flambeau.distributions.utils import lazy_property
from flambeau.nn.functional import logsigmoid
from flambeau.trace.meta import Size

__all__ = ["NegativeBinomial"]


class NegativeBinomial(CountedTrials):
    """Successes, of the probability `probs` in [0, 1), before `total_count` >= 0 failures (a real number too)."""

    arg_constraints: Any = {
        "total_count": constraints.greater_than_eq(0), "probs": constraints.half_open_interval(0.0, 1.0), "logits": constraints.real,
    }  # fmt: skip
    support: Any = constraints.nonnegative_integer

    def __init__(self, total_count: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(total_count, probs, logits, validate_args)

    @property
    def mean(self) -> Any:
        """n p / (1 - p)."""
        return self.total_count * self.logits.exp()

    @property
    def mode(self) -> Any:
        """The whole part of (n - 1) p / (1 - p), at least 0."""
        return ((self.total_count - 1) * self.logits.exp()).floor().clamp(min=0.0)

    @property
    def variance(self) -> Any:
        """n p / (1 - p)^2."""
        return self.mean / torch.sigmoid(-self.logits)

    @lazy_property
    def _gamma(self) -> Any:
        # A Poisson number whose rate is a gamma number is negative binomial.
        return Gamma(self.total_count, torch.exp(-self.logits), validate_args=False)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Counts, in the dtype of the parameter."""
        with torch.no_grad():
            return torch.poisson(self._gamma.sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability."""
        value, n = self._checked(value), self.total_count
        ways = torch.lgamma(n + value) - torch.lgamma(1.0 + value) - torch.lgamma(n)
        ways = ways.masked_fill(n + value == 0.0, 0.0)
        return n * logsigmoid(-self.logits) + value * logsigmoid(self.logits) + ways
