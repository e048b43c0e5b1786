"""Batch dims as event dims: a joint distribution of independent ones."""

from __future__ import annotations

from typing import Any

from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.utils import _sum_rightmost
from flambeau.trace.meta import Size

__all__ = ["Independent"]


class Independent(Parametric):
    """`base_distribution` with its last `reinterpreted_batch_ndims` batch dims as event dims, over which log_prob and entropy are sums.

    ValueError where it has fewer."""

    arg_constraints: Any = {}
    _constants = ("reinterpreted_batch_ndims",)

    def __class_getitem__(cls, item: Any) -> Any:
        return cls  # Independent[Normal], in annotations

    def __init__(self, base_distribution: Any, reinterpreted_batch_ndims: int, validate_args: bool | None = None) -> None:
        available = len(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > available:
            raise ValueError(f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual {reinterpreted_batch_ndims} vs {available}")
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        shape, cut = base_distribution.batch_shape + base_distribution.event_shape, available - reinterpreted_batch_ndims
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Any) -> None:
        new.base_dist = self.base_dist.expand(batch_shape + self.event_shape[: self.reinterpreted_batch_ndims])
        super()._expand_into(new, batch_shape)

    @property
    def has_rsample(self) -> Any:  # type: ignore[override]
        """Whether the base has."""
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> Any:  # type: ignore[override]
        """Whether the base has, and nothing is reinterpreted."""
        return self.reinterpreted_batch_ndims <= 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> Any:
        """That of the base, over more dims."""
        inner = self.base_dist.support
        return constraints.independent(inner, self.reinterpreted_batch_ndims) if self.reinterpreted_batch_ndims else inner

    @property
    def mean(self) -> Any:
        """That of the base."""
        return self.base_dist.mean

    @property
    def mode(self) -> Any:
        """That of the base."""
        return self.base_dist.mode

    @property
    def variance(self) -> Any:
        """That of the base."""
        return self.base_dist.variance

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws of the base."""
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws of the base, with gradients."""
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the joint density."""
        return _sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Any:
        """The joint entropy."""
        return _sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Any:
        """That of the base; NotImplementedError where dims are reinterpreted."""
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"
