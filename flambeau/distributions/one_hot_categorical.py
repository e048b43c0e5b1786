"""Categories as one-hot vectors."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.categorical import Categorical
from flambeau.distributions.distribution import Parametric
from flambeau.nn.functional import one_hot
from flambeau.trace.meta import Size

__all__ = ["OneHotCategorical", "OneHotCategoricalStraightThrough"]


class OfCategories(Parametric):
    """What distributions of vectors over categories share: `_categorical`, their probabilities."""

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    _parts = ("_categorical",)

    @property
    def _param(self) -> Any:
        return self._categorical._param

    @property
    def probs(self) -> Any:
        """The probabilities of the categories."""
        return self._categorical.probs

    @property
    def logits(self) -> Any:
        """Their logarithms."""
        return self._categorical.logits

    @property
    def param_shape(self) -> Any:
        """The shape of the parameter."""
        return self._categorical.param_shape

    def _new(self, *args: Any, **kwargs: Any) -> Any:
        return self._categorical._new(*args, **kwargs)

    def _take_categories(self, categorical: Categorical, validate_args: bool | None) -> None:
        self._categorical = categorical
        super().__init__(categorical.batch_shape, categorical.param_shape[-1:], validate_args=validate_args)


class OneHotCategorical(OfCategories):
    """One-hot vectors, of `probs` or `logits` as in Categorical."""

    support: Any = constraints.one_hot
    has_enumerate_support = True

    def __init__(self, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self._take_categories(Categorical(probs, logits), validate_args)

    def _hot(self, indices: Any) -> Any:
        return one_hot(indices, self._categorical._num_events).to(self.probs)

    @property
    def mean(self) -> Any:
        """probs."""
        return self.probs

    @property
    def mode(self) -> Any:
        """The most probable vector."""
        return self._hot(self._categorical.mode)

    @property
    def variance(self) -> Any:
        """probs (1 - probs)."""
        return self.probs * (1 - self.probs)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """One-hot vectors, in the dtype of the parameter."""
        with torch.no_grad():
            return self._hot(self._categorical.sample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the probability."""
        return self._categorical.log_prob(self._checked(value).max(-1)[1])

    def entropy(self) -> Any:
        """The entropy."""
        return self._categorical.entropy()

    def enumerate_support(self, expand: bool = True) -> Any:
        """All one-hot vectors along a new first dim."""
        n, batch = self.event_shape[0], self.batch_shape
        values = torch.eye(n, dtype=self._param.dtype).view((n, *(1 for _ in batch), n))
        return values.expand((n, *batch, n)) if expand else values


class OneHotCategoricalStraightThrough(OneHotCategorical):
    """One-hot vectors through which gradients pass as if they were `probs` (Bengio, Leonard and Courville 2013)."""

    has_rsample = True

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with the straight-through gradient."""
        return self.sample(sample_shape) + (self.probs - self.probs.detach())
