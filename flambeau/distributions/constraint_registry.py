"""From the real numbers to constrained values: `biject_to(constraint)` and `transform_to(constraint)` give transforms.

A transform of `biject_to` is bijective, with a log determinant: for densities (Hamiltonian Monte Carlo, variational inference). One of
`transform_to` need not be, and is as well conditioned as can be: for optimisers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.distributions import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Factories of transforms by the class of the constraint."""

    def __init__(self) -> None:
        self._registry: dict[type, Callable[[Any], Any]] = {}

    def register(self, constraint: Any, factory: Any = None) -> Any:
        """Let `factory(constraint)` make the transforms for a class of constraints (or that of an instance); without a factory, a
        decorator. TypeError for anything else."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, constraints.Constraint):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {kind}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Any) -> Any:
        """The transform whose values satisfy `constraint`. NotImplementedError where none is registered."""
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()
_BOTH = (biject_to, transform_to)


def _register(registries: tuple[ConstraintRegistry, ...], *kinds: Any) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Decorator: a factory for several kinds of constraints."""

    def decorate(factory: Callable[[Any], Any]) -> Callable[[Any], Any]:
        for registry in registries:
            for kind in kinds:
                registry.register(kind, factory)
        return factory

    return decorate


def _register_parts(registry: ConstraintRegistry) -> None:
    """Constraints made of constraints, whose transforms are of the same registry."""
    registry.register(constraints.independent, lambda c: transforms.IndependentTransform(
        registry(c.base_constraint), c.reinterpreted_batch_ndims))  # fmt: skip
    registry.register(constraints.cat, lambda c: transforms.CatTransform([registry(part) for part in c.cseq], c.dim, c.lengths))
    registry.register(constraints.stack, lambda c: transforms.StackTransform([registry(part) for part in c.cseq], c.dim))


_register(_BOTH, constraints.real)(lambda c: transforms.identity_transform)
_register(_BOTH, constraints.positive, constraints.nonnegative)(lambda c: transforms.ExpTransform())
_register_parts(biject_to)
_register_parts(transform_to)


@_register(_BOTH, constraints.greater_than, constraints.greater_than_eq)
def _above(c: Any) -> Any:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(c.lower_bound, 1)])


@_register(_BOTH, constraints.less_than)
def _below(c: Any) -> Any:
    return transforms.ComposeTransform([transforms.ExpTransform(), transforms.AffineTransform(c.upper_bound, -1)])


@_register(_BOTH, constraints.interval, constraints.half_open_interval)
def _between(c: Any) -> Any:
    low: Any = c.lower_bound
    high: Any = c.upper_bound
    if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low == 0 and high == 1:
        return transforms.SigmoidTransform()
    return transforms.ComposeTransform([transforms.SigmoidTransform(), transforms.AffineTransform(low, high - low)])


_register((biject_to,), constraints.simplex)(lambda c: transforms.StickBreakingTransform())
_register((transform_to,), constraints.simplex)(lambda c: transforms.SoftmaxTransform())
_register((transform_to,), constraints.lower_cholesky)(lambda c: transforms.LowerCholeskyTransform())
_register((transform_to,), constraints.positive_definite, constraints.positive_semidefinite)(lambda c: transforms.PositiveDefiniteTransform())
_register(_BOTH, constraints.corr_cholesky)(lambda c: transforms.CorrCholeskyTransform())
