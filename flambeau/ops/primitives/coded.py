"""Products with weights that are codes of 4 or 8 bits. Described in compiler/graph.py."""

from __future__ import annotations

from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import CODED_BLOCK, Value, contiguous_strides
from flambeau.ops.primitive import primitive
from flambeau.ops.primitives.contract import matmul
from flambeau.trace.meta import Meta


def _rule(metas: list[Meta], attrs: dict[str, Any]) -> list[Value]:
    shape = (metas[0].shape[0], metas[1].shape[0])
    return [Value(shape, dtypes.float32, contiguous_strides(shape))]


@primitive("coded_matmul", _rule)
def coded_matmul(c, g):
    if any(c.needs(i) for i in (1, 2, 3)):
        raise RuntimeError("coded_matmul: codes, scales and zero points have no gradients; train the float weight, or what is added to the layer")
    return matmul(g, decoded(c.input(1), c.input(2), c.input(3), c.attrs["code_bits"], c.attrs["group"])), None, None, None


def decoded(codes: Any, scales: Any, zeros: Any, bits: int, group: int) -> Any:
    """(N, K): the weights in float32, by recorded operations."""
    return dequantized(unpacked(codes, bits, group), scales, zeros, group)


def dequantized(integers: Any, scales: Any, zeros: Any, group: int) -> Any:
    """(N, K) integers, and one scale and zero point for each group of a row, as float32."""
    rows, count = integers.shape
    grouped = integers.float().view(rows, count // group, group)
    return ((grouped - zeros.unsqueeze(-1)) * scales.unsqueeze(-1)).view(rows, count)


def unpacked(codes: Any, bits: int, group: int) -> Any:
    """(N, K) codes, one a byte: of (N, K / 2) with two a byte, or as they are."""
    if bits == 8:
        return codes
    half = min(group, CODED_BLOCK) // 2
    pairs = (codes & 15).to(dtypes.int16) | ((codes >> 4).to(dtypes.int16) << 8)  # as bytes: the low half, then the high one
    return pairs.view(dtypes.uint8).view(codes.shape[0], -1, half, 2).transpose(2, 3).reshape(codes.shape[0], -1)


def packed(integers: Any, group: int) -> Any:
    """(N, K / 2): codes of 4 bits (one a byte, 0 to 15), two a byte, as `unpacked` reads them."""
    half = min(group, CODED_BLOCK) // 2
    blocks = integers.view(integers.shape[0], -1, 2, half)
    return (blocks.select(2, 0) | (blocks.select(2, 1) << 4)).view(integers.shape[0], -1)
