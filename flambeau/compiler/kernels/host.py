"""Host calls: the decompositions of linalg and the FFT, which NumPy does between two native segments of a plan.

A `host_call` node has the attributes `function` (a name of FUNCTIONS) and `kwargs`, a sorted tuple of (name, value). A
function takes NumPy arrays (views of the plan's buffers: read only) and returns one array for each of the node's outputs.
bfloat16 has no NumPy type: the recorder casts to float32 around a host call, as it does for float16.
Errors are numpy.linalg.LinAlgError, which is a ValueError; the caller of a plan sees them as RuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from flambeau.compiler.graph import Graph, Value

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class HostCall:
    """A step of a plan that Python does. `inputs` and `outputs` are value ids; `reads` and `writes` their roots."""

    name: str
    key: str
    function: str
    kwargs: dict[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    bytes: int
    nodes: tuple[int, ...]
    operations: int = 0
    notes: list[str] = field(default_factory=list)


def make_host_call(graph: Graph, node_index: int) -> HostCall:
    """The step of a `host_call` node."""
    node = graph.nodes[node_index]
    function = node.attr("function")
    if function not in FUNCTIONS:
        raise KeyError(f"host_call: unknown function {function!r}; known: {', '.join(sorted(FUNCTIONS))}")
    kwargs = dict(dict(node.attrs).get("kwargs", ()))
    reads = tuple(dict.fromkeys(graph.root(i) for i in node.inputs))
    values = [graph.values[i] for i in (*node.inputs, *node.outputs)]
    traffic = sum(v.numel * v.dtype.itemsize for v in values)
    return HostCall(function, f"host:{function}", function, kwargs, node.inputs, node.outputs, reads, node.outputs, traffic,
                    (node_index,))  # fmt: skip


def numpy_view(memory: Array, value: Value, offset: int) -> Array:
    """The value as a NumPy array over `memory` (the bytes of its root's buffer); `offset` in elements of its dtype."""
    d = value.dtype
    name = d.numpy_name or "uint16"
    typed: Array = np.frombuffer(memory, np.uint8)
    if value.numel == 0:
        return np.empty(value.shape, name)
    start = offset * d.itemsize
    strides = tuple(s * d.itemsize for s in value.strides)
    return np.ndarray(value.shape, name, typed, start, strides)


def number(x: Any, value: Value) -> Array:
    """A run-time parameter as a 0-d array."""
    return np.asarray(x, value.dtype.numpy_name)


# -- The functions ------------------------------------------------------------------------------------------------


def _triangular(a: Array, upper: bool) -> Array:
    return np.triu(a) if upper else np.tril(a)


def _solve_triangular(a: Array, b: Array, upper: bool, left: bool, unit: bool) -> Array:
    """Solve a x = b (or x a = b) for triangular a: substitution row by row, batched over the leading dims."""
    if not left:
        t = _solve_triangular(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not upper, True, unit)
        return np.swapaxes(t, -1, -2)
    n = a.shape[-1]
    x = np.array(np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])))
    for i in reversed(range(n)) if upper else range(n):
        done = slice(i + 1, n) if upper else slice(0, i)
        row = x[..., i, :] - np.einsum("...j,...jk->...k", a[..., i, done], x[..., done, :])
        x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x


def _lu(a: Array) -> tuple[Array, Array]:
    """LU with partial pivoting, LAPACK's layout: (L below U, 1-based int64 row exchanges)."""
    lu = np.array(a)
    m, n = lu.shape[-2:]
    flat = lu.reshape(-1, m, n)
    pivots = np.empty((flat.shape[0], min(m, n)), np.int64)
    for matrix, exchanges in zip(flat, pivots, strict=True):
        for k in range(min(m, n)):
            p = k + int(np.argmax(np.abs(matrix[k:, k])))
            exchanges[k] = p + 1
            if p != k:
                matrix[[k, p]] = matrix[[p, k]]
            if matrix[k, k] != 0:
                matrix[k + 1 :, k] /= matrix[k, k]
                matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    return lu, pivots.reshape(*a.shape[:-2], min(m, n))


def _lstsq(a: Array, b: Array) -> tuple[Array, ...]:
    solution, residuals, rank, singular = np.linalg.lstsq(a, b, rcond=None)
    return solution, residuals, np.asarray(rank, np.int64), singular


def _fft(name: str) -> Callable[..., Array]:
    def call(x: Array, **kwargs: Any) -> Array:
        result: Array = getattr(np.fft, name)(x, **kwargs)
        return result

    return call


def _slogdet(a: Array) -> tuple[Array, Array]:
    sign, logarithm = np.linalg.slogdet(a)
    return np.asarray(sign), np.asarray(logarithm)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "cholesky": lambda a, upper=False: np.conj(np.swapaxes(np.linalg.cholesky(a), -1, -2)) if upper else np.linalg.cholesky(a),
    "qr": lambda a, mode="reduced": tuple(np.linalg.qr(a, mode)),
    "svd": lambda a, full_matrices=False: tuple(np.linalg.svd(a, full_matrices)),
    "svdvals": lambda a: np.linalg.svd(a, compute_uv=False),
    "eigh": lambda a, uplo="L": tuple(np.linalg.eigh(a, uplo)),
    "eigvalsh": lambda a, uplo="L": np.linalg.eigvalsh(a, uplo),
    "eig": lambda a: tuple(np.linalg.eig(a)),
    "eigvals": lambda a: np.linalg.eigvals(a),
    "inv": lambda a: np.linalg.inv(a),
    "pinv": lambda a, **kwargs: np.linalg.pinv(a, **kwargs),
    "det": lambda a: np.linalg.det(a),
    "slogdet": _slogdet,
    "solve": lambda a, b: np.linalg.solve(a, b),
    "lstsq": _lstsq,
    "lu": _lu,
    "triangular": _triangular,
    "solve_triangular": lambda a, b, upper=False, left=True, unit=False: _solve_triangular(a, b, upper, left, unit),
    "matrix_rank": lambda a, **kwargs: np.asarray(np.linalg.matrix_rank(a, **kwargs), np.int64),
    **{name: _fft(name) for name in (
        "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn").split()},
}  # fmt: skip


def call(step: HostCall, inputs: list[Array], outputs: list[Array]) -> None:
    """Run the function and write its results into the output arrays."""
    try:
        results = FUNCTIONS[step.function](*inputs, **step.kwargs)
    except np.linalg.LinAlgError as error:
        raise RuntimeError(f"{step.function}: {error}") from None
    if not isinstance(results, tuple):
        results = (results,)
    for out, result in zip(outputs, results, strict=True):
        if out.shape != np.shape(result):
            raise RuntimeError(f"{step.function}: result of shape {np.shape(result)}, the graph says {out.shape}")
        out[...] = result
