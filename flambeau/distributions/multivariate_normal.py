"""The multivariate normal distribution, by its covariance, its inverse (precision), or its Cholesky factor."""

from __future__ import annotations

import math
from typing import Any

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.distribution import Parametric
from flambeau.distributions.utils import _standard_normal, lazy_property
from flambeau.trace.meta import Size

__all__ = ["MultivariateNormal"]
_FORMS = ("covariance_matrix", "precision_matrix", "scale_tril")


def _batch_mv(bmat: Any, bvec: Any) -> Any:
    """Products of matrices (..., n, m) and vectors (..., m)."""
    return torch.matmul(bmat, bvec.unsqueeze(-1)).squeeze(-1)


def _batch_mahalanobis(bL: Any, bx: Any) -> Any:
    """x^T (L L^T)^-1 x of factors L (*batch, n, n) and vectors (*more, *batch, n); other shapes broadcast."""
    batch, n = bL.shape[:-2], bx.shape[-1]
    shape = bx.shape[:-1]
    more = len(shape) - len(batch)
    if more < 0 or tuple(shape[more:]) != tuple(batch):
        return torch.linalg.solve_triangular(bL, bx.unsqueeze(-1), upper=False).squeeze(-1).square().sum(-1)
    # Vectors with one factor become the columns of one system: the factors are not repeated.
    columns = bx.reshape((-1, *batch, n)).movedim(0, -1)
    squares = torch.linalg.solve_triangular(bL, columns, upper=False).square().sum(-2)
    return squares.movedim(-1, 0).reshape(shape)


def _half_log_det(tril: Any) -> Any:
    """The logarithm of the determinant of a triangular factor: half that of the matrix."""
    return tril.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _precision_to_scale_tril(P: Any) -> Any:
    """The Cholesky factor of P^-1. With J the reversal and J P J = F F^T, (J F^-T J) is lower triangular, and times its transpose P^-1."""
    factor = torch.linalg.cholesky(P.flip((-2, -1))).flip((-2, -1)).mT
    return torch.linalg.solve_triangular(factor, torch.eye(P.shape[-1], dtype=P.dtype), upper=False)


class OfMatrix(Parametric):
    """Distributions of a symmetric positive definite matrix in one of three forms, which `_unbroadcasted_scale_tril` factors."""

    def _take_form(self, given: dict[str, Any], batch: Any) -> Any:
        """Keep the form that was given, expanded to the batch; returns its name."""
        name = next(form for form in _FORMS if given[form] is not None)
        setattr(self, name, given[name].expand((*batch, -1, -1)))
        return name

    def _factor(self, name: str, matrix: Any) -> None:
        """The Cholesky factor, before it is expanded to the batch."""
        if name == "covariance_matrix":
            matrix = torch.linalg.cholesky(matrix)
        elif name == "precision_matrix":
            matrix = _precision_to_scale_tril(matrix)
        self._unbroadcasted_scale_tril = matrix

    def _whole(self, matrix: Any) -> Any:
        return matrix.expand((*self._batch_shape, *matrix.shape[-2:]))

    @lazy_property
    def scale_tril(self) -> Any:
        """The Cholesky factor, (*batch, n, n)."""
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self) -> Any:
        """The matrix, (*batch, n, n)."""
        return self._whole(self._unbroadcasted_scale_tril @ self._unbroadcasted_scale_tril.mT)

    @lazy_property
    def precision_matrix(self) -> Any:
        """Its inverse, (*batch, n, n)."""
        return self._whole(torch.cholesky_inverse(self._unbroadcasted_scale_tril))


class MultivariateNormal(OfMatrix):
    """Normal vectors of the mean `loc` (..., n) and one of `covariance_matrix`, `precision_matrix`, `scale_tril` (lower triangular with a
    positive diagonal): (..., n, n). ValueError unless it is exactly one. `scale_tril` saves the factorisation."""

    arg_constraints: Any = {
        "loc": constraints.real_vector, "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite, "scale_tril": constraints.lower_cholesky,
    }  # fmt: skip
    support: Any = constraints.real_vector
    has_rsample = True
    _constants = ("_unbroadcasted_scale_tril",)

    def __init__(
        self, loc: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        if loc.dim() < 1:
            raise ValueError("loc must be at least one-dimensional.")
        given = dict(zip(_FORMS, (covariance_matrix, precision_matrix, scale_tril), strict=True))
        matrices = [(name, m) for name, m in given.items() if m is not None]
        if len(matrices) != 1:
            raise ValueError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = matrices
        if matrix.dim() < 2:
            what = "scale_tril matrix" if name == "scale_tril" else name
            raise ValueError(f"{what} must be at least two-dimensional, with optional leading batch dimensions")
        batch = torch.broadcast_shapes(matrix.shape[:-2], loc.shape[:-1])
        self._take_form(given, batch)
        self.loc = loc.expand((*batch, -1))
        super().__init__(batch, self.loc.shape[-1:], validate_args=validate_args)
        self._factor(name, matrix)

    @property
    def mean(self) -> Any:
        """loc."""
        return self.loc

    @property
    def mode(self) -> Any:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Any:
        """The diagonal of the covariance."""
        return self._unbroadcasted_scale_tril.square().sum(-1).expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """Draws with gradients."""
        noise = _standard_normal(self._extended_shape(sample_shape), self.loc.dtype)
        return self.loc + _batch_mv(self._unbroadcasted_scale_tril, noise)

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        distance = _batch_mahalanobis(self._unbroadcasted_scale_tril, self._checked(value) - self.loc)
        n = self._event_shape[0]
        return -0.5 * (n * math.log(2 * math.pi) + distance) - _half_log_det(self._unbroadcasted_scale_tril)

    def entropy(self) -> Any:
        """The differential entropy."""
        n = self._event_shape[0]
        value = 0.5 * n * (1.0 + math.log(2 * math.pi)) + _half_log_det(self._unbroadcasted_scale_tril)
        return value.expand(self._batch_shape)
