"""The half-normal distribution: |x|, x normal around 0."""

from __future__ import annotations

import math
from typing import Any

from flambeau.distributions.normal import Normal
from flambeau.distributions.transformed_distribution import Half
from flambeau.distributions.transforms import AbsTransform

__all__ = ["HalfNormal"]


class HalfNormal(Half):
    """|x|, x of Normal(0, scale)."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Normal(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Any:
        """sqrt(2 / pi) scale."""
        return self.scale * math.sqrt(2 / math.pi)

    @property
    def variance(self) -> Any:
        """(1 - 2 / pi) scale^2."""
        return self.scale.pow(2) * (1 - 2 / math.pi)
