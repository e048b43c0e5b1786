"""Families of a location and a scale: loc + scale z, z of a standard distribution on the real line."""

from __future__ import annotations

from typing import Any

from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric


class LocationScale(Parametric):
    """Parameters `loc` (real) and `scale` (positive) of the batch's shape; the mode is at `loc`."""

    loc: Any
    scale: Any
    arg_constraints: Any = {"loc": constraints.real, "scale": constraints.positive}
    support: Any = constraints.real
    has_rsample = True

    def __init__(self, loc: Any, scale: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, scale=scale)

    @property
    def mean(self) -> Any:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    def _standard(self, value: Any) -> Any:
        """The standard distribution's z of a (checked) value."""
        return (self._checked(value) - self.loc) / self.scale
