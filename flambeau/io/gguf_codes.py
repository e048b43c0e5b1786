"""Codes of GGUF files: blocks of 32 or 256 weights with scales, as ggml keeps them, decoded and (Q4_0, Q8_0) made with NumPy.

Layouts of the blocks: ggml's ggml-common.h. A type is (weights of a block, bytes of a block, function).

    Q8_0    a float16 scale, 32 int8
    Q4_0    a float16 scale, 16 bytes: byte j has weight j in its low half and weight j + 16 in its high half; a weight is (code - 8) * scale
    Q4_1    a float16 scale and least value, 16 bytes as of Q4_0: code * scale + least
    Q5_0    as Q4_0, with 4 bytes of fifth bits before the codes: (code - 16) * scale
    Q5_1    as Q4_1, with 4 bytes of fifth bits before the codes
    Q2_K    16 bytes: a scale and a least value of 4 bits for each 16 weights; 64 bytes of 2-bit codes; float16 d and m: code * (d s) - m l
    Q3_K    32 bytes of third bits, 64 of 2-bit codes, 12 of 16 scales of 6 bits, a float16 d: (code - 4) * d * (s - 32)
    Q4_K    float16 scales d and m; 8 scales and 8 least values of 6 bits in 12 bytes; 128 bytes of 4-bit codes: code * (d s) - m l
    Q5_K    as Q4_K, with 32 bytes of fifth bits before the codes
    Q6_K    128 bytes of low 4 bits, 64 of high 2 bits, 16 int8 scales, a float16 d: (code - 32) * d * s
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

Array = Any  # of NumPy
_Decoder = Callable[[Array], Array]


def _half(blocks: Array, at: int) -> Array:
    """(blocks, 1): the float16 at a byte of each block, as float32."""
    return blocks[:, at : at + 2].copy().view(np.float16).astype(np.float32)


def _q8_0(blocks: Array) -> Array:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _nibbles(codes: Array) -> Array:
    return np.concatenate([codes & 15, codes >> 4], 1)


def _q4_0(blocks: Array) -> Array:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).astype(np.float32) - np.float32(8))


def _q4_1(blocks: Array) -> Array:
    return _half(blocks, 0) * _nibbles(blocks[:, 4:]).astype(np.float32) + _half(blocks, 2)


def _fifth_bits(packed: Array) -> Array:
    """(blocks, 32), 0 or 16: the bits of 4 bytes."""
    return np.unpackbits(packed, axis=1, bitorder="little") << 4


def _q5_0(blocks: Array) -> Array:
    return _half(blocks, 0) * ((_nibbles(blocks[:, 6:]) | _fifth_bits(blocks[:, 2:6])).astype(np.float32) - np.float32(16))


def _q5_1(blocks: Array) -> Array:
    return _half(blocks, 0) * (_nibbles(blocks[:, 8:]) | _fifth_bits(blocks[:, 4:8])).astype(np.float32) + _half(blocks, 2)


def _two_bits(packed: Array) -> Array:
    """(blocks, 8, 32): of each 32 bytes the lowest two bits, then the next ones."""
    rows = packed.reshape(len(packed), -1, 1, 32)
    return ((rows >> np.array([0, 2, 4, 6], np.uint8)[None, None, :, None]) & 3).reshape(len(packed), -1, 32)


def _q2_k(blocks: Array) -> Array:
    scales, least = blocks[:, :16] & 15, blocks[:, :16] >> 4
    d, m = _half(blocks, 80) * scales.astype(np.float32), _half(blocks, 82) * least.astype(np.float32)
    codes = _two_bits(blocks[:, 16:80]).astype(np.float32).reshape(-1, 16, 16)
    return (d[..., None] * codes - m[..., None]).reshape(-1, 256)


def _q3_k(blocks: Array) -> Array:
    packed = blocks[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], 1)
    high = np.concatenate([(packed[:, 8:] >> np.uint8(at)) & 3 for at in (0, 2, 4, 6)], 1)
    scales = _half(blocks, 108) * ((low | (high << 4)).astype(np.float32) - np.float32(32))
    third = (blocks[:, None, :32] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1
    codes = (_two_bits(blocks[:, 32:96]) | (third << 2)).astype(np.float32) - np.float32(4)
    return (scales[..., None] * codes.reshape(-1, 16, 16)).reshape(-1, 256)


def _six_bits(packed: Array) -> tuple[Array, Array]:
    """(scales, least values), (blocks, 8) each, of 12 bytes: six bits each, the last four of each kind in two places."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, (third & 15) | ((first >> 6) << 4)], 1)
    least = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], 1)
    return scales.astype(np.float32), least.astype(np.float32)


def _grouped(blocks: Array, codes: Array) -> Array:
    """Codes (blocks, 8, 32) of Q4_K and Q5_K with their scales."""
    scales, least = _six_bits(blocks[:, 4:16])
    d, m = _half(blocks, 0) * scales, _half(blocks, 2) * least
    return (d[..., None] * codes.astype(np.float32) - m[..., None]).reshape(len(blocks), 256)


def _low_and_high(codes: Array) -> Array:
    """(blocks, 8, 32): of each 32 bytes, the low halves, then the high ones."""
    rows = codes.reshape(len(codes), 4, 1, 32)
    return np.concatenate([rows & 15, rows >> 4], 2).reshape(len(codes), 8, 32)


def _q4_k(blocks: Array) -> Array:
    return _grouped(blocks, _low_and_high(blocks[:, 16:]))


def _q5_k(blocks: Array) -> Array:
    fifth = (blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[None, :, None]) & 1
    return _grouped(blocks, _low_and_high(blocks[:, 48:]) | (fifth << 4))


def _q6_k(blocks: Array) -> Array:
    low = blocks[:, :128].reshape(-1, 2, 1, 64)
    low = np.concatenate([low & 15, low >> 4], 2).reshape(-1, 8, 32)
    codes = (low | (_two_bits(blocks[:, 128:192]) << 4)).astype(np.float32) - np.float32(32)
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (scales[..., None] * codes.reshape(-1, 16, 16)).reshape(-1, 256)


CODED: Final[dict[str, tuple[int, int, _Decoder]]] = {
    "Q4_0": (32, 18, _q4_0), "Q4_1": (32, 20, _q4_1), "Q5_0": (32, 22, _q5_0), "Q5_1": (32, 24, _q5_1), "Q8_0": (32, 34, _q8_0),
    "Q2_K": (256, 84, _q2_k), "Q3_K": (256, 110, _q3_k), "Q4_K": (256, 144, _q4_k), "Q5_K": (256, 176, _q5_k), "Q6_K": (256, 210, _q6_k),
}  # fmt: skip


def decode(data: Array, kind: str) -> Array:
    """The weights (float32, flat) of blocks (bytes, flat) of a type."""
    _, nbytes, decoder = CODED[kind]
    if data.size % nbytes:
        raise ValueError(f"decode: {data.size} bytes are not whole blocks of {kind}, which have {nbytes}")
    return decoder(np.ascontiguousarray(data).view(np.uint8).reshape(-1, nbytes)).reshape(-1)


def group_parts(data: Array, kind: str) -> tuple[Array, Array, Array]:
    """(codes uint8 (groups, 32), scales, zeros float32 (groups)) of blocks: a weight is (code - zero) * scale. ValueError for a type without such groups."""
    if kind not in ("Q4_0", "Q4_1", "Q4_K", "Q8_0"):
        raise ValueError(f"group_parts: {kind} has no groups of 32 codes of 4 or 8 bits; Q4_0, Q4_1, Q4_K and Q8_0 have: decode() the others")
    blocks = np.ascontiguousarray(data).view(np.uint8).reshape(-1, CODED[kind][1])
    if kind == "Q8_0":
        codes, scales = blocks[:, 2:] ^ np.uint8(128), _half(blocks, 0)
        return codes, scales[:, 0], np.full(len(blocks), 128, np.float32)
    if kind == "Q4_K":
        scales, least = _six_bits(blocks[:, 4:16])
        scales, least = _half(blocks, 0) * scales, _half(blocks, 2) * least
        codes = _low_and_high(blocks[:, 16:]).reshape(-1, 32)
    else:
        scales = _half(blocks, 0)
        least = scales * np.float32(8) if kind == "Q4_0" else -_half(blocks, 2)
        codes = _nibbles(blocks[:, 2 if kind == "Q4_0" else 4 :])
    # A group whose scale is 0 has one value: a scale of 1 and codes of 0 say it.
    empty = scales.reshape(-1) == 0
    codes = np.where(empty[:, None], np.uint8(0), codes)
    scales = np.where(empty, np.float32(1), scales.reshape(-1))
    return codes, scales, (least.reshape(-1) / scales).astype(np.float32)


def _away(x: Array) -> Array:
    """Rounded to the nearest whole number, halves away from zero, as C's roundf."""
    size = np.abs(x)
    whole = np.floor(size)
    return np.sign(x) * (whole + np.floor(2 * (size - whole)))


def encode(values: Array, kind: str) -> Array:
    """Blocks (bytes, flat) of float32 weights, of Q8_0 or Q4_0. ValueError for other types, and for weights that are not whole blocks."""
    if kind not in ("Q8_0", "Q4_0"):
        raise ValueError(f"encode: weights are written as Q8_0 or Q4_0, not as {kind}; other types are read")
    blocks = np.asarray(values, np.float32).reshape(-1)
    if blocks.size % 32:
        raise ValueError(f"encode: {blocks.size} weights are not whole blocks of 32")
    blocks = blocks.reshape(-1, 32)
    if kind == "Q8_0":
        scale = np.abs(blocks).max(1, keepdims=True) / np.float32(127)
        codes = _away(blocks * _inverse(scale)).astype(np.int8).view(np.uint8)
    else:
        most = np.take_along_axis(blocks, np.abs(blocks).argmax(1, keepdims=True), 1)
        scale = most / np.float32(-8)
        integers = np.trunc(blocks.astype(np.float64) * _inverse(scale) + 8.5).astype(np.float32).astype(np.uint8).clip(0, 15)
        codes = integers[:, :16] | (integers[:, 16:] << 4)
    return np.concatenate([scale.astype(np.float16).view(np.uint8), codes], 1).reshape(-1)


def _inverse(scale: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.where(scale == 0, np.float32(0), np.float32(1) / scale)
