"""KL divergences between different families: -H(p) - E_p[log q(x)].

log q(x) is made of a few functions of x, whose expectations under p are: the mean and variance, E[log x], E[log(1 - x)], and E[exp(-t x)].
A cross entropy is written once for each q (`_CROSS`), and works with every p that has the expectations it asks for (`_EXPECTATIONS`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.distributions.bernoulli import Bernoulli
from flambeau.distributions.beta import Beta
from flambeau.distributions.binomial import Binomial
from flambeau.distributions.continuous_bernoulli import ContinuousBernoulli
from flambeau.distributions.exponential import Exponential
from flambeau.distributions.gamma import Gamma
from flambeau.distributions.gumbel import Gumbel
from flambeau.distributions.kl import _divergence_where, _infinite_like, register_kl
from flambeau.distributions.laplace import Laplace
from flambeau.distributions.normal import Normal
from flambeau.distributions.pareto import Pareto
from flambeau.distributions.poisson import Poisson
from flambeau.distributions.uniform import Uniform
from flambeau.distributions.utils import euler_constant


# -- expectations under p -------------------------------------------------------------------------------------------------
def _log_of_uniform(low: Any, high: Any) -> Any:
    """E[log x], x uniform."""
    return (torch.xlogy(high, high) - torch.xlogy(low, low)) / (high - low) - 1


_LOG_X: dict[type, Callable[[Any], Any]] = {
    Beta: lambda p: p.concentration1.digamma() - (p.concentration1 + p.concentration0).digamma(),
    Exponential: lambda p: -p.rate.log() - euler_constant,
    Gamma: lambda p: p.concentration.digamma() - p.rate.log(),
    Pareto: lambda p: p.scale.log() + p.alpha.reciprocal(),
    Uniform: lambda p: _log_of_uniform(p.low, p.high),
}
# The mean and variance as formulas, also where those are infinite: what is replaced by an infinity afterwards must have finite derivatives (0 of them).
_MEAN: dict[type, Callable[[Any], Any]] = {Pareto: lambda p: p.alpha * p.scale / (p.alpha - 1)}
_VARIANCE: dict[type, Callable[[Any], Any]] = {Pareto: lambda p: p.alpha * (p.scale / (p.alpha - 1)).square() / (p.alpha - 2)}
# E[exp(-t x)]
_LAPLACE: dict[type, Callable[[Any, Any], Any]] = {
    Exponential: lambda p, t: p.rate / (p.rate + t),
    Gamma: lambda p, t: (1 + t / p.rate).pow(-p.concentration),
    Normal: lambda p, t: (0.5 * (t * p.scale).square() - t * p.loc).exp(),
    Uniform: lambda p, t: ((-t * p.low).exp() - (-t * p.high).exp()) / (t * (p.high - p.low)),
}


def _mean(p: Any, kind: type) -> Any:
    return _MEAN[kind](p) if kind in _MEAN else p.mean


def _variance(p: Any, kind: type) -> Any:
    return _VARIANCE[kind](p) if kind in _VARIANCE else p.variance


# -- cross entropies -E_p[log q] ------------------------------------------------------------------------------------------
def _with_normal(p: Any, q: Any, kind: type) -> Any:
    spread = _variance(p, kind) + (_mean(p, kind) - q.loc).square()
    return 0.5 * math.log(2 * math.pi) + q.scale.log() + spread / (2 * q.scale.square())


def _with_exponential(p: Any, q: Any, kind: type) -> Any:
    return q.rate * _mean(p, kind) - q.rate.log()


def _with_gamma(p: Any, q: Any, kind: type) -> Any:
    norm = q.concentration.lgamma() - q.concentration * q.rate.log()
    return norm - (q.concentration - 1) * _LOG_X[kind](p) + q.rate * _mean(p, kind)


def _with_gumbel(p: Any, q: Any, kind: type) -> Any:
    tail = (q.loc / q.scale).exp() * _LAPLACE[kind](p, q.scale.reciprocal())
    return q.scale.log() + (_mean(p, kind) - q.loc) / q.scale + tail


def _with_continuous_bernoulli(p: Any, q: Any, kind: type) -> Any:
    return -_mean(p, kind) * q.logits - torch.log1p(-q.probs) - q._cont_bern_log_norm()


def _with_beta(p: Any, q: Any, kind: type) -> Any:
    a, b = q.concentration1, q.concentration0
    norm = a.lgamma() + b.lgamma() - (a + b).lgamma()
    return norm - (a - 1) * _LOG_X[kind](p) - (b - 1) * _log_of_uniform(1 - p.high, 1 - p.low)


def _with_pareto(p: Any, q: Any, kind: type) -> Any:
    return (q.alpha + 1) * _LOG_X[kind](p) - q.alpha.log() - q.alpha * q.scale.log()


def _with_uniform(p: Any, q: Any, kind: type) -> Any:
    return (q.high - q.low).log()


def _with_laplace(p: Any, q: Any, kind: type) -> Any:
    """p normal: E|x - loc| is the mean of a folded normal distribution."""
    away = p.loc - q.loc
    z = away / p.scale
    folded = math.sqrt(2 / math.pi) * p.scale * (-0.5 * z.square()).exp() + away * torch.erf(z / math.sqrt(2))
    return (2 * q.scale).log() + folded / q.scale


def _with_poisson(p: Any, q: Any, kind: type) -> Any:
    """p on 0 and 1, whose factorials are 1."""
    return q.rate - p.mean * q.rate.log()


_CROSS: dict[type, Callable[[Any, Any, type], Any]] = {
    Normal: _with_normal, Exponential: _with_exponential, Gamma: _with_gamma, Gumbel: _with_gumbel,
    ContinuousBernoulli: _with_continuous_bernoulli, Beta: _with_beta, Pareto: _with_pareto, Uniform: _with_uniform,
    Laplace: _with_laplace, Poisson: _with_poisson,
}  # fmt: skip


# -- where p has mass that q has not ----------------------------------------------------------------------------------------
def _unit_outside(p: Any, q: Any) -> Any:
    return (q.low > 0) | (q.high < 1)


# As PyTorch: of these two pairs also supports that just touch the ends count as outside.
def _unit_outside_or_touching(p: Any, q: Any) -> Any:
    return (q.low >= 0) | (q.high <= 1)


def _outside_unit_or_touching(p: Any, q: Any) -> Any:
    return (p.high >= 1) | (p.low <= 0)


_OUTSIDE: dict[tuple[type, type], Callable[[Any, Any], Any]] = {
    (Beta, Uniform): _unit_outside,
    (ContinuousBernoulli, Uniform): _unit_outside_or_touching,
    (Pareto, Exponential): lambda p, q: p.alpha <= 1,
    (Pareto, Gamma): lambda p, q: p.alpha <= 1,
    (Pareto, Normal): lambda p, q: p.alpha <= 2,
    (Uniform, Beta): lambda p, q: (p.high > 1) | (p.low < 0),
    (Uniform, ContinuousBernoulli): _outside_unit_or_touching,
    (Uniform, Exponential): lambda p, q: p.low < 0,
    (Uniform, Gamma): lambda p, q: p.low < 0,
    (Uniform, Pareto): lambda p, q: p.low < q.scale,
}
_PAIRS: dict[type, tuple[type, ...]] = {
    Bernoulli: (Poisson,),
    Beta: (ContinuousBernoulli, Exponential, Gamma, Normal, Uniform),
    ContinuousBernoulli: (Exponential, Normal, Uniform),
    Exponential: (Gamma, Gumbel, Normal),
    Gamma: (Exponential, Gumbel, Normal),
    Gumbel: (Normal,),
    Laplace: (Normal,),
    Normal: (Gumbel, Laplace),
    Pareto: (Exponential, Gamma, Normal),
    Uniform: (Beta, ContinuousBernoulli, Exponential, Gamma, Gumbel, Normal, Pareto),
}
# q has no mass where p has; the attribute gives the shape.
_INFINITE: dict[type, tuple[str, tuple[type, ...]]] = {
    Beta: ("concentration1", (Pareto,)),
    ContinuousBernoulli: ("probs", (Pareto,)),
    Exponential: ("rate", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gamma: ("concentration", (Beta, ContinuousBernoulli, Pareto, Uniform)),
    Gumbel: ("loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Laplace: ("loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Normal: ("loc", (Beta, ContinuousBernoulli, Exponential, Gamma, Pareto, Uniform)),
    Pareto: ("scale", (Beta, ContinuousBernoulli, Uniform)),
    Poisson: ("rate", (Bernoulli, Binomial)),
}


def _register(kind: type, other: type) -> None:
    cross, outside = _CROSS[other], _OUTSIDE.get((kind, other))

    @register_kl(kind, other)
    def divergence(p: Any, q: Any) -> Any:
        value = cross(p, q, kind) - p.entropy()
        return value if outside is None else _divergence_where(outside(p, q), value)


def _register_infinite(kind: type, name: str, other: type) -> None:
    register_kl(kind, other)(lambda p, q: _infinite_like(getattr(p, name)))


for _kind, _others in _PAIRS.items():
    for _other in _others:
        _register(_kind, _other)
for _kind, (_name, _others) in _INFINITE.items():
    for _other in _others:
        _register_infinite(_kind, _name, _other)
