"""Transforms: differentiable maps of tensors with inverses and the logarithms of their Jacobian determinants.

`domain` and `codomain` are constraints; their `event_dim` says over how many last dims the map acts jointly, and `log_abs_det_jacobian` has
the shape without those. A transform with `cache_size=1` remembers its last pair (x, y), by identity, so that the inverse of what it has
just computed costs nothing and loses no digits. Transforms of matrices and of several parts are in transforms_matrix.py and
transforms_parts.py; all are names of this module.
"""

from __future__ import annotations

import inspect
import math
from numbers import Number
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.utils import broadcast_all, lazy_property
from flambeau.nn.functional import logsigmoid, pad, softplus
from flambeau.trace.meta import Size

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
    "identity_transform",
]  # fmt: skip


class Transform:
    """The base. Subclasses define `_call`, `_inverse`, `log_abs_det_jacobian`, `domain`, `codomain`; `bijective`, and `sign` (of the
    derivative) where they are monotone; `forward_shape` and `inverse_shape` where shapes change; `with_cache` where __init__ takes more
    than a cache size."""

    bijective = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cache_size = cache_size
        self._inv: Any = None
        self._cached_x_y: tuple[Any, Any] = (None, None)
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        # The inverse refers back to this transform; it is made again when it is asked for.
        return {**self.__dict__, "_inv": None}

    @property
    def event_dim(self) -> int:
        """The number of dims of an event, where domain and codomain have the same; else ValueError."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim  # type: ignore[no-any-return]
        raise ValueError("Please use either .domain.event_dim or .codomain.event_dim")

    @property
    def inv(self) -> Any:
        """The inverse transform, whose inverse is this one."""
        if self._inv is None:
            self._inv = _InverseTransform(self)
        return self._inv

    @property
    def sign(self) -> Any:
        """The sign of the derivative: 1 or -1, or a tensor of them."""
        raise NotImplementedError

    def with_cache(self, cache_size: int = 1) -> Any:
        """This transform, or one like it, with a cache of that size."""
        if self._cache_size == cache_size:
            return self
        own, inherited = (inspect.unwrap(c.__init__).__code__ for c in (type(self), Transform))
        if own is inherited:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other: object) -> Any:
        return self is other

    def __ne__(self, other: object) -> Any:
        return not self.__eq__(other)

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        """y of x."""
        known_x, known_y = self._cached_x_y
        if self._cache_size and x is known_x:
            return known_y
        return self._remember(x, self._call(x))[1]

    def _inv_call(self, y: Any) -> Any:
        known_x, known_y = self._cached_x_y
        if self._cache_size and y is known_y:
            return known_x
        return self._remember(self._inverse(y), y)[0]

    def _remember(self, x: Any, y: Any) -> tuple[Any, Any]:
        if self._cache_size:
            self._cached_x_y = x, y
        return x, y

    def _call(self, x: Any) -> Any:
        raise NotImplementedError

    def _inverse(self, y: Any) -> Any:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        """log |dy / dx| at a pair of input and output."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.__class__.__name__ + "()"

    def forward_shape(self, shape: Any) -> Any:
        """The shape of y of an x of this shape."""
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        """The shape of x of a y of this shape."""
        return shape


class _InverseTransform(Transform):
    """A transform, turned around. It keeps no cache of its own: the transform's serves both directions."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._inv = transform

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The codomain of the other."""
        return self._inv.codomain

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """The domain of the other."""
        return self._inv.domain

    @property
    def bijective(self) -> Any:  # type: ignore[override]
        """That of the other."""
        return self._inv.bijective

    @property
    def sign(self) -> Any:
        """That of the other."""
        return self._inv.sign

    @property
    def inv(self) -> Any:
        """The transform of which this is the inverse."""
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        """The inverse of the other with that cache."""
        return self._inv.with_cache(cache_size).inv

    def __eq__(self, other: object) -> Any:
        return isinstance(other, _InverseTransform) and self._inv == other._inv

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self._inv!r})"

    def __call__(self, x: Any) -> Any:
        return self._inv._inv_call(x)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -self._inv.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Any:
        return self._inv.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._inv.forward_shape(shape)


class _Alike(Transform):
    """Transforms without parameters: those of one class are equal."""

    def __eq__(self, other: object) -> Any:
        return isinstance(other, type(self))


class _Configured(Transform):
    """Transforms with parameters: `_arguments` are what __init__ takes before the cache size."""

    _arguments: tuple[str, ...] = ()

    def __init__(self, *arguments: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)

    def with_cache(self, cache_size: int = 1) -> Any:
        """This transform, or one like it, with a cache of that size."""
        if self._cache_size == cache_size:
            return self
        given: Any = [getattr(self, name) for name in self._arguments]
        return type(self)(*given, cache_size=cache_size)


# -- numbers --------------------------------------------------------------------------------------------------------------
class ExpTransform(_Alike):
    """y = exp(x)."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x: Any) -> Any:
        return x.exp()

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x


class PowerTransform(_Configured):
    """y = x ** exponent, for x > 0."""

    domain = constraints.positive
    codomain = constraints.positive
    bijective = True
    _arguments = ("exponent",)

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        (self.exponent,) = broadcast_all(exponent)

    @lazy_property
    def sign(self) -> Any:
        """The sign of the exponent."""
        return self.exponent.sign()

    def __eq__(self, other: object) -> Any:
        return isinstance(other, PowerTransform) and bool((self.exponent == other.exponent).all())

    def _call(self, x: Any) -> Any:
        return x.pow(self.exponent)

    def _inverse(self, y: Any) -> Any:
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Any:
        return torch.broadcast_shapes(shape, self.exponent.shape)

    inverse_shape = forward_shape


def _clipped_sigmoid(x: Any) -> Any:
    info = torch.finfo(x.dtype)
    return torch.sigmoid(x).clamp(min=info.tiny, max=1.0 - info.eps)


class SigmoidTransform(_Alike):
    """y = 1 / (1 + exp(-x)), kept inside (0, 1)."""

    domain = constraints.real
    codomain = constraints.unit_interval
    bijective = True
    sign = +1

    def _call(self, x: Any) -> Any:
        return _clipped_sigmoid(x)

    def _inverse(self, y: Any) -> Any:
        info = torch.finfo(y.dtype)
        y = y.clamp(min=info.tiny, max=1.0 - info.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Alike):
    """y = log(1 + exp(x))."""

    domain = constraints.real
    codomain = constraints.positive
    bijective = True
    sign = +1

    def _call(self, x: Any) -> Any:
        return softplus(x)

    def _inverse(self, y: Any) -> Any:
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return -softplus(-x)


class TanhTransform(_Alike):
    """y = tanh(x): ComposeTransform([AffineTransform(0, 2), SigmoidTransform(), AffineTransform(-1, 2)]), but accurate."""

    domain = constraints.real
    codomain = constraints.interval(-1.0, 1.0)
    bijective = True
    sign = +1

    def _call(self, x: Any) -> Any:
        return x.tanh()

    def _inverse(self, y: Any) -> Any:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        # log(1 - tanh(x)^2), without its cancellation
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))


class AbsTransform(_Alike):
    """y = |x|; the inverse is the positive x."""

    domain = constraints.real
    codomain = constraints.positive

    def _call(self, x: Any) -> Any:
        return x.abs()

    def _inverse(self, y: Any) -> Any:
        return y


class AffineTransform(_Configured):
    """y = loc + scale x, loc and scale numbers or tensors; over events of `event_dim` dims."""

    bijective = True
    _arguments = ("loc", "scale", "event_dim")

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.loc = loc
        self.scale = scale
        self._event_dim = event_dim

    @property
    def event_dim(self) -> int:
        """As it was given."""
        return self._event_dim

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The real numbers."""
        return constraints.independent(constraints.real, self.event_dim) if self.event_dim else constraints.real

    codomain = domain

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, AffineTransform):
            return False
        return all(
            mine == theirs if isinstance(mine, Number) and isinstance(theirs, Number) else bool((mine == theirs).all())
            for mine, theirs in ((self.loc, other.loc), (self.scale, other.scale))
        )

    @property
    def sign(self) -> Any:
        """The sign of the scale."""
        if isinstance(self.scale, Number):
            scale = float(self.scale)  # type: ignore[arg-type]
            return (scale > 0) - (scale < 0)
        return self.scale.sign()

    def _call(self, x: Any) -> Any:
        return self.loc + self.scale * x

    def _inverse(self, y: Any) -> Any:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        number = isinstance(self.scale, Number)
        result = torch.full_like(x, math.log(abs(self.scale))) if number else self.scale.abs().log()
        if not self.event_dim:
            return result.expand(x.shape)
        # As PyTorch: a tensor's scale has the event's shape.
        return result.reshape((*result.shape[: -self.event_dim], -1)).sum(-1).expand(x.shape[: -self.event_dim])

    def forward_shape(self, shape: Any) -> Any:
        return torch.broadcast_shapes(shape, getattr(self.loc, "shape", ()), getattr(self.scale, "shape", ()))

    inverse_shape = forward_shape


# -- vectors --------------------------------------------------------------------------------------------------------------
def _event_of(shape: Any, dims: int = 1) -> Any:
    if len(shape) < dims:
        raise ValueError("Too few dimensions on input")
    return shape


class SoftmaxTransform(_Alike):
    """y = softmax(x) over the last dim; the inverse is log(y). It is not bijective."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x: Any) -> Any:
        return x.softmax(-1)

    def _inverse(self, y: Any) -> Any:
        return y.log()

    def forward_shape(self, shape: Any) -> Any:
        return _event_of(shape)

    inverse_shape = forward_shape


class StickBreakingTransform(_Alike):
    """From n real numbers to n + 1 positive ones with the sum 1: x_i says which part of the rest y_i takes; x = 0 gives equal parts."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    @staticmethod
    def _left(like: Any, n: int) -> Any:
        """log of n, n - 1, ... 1: how many parts come after each."""
        return torch.arange(n, 0, -1, dtype=like.dtype).log()

    def _call(self, x: Any) -> Any:
        part = _clipped_sigmoid(x - self._left(x, x.shape[-1]))
        rest = (1 - part).cumprod(-1)
        return pad(part, [0, 1], value=1) * pad(rest, [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        cropped = y[..., :-1]
        rest = (1 - cropped.cumsum(-1)).clamp(min=torch.finfo(y.dtype).tiny)
        return cropped.log() - rest.log() + self._left(y, cropped.shape[-1])

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        x = x - self._left(x, x.shape[-1])
        return (-x + logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Any:
        shape = _event_of(shape)
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Any:
        shape = _event_of(shape)
        return Size((*shape[:-1], shape[-1] - 1))


class ReshapeTransform(_Configured):
    """Events of `in_shape` as events of `out_shape`, which has as many elements."""

    bijective = True
    _arguments = ("in_shape", "out_shape")

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape = Size(in_shape)
        self.out_shape = Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    @constraints.dependent_property
    def domain(self) -> Any:
        """Real arrays."""
        return constraints.independent(constraints.real, len(self.in_shape))

    @constraints.dependent_property
    def codomain(self) -> Any:
        """Real arrays."""
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Any) -> Any:
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y: Any) -> Any:
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    @staticmethod
    def _changed(shape: Any, old: Any, new: Any) -> Any:
        cut = len(_event_of(shape, len(old))) - len(old)
        if tuple(shape[cut:]) != tuple(old):
            raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {old}")
        return shape[:cut] + new

    def forward_shape(self, shape: Any) -> Any:
        return self._changed(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self._changed(shape, self.out_shape, self.in_shape)


class CumulativeDistributionTransform(_Configured):
    """y = cdf(x) of a distribution."""

    bijective = True
    codomain = constraints.unit_interval
    sign = +1
    _arguments = ("distribution",)

    def __init__(self, distribution: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Any:  # type: ignore[override]
        """The support of the distribution."""
        return self.distribution.support

    def _call(self, x: Any) -> Any:
        return self.distribution.cdf(x)

    def _inverse(self, y: Any) -> Any:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self.distribution.log_prob(x)


from flambeau.distributions.transforms_matrix import (  # noqa: E402 - they are built on what is above
    CorrCholeskyTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
)
from flambeau.distributions.transforms_parts import (  # noqa: E402
    CatTransform,
    ComposeTransform,
    IndependentTransform,
    StackTransform,
)

identity_transform = ComposeTransform([])

from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("distributions.transforms", globals())
