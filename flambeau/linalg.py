"""torch.linalg: decompositions, solutions, norms and products of matrices. The functions are in ops/linalg/."""

from __future__ import annotations

from typing import Any

from flambeau.ops.linalg.checks import LinAlgError
from flambeau.ops.linalg.factors import (
    cholesky,
    cholesky_ex,
    householder_product,
    ldl_factor,
    ldl_factor_ex,
    ldl_solve,
    lu,
    lu_factor,
    lu_factor_ex,
    qr,
)
from flambeau.ops.linalg.norms import cond, cross, diagonal, matrix_norm, matrix_rank, multi_dot, norm, vander, vecdot, vector_norm
from flambeau.ops.linalg.spectra import eig, eigh, eigvals, eigvalsh, svd, svdvals
from flambeau.ops.linalg.systems import (
    det,
    inv,
    inv_ex,
    lstsq,
    lu_solve,
    matrix_exp,
    matrix_power,
    pinv,
    slogdet,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
)
from flambeau.ops.linear import matmul

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq", "lu", "lu_factor", "lu_factor_ex",
    "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "multi_dot", "norm", "pinv", "qr", "slogdet", "solve",
    "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv", "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    from flambeau.names import otherwise

    return otherwise("torch.linalg", name, __all__)


from flambeau.documentation import document as _document  # noqa: E402
from flambeau.ops.guard import guard as _guard  # noqa: E402 - all public names are there now

_guard("linalg", globals())
_document("torch.linalg", globals())
