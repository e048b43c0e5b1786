"""The geometric distribution: failures before the first success, probability (1 - p)^k p."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import ProbsOrLogits
from flambeau.distributions.utils import broadcast_all
from flambeau.nn.functional import binary_cross_entropy_with_logits
from flambeau.trace.meta import Size

__all__ = ["Geometric"]


class Geometric(ProbsOrLogits):
    """Failures before the first success, whose probability (in (0, 1]) or log odds are given."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.nonnegative_integer

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take_form(probs, logits, validate_args)
        if self._validate_args and probs is not None:
            value = self.probs
            if not bool((value > 0).all()):
                raise ValueError(
                    f"Expected parameter probs ({type(value).__name__} of shape {tuple(value.shape)}) of distribution {self!r} "
                    f"to be positive but found invalid values:\n{value.detach()[value <= 0]}"
                )

    @property
    def mean(self) -> Any:
        """1 / p - 1."""
        return 1.0 / self.probs - 1.0

    @property
    def mode(self) -> Any:
        """0."""
        return torch.zeros_like(self.probs)

    @property
    def variance(self) -> Any:
        """(1 / p - 1) / p."""
        return (1.0 / self.probs - 1.0) / self.probs

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Counts, in the dtype of the parameter."""
        d = self.probs.dtype
        with torch.no_grad():
            u = torch.empty(self._extended_shape(sample_shape), dtype=d).uniform_(torch.finfo(d).tiny, 1)
            return (u.log() / (-self.probs).log1p()).floor()

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability."""
        value, probs = broadcast_all(self._checked(value), self.probs)
        certain = (probs == 1) & (value == 0)
        return value * (-torch.where(certain, 0.0, probs)).log1p() + self.probs.log()

    def entropy(self) -> Any:
        """The entropy."""
        return binary_cross_entropy_with_logits(self.logits, self.probs, reduction="none") / self.probs
