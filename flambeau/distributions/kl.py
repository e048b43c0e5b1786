"""Kullback and Leibler's divergence KL(p || q) = E_p[log p(x) - log q(x)], by formulas that are registered for pairs of classes.

Formulas between different families are in kl_cross.py, those of normal vectors in kl_normal.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.distributions.bernoulli import Bernoulli
from flambeau.distributions.beta import Beta
from flambeau.distributions.binomial import Binomial
from flambeau.distributions.categorical import Categorical
from flambeau.distributions.cauchy import Cauchy
from flambeau.distributions.continuous_bernoulli import ContinuousBernoulli
from flambeau.distributions.dirichlet import Dirichlet
from flambeau.distributions.distribution import Distribution
from flambeau.distributions.exp_family import ExponentialFamily, _gradients
from flambeau.distributions.exponential import Exponential
from flambeau.distributions.gamma import Gamma
from flambeau.distributions.geometric import Geometric
from flambeau.distributions.gumbel import Gumbel
from flambeau.distributions.half_normal import HalfNormal
from flambeau.distributions.independent import Independent
from flambeau.distributions.laplace import Laplace
from flambeau.distributions.normal import Normal
from flambeau.distributions.one_hot_categorical import OneHotCategorical
from flambeau.distributions.pareto import Pareto
from flambeau.distributions.poisson import Poisson
from flambeau.distributions.transformed_distribution import TransformedDistribution
from flambeau.distributions.uniform import Uniform
from flambeau.distributions.utils import _sum_rightmost, euler_constant
from flambeau.nn.functional import softplus
from flambeau.trace.once import warn_here

__all__ = ["kl_divergence", "register_kl"]
Formula = Callable[[Any, Any], Any]
_KL_REGISTRY: dict[tuple[type, type], Formula] = {}
_KL_MEMOIZE: dict[tuple[type, type], Any] = {}


def register_kl(type_p: type, type_q: type) -> Callable[[Formula], Formula]:
    """Decorator: the formula `f(p, q)` for KL(p || q) of these classes and their subclasses. TypeError unless both are
    classes; they may come from another library of distributions."""
    for name, given in (("type_p", type_p), ("type_q", type_q)):
        if not isinstance(given, type):
            raise TypeError(f"Expected {name} to be a Distribution subclass but got {given}")

    def decorator(fun: Formula) -> Formula:
        _KL_REGISTRY[type_p, type_q] = fun
        _KL_MEMOIZE.clear()
        return fun

    return decorator


def _nearest(pairs: list[tuple[type, type]], first: int) -> tuple[type, type]:
    """The pair that is nearest in its class `first` (0 or 1), and among those in the other."""
    order = (first, 1 - first)
    return max(pairs, key=lambda pair: tuple(len(pair[i].__mro__) for i in order))


def _dispatch_kl(type_p: type, type_q: type) -> Any:
    """The formula of the nearest registered classes; NotImplemented where there is none. A warning where p's side and q's disagree."""
    fitting = [pair for pair in _KL_REGISTRY if issubclass(type_p, pair[0]) and issubclass(type_q, pair[1])]
    if not fitting:
        return NotImplemented
    by_p, by_q = _nearest(fitting, 0), _nearest(fitting, 1)
    if _KL_REGISTRY[by_p] is not _KL_REGISTRY[by_q]:
        warn_here(
            f"Ambiguous kl_divergence({type_p.__name__}, {type_q.__name__}). Please register_kl({by_p[0].__name__}, {by_q[1].__name__})",
            RuntimeWarning,
        )  # fmt: skip
    return _KL_REGISTRY[by_p]


def kl_divergence(p: Distribution, q: Distribution) -> Any:
    """KL(p || q), of the batch's shape. NotImplementedError where no formula is registered for the classes."""
    pair = type(p), type(q)
    fun = _KL_MEMOIZE.get(pair)
    if fun is None:
        fun = _KL_MEMOIZE[pair] = _dispatch_kl(*pair)
    if fun is NotImplemented:
        raise NotImplementedError(f"No KL(p || q) is implemented for p type {p.__class__.__name__} and q type {q.__class__.__name__}")
    return fun(p, q)


def _infinite_like(tensor: Any) -> Any:
    return torch.full_like(tensor, math.inf)


def _divergence_where(condition: Any, value: Any) -> Any:
    """`value`, infinite where p has mass (`condition`) that q has not."""
    return torch.where(condition, math.inf, value)


# -- distributions made of distributions ------------------------------------------------------------------------------------
@register_kl(TransformedDistribution, TransformedDistribution)
def _transformed(p: Any, q: Any) -> Any:
    if p.transforms != q.transforms or p.event_shape != q.event_shape:
        raise NotImplementedError("KL between transformed distributions needs equal transforms and event shapes")
    return kl_divergence(p.base_dist, q.base_dist)


@register_kl(Independent, Independent)
def _independent(p: Any, q: Any) -> Any:
    if p.reinterpreted_batch_ndims != q.reinterpreted_batch_ndims:
        raise NotImplementedError("KL between Independent distributions needs equal reinterpreted_batch_ndims")
    return _sum_rightmost(kl_divergence(p.base_dist, q.base_dist), p.reinterpreted_batch_ndims)


@register_kl(ExponentialFamily, ExponentialFamily)
def _exponential_family(p: Any, q: Any) -> Any:
    """The Bregman divergence of the log normaliser (Nielsen and Nock 2010)."""
    if type(p) is not type(q):
        raise NotImplementedError("The cross KL-divergence between different exponential families cannot be computed using Bregman divergences")
    value, ours, expected = _gradients(p._log_normalizer, p._natural_params)
    result = q._log_normalizer(*q._natural_params) - value
    for a, b, e in zip(ours, q._natural_params, expected, strict=True):
        result = result - _sum_rightmost((b - a) * e, len(q.event_shape))
    return result


# -- two of one family --------------------------------------------------------------------------------------------------------
@register_kl(Bernoulli, Bernoulli)
def _bernoulli(p: Any, q: Any) -> Any:
    def part(mine: Any, theirs: Any, sign: int) -> Any:
        """What one of the two values adds: its probability times the difference of the logarithms; 0 log 0 is 0."""
        term = mine * (softplus(-sign * q.logits) - softplus(-sign * p.logits))
        return torch.where(mine == 0, 0.0, _divergence_where(theirs == 0, term))

    return part(p.probs, q.probs, 1) + part(1 - p.probs, 1 - q.probs, -1)


@register_kl(Binomial, Binomial)
def _binomial(p: Any, q: Any) -> Any:
    if bool((p.total_count < q.total_count).any()):
        raise NotImplementedError("KL between Binomials where q.total_count > p.total_count is not implemented")
    each = p.probs * (p.logits - q.logits) + (-p.probs).log1p() - (-q.probs).log1p()
    return _divergence_where(p.total_count > q.total_count, p.total_count * each)


@register_kl(Categorical, Categorical)
def _categorical(p: Any, q: Any) -> Any:
    term = _divergence_where(q.probs == 0, p.probs * (p.logits - q.logits))
    return torch.where(p.probs == 0, 0.0, term).sum(-1)


@register_kl(OneHotCategorical, OneHotCategorical)
def _one_hot(p: Any, q: Any) -> Any:
    return _categorical(p._categorical, q._categorical)


@register_kl(Geometric, Geometric)
def _geometric(p: Any, q: Any) -> Any:
    return -p.entropy() - torch.log1p(-q.probs) / p.probs - q.logits


@register_kl(Poisson, Poisson)
def _poisson(p: Any, q: Any) -> Any:
    return p.rate * (p.rate.log() - q.rate.log()) - (p.rate - q.rate)


@register_kl(Beta, Beta)
def _beta(p: Any, q: Any) -> Any:
    return _dirichlet(p._dirichlet, q._dirichlet)


@register_kl(Dirichlet, Dirichlet)
def _dirichlet(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    a_sum, b_sum = a.sum(-1), b.sum(-1)
    norms = a_sum.lgamma() - b_sum.lgamma() - (a.lgamma() - b.lgamma()).sum(-1)
    return norms + ((a - b) * (a.digamma() - a_sum.digamma().unsqueeze(-1))).sum(-1)


@register_kl(ContinuousBernoulli, ContinuousBernoulli)
def _continuous_bernoulli(p: Any, q: Any) -> Any:
    norms = p._cont_bern_log_norm() + torch.log1p(-p.probs) - q._cont_bern_log_norm() - torch.log1p(-q.probs)
    return p.mean * (p.logits - q.logits) + norms


@register_kl(Exponential, Exponential)
def _exponential(p: Any, q: Any) -> Any:
    ratio = q.rate / p.rate
    return ratio - 1 - ratio.log()


@register_kl(Gamma, Gamma)
def _gamma(p: Any, q: Any) -> Any:
    a, b = p.concentration, q.concentration
    shapes = b.lgamma() - a.lgamma() + (a - b) * a.digamma()
    return shapes + b * (p.rate / q.rate).log() + (q.rate - p.rate) * (a / p.rate)


@register_kl(Cauchy, Cauchy)
def _cauchy(p: Any, q: Any) -> Any:
    """Chyzak and Nielsen 2019."""
    return ((p.scale + q.scale).square() + (p.loc - q.loc).square()).log() - (4 * p.scale * q.scale).log()


@register_kl(Gumbel, Gumbel)
def _gumbel(p: Any, q: Any) -> Any:
    ratio, shift = p.scale / q.scale, (p.loc - q.loc) / q.scale
    return shift - ratio.log() + (ratio - 1) * euler_constant + ((1 + ratio).lgamma() - shift).exp() - 1


@register_kl(Laplace, Laplace)
def _laplace(p: Any, q: Any) -> Any:
    ratio, away = p.scale / q.scale, (p.loc - q.loc).abs()
    return away / q.scale - ratio.log() + ratio * (-away / p.scale).exp() - 1


@register_kl(Normal, Normal)
def _normal(p: Any, q: Any) -> Any:
    ratio = (p.scale / q.scale).square()
    return 0.5 * (ratio + ((p.loc - q.loc) / q.scale).square() - 1 - ratio.log())


@register_kl(HalfNormal, HalfNormal)
def _half_normal(p: Any, q: Any) -> Any:
    return _normal(p.base_dist, q.base_dist)


@register_kl(Pareto, Pareto)
def _pareto(p: Any, q: Any) -> Any:
    ratio = q.alpha / p.alpha
    value = q.alpha * (p.scale / q.scale).log() - ratio.log() + ratio - 1
    return _divergence_where(p.scale < q.scale, value)


@register_kl(Uniform, Uniform)
def _uniform(p: Any, q: Any) -> Any:
    value = ((q.high - q.low) / (p.high - p.low)).log()
    return _divergence_where((q.low > p.low) | (q.high < p.high), value)


from flambeau.distributions import kl_cross, kl_normal  # noqa: E402, F401 - they register their formulas here
