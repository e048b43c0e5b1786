"""The continuous Bernoulli distribution (Loaiza-Ganem and Cunningham 2019): density C(p) p^x (1 - p)^(1 - x) on [0, 1]."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import ProbsOrLogits
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.distributions.utils import broadcast_all, clamp_probs, lazy_property, logits_to_probs
from flambeau.nn.functional import binary_cross_entropy_with_logits
from flambeau.trace.meta import Size

__all__ = ["ContinuousBernoulli"]


class ContinuousBernoulli(ProbsOrLogits, ExponentialFamily):
    """Numbers of [0, 1]. Between the two `lims`, around p = 1/2, formulas lose their digits and Taylor series take their place."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    has_rsample = True
    _mean_carrier_measure = 0
    _constants = ("_by_logits", "_lims")

    def __init__(self, probs: Any = None, logits: Any = None, lims: Any = (0.499, 0.501), validate_args: bool | None = None) -> None:
        self._lims = lims
        given, form = self._choose(probs, logits), self._form(probs, logits)
        if form == "probs":
            (given,) = broadcast_all(probs)
            if validate_args is not None and not bool(constraints.unit_interval.check(given).all()):
                raise ValueError("The parameter probs has invalid values")
            given = clamp_probs(given)
        self._take(validate_args, **{form: given})

    @lazy_property
    def probs(self) -> Any:
        """The probability p, inside (0, 1)."""
        return clamp_probs(logits_to_probs(self.logits, is_binary=True))

    def _outside_unstable_region(self) -> Any:
        return (self.probs <= self._lims[0]) | (self.probs > self._lims[1])

    def _cut_probs(self) -> Any:
        """p, or the lower limit where the Taylor series are used."""
        return torch.where(self._outside_unstable_region(), self.probs, self._lims[0])

    def _either(self, exact: Any, series: Any) -> Any:
        return torch.where(self._outside_unstable_region(), exact, series)

    @staticmethod
    def _log_odds(p: Any) -> Any:
        return torch.log1p(-p) - p.log()

    def _cont_bern_log_norm(self) -> Any:
        """log C(p) = log(2 atanh(1 - 2 p) / (1 - 2 p))."""
        p = self._cut_probs()
        x = (self.probs - 0.5).square()
        series = math.log(2.0) + (4.0 / 3.0 + 104.0 / 45.0 * x) * x
        return self._either((self._log_odds(p) / (1.0 - 2.0 * p)).log(), series)

    @property
    def mean(self) -> Any:
        """The expectation."""
        p, x = self._cut_probs(), self.probs - 0.5
        exact = p / (2.0 * p - 1.0) + 1.0 / self._log_odds(p)
        return self._either(exact, 0.5 + (1.0 / 3.0 + 16.0 / 45.0 * x.square()) * x)

    @property
    def variance(self) -> Any:
        """The variance."""
        p, x = self._cut_probs(), (self.probs - 0.5).square()
        exact = p * (p - 1.0) / (1.0 - 2.0 * p).square() + 1.0 / self._log_odds(p).square()
        return self._either(exact, 1.0 / 12.0 - (1.0 / 15.0 - 128.0 / 945.0 * x) * x)

    @property
    def stddev(self) -> Any:
        """The standard deviation."""
        return self.variance.sqrt()

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        return self.icdf(torch.rand(self._extended_shape(sample_shape), dtype=self._param.dtype))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        return self._cont_bern_log_norm() - binary_cross_entropy_with_logits(logits, value, reduction="none")

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        value, p = self._checked(value), self._cut_probs()
        exact = (p.pow(value) * (1.0 - p).pow(1.0 - value) + p - 1.0) / (2.0 * p - 1.0)
        return torch.where(value <= 0.0, 0.0, torch.where(value >= 1.0, 1.0, self._either(exact, value)))

    def icdf(self, value: Any) -> Any:
        """The quantile of the probability `value`."""
        p = self._cut_probs()
        exact = (torch.log1p(-p) - torch.log1p(-p + value * (2.0 * p - 1.0))) / self._log_odds(p)
        return self._either(exact, value)

    def entropy(self) -> Any:
        """The differential entropy."""
        return self.mean * self._log_odds(self.probs) - self._cont_bern_log_norm() - torch.log1p(-self.probs)

    @property
    def _natural_params(self) -> Any:
        return (self.logits,)

    def _log_normalizer(self, x: Any) -> Any:
        low, high = (limit - 0.5 for limit in self._lims)
        outside = (x <= low) | (x > high)
        cut = torch.where(outside, x, low)
        exact = cut.expm1().abs().log() - cut.abs().log()
        return torch.where(outside, exact, 0.5 * x + x.pow(2) / 24.0 - x.pow(4) / 2880.0)
