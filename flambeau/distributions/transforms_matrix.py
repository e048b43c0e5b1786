"""Transforms whose values are matrices: Cholesky factors, of correlations too, and positive definite matrices."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.transforms import Transform, _Alike, _event_of
from flambeau.distributions.utils import tril_matrix_to_vec, vec_to_tril_matrix
from flambeau.nn.functional import pad, softplus
from flambeau.trace.meta import Size


class CorrCholeskyTransform(Transform):
    """From D (D - 1) / 2 real numbers to the Cholesky factor of a D x D correlation matrix (Lewandowski, Kurowicka and Joe 2009): tanh
    gives partial correlations in (-1, 1), of which every row takes, one after another, parts of the rest of its length 1."""

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Any) -> Any:
        eps = torch.finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.tanh().clamp(min=-1 + eps, max=1 - eps), diag=-1)
        rest = (1 - r.square()).sqrt().cumprod(-1)
        r = r + torch.eye(r.shape[-1], dtype=r.dtype)
        return r * pad(rest[..., :-1], [1, 0], value=1)

    def _inverse(self, y: Any) -> Any:
        rest = 1 - (y * y).cumsum(dim=-1)
        rest = pad(rest[..., :-1], [1, 0], value=1)
        t = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(rest, diag=-1).sqrt()
        return (t.log1p() - t.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        rest = 1 - (y * y).cumsum(dim=-1)
        lengths = 0.5 * tril_matrix_to_vec(rest, diag=-2).log().sum(-1)
        return lengths - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(dim=-1)

    def forward_shape(self, shape: Any) -> Any:
        n = _event_of(shape)[-1]
        size = round(math.sqrt(0.25 + 2 * n) + 0.5)
        if size * (size - 1) // 2 != n:
            raise ValueError("Input is not a flattened lower-diagonal number")
        return Size((*shape[:-1], size, size))

    def inverse_shape(self, shape: Any) -> Any:
        rows, size = _event_of(shape, 2)[-2:]
        if rows != size:
            raise ValueError("Input is not square")
        return Size((*shape[:-2], size * (size - 1) // 2))


class LowerCholeskyTransform(_Alike):
    """From matrices to lower triangular ones with a positive diagonal: exp of the diagonal, 0 above it. It is not bijective."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Any) -> Any:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Any) -> Any:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_Alike):
    """From matrices to positive definite ones: L L^T of LowerCholeskyTransform's L. It is not bijective."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Any) -> Any:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Any) -> Any:
        return LowerCholeskyTransform().inv(torch.linalg.cholesky(y))
