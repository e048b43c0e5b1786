"""torch.return_types: the named tuples that functions return."""

from __future__ import annotations

from typing import Any

# Name -> fields, of all functions that return one.
_FIELDS = dict.fromkeys("cummax cummin kthvalue max median min mode nanmedian sort topk".split(), "values indices") | {
    "aminmax": "min max", "frexp": "mantissa exponent", "geqrf": "a tau", "histogram": "hist bin_edges", "histogramdd": "hist bin_edges",
    "linalg_cholesky_ex": "L info", "linalg_eig": "eigenvalues eigenvectors", "linalg_eigh": "eigenvalues eigenvectors",
    "linalg_inv_ex": "inverse info", "linalg_ldl_factor": "LD pivots", "linalg_ldl_factor_ex": "LD pivots info",
    "linalg_lstsq": "solution residuals rank singular_values", "linalg_lu": "P L U", "linalg_lu_factor": "LU pivots",
    "linalg_lu_factor_ex": "LU pivots info", "linalg_qr": "Q R", "linalg_slogdet": "sign logabsdet", "linalg_solve_ex": "result info",
    "linalg_svd": "U S Vh", "lu_unpack": "P L U", "qr": "Q R", "slogdet": "sign logabsdet", "svd": "U S V",
    "triangular_solve": "solution cloned_coefficient",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    from flambeau.ops.results import return_type

    if name == "all_return_types":
        return [return_type(each, *fields.split()) for each, fields in _FIELDS.items()]
    if name not in _FIELDS:
        from flambeau.names import missing

        raise missing("torch.return_types", name, globals())
    return return_type(name, *_FIELDS[name].split())


def __dir__() -> list[str]:
    return sorted([*_FIELDS, "all_return_types"])
