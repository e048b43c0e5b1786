"""What the functions of linalg share: checks of arguments, errors that depend on values, `out=`, batches.

A decomposition gives an `info` code for each matrix (compiler/kernels/host_linalg.py). The `_ex` functions return it and
wait for nothing; the others look at it, so they run what is pending, and raise LinAlgError where the call stands.
"""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.ops import primitives as prim
from flambeau.ops.named import public as public
from flambeau.ops.primitive import broadcast_shapes
from flambeau.trace.recorder import Fragment, local


class LinAlgError(RuntimeError):
    """torch.linalg.LinAlgError: a matrix is singular, not positive-definite, or an iteration did not converge."""


LinAlgError.__module__, LinAlgError.__name__ = "torch.linalg", "_LinAlgError"  # as it is called in messages

# PyTorch's names of dtypes in messages (c10::ScalarType).
_SCALAR_TYPE = {
    "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int", "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool",
}  # fmt: skip


def require_floating(name: str, x: Any, low: bool = False) -> None:
    """The dtype is float32, float64, complex64 or complex128 (or of 16 bits, with `low`)."""
    d = x.dtype
    if d.category < 2:
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {_SCALAR_TYPE.get(d.name, d.name)}; convert it, e.g. with .float()"
        )
    if not low and d in (dtypes.float16, dtypes.bfloat16):
        raise RuntimeError(f"{name}: Low precision dtypes not supported. Got {_SCALAR_TYPE[d.name]}; convert it, e.g. with .float()")


def require_matrix(name: str, x: Any, argument: str = "A") -> None:
    """At least two dims."""
    if x._meta.ndim < 2:
        raise RuntimeError(
            f"{name}: The input tensor {argument} must have at least 2 dimensions; its shape is {tuple(x.shape)}. "
            "The last two are the rows and columns of a matrix."
        )


def require_square(name: str, x: Any, argument: str = "A") -> None:
    """Square matrices of a dtype that LAPACK has."""
    require_matrix(name, x, argument)
    require_floating(name, x)
    m, n = x._meta.shape[-2:]
    if m != n:
        raise RuntimeError(f"{name}: {argument} must be batches of square matrices, but they are {m} by {n} matrices (shape {tuple(x.shape)})")


def require_same_dtype(name: str, a: Any, b: Any) -> None:
    """Both of one dtype."""
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"{name}: Expected A and B to have the same dtype, but found A of type {a.dtype} and B of type {b.dtype} instead; convert one of them"
        )


def common_batch(name: str, *tensors: Any) -> list[Any]:
    """The tensors with their leading dims (all but two) broadcast together."""
    shapes = [tuple(x._meta.shape) for x in tensors]
    batch = broadcast_shapes(name, [s[:-2] for s in shapes])
    return [x if s[:-2] == batch else prim.expand(x, shape=(*batch, *s[-2:])) for x, s in zip(tensors, shapes, strict=True)]


def identity(n: int, d: Any) -> Any:
    """The unit matrix, inside a body."""
    row = prim.iota(shape=(n, 1), dim=0)
    column = prim.iota(shape=(1, n), dim=1)
    return prim.cast(prim.eq(row, column), dtype=d)


def contiguous_copy(x: Any) -> Any:
    """A row-major copy, inside a body."""
    return prim.copy(x, strides=contiguous_strides(tuple(x._meta.shape)))


# -- errors that depend on values --------------------------------------------------------------------------------------
_FAILURES = {
    "inverse": "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
    "solve": "The solver failed because the input matrix is singular.",
    "cholesky": (
        "The factorization could not be completed because the input is not positive-definite "
        "(the leading minor of order {} is not positive-definite)."
    ),
    "lu": "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you still want to perform the "
    "factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
    "ldl": "The block {} of D is zero: the matrix is singular.",
    "converge": (
        "The algorithm failed to converge because the input matrix is ill-conditioned, has too many repeated eigenvalues "
        "or non-finite elements (error code: {})."
    ),
}  # fmt: skip


def raise_failures(name: str, info: Any, kind: str) -> None:
    """LinAlgError for the first matrix whose info is not 0. Inside another function's body nothing can be looked at."""
    if isinstance(local.trace, Fragment) or info.numel() == 0 or info.is_meta:
        return
    while hasattr(info, "_level"):  # under a vmap: of all samples
        info = info._inner
    codes = info.detach().reshape(-1).tolist()
    if not any(codes):
        return
    first = next(i for i, code in enumerate(codes) if code)
    where = f"(Batch element {first}): " if info.ndim else ""
    raise LinAlgError(f"{name}: {where}" + _FAILURES[kind].format(codes[first]))
