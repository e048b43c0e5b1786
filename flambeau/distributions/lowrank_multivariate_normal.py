"""The multivariate normal distribution with the covariance W W^T + diag(D), W of few columns.

Everything goes by the Cholesky factor C of the small matrix I + W^T D^-1 W (the capacitance), by Woodbury's identity and the matrix
determinant lemma.
"""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.multivariate_normal import _batch_mahalanobis, _batch_mv, _half_log_det
from flambeau.distributions.utils import _standard_normal, lazy_property
from flambeau.trace.meta import Size

__all__ = ["LowRankMultivariateNormal"]


def _scaled(W: Any, D: Any) -> Any:
    """W^T D^-1."""
    return W.mT / D.unsqueeze(-2)


def _batch_capacitance_tril(W: Any, D: Any) -> Any:
    """C: W (..., n, m) and D (..., n) give (..., m, m)."""
    return torch.linalg.cholesky(_scaled(W, D) @ W + torch.eye(W.shape[-1], dtype=W.dtype))


def _batch_lowrank_logdet(W: Any, D: Any, capacitance_tril: Any) -> Any:
    """log det(W W^T + D) = log det C C^T + log det D."""
    return 2 * _half_log_det(capacitance_tril) + D.log().sum(-1)


def _batch_lowrank_mahalanobis(W: Any, D: Any, x: Any, capacitance_tril: Any) -> Any:
    """x^T (W W^T + D)^-1 x = x^T D^-1 x - |C^-1 W^T D^-1 x|^2."""
    return (x.square() / D).sum(-1) - _batch_mahalanobis(capacitance_tril, _batch_mv(_scaled(W, D), x))


class LowRankMultivariateNormal(Parametric):
    """Normal vectors of the mean `loc` (..., n) and the covariance cov_factor cov_factor^T + diag(cov_diag), of shapes (..., n, m) and
    (..., n). ValueError where they do not fit each other."""

    arg_constraints: Any = {
        "loc": constraints.real_vector, "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }  # fmt: skip
    support: Any = constraints.real_vector
    has_rsample = True
    _constants = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(self, loc: Any, cov_factor: Any, cov_diag: Any, validate_args: bool | None = None) -> None:
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.dim() < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = torch.broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except RuntimeError as error:
            raise ValueError(f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}") from error
        self.loc = loc.expand((*batch, -1))
        self.cov_factor = cov_factor.expand((*batch, -1, -1))
        self.cov_diag = cov_diag.expand((*batch, -1))
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        self._capacitance_tril = _batch_capacitance_tril(cov_factor, cov_diag)
        super().__init__(batch, event, validate_args=validate_args)

    def _parameters(self) -> tuple[Any, Any]:
        return self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag

    def _whole(self, value: Any, dims: int) -> Any:
        return value.expand((*self._batch_shape, *value.shape[value.dim() - dims :]))

    @property
    def mean(self) -> Any:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @lazy_property
    def variance(self) -> Any:
        """The diagonal of the covariance."""
        factor, diagonal = self._parameters()
        return self._whole(factor.square().sum(-1) + diagonal, 1)

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor of the covariance: that of D^-1/2 (W W^T + D) D^-1/2, of which the diagonal is at least 1, times D^1/2."""
        factor, diagonal = self._parameters()
        root = diagonal.sqrt().unsqueeze(-1)
        scaled = factor / root
        inner = torch.linalg.cholesky(scaled @ scaled.mT + torch.eye(self._event_shape[0], dtype=factor.dtype))
        return self._whole(root * inner, 2)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """W W^T + diag(D)."""
        factor, diagonal = self._parameters()
        return self._whole(factor @ factor.mT + diagonal.diag_embed(), 2)

    @lazy_property
    def precision_matrix(self) -> Any:
        """D^-1 - A^T A, A = C^-1 W^T D^-1."""
        factor, diagonal = self._parameters()
        a = torch.linalg.solve_triangular(self._capacitance_tril, _scaled(factor, diagonal), upper=False)
        return self._whole(diagonal.reciprocal().diag_embed() - a.mT @ a, 2)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        shape = self._extended_shape(sample_shape)
        factor, diagonal = self._parameters()
        common = _standard_normal((*shape[:-1], factor.shape[-1]), self.loc.dtype)
        own = _standard_normal(shape, self.loc.dtype)
        return self.loc + _batch_mv(factor, common) + diagonal.sqrt() * own

    def _log_det(self) -> Any:
        return _batch_lowrank_logdet(*self._parameters(), self._capacitance_tril)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        away = self._checked(value) - self.loc
        distance = _batch_lowrank_mahalanobis(*self._parameters(), away, self._capacitance_tril)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_det() + distance)

    def entropy(self) -> Any:
        """The differential entropy."""
        value = 0.5 * (self._event_shape[0] * (1.0 + math.log(2 * math.pi)) + self._log_det())
        return value.expand(self._batch_shape)
