"""Regions of values: what a parameter may be, and where a distribution has its mass.

A constraint's `check(value)` gives a bool tensor of value's shape without its last `event_dim` dims: whether each event is inside. Bounds
are numbers or tensors that broadcast against the values. `is_discrete`: whether the region consists of separate points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch

__all__ = [
    "Constraint", "MixtureSameFamilyConstraint", "boolean", "cat", "corr_cholesky", "dependent", "dependent_property", "greater_than",
    "greater_than_eq", "half_open_interval", "independent", "integer_interval", "interval", "is_dependent", "less_than", "lower_cholesky",
    "lower_triangular", "multinomial", "nonnegative", "nonnegative_integer", "one_hot", "positive", "positive_definite",
    "positive_integer", "positive_semidefinite", "real", "real_vector", "simplex", "square", "stack", "symmetric", "unit_interval",
]  # fmt: skip


def _all(checked: Any, dims: int) -> Any:
    """Whether all of the last `dims` dims hold."""
    return checked.reshape((*checked.shape[: checked.dim() - dims], -1)).all(-1)


class Constraint:
    """A region of values. Subclasses define `check`, and `is_discrete` and `event_dim` where they are not False and 0."""

    is_discrete = False
    event_dim = 0

    def check(self, value: Any) -> Any:
        """Whether each event of `value` is inside."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.__class__.__name__[1:] + "()"


# -- what is known only with the parameters -------------------------------------------------------------------------------
class _Dependent(Constraint):
    """A region that other parameters decide. What is NotImplemented cannot be said without them."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete = is_discrete
        self._event_dim = event_dim

    def _known(self, name: str) -> Any:
        value = self.__dict__["_" + name]
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    @property
    def is_discrete(self) -> Any:  # type: ignore[override]
        """Whether the region is discrete, where that is known."""
        return self._known("is_discrete")

    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        """The number of dims of an event, where that is known."""
        return self._known("event_dim")

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        given = (is_discrete, self._is_discrete), (event_dim, self._event_dim)
        discrete, dims = (own if new is NotImplemented else new for new, own in given)
        return _Dependent(is_discrete=discrete, event_dim=dims)

    def check(self, x: Any) -> Any:
        raise ValueError("Cannot determine validity of dependent constraint")


def is_dependent(constraint: Any) -> bool:
    """Whether a constraint depends on other parameters, so that it cannot check values."""
    return isinstance(constraint, _Dependent)


class _DependentProperty(property, _Dependent):
    """On a class a dependent constraint, on an instance a property: decorates methods that give the constraint."""

    def __init__(self, fn: Callable[[Any], Any] | None = None, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Callable[[Any], Any]) -> _DependentProperty:  # type: ignore[override]
        return _DependentProperty(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


# -- regions made of regions ----------------------------------------------------------------------------------------------
class _Derived(Constraint):
    """A region made of another one."""

    def __init__(self, base_constraint: Constraint) -> None:
        if not isinstance(base_constraint, Constraint):
            raise AssertionError(f"base_constraint must be a Constraint, got {type(base_constraint).__name__}")
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> Any:  # type: ignore[override]
        """That of the base."""
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        """That of the base."""
        return self.base_constraint.event_dim


class _IndependentConstraint(_Derived):
    """Events of `reinterpreted_batch_ndims` more dims, all of whose parts are inside the base."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        super().__init__(base_constraint)
        if not isinstance(reinterpreted_batch_ndims, int):
            raise AssertionError(f"reinterpreted_batch_ndims must be an int, got {type(reinterpreted_batch_ndims).__name__}")
        if reinterpreted_batch_ndims < 0:
            raise AssertionError(f"reinterpreted_batch_ndims must be >= 0, got {reinterpreted_batch_ndims}")
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        """That of the base, and the reinterpreted dims."""
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Any) -> Any:
        result = self.base_constraint.check(value)
        if result.dim() < self.reinterpreted_batch_ndims:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        return _all(result, self.reinterpreted_batch_ndims)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__[1:]}({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(_Derived):
    """Inside the base for every component: the base's bounds have one dim more, left of the event."""

    def check(self, value: Any) -> Any:
        """Whether each event is inside the region of all components."""
        result = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        if value.dim() < self.event_dim:
            raise ValueError(f"Expected value.dim() >= {self.event_dim} but got {value.dim()}")
        kept = value.dim() - self.event_dim
        return _all(result, result.dim() - kept)

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.base_constraint!r})"


class _Sequence(Constraint):
    """Slices along `dim`, each with a constraint of its own."""

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(c, Constraint) for c in cseq):
            raise AssertionError("All elements of cseq must be Constraint instances")
        self.cseq = list(cseq)
        self.dim = dim

    @property
    def is_discrete(self) -> Any:  # type: ignore[override]
        """Whether any of the parts is."""
        return any(c.is_discrete for c in self.cseq)

    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        """The largest of the parts'."""
        return max(c.event_dim for c in self.cseq)

    def _within(self, value: Any) -> None:
        if not -value.dim() <= self.dim < value.dim():
            raise AssertionError(f"dim {self.dim} out of range for value with {value.dim()} dimensions")


class _Cat(_Sequence):
    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)
        if len(self.lengths) != len(self.cseq):
            raise AssertionError(f"lengths ({len(self.lengths)}) must match cseq ({len(self.cseq)})")

    def check(self, value: Any) -> Any:
        self._within(value)
        parts, start = [], 0
        for constraint, length in zip(self.cseq, self.lengths, strict=True):
            parts.append(constraint.check(value.narrow(self.dim, start, length)))
            start += length
        return torch.cat(parts, self.dim)


class _Stack(_Sequence):
    @property
    def event_dim(self) -> Any:  # type: ignore[override]
        """The largest of the parts', and one for the stacked dim where that is inside an event."""
        dim = max(c.event_dim for c in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Any) -> Any:
        self._within(value)
        parts = zip(value.unbind(self.dim), self.cseq, strict=False)
        return torch.stack([constraint.check(v) for v, constraint in parts], self.dim)


# -- numbers --------------------------------------------------------------------------------------------------------------
class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Any) -> Any:
        return (value == 0) | (value == 1)


class _Real(Constraint):
    def check(self, value: Any) -> Any:
        return value == value


class _Bounded(Constraint):
    """A region between bounds: which of the two there are, and whether they belong to it, is in `lower` and `upper`."""

    lower: str = ""  # "", "<" or "<="
    upper: str = ""
    lower_bound: Any
    upper_bound: Any

    def check(self, value: Any) -> Any:
        inside = value % 1 == 0 if self.is_discrete else None
        for sign, bound, turned in ((self.lower, "lower_bound", False), (self.upper, "upper_bound", True)):
            if sign:
                small, large = (value, getattr(self, bound)) if turned else (getattr(self, bound), value)
                kept = small <= large if sign == "<=" else small < large
                inside = kept if inside is None else inside & kept
        return inside

    def __repr__(self) -> str:
        bounds = [f"{name}={getattr(self, name)}" for name, sign in (("lower_bound", self.lower), ("upper_bound", self.upper)) if sign]
        return f"{self.__class__.__name__[1:]}({', '.join(bounds)})"


class _Above(_Bounded):
    def __init__(self, lower_bound: Any) -> None:
        self.lower_bound = lower_bound


class _Below(_Bounded):
    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound


class _Between(_Bounded):
    def __init__(self, lower_bound: Any, upper_bound: Any) -> None:
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound


class _GreaterThan(_Above):
    lower = "<"


class _GreaterThanEq(_Above):
    lower = "<="


class _IntegerGreaterThan(_Above):
    is_discrete = True
    lower = "<="


class _LessThan(_Below):
    upper = "<"


class _IntegerLessThan(_Below):
    is_discrete = True
    upper = "<="


class _Interval(_Between):
    lower, upper = "<=", "<="


class _HalfOpenInterval(_Between):
    lower, upper = "<=", "<"


class _IntegerInterval(_Between):
    is_discrete = True
    lower, upper = "<=", "<="


# -- vectors --------------------------------------------------------------------------------------------------------------
class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Any) -> Any:
        return boolean.check(value).all(-1) & value.sum(-1).eq(1)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Any) -> Any:
        return (value >= 0).all(dim=-1) & ((value.sum(-1) - 1).abs() < 1e-6)  # the tolerance is PyTorch's


class _Multinomial(Constraint):
    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, x: Any) -> Any:
        return (x >= 0).all(dim=-1) & (x.sum(dim=-1) <= self.upper_bound)


# -- matrices -------------------------------------------------------------------------------------------------------------
class _LowerTriangular(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return _all(value.tril() == value, 2)


class _LowerCholesky(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return lower_triangular.check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        # Rows are sums of up to D squares that should be 1; ten units in the last place for each is PyTorch's tolerance.
        tolerance = torch.finfo(value.dtype).eps * value.size(-1) * 10
        norms = torch.linalg.norm(value.detach(), dim=-1)
        return lower_cholesky.check(value) & ((norms - 1.0).abs() <= tolerance).all(dim=-1)


class _Square(Constraint):
    event_dim = 2

    def check(self, value: Any) -> Any:
        return torch.full(tuple(value.shape[:-2]), value.shape[-2] == value.shape[-1], dtype=torch.bool)


class _Symmetric(_Square):
    def check(self, value: Any) -> Any:
        if value.shape[-2] != value.shape[-1]:
            return super().check(value)
        return _all(torch.isclose(value, value.mT, atol=1e-6), 2)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        return symmetric if not symmetric.all() else torch.linalg.eigvalsh(value).ge(0).all(-1)


class _PositiveDefinite(_Symmetric):
    def check(self, value: Any) -> Any:
        symmetric = super().check(value)
        return symmetric if not symmetric.all() else torch.linalg.cholesky_ex(value).info.eq(0)


dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
boolean = _Boolean()
one_hot = _OneHot()
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
integer_interval = _IntegerInterval
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
multinomial = _Multinomial
unit_interval = _Interval(0.0, 1.0)
interval = _Interval
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
