"""The Wishart distribution: sums of `df` outer products of normal vectors with a covariance matrix."""

from __future__ import annotations

import math
from numbers import Number
from typing import Any, Final

import flambeau as torch
from flambeau.distributions import constraints
from flambeau.distributions.chi2 import Chi2
from flambeau.distributions.exp_family import ExponentialFamily
from flambeau.distributions.multivariate_normal import _FORMS, OfMatrix, _half_log_det
from flambeau.distributions.utils import lazy_property
from flambeau.trace.meta import Size
from flambeau.trace.once import warn_here

__all__ = ["Wishart"]
_LOG_2: Final = math.log(2)


def _mvdigamma(x: Any, p: int) -> Any:
    """The derivative of torch.mvlgamma, for x > (p - 1) / 2."""
    return (x.unsqueeze(-1) - torch.arange(p, dtype=x.dtype) / 2).digamma().sum(-1)


class Wishart(OfMatrix, ExponentialFamily):
    """Symmetric n x n matrices, of `df` > n - 1 (a number, or a tensor of the batch) and one of `covariance_matrix`, `precision_matrix`,
    `scale_tril`, (..., n, n). Below df = n samples are often numerically singular, and a warning says so."""

    support: Any = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure = 0

    @property
    def arg_constraints(self) -> Any:
        """That of df depends on the size of the matrix."""
        return {
            "covariance_matrix": constraints.positive_definite, "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky, "df": constraints.greater_than(self.event_shape[-1] - 1),
        }  # fmt: skip

    def __init__(
        self, df: Any, covariance_matrix: Any = None, precision_matrix: Any = None, scale_tril: Any = None,
        validate_args: bool | None = None,
    ) -> None:  # fmt: skip
        given = dict(zip(_FORMS, (covariance_matrix, precision_matrix, scale_tril), strict=True))
        matrices = [m for m in given.values() if m is not None]
        if len(matrices) != 1:
            raise AssertionError("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        (matrix,) = matrices
        if matrix.dim() < 2:
            raise ValueError("scale_tril must be at least two-dimensional, with optional leading batch dimensions")
        event = matrix.shape[-2:]
        if isinstance(df, Number):
            batch = matrix.shape[:-2]
            self.df = torch.tensor(df, dtype=matrix.dtype)
        else:
            batch = torch.broadcast_shapes(matrix.shape[:-2], df.shape)
            self.df = df.expand(batch)
        least = float(self.df.min())
        if least <= event[-1] - 1:
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}.")
        if least < event[-1]:
            warn_here("Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.")
        name = self._take_form(given, batch)
        super().__init__(batch, event, validate_args=validate_args)
        self._factor(name, matrix)

    def _expand_into(self, new: Any, batch_shape: Any) -> None:
        new._unbroadcasted_scale_tril = self._unbroadcasted_scale_tril.expand((*batch_shape, *self._event_shape))
        super()._expand_into(new, batch_shape)

    @lazy_property
    def _dist_chi2(self) -> Any:
        """The squares on the diagonal of Bartlett's factor: chi2 of df, df - 1, ..."""
        steps = torch.arange(self._event_shape[-1], dtype=self._unbroadcasted_scale_tril.dtype)
        return Chi2((self.df.unsqueeze(-1) - steps).expand((*self._batch_shape, -1)))

    def _of_batch(self, value: Any) -> Any:
        return value.expand(self._batch_shape)[..., None, None]

    @property
    def mean(self) -> Any:
        """df times the covariance."""
        return self._of_batch(self.df) * self.covariance_matrix

    @property
    def mode(self) -> Any:
        """(df - n - 1) times the covariance; NaN up to df = n + 1."""
        factor = self.df - self._event_shape[-1] - 1
        return self._of_batch(torch.where(factor <= 0, math.nan, factor)) * self.covariance_matrix

    @property
    def variance(self) -> Any:
        """df (V_ij^2 + V_ii V_jj)."""
        v = self.covariance_matrix
        diagonal = v.diagonal(dim1=-2, dim2=-1)
        return self._of_batch(self.df) * (v.square() + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape: Any = Size()) -> Any:  # noqa: B008
        """L A A^T L^T, A lower triangular with roots of chi2 numbers on the diagonal and normal numbers below it (Bartlett 1933)."""
        n = self._event_shape[-1]
        roots = self._dist_chi2.rsample(sample_shape).sqrt()
        roots = roots.clamp(min=torch.finfo(roots.dtype).eps)
        below = torch.randn((*sample_shape, *self._batch_shape, n * (n - 1) // 2), dtype=roots.dtype)
        rows, columns = torch.tril_indices(n, n, -1)
        flat = torch.zeros((*below.shape[:-1], n * n), dtype=roots.dtype).index_copy(-1, rows * n + columns, below)
        factor = self._unbroadcasted_scale_tril @ (flat.reshape((*below.shape[:-1], n, n)) + roots.diag_embed())
        return factor @ factor.mT

    def rsample(self, sample_shape: Any = Size(), max_try_correction: int | None = None) -> Any:  # noqa: B008
        """Draws with gradients. Those that rounding has made singular are drawn again, up to `max_try_correction` (10) times."""
        sample = self._bartlett_sampling(sample_shape)
        singular = ~self.support.check(sample.detach())
        for _ in range(10 if max_try_correction is None else max_try_correction):
            if not bool(singular.any()):
                break
            again = self._bartlett_sampling(sample_shape)
            sample = torch.where(singular[..., None, None], again, sample)
            singular = singular & ~self.support.check(again.detach())
        if bool(singular.any()):
            warn_here("Singular sample detected.")
        return sample

    def log_prob(self, value: Any) -> Any:
        """The logarithm of the density."""
        value, nu, n = self._checked(value), self.df, self._event_shape[-1]
        factor = self._unbroadcasted_scale_tril
        trace = torch.cholesky_solve(value, factor).diagonal(dim1=-2, dim2=-1).sum(-1)
        norm = nu * (n * _LOG_2 / 2 + _half_log_det(factor)) + torch.mvlgamma(nu / 2, p=n)
        return (nu - n - 1) / 2 * torch.linalg.slogdet(value).logabsdet - trace / 2 - norm

    def entropy(self) -> Any:
        """The differential entropy."""
        nu, n = self.df, self._event_shape[-1]
        inner = (n + 1) * (n * _LOG_2 / 2 + _half_log_det(self._unbroadcasted_scale_tril)) + nu * n / 2
        return inner + torch.mvlgamma(nu / 2, p=n) - (nu - n - 1) / 2 * _mvdigamma(nu / 2, p=n)

    @property
    def _natural_params(self) -> Any:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Any, y: Any) -> Any:
        n = self._event_shape[-1]
        half = y + (n + 1) / 2
        return half * (_LOG_2 * n - torch.linalg.slogdet(-2 * x).logabsdet) + torch.mvlgamma(half, p=n)
