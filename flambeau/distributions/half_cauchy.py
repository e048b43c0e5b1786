"""The half-Cauchy distribution: |x|, x of a Cauchy distribution around 0."""

from __future__ import annotations

import math
from typing import Any

from flambeau.distributions.cauchy import Cauchy
from flambeau.distributions.transformed_distribution import Half
from flambeau.distributions.transforms import AbsTransform
from flambeau.distributions.utils import _filled

__all__ = ["HalfCauchy"]


class HalfCauchy(Half):
    """|x|, x of Cauchy(0, scale). Mean and variance are infinite."""

    def __init__(self, scale: Any, validate_args: bool | None = None) -> None:
        super().__init__(Cauchy(0, scale, validate_args=False), AbsTransform(), validate_args=validate_args)

    @property
    def mean(self) -> Any:
        """Infinite."""
        return _filled(self.scale, self._extended_shape(), math.inf)

    @property
    def variance(self) -> Any:
        """Infinite."""
        return self.base_dist.variance
