"""Differentiable approximations of one-hot vectors (Maddison, Mnih and Teh 2017; Jang, Gu and Poole 2017)."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.categorical import Categorical
from flambeau.distributions.one_hot_categorical import OfCategories
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.transforms import ExpTransform
from flambeau.distributions.utils import broadcast_all, clamp_probs
from flambeau.nn.functional import log_softmax
from flambeau.trace.meta import Size

__all__ = ["ExpRelaxedCategorical", "RelaxedOneHotCategorical"]


class ExpRelaxedCategorical(OfCategories):
    """Logarithms of relaxed one-hot vectors: log_softmax((logits + Gumbel noise) / temperature)."""

    support: Any = constraints.real_vector  # a submanifold of it: the exponentials add up to 1
    has_rsample = True
    _constants = ("temperature",)

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.temperature = temperature
        self._take_categories(Categorical(probs, logits), validate_args)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        uniforms = clamp_probs(torch.rand(self._extended_shape(sample_shape), dtype=self.logits.dtype))
        return log_softmax((self.logits - (-uniforms.log()).log()) / self.temperature, dim=-1)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        n = self._categorical._num_events
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        temperature = torch.as_tensor(self.temperature)
        scores = log_softmax(logits - value * temperature, dim=-1).sum(-1)
        return scores + math.lgamma(n) + (n - 1) * temperature.log()


class RelaxedOneHotCategorical(TransformedDistribution):
    """Points of the simplex, near its corners for a low `temperature`: the exponentials of ExpRelaxedCategorical."""

    arg_constraints: Any = {"probs": constraints.simplex, "logits": constraints.real_vector}
    support: Any = constraints.simplex
    has_rsample: Any = True  # type: ignore[assignment]

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        base = ExpRelaxedCategorical(temperature, probs, logits, validate_args=validate_args)
        super().__init__(base, ExpTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        """Log probabilities of the categories."""
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        """Their probabilities."""
        return self.base_dist.probs
