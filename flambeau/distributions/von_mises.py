"""The von Mises distribution: angles, density exp(concentration cos(x - loc)) / (2 pi I0(concentration))."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.utils import lazy_property
from flambeau.trace.meta import Size

__all__ = ["VonMises"]


class VonMises(Parametric):
    """Angles around `loc` in [-pi, pi), the nearer the larger the `concentration`. The variance is the circular one."""

    loc: Any
    concentration: Any
    arg_constraints: Any = {"loc": constraints.real, "concentration": constraints.positive}
    support: Any = constraints.real
    has_rsample = False

    def __init__(self, loc: Any, concentration: Any, validate_args: bool | None = None) -> None:
        self._take(validate_args, loc=loc, concentration=concentration)

    @property
    def mean(self) -> Any:
        """The circular mean: loc."""
        return self.loc

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The circular variance, 1 - I1(concentration) / I0(concentration)."""
        return 1 - torch.special.i1e(self.concentration) / torch.special.i0e(self.concentration)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        k = self.concentration
        log_i0 = torch.special.i0e(k).log() + k
        return k * torch.cos(self._checked(value) - self.loc) - math.log(2 * math.pi) - log_i0

    @lazy_property
    def _proposal_r(self) -> Any:
        """The parameter of the wrapped Cauchy distribution from which angles are proposed; double."""
        k = self.concentration.to(torch.float64)
        tau = 1 + (1 + 4 * k**2).sqrt()
        rho = (tau - (2 * tau).sqrt()) / (2 * k)
        return torch.where(k < 1e-5, 1 / k + k, (1 + rho**2) / (2 * rho))

    def sample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Angles of [-pi, pi), by rejection (Best and Fisher 1979), in double."""
        shape = self._extended_shape(sample_shape)
        with torch.no_grad():
            r, k = self._proposal_r, self.concentration.to(torch.float64)
            x = torch.zeros(shape, dtype=torch.float64)
            done = torch.zeros(shape, dtype=torch.bool)
            while not bool(done.all()):
                u1, u2, u3 = torch.rand((3, *shape), dtype=torch.float64).unbind()
                z = torch.cos(math.pi * u1)
                f = (1 + r * z) / (r + z)
                c = k * (r - f)
                accept = (c * (2 - c) - u2 > 0) | ((c / u2).log() + 1 - c >= 0)
                # An element that has a value takes a new one too where that is accepted: PyTorch's stream.
                x = torch.where(accept, (u3 - 0.5).sign() * f.acos(), x)
                done = done | accept
            angle = x + math.pi + self.loc.to(torch.float64)
            return (angle % (2 * math.pi) - math.pi).to(self.loc.dtype)
