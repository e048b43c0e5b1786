"""The binomial distribution: successes among `total_count` trials, each with the probability `probs`."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import ProbsOrLogits
from flambeau.nn.functional import logsigmoid
from flambeau.trace.meta import Size

__all__ = ["Binomial"]


class CountedTrials(ProbsOrLogits):
    """Distributions of a `total_count` and a probability (or log odds) of one success; both have the dtype of the latter."""

    total_count: Any

    def __init__(self, total_count: Any = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        form, given = self._form(probs, logits), self._choose(probs, logits)
        if isinstance(total_count, torch.Tensor):
            if not isinstance(given, torch.Tensor):
                floating = total_count.dtype.is_floating_point
                given = torch.tensor(given, dtype=total_count.dtype if floating else torch.get_default_dtype())
            total_count = total_count.type_as(given)
        self._take(validate_args, **{form: given, "total_count": total_count})


class Binomial(CountedTrials):
    """Numbers of successes among `total_count` trials."""

    arg_constraints: Any = {
        "total_count": constraints.nonnegative_integer, "probs": constraints.unit_interval, "logits": constraints.real,
    }  # fmt: skip
    has_enumerate_support = True

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """0 ... total_count."""
        return constraints.integer_interval(0, self.total_count)

    @property
    def mean(self) -> Any:
        """n p."""
        return self.total_count * self.probs

    @property
    def mode(self) -> Any:
        """The whole part of (n + 1) p, at most n."""
        return torch.minimum(((self.total_count + 1) * self.probs).floor(), self.total_count)

    @property
    def variance(self) -> Any:
        """n p (1 - p)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Counts, in the dtype of the parameter."""
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            return torch.binomial(self.total_count.expand(shape), self.probs.expand(shape))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability."""
        value, n = self._checked(value), self.total_count
        ways = torch.lgamma(n + 1) - torch.lgamma(value + 1) - torch.lgamma(n - value + 1)
        return value * self.logits + n * logsigmoid(-self.logits) + ways

    def _common_count(self, name: str) -> int:
        count = int(self.total_count.max())
        if not bool(self.total_count.min() == count):
            raise NotImplementedError(f"Inhomogeneous total count not supported by `{name}`.")
        return count

    def entropy(self) -> Any:
        """The entropy; NotImplementedError unless all total counts are equal."""
        self._common_count("entropy")
        log_prob = self.log_prob(self.enumerate_support(False))
        return -(log_prob.exp() * log_prob).sum(0)

    def enumerate_support(self, expand: bool = True) -> Any:
        """0 ... total_count along a new first dim; NotImplementedError unless all total counts are equal."""
        count = self._common_count("enumerate_support")
        return self._support_of(torch.arange(1 + count, dtype=self._param.dtype), expand)
