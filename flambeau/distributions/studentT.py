"""Student's t distribution: loc + scale x / sqrt(chi2(df) / df), x normal."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.chi2 import Chi2
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.utils import _standard_normal
from flambeau.trace.meta import Size

__all__ = ["StudentT"]


class StudentT(Parametric):
    """t distributions of `df` degrees of freedom, with a location and a scale."""

    df: Any
    loc: Any
    scale: Any
    arg_constraints: Any = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample = True
    _parts = ("_chi2",)

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None) -> None:
        self._take(validate_args, df=df, loc=loc, scale=scale)
        self._chi2 = Chi2(self.df)

    @property
    def mean(self) -> Any:
        """loc; NaN up to df = 1."""
        return torch.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Any:
        """scale^2 df / (df - 2); infinite up to df = 2, NaN up to df = 1."""
        finite = self.df > 2
        df = torch.where(finite, self.df, 3.0)
        value = torch.where(finite, self.scale.pow(2) * df / (df - 2), math.inf)
        return torch.where(self.df <= 1, math.nan, value)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        noise = _standard_normal(self._extended_shape(sample_shape), self.df.dtype)
        return self.loc + self.scale * (noise * torch.rsqrt(self._chi2.rsample(sample_shape) / self.df))

    def _log_beta(self) -> Any:
        """log B(1 / 2, df / 2)."""
        return torch.lgamma(0.5 * self.df) + 0.5 * math.log(math.pi) - torch.lgamma(0.5 * (self.df + 1))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        z = (self._checked(value) - self.loc) / self.scale
        norm = self.scale.log() + 0.5 * self.df.log() + self._log_beta()
        return -0.5 * (self.df + 1.0) * torch.log1p(z.square() / self.df) - norm

    def entropy(self) -> Any:
        """The differential entropy."""
        half = 0.5 * (self.df + 1)
        return self.scale.log() + half * (half.digamma() - (0.5 * self.df).digamma()) + 0.5 * self.df.log() + self._log_beta()
