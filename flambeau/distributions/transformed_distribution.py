"""Distributions of transformed random numbers: y = f(x), x of a base distribution."""

from __future__ import annotations

import math
from typing import Any, Final

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.independent import Independent
from flambeau.distributions.transforms import ComposeTransform, Transform
from flambeau.distributions.utils import _sum_rightmost
from flambeau.trace.meta import Size

__all__ = ["TransformedDistribution"]
_LOG_2: Final = math.log(2)


class TransformedDistribution(Parametric):
    """y = f_n(... f_1(x)), x of `base_distribution`, f_i the transforms (one, or a list).

    The density of y is that of x divided by |dy / dx|. The base is expanded to the shape that the transforms give it, and dims over which
    they act jointly become event dims. ValueError where its shape has too few dims."""

    arg_constraints: Any = {}
    _constants = ("transforms",)

    def __init__(self, base_distribution: Any, transforms: Any, validate_args: bool | None = None) -> None:
        if isinstance(transforms, Transform):
            transforms = [transforms]
        elif not isinstance(transforms, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        self.transforms = transforms
        whole = ComposeTransform(transforms)
        dims_in, dims_out = whole.domain.event_dim, whole.codomain.event_dim
        shape = base_distribution.batch_shape + base_distribution.event_shape
        own_dims = len(base_distribution.event_shape)
        if len(shape) < dims_in:
            raise ValueError(f"base_distribution needs to have shape with size at least {dims_in}, but got {shape}.")
        forward = whole.forward_shape(shape)
        expanded = whole.inverse_shape(forward)
        if tuple(shape) != tuple(expanded):
            base_distribution = base_distribution.expand(expanded[: len(expanded) - own_dims])
        if dims_in > own_dims:
            base_distribution = Independent(base_distribution, dims_in - own_dims)
        self.base_dist = base_distribution
        dims = max(dims_out, own_dims + dims_out - dims_in)
        if len(forward) < dims:
            raise AssertionError(f"forward_shape length {len(forward)} must be >= event_dim {dims}")
        cut = len(forward) - dims
        super().__init__(Size(forward[:cut]), Size(forward[cut:]), validate_args=validate_args)

    def _expand_into(self, new: Any, batch_shape: Any) -> None:
        shape = batch_shape + self.event_shape
        for t in reversed(self.transforms):
            shape = t.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        super()._expand_into(new, batch_shape)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> Any:
        """The codomain of the last transform, over the whole event."""
        if not self.transforms:
            return self.base_dist.support
        last = self.transforms[-1].codomain
        more = len(self.event_shape) - last.event_dim
        return constraints.independent(last, more) if more > 0 else last

    @property
    def has_rsample(self) -> Any:  # type: ignore[override]
        """Whether the base has."""
        return self.base_dist.has_rsample

    def _forward(self, x: Any) -> Any:
        for transform in self.transforms:
            x = transform(x)
        return x

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws without gradients."""
        with torch.no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients, where the base has them."""
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        y = self._checked(value)
        dims = len(self.event_shape)
        total: Any = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            dims += transform.domain.event_dim - transform.codomain.event_dim
            total = total - _sum_rightmost(transform.log_abs_det_jacobian(x, y), dims - transform.domain.event_dim)
            y = x
        return total + _sum_rightmost(self.base_dist.log_prob(y), dims - len(self.base_dist.event_shape))

    def _monotonize_cdf(self, value: Any) -> Any:
        """The probability, turned around (p to 1 - p) where the transforms decrease."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        return value if isinstance(sign, int) and sign == 1 else sign * (value - 0.5) + 0.5

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`; for monotone transforms of single numbers."""
        for transform in reversed(self.transforms):
            value = transform.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._monotonize_cdf(self.base_dist.cdf(value))

    def icdf(self, value: Any) -> Any:
        """The quantile of the probability `value`; for monotone transforms of single numbers."""
        return self._forward(self.base_dist.icdf(self._monotonize_cdf(value)))


class Half(TransformedDistribution):
    """|x| of a symmetric distribution around 0 with a scale: twice its density for x >= 0."""

    arg_constraints: Any = {"scale": constraints.positive}
    support: Any = constraints.nonnegative
    has_rsample: Any = True  # type: ignore[assignment]

    @property
    def scale(self) -> Any:
        """The scale of the symmetric distribution."""
        return self.base_dist.scale

    @property
    def mode(self) -> Any:
        """0."""
        return torch.zeros_like(self.scale)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density; -inf below 0."""
        value = torch.as_tensor(self._checked(value), dtype=self.scale.dtype)
        return torch.where(value >= 0, self.base_dist.log_prob(value) + _LOG_2, -torch.inf)

    def cdf(self, value: Any) -> Any:
        """The probability of at most `value`."""
        return 2 * self.base_dist.cdf(self._checked(value)) - 1

    def icdf(self, prob: Any) -> Any:
        """The quantile of the probability `prob`."""
        return self.base_dist.icdf((prob + 1) / 2)

    def entropy(self) -> Any:
        """The differential entropy."""
        return self.base_dist.entropy() - _LOG_2
