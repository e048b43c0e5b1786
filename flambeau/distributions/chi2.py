"""The chi-squared distribution: Gamma(df / 2, 1 / 2)."""

from __future__ import annotations

from typing import Any

from flambeau.distributions import constraints
from flambeau.distributions.gamma import Gamma

__all__ = ["Chi2"]


class Chi2(Gamma):
    """Sums of `df` > 0 squared standard normal numbers."""

    arg_constraints: Any = {"df": constraints.positive}

    def __init__(self, df: Any, validate_args: bool | None = None) -> None:
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Any) -> None:
        new.concentration, new.rate = self.concentration.expand(batch_shape), self.rate.expand(batch_shape)
        super()._expand_into(new, batch_shape)

    @property
    def df(self) -> Any:
        """Degrees of freedom."""
        return self.concentration * 2
