"""The logistic-normal distribution: points of a simplex, by stick breaking of normal numbers."""

from __future__ import annotations

from typing import Any

from flambeau.distributions import constraints
from flambeau.distributions.normal import Normal
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.transforms import StickBreakingTransform

__all__ = ["LogisticNormal"]


class LogisticNormal(TransformedDistribution):
    """StickBreakingTransform of Normal(loc, scale) with the last dim as event: n + 1 positive numbers with the sum 1 from n."""

    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.simplex
    has_rsample: Any = True  # type: ignore[assignment]

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        base = Normal(loc, scale, validate_args=validate_args)
        super().__init__(base if base.batch_shape else base.expand([1]), StickBreakingTransform(), validate_args=validate_args)

    @property
    def loc(self) -> Any:
        """The means of the normal numbers."""
        return self.base_dist.base_dist.loc

    @property
    def scale(self) -> Any:
        """Their standard deviations."""
        return self.base_dist.base_dist.scale
