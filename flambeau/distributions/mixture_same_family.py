"""Mixtures whose components are one batch of distributions."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.categorical import Categorical
from flambeau.distributions.distribution import Distribution, Parametric
from flambeau.trace.meta import Size

__all__ = ["MixtureSameFamily"]


class MixtureSameFamily(Parametric):
    """Draw a component by `mixture_distribution` (a Categorical), then from it: the components are the last batch dim of
    `component_distribution`. ValueError where the two do not fit each other."""

    arg_constraints: Any = {}
    has_rsample = False
    _constants = ("_num_component", "_event_ndims")
    _parts = ("_mixture_distribution",)

    def __init__(self, mixture_distribution: Any, component_distribution: Any, validate_args: bool | None = None) -> None:
        if not isinstance(mixture_distribution, Categorical):
            raise ValueError(" The Mixture distribution needs to be an  instance of torch.distributions.Categorical")
        if not isinstance(component_distribution, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        self._mixture_distribution = mixture_distribution
        self._component_distribution = component_distribution
        mixed, batch = mixture_distribution.batch_shape, component_distribution.batch_shape
        if any(1 not in pair and pair[0] != pair[1] for pair in zip(reversed(mixed), reversed(batch[:-1]), strict=False)):
            raise ValueError(f"`mixture_distribution.batch_shape` ({mixed}) is not compatible with `component_distribution.batch_shape`({batch[:-1]})")
        count = mixture_distribution.logits.shape[-1]
        if count != batch[-1]:
            raise ValueError(f"`mixture_distribution component` ({count}) does not equal `component_distribution.batch_shape[-1]` ({batch[-1]})")
        self._num_component = count
        self._event_ndims = len(component_distribution.event_shape)
        super().__init__(batch[:-1], component_distribution.event_shape, validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Any) -> None:
        new._component_distribution = self._component_distribution.expand((*batch_shape, self._num_component))
        super()._expand_into(new, batch_shape)

    @constraints.dependent_property
    def support(self) -> Any:
        """That of all components."""
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    @property
    def mixture_distribution(self) -> Any:
        """The distribution of the components' numbers."""
        return self._mixture_distribution

    @property
    def component_distribution(self) -> Any:
        """The components."""
        return self._component_distribution

    def _mix(self, values: Any) -> Any:
        """The mean over components, which are left of the event dims."""
        probs = self.mixture_distribution.probs
        return (probs.reshape(probs.shape + (1,) * self._event_ndims) * values).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Any:
        """The mean of the components' means."""
        return self._mix(self.component_distribution.mean)

    @property
    def variance(self) -> Any:
        """The mean of the variances, and the variance of the means."""
        away = self.component_distribution.mean - self._pad(self.mean)
        return self._mix(self.component_distribution.variance) + self._mix(away.square())

    def cdf(self, x: Any) -> Any:
        """The probability of at most `x`."""
        return (self.component_distribution.cdf(self._pad(x)) * self.mixture_distribution.probs).sum(-1)

    def log_prob(self, x: Any) -> Any:
        """The logarithm of the density or probability."""
        inner = self.component_distribution.log_prob(self._pad(self._checked(x)))
        return torch.logsumexp(inner + self.mixture_distribution.logits.log_softmax(-1), dim=-1)

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws without gradients: one of each component, of which one is taken."""
        with torch.no_grad():
            dim = len(sample_shape) + len(self.batch_shape)
            chosen = self.mixture_distribution.expand(self.batch_shape).sample(sample_shape)
            drawn = self.component_distribution.sample(sample_shape)
            chosen = chosen.reshape(chosen.shape + (1,) * (1 + self._event_ndims))
            shape = (*drawn.shape[:dim], 1, *self.event_shape)
            return drawn.gather(dim, chosen.expand(shape)).squeeze(dim)

    def _pad(self, x: Any) -> Any:
        return x.unsqueeze(-1 - self._event_ndims)

    def __repr__(self) -> str:
        return f"MixtureSameFamily(\n  {self.mixture_distribution},\n  {self.component_distribution})"
