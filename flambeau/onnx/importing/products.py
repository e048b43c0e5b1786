"""Matrix products and linear algebra."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.onnx.importing.registry import Call, operator


@operator("MatMul")
def matmul(n: Call, a: Any, b: Any) -> Any:
    """NumPy's matmul."""
    return flambeau.matmul(a, b)


@operator("Gemm")
def gemm(n: Call, a: Any, b: Any, c: Any = None) -> Any:
    """alpha * a @ b + beta * c, either transposed."""
    alpha, beta = n.get("alpha", 1.0), n.get("beta", 1.0)
    a = a.t() if n.get("transA", 0) else a
    if n.get("transB", 0) and alpha == 1 and beta == 1 and c is not None and c.ndim == 1 and a.is_floating_point() and c.shape[0] == b.shape[0]:
        return flambeau.nn.functional.linear(a, b, c)
    b = b.t() if n.get("transB", 0) else b
    if c is not None and a.is_floating_point():
        return flambeau.addmm(c, a, b, beta=beta, alpha=alpha)
    made = a @ b
    made = made if alpha == 1 else (made * alpha).to(made.dtype)
    return made if c is None else made + (c if beta == 1 else (c * beta).to(c.dtype))


@operator("Einsum")
def einsum(n: Call, *xs: Any) -> Any:
    """Einstein's sums."""
    return flambeau.einsum(n.get("equation"), *xs)


@operator("Det")
def det(n: Call, x: Any) -> Any:
    """Determinants."""
    return flambeau.linalg.det(x)
