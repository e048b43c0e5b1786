"""Discrete Fourier transforms along one dim. Each kind is, up to weights, the adjoint of another. Described in compiler/graph.py."""

from __future__ import annotations

from typing import Any

from flambeau.compiler.graph import Value, contiguous_strides
from flambeau.ops.primitive import constant, primitive
from flambeau.ops.primitives.pointwise import bitwise_and, gt, iota, lt, real_part, where
from flambeau.trace.meta import Meta


def _rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    m, dim, kind, size = metas[0], attrs["dim"], attrs["kind"], attrs["size"]
    shape = (*m.shape[:dim], size // 2 + 1 if kind == "real" else size, *m.shape[dim + 1 :])
    return [Value(shape, m.dtype.to_real() if kind == "hermitian" else m.dtype.to_complex(), contiguous_strides(shape))]


@primitive("fourier", _rule)
def fourier(c, g):
    dim, kind, size = c.attrs["dim"], c.attrs["kind"], c.attrs["size"]
    if kind == "complex":
        found = fourier(g, **{**c.attrs, "inverse": not c.attrs["inverse"]})
        return found if c.dtype(0).is_complex else real_part(found)
    if kind == "real":  # each point of the half spectrum stands for itself, and `hermitian` counts its mirror image, too
        return fourier(g * _inside(size, dim, g, 0.5), **{**c.attrs, "kind": "hermitian", "inverse": True})
    half = fourier(g, **{**c.attrs, "kind": "real", "inverse": False})
    return half * _inside(size, dim, half, 2.0)


def _inside(size: int, dim: int, half: Any, factor: float) -> Any:
    """`factor` for the points of half a spectrum that have a mirror image, 1 for the others."""
    place = iota(shape=(size // 2 + 1, *[1] * (half._meta.ndim - dim - 1)), dim=0)
    return where(bitwise_and(gt(place, 0), lt(place, (size + 1) // 2)), constant(factor, half.dtype.to_real()), 1.0)
