"""KL divergences of normal vectors: KL = (log det Q / det P + tr(Q^-1 P) + d^T Q^-1 d - n) / 2, d the difference of the means.

A covariance is a Cholesky factor, or W W^T + diag(D) by the factor C of its capacitance (lowrank_multivariate_normal.py). With the inverse
of such a Q, tr(Q^-1 M M^T) = |D^-1/2 M|^2 - |C^-1 W^T D^-1 M|^2 (squared Frobenius norms).
"""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.distributions.kl import register_kl
from flambeau.distributions.lowrank_multivariate_normal import (
    LowRankMultivariateNormal,
    _batch_lowrank_mahalanobis,
    _scaled,
)
from flambeau.distributions.multivariate_normal import MultivariateNormal, _batch_mahalanobis, _half_log_det


def _squares(matrix: Any) -> Any:
    """The squared Frobenius norm."""
    return matrix.square().sum((-2, -1))


def _log_det(d: Any) -> Any:
    if isinstance(d, LowRankMultivariateNormal):
        return d._log_det()
    return 2 * _half_log_det(d._unbroadcasted_scale_tril)


def _roots(p: Any) -> list[Any]:
    """Matrices whose products with their transposes add up to the covariance."""
    if isinstance(p, LowRankMultivariateNormal):
        factor, diagonal = p._parameters()
        return [factor, diagonal.sqrt().diag_embed()]
    return [p._unbroadcasted_scale_tril]


def _trace(q: Any, root: Any) -> Any:
    """tr(Q^-1 M M^T)."""
    if isinstance(q, LowRankMultivariateNormal):
        factor, diagonal = q._parameters()
        inner = torch.linalg.solve_triangular(q._capacitance_tril, _scaled(factor, diagonal), upper=False) @ root
        return _squares(root / diagonal.sqrt().unsqueeze(-1)) - _squares(inner)
    batch = torch.broadcast_shapes(q._unbroadcasted_scale_tril.shape[:-2], root.shape[:-2])
    left, right = (m.expand((*batch, *m.shape[-2:])) for m in (q._unbroadcasted_scale_tril, root))
    return _squares(torch.linalg.solve_triangular(left, right, upper=False))


def _distance(q: Any, away: Any) -> Any:
    if isinstance(q, LowRankMultivariateNormal):
        return _batch_lowrank_mahalanobis(*q._parameters(), away, q._capacitance_tril)
    return _batch_mahalanobis(q._unbroadcasted_scale_tril, away)


@register_kl(MultivariateNormal, MultivariateNormal)
@register_kl(MultivariateNormal, LowRankMultivariateNormal)
@register_kl(LowRankMultivariateNormal, MultivariateNormal)
@register_kl(LowRankMultivariateNormal, LowRankMultivariateNormal)
def _normal_vectors(p: Any, q: Any) -> Any:
    if p.event_shape != q.event_shape:
        raise ValueError("KL-divergence between two (Low Rank) Multivariate Normals with different event shapes cannot be computed")
    trace = sum(_trace(q, root) for root in _roots(p))
    return 0.5 * (_log_det(q) - _log_det(p) + trace + _distance(q, q.loc - p.loc) - p.event_shape[0])
