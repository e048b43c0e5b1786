"""The categorical distribution over 0 ... n - 1."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Distribution, ProbsOrLogits
from flambeau.distributions.utils import _filled
from flambeau.trace.meta import Size

__all__ = ["Categorical"]


class Categorical(ProbsOrLogits):
    """Categories of the probabilities in the last dim of `probs` (divided by their sum), or of `logits` (normalised likewise).

    ValueError for a 0-d parameter."""

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    has_enumerate_support = True
    _binary = False
    _constants = ("_by_logits", "_num_events")

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        form, given = self._form(probs, logits), self._choose(probs, logits)
        if given.dim() < 1:
            raise ValueError(f"`{form}` parameter must be at least one-dimensional.")
        if form == "probs":
            self.probs = given / given.sum(-1, keepdim=True)
        else:
            self.logits = given - given.logsumexp(dim=-1, keepdim=True)
        self._num_events = given.size()[-1]
        Distribution.__init__(self, given.size()[:-1], validate_args=validate_args)

    @constraints.dependent_property(is_discrete=True, event_dim=0)
    def support(self) -> Any:
        """0 ... n - 1."""
        return constraints.integer_interval(0, self._num_events - 1)

    @property
    def mean(self) -> Any:
        """NaN: categories are no numbers."""
        return _filled(self._param, self._extended_shape(), math.nan)

    @property
    def mode(self) -> Any:
        """The most probable category."""
        return self.probs.argmax(dim=-1)

    @property
    def variance(self) -> Any:
        """NaN: categories are no numbers."""
        return _filled(self._param, self._extended_shape(), math.nan)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Categories, int64."""
        rows = self.probs.detach().reshape(-1, self._num_events)
        drawn = torch.multinomial(rows, math.prod(sample_shape), True)
        return drawn.T.reshape(self._extended_shape(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability."""
        value = self._checked(value).long().unsqueeze(-1)
        value, logits = torch.broadcast_tensors(value, self.logits)
        return logits.gather(-1, value[..., :1]).squeeze(-1)

    def entropy(self) -> Any:
        """The entropy."""
        logits = self.logits.clamp(min=torch.finfo(self.logits.dtype).min)
        return -(logits * self.probs).sum(-1)

    def enumerate_support(self, expand: bool = True) -> Any:
        """0 ... n - 1 along a new first dim."""
        return self._support_of(torch.arange(self._num_events), expand)
