"""Functions of matrices as a whole: decompositions, inverses, systems of equations. Of one argument the batch stays cut; of several nothing does."""

from __future__ import annotations

from typing import Any, Final

from flambeau.distributed.tensor.calls import Call, Rule
from flambeau.distributed.tensor.rules.letters import WHOLE, by_letters, kept, names


def one(c: Call, A: Any, *args: Any, **kwargs: Any) -> Rule:
    """Results have the batch's dims first."""
    if len(c.tensors) != 1:
        return several(c)
    batch = "".join([letter if c.filled(n) else WHOLE for letter, n in zip(names(len(A._layout.shape) - 2), A._layout.shape[:-2], strict=True)])
    return Rule(by_letters([batch + WHOLE * 2], batch, sums=False))


def several(c: Call, *args: Any, **kwargs: Any) -> Rule:
    """All whole: how batches are broadcast differs from function to function."""
    return Rule([kept(len(c.tensors))])


_ONE: Final = (
    "linalg_cholesky_ex cholesky_inverse linalg_det linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_inv_ex linalg_ldl_factor_ex linalg_lu "
    "linalg_lu_factor linalg_matrix_power linalg_qr linalg_slogdet linalg_svd linalg_svdvals geqrf logdet linalg_matrix_exp"
).split()
_SEVERAL: Final = (
    "cholesky_solve linalg_householder_product linalg_ldl_solve linalg_lstsq lu_solve lu_unpack_op linalg_pinv linalg_solve linalg_solve_triangular "
    "linalg_tensorinv ormqr"
).split()
RULES: Final[dict[str, Any]] = {**dict.fromkeys(_ONE, one), **dict.fromkeys(_SEVERAL, several)}
