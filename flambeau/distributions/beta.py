"""The beta distribution: density proportional to x^(concentration1 - 1) (1 - x)^(concentration0 - 1) on (0, 1)."""

from __future__ import annotations

from numbers import Number
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.dirichlet import Dirichlet
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.distributions.utils import broadcast_all
from flambeau.trace.meta import Size

__all__ = ["Beta"]


class Beta(Parametric, ExponentialFamily):
    """Beta distributions: the first of the two components of a Dirichlet distribution."""

    arg_constraints: Any = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support: Any = constraints.unit_interval
    has_rsample = True
    _parts = ("_dirichlet",)

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None) -> None:
        if isinstance(concentration1, Number) and isinstance(concentration0, Number):
            both = torch.tensor([float(concentration1), float(concentration0)])  # type: ignore[arg-type]
        else:
            both = torch.stack(broadcast_all(concentration1, concentration0), -1)
        self._dirichlet = Dirichlet(both, validate_args=validate_args)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    @property
    def concentration1(self) -> Any:
        """The concentration at 1."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Any:
        """The concentration at 0."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Any:
        """a / (a + b)."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Any:
        """The value of highest density."""
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Any:
        """a b / ((a + b)^2 (a + b + 1))."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        return self._dirichlet.rsample(sample_shape).select(-1, 0)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        value = self._checked(value)
        return self._dirichlet.log_prob(torch.stack([value, 1.0 - value], -1))

    def entropy(self) -> Any:
        """The differential entropy."""
        return self._dirichlet.entropy()

    @property
    def _natural_params(self) -> Any:
        return (self.concentration1, self.concentration0)

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        return torch.lgamma(x) + torch.lgamma(y) - torch.lgamma(x + y)
