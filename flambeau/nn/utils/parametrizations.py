"""torch.nn.utils.parametrizations: orthogonal matrices, spectral normalisation and weight normalisation in their newer forms."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.utils.parametrize import register_parametrization
from flambeau.nn.utils.weight_norm import _weight_norm, norm_except_dim
from flambeau.tensor import Tensor

_MAPS = ("matrix_exp", "cayley", "householder")


def _is_orthogonal(q: Tensor) -> bool:
    """Whether the columns are orthonormal: Q^H Q = I up to 10 eps times the larger size (PyTorch's measure)."""
    n, k = q.shape[-2:]
    eps = 10.0 * n * torch.finfo(q.dtype).eps
    identity = torch.eye(k, dtype=q.dtype)
    return bool(torch.allclose(q.mH @ q, identity, atol=eps))


def _make_orthogonal(a: Tensor) -> Tensor:
    """The orthogonal factor of a QR decomposition, with signs that make it the nearer one to `a`."""
    x, tau = torch.geqrf(a)
    q = torch.linalg.householder_product(x, tau)
    return q * x.diagonal(dim1=-2, dim2=-1).sgn().unsqueeze(-2)


class _Orthogonal(Module):
    """An orthogonal (unitary) matrix from a free one X: exp(A) or the Cayley map of the skew part A of X, or Householder reflections.

    With `base` it is multiplied to the right of a fixed orthogonal matrix, so that X stays near a simple place (Lezcano-Casado, 2019).
    """

    base: Tensor | None

    def __init__(self, weight: Tensor, orthogonal_map: str, *, use_trivialization: bool = True) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors.")
        self.shape = weight.shape
        self.orthogonal_map = orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, X: Tensor) -> Tensor:
        n, k = X.shape[-2:]
        transposed = n < k
        if transposed:
            X = X.mT
            n, k = k, n
        if self.orthogonal_map == "householder":
            A = X.tril(diagonal=-1)
            tau = 2.0 / (1.0 + (A * A).sum(dim=-2))
            Q = torch.linalg.householder_product(A, tau)
            Q = Q * X.diagonal(dim1=-2, dim2=-1).int().unsqueeze(-2)
        else:
            X = X.tril()
            if n != k:
                X = torch.cat([X, X.new_zeros(n, n - k).expand(*X.shape[:-2], -1, -1)], dim=-1)
            A = X - X.mH
            if self.orthogonal_map == "matrix_exp":
                Q = torch.matrix_exp(A)
            else:
                identity = torch.eye(n, dtype=A.dtype)
                Q = torch.linalg.solve(torch.add(identity, A, alpha=-0.5), torch.add(identity, A, alpha=0.5))
            if n != k:
                Q = Q[..., :k]
        if hasattr(self, "base"):
            Q = self.base @ Q
        return Q.mT if transposed else Q  # type: ignore[no-any-return]

    def right_inverse(self, Q: Tensor) -> Tensor:
        """The X that gives Q: with `base` the identity's, else Q's Householder reflections."""
        if Q.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {Q.shape}.")
        given = Q
        n, k = Q.shape[-2:]
        transposed = n < k
        if transposed:
            Q = Q.mT
            n, k = k, n
        with torch.no_grad():
            if not hasattr(self, "base"):
                if self.orthogonal_map != "householder":
                    raise NotImplementedError(
                        "It is not possible to assign to the matrix exponential or the Cayley parametrizations when use_trivialization=False."
                    )
                A, tau = torch.geqrf(Q)
                diagonal = A.diagonal(dim1=-2, dim2=-1).sign() * torch.where(tau == 0.0, -1.0, 1.0).to(A.dtype)
                A = A.clone()
                A.diagonal(dim1=-2, dim2=-1).copy_(diagonal)
                return A.mT if transposed else A  # type: ignore[no-any-return]
            if n != k:
                free = torch.randn(*Q.shape[:-2], n, n - k, dtype=Q.dtype)
                self.base = _make_orthogonal(torch.cat([Q, free], dim=-1))
            else:
                self.base = Q.clone() if _is_orthogonal(Q) else _make_orthogonal(Q)
            minus_identity = torch.zeros_like(given)
            minus_identity.diagonal(dim1=-2, dim2=-1).fill_(-1.0)
            return minus_identity  # type: ignore[no-any-return]


def orthogonal(module: Any, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True) -> Any:
    """Make `name` a matrix (batch of matrices) with orthonormal columns, or rows if it is wider than high.

    `orthogonal_map`: "matrix_exp" (the default of square and complex matrices), "cayley" or "householder".
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.size(-2) == weight.size(-1) or weight.is_complex() else "householder"
    if not isinstance(orthogonal_map, str):
        raise TypeError(f"orthogonal(): attribute name must be string: argument 'orthogonal_map' must be str, not '{type(orthogonal_map).__name__}'")
    if orthogonal_map not in _MAPS:
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    return register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, use_trivialization=use_trivialization), unsafe=True)


class _WeightNorm(Module):
    """g v / |v|, the norm taken over all dimensions but `dim`."""

    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return _weight_norm(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, 2, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int = 0) -> Any:
    """Parametrise `name` by its norm (original0) and direction (original1). Checkpoints of the older form (`name_g`, `name_v`) are read."""
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def read_older(state_dict: Any, prefix: str, *_: Any) -> None:
        g, v = f"{prefix}{name}_g", f"{prefix}{name}_v"
        if g in state_dict and v in state_dict:
            state_dict[f"{prefix}parametrizations.{name}.original0"] = state_dict.pop(g)
            state_dict[f"{prefix}parametrizations.{name}.original1"] = state_dict.pop(v)

    module._register_load_state_dict_pre_hook(read_older)
    return module


class _SpectralNorm(Module):
    """weight / (its largest singular value), found by power iteration; a vector / its norm. Miyato et al., 2018."""

    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        ndim = weight.ndim
        if not -ndim <= dim < ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [-{ndim}, {ndim - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim = dim % ndim
        self.eps = eps
        if ndim > 1:
            self.n_power_iterations = n_power_iterations
            matrix = self._matrix(weight)
            rows, columns = matrix.shape
            u = matrix.new_empty(rows).normal_(0, 1)
            v = matrix.new_empty(columns).normal_(0, 1)
            self.register_buffer("_u", F.normalize(u, dim=0, eps=eps))
            self.register_buffer("_v", F.normalize(v, dim=0, eps=eps))
            self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        if self.dim != 0:
            weight = weight.permute(self.dim, *[d for d in range(weight.ndim) if d != self.dim])
        return weight.flatten(1)

    def _iterate(self, matrix: Tensor, count: int) -> None:
        with torch.no_grad():
            u, v = self._u, self._v
            for _ in range(count):
                u = F.normalize(torch.mv(matrix, v), dim=0, eps=self.eps)
                v = F.normalize(torch.mv(matrix.mH, u), dim=0, eps=self.eps)
            self._u.copy_(u)
            self._v.copy_(v)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.ndim == 1:
            return F.normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / torch.vdot(u, torch.mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None) -> Any:
    """Parametrise `name` as itself divided by its largest singular value; `dim` is the dimension of outputs."""
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if dim is None:
        dim = 1 if isinstance(module, (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)) else 0
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("nn.utils.parametrizations", globals())

from flambeau.names import answering as _answering  # noqa: E402

__getattr__ = _answering("torch.nn.utils.parametrizations", globals())
