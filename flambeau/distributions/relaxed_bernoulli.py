"""Differentiable approximations of Bernoulli numbers (Maddison, Mnih and Teh 2017; Jang, Gu and Poole 2017)."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import ProbsOrLogits
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.transforms import SigmoidTransform
from flambeau.distributions.utils import broadcast_all, clamp_probs, probs_to_logits
from flambeau.nn.functional import softplus
from flambeau.trace.meta import Size

__all__ = ["LogitRelaxedBernoulli", "RelaxedBernoulli"]


class LogitRelaxedBernoulli(ProbsOrLogits):
    """Log odds of relaxed Bernoulli numbers: (logits + logistic noise) / temperature."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.real
    _constants = ("_by_logits", "temperature")

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        self.temperature = temperature
        self._take_form(probs, logits, validate_args)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        shape = self._extended_shape(sample_shape)
        noise = probs_to_logits(torch.rand(shape, dtype=self._param.dtype), is_binary=True)
        return (noise + probs_to_logits(clamp_probs(self.probs.expand(shape)), is_binary=True)) / self.temperature

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        value = self._checked(value)
        logits, value = broadcast_all(self.logits, value)
        temperature = torch.as_tensor(self.temperature)
        difference = logits - value * temperature
        return temperature.log() + difference - 2 * softplus(difference)


class RelaxedBernoulli(TransformedDistribution):
    """Numbers in (0, 1), near 0 and 1 for a low `temperature`: the sigmoid of LogitRelaxedBernoulli."""

    arg_constraints: Any = {"probs": constraints.unit_interval, "logits": constraints.real}
    support: Any = constraints.unit_interval
    has_rsample: Any = True  # type: ignore[assignment]

    def __init__(self, temperature: Any, probs: Any = None, logits: Any = None, validate_args: bool | None = None) -> None:
        super().__init__(LogitRelaxedBernoulli(temperature, probs, logits), SigmoidTransform(), validate_args=validate_args)

    @property
    def temperature(self) -> Any:
        """The temperature."""
        return self.base_dist.temperature

    @property
    def logits(self) -> Any:
        """Log odds of the Bernoulli numbers."""
        return self.base_dist.logits

    @property
    def probs(self) -> Any:
        """Their probabilities."""
        return self.base_dist.probs
