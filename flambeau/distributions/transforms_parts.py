"""Transforms made of transforms: one after another, over more dims, side by side along a dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.transforms import Transform, _Configured
from flambeau.distributions.utils import _sum_rightmost, lazy_property


class ComposeTransform(Transform):
    """Transforms one after another; an empty list is the identity. Caches are those of the parts."""

    def __init__(self, parts: list[Any], cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else parts

    def __eq__(self, other: object) -> Any:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    def _widened(self, end: Any, event_dim: int) -> Any:
        """The constraint at one end, with the dims that the parts need more."""
        if event_dim < end.event_dim:
            raise AssertionError(f"event_dim {event_dim} must be >= {end.event_dim}, that of the first or last part")
        return constraints.independent(end, event_dim - end.event_dim) if event_dim > end.event_dim else end

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The first part's domain, of as many dims as any part needs."""
        if not self.parts:
            return constraints.real
        dims = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            dims = max(dims + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return self._widened(self.parts[0].domain, dims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """The last part's codomain, of as many dims as any part needs."""
        if not self.parts:
            return constraints.real
        dims = self.parts[0].domain.event_dim
        for part in self.parts:
            dims = max(dims + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return self._widened(self.parts[-1].codomain, dims)

    @lazy_property
    def bijective(self) -> Any:  # type: ignore[override]
        """Whether all parts are."""
        return all(p.bijective for p in self.parts)

    @lazy_property
    def sign(self) -> Any:
        """The product of the parts'."""
        sign: Any = 1
        for p in self.parts:
            sign = sign * p.sign
        return sign

    @property
    def inv(self) -> Any:
        """The inverses in reverse order."""
        if self._inv is None:
            self._inv = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv._inv = self
        return self._inv

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same parts with caches of that size."""
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        if not self.parts:
            return torch.zeros_like(x)
        total: Any = None
        dims = self.domain.event_dim
        for i, part in enumerate(self.parts):
            after = y if i + 1 == len(self.parts) else part(x)
            term = _sum_rightmost(part.log_abs_det_jacobian(x, after), dims - part.domain.event_dim)
            total = term if total is None else total + term
            dims += part.codomain.event_dim - part.domain.event_dim
            x = after
        return total

    def forward_shape(self, shape: Any) -> Any:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape: Any) -> Any:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        listed = ",\n    ".join(repr(p) for p in self.parts)
        return f"{self.__class__.__name__}(\n    {listed}\n)"


class IndependentTransform(_Configured):
    """A transform whose last `reinterpreted_batch_ndims` batch dims belong to the event: its log determinants are summed over them."""

    _arguments = ("base_transform", "reinterpreted_batch_ndims")

    def __init__(self, base_transform: Any, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @constraints.dependent_property(is_discrete=False)
    def domain(self) -> Any:
        """The base's, over more dims."""
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @constraints.dependent_property(is_discrete=False)
    def codomain(self) -> Any:
        """The base's, over more dims."""
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> Any:  # type: ignore[override]
        """Whether the base is."""
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        """The base's."""
        return self.base_transform.sign

    def _call(self, x: Any) -> Any:
        if x.dim() < self.domain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform(x)

    def _inverse(self, y: Any) -> Any:
        if y.dim() < self.codomain.event_dim:
            raise ValueError("Too few dimensions on input")
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return _sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"

    def forward_shape(self, shape: Any) -> Any:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Any:
        return self.base_transform.inverse_shape(shape)


class _SideBySide(_Configured):
    """Transforms of slices along `dim`. Subclasses cut a tensor and put it together."""

    transforms: list[Any]
    dim: int

    def __init__(self, tseq: Sequence[Any], dim: int = 0, cache_size: int = 0) -> None:
        if not all(isinstance(t, Transform) for t in tseq):
            raise AssertionError("All elements of tseq must be Transform instances")
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def _length(self) -> int:
        raise NotImplementedError

    def _slices(self, value: Any) -> Sequence[Any]:
        raise NotImplementedError

    def _joined(self, parts: Sequence[Any]) -> Any:
        raise NotImplementedError

    def _cut(self, value: Any) -> Sequence[Any]:
        """The slices of a value of the right size."""
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for tensor with {value.dim()} dimensions")
        if value.size(self.dim) != self._length():
            raise AssertionError(f"size({self.dim}) = {value.size(self.dim)} must equal {self._length()}, the sum of the transforms' lengths")
        return self._slices(value)

    def _call(self, x: Any) -> Any:
        return self._joined([t(part) for t, part in zip(self.transforms, self._cut(x), strict=True)])

    def _inverse(self, y: Any) -> Any:
        return self._joined([t.inv(part) for t, part in zip(self.transforms, self._cut(y), strict=True)])

    def _jacobians(self, x: Any, y: Any) -> list[Any]:
        cut = zip(self.transforms, self._cut(x), self._cut(y), strict=True)
        return [t.log_abs_det_jacobian(a, b) for t, a, b in cut]

    @property
    def bijective(self) -> Any:  # type: ignore[override]
        """Whether all parts are."""
        return all(t.bijective for t in self.transforms)


class CatTransform(_SideBySide):
    """Transforms of the parts of a tensor, of `lengths` along `dim` (1 each by default)."""

    _arguments = ("transforms", "dim", "lengths")

    def __init__(self, tseq: Sequence[Any], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0) -> None:
        super().__init__(tseq, dim, cache_size)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.transforms):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match transforms ({len(self.transforms)})")

    @lazy_property
    def event_dim(self) -> Any:  # type: ignore[override]
        """The largest of the parts'."""
        return max(t.event_dim for t in self.transforms)

    @lazy_property
    def length(self) -> Any:
        """The size along `dim`."""
        return sum(self.lengths)

    def _length(self) -> int:
        return self.length  # type: ignore[no-any-return]

    def _slices(self, value: Any) -> Sequence[Any]:
        return value.split(self.lengths, self.dim)  # type: ignore[no-any-return]

    def _joined(self, parts: Sequence[Any]) -> Any:
        return torch.cat(list(parts), dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        found = self._jacobians(x, y)
        terms = [
            _sum_rightmost(term, self.event_dim - t.event_dim) if t.event_dim < self.event_dim else term for t, term in zip(self.transforms, found, strict=True)
        ]
        dim = (self.dim - x.dim() if self.dim >= 0 else self.dim) + self.event_dim
        return torch.cat(terms, dim=dim) if dim < 0 else sum(terms)

    @constraints.dependent_property
    def domain(self) -> Any:
        """The parts' side by side."""
        return constraints.cat([t.domain for t in self.transforms], self.dim, self.lengths)

    @constraints.dependent_property
    def codomain(self) -> Any:
        """The parts' side by side."""
        return constraints.cat([t.codomain for t in self.transforms], self.dim, self.lengths)


class StackTransform(_SideBySide):
    """Transforms of the slices of a tensor along `dim`, one for each."""

    _arguments = ("transforms", "dim")

    def _length(self) -> int:
        return len(self.transforms)

    def _slices(self, value: Any) -> Sequence[Any]:
        return value.unbind(self.dim)  # type: ignore[no-any-return]

    def _joined(self, parts: Sequence[Any]) -> Any:
        return torch.stack(list(parts), dim=self.dim)

    def log_abs_det_jacobian(self, x: Any, y: Any) -> Any:
        return self._joined(self._jacobians(x, y))

    @constraints.dependent_property
    def domain(self) -> Any:
        """The parts', stacked."""
        return constraints.stack([t.domain for t in self.transforms], self.dim)

    @constraints.dependent_property
    def codomain(self) -> Any:
        """The parts', stacked."""
        return constraints.stack([t.codomain for t in self.transforms], self.dim)
