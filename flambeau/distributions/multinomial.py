"""The multinomial distribution: how often each category comes among `total_count` draws."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.binomial import Binomial
from flambeau.distributions.categorical import Categorical
from flambeau.distributions.one_hot_categorical import OfCategories
from flambeau.distributions.utils import broadcast_all
from flambeau.trace.meta import Size

__all__ = ["Multinomial"]


class Multinomial(OfCategories):
    """Counts of `total_count` (an int) draws from the categories of `probs` or `logits`. log_prob takes any counts' sum for the total."""

    _constants = ("total_count",)

    def __init__(self, total_count: int = 1, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        if not isinstance(total_count, int):
            raise NotImplementedError("inhomogeneous total_count is not supported")
        self.total_count = total_count
        self._take_categories(Categorical(probs=probs, logits=logits), validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Any:
        """Counts of at most total_count in all."""
        return constraints.multinomial(self.total_count)

    @property
    def mean(self) -> Any:
        """n p."""
        return self.probs * self.total_count

    @property
    def variance(self) -> Any:
        """n p (1 - p)."""
        return self.total_count * self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Counts, in the dtype of the parameter."""
        drawn = self._categorical.sample(Size((self.total_count, *sample_shape)))
        last = drawn.movedim(0, -1)
        counts = torch.zeros(self._extended_shape(sample_shape), dtype=torch.int64)
        return counts.scatter_add(-1, last, torch.ones_like(last)).type_as(self.probs)

    def entropy(self) -> Any:
        """The entropy."""
        n = self.total_count
        each = Binomial(total_count=n, probs=self.probs, validate_args=False)
        counts = each.enumerate_support(expand=False)[1:]
        expected = (each.log_prob(counts).exp() * torch.lgamma(counts + 1)).sum([0, -1])
        return n * self._categorical.entropy() - math.lgamma(n + 1) + expected

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability."""
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        logits = torch.where((value == 0) & (logits == -math.inf), 0.0, logits)
        ways = torch.lgamma(value.sum(-1) + 1) - torch.lgamma(value + 1).sum(-1)
        return ways + (logits * value).sum(-1)
