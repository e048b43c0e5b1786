"""Products with weights that are codes of 4 or 8 bits: what layers with quantized weights call."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.compiler.graph import CODED_BLOCK
from flambeau.compiler.kernels.coded_matmul import has_tiles
from flambeau.ops.primitives.coded import coded_matmul, decoded, packed
from flambeau.ops.registry import operation
from flambeau.runtime.target import Target
from flambeau.tensor import Tensor

MANY_ROWS = 128  # of bfloat16, beyond which a product of that dtype with the decoded weight is faster than one with the codes, without a matrix unit


def is_group(group: int) -> bool:
    """Whether there are kernels for groups of this size."""
    return group in (32, 64) or (group > 0 and group % CODED_BLOCK == 0)


@operation(name="coded_product")
def _product(x: Tensor, codes: Tensor, scales: Tensor, zeros: Tensor, bits: int, group: int) -> Tensor:
    return coded_matmul(x, codes, scales, zeros, code_bits=bits, group=group)  # type: ignore[no-any-return]


def coded_linear(input: Tensor, codes: Tensor, scales: Tensor, zeros: Tensor, bits: int, group: int, bias: Tensor | None = None) -> Tensor:
    """(..., N): input (..., K) times the transpose of a weight whose element is (code - zero) * scale, plus a bias (N,).

    codes: uint8, (N, K) for 8 bits, (N, K / 2) for 4 (see `pack`). scales, zeros: float32 (N, K / group). Results have the input's dtype.
    RuntimeError for shapes and dtypes that do not fit.
    """
    rows, count = codes.shape[0], codes.shape[1] * 8 // bits
    if bits not in (4, 8) or codes.dtype is not torch.uint8 or not is_group(group) or count % group:
        raise RuntimeError(
            f"coded_linear: codes must be uint8 of 4 or 8 bits, and groups of 32, 64 or a multiple of 128 that divides the {count} inputs; "
            f"got {bits} bits of {codes.dtype}, groups of {group}"
        )
    if input.shape[-1] != count or tuple(scales.shape) != (rows, count // group) or tuple(zeros.shape) != (rows, count // group):
        raise RuntimeError(
            f"coded_linear: a weight of {rows} rows of {count} needs an input (..., {count}), and scales and zeros ({rows}, {count // group}); "
            f"got {tuple(input.shape)}, {tuple(scales.shape)} and {tuple(zeros.shape)}"
        )
    if torch.compiler.is_exporting():  # a program of ATen's operators: they have no product with codes
        return _exported(input, codes, scales, zeros, bits, group, bias)
    x = input.reshape(-1, count)
    if input.dtype is torch.bfloat16 and x.shape[0] > MANY_ROWS and not has_tiles(Target.host(), group, rows):
        found = x @ decoded(codes, scales, zeros, bits, group).to(torch.bfloat16).t()
    else:
        found = _product(x.float().contiguous(), codes.contiguous(), scales, zeros, bits, group)  # type: ignore[attr-defined]
    if bias is not None:
        found = found + bias.float()  # type: ignore[attr-defined]
    return found.view(*input.shape[:-1], rows).to(input.dtype)  # type: ignore[no-any-return]


def _exported(input: Any, codes: Any, scales: Any, zeros: Any, bits: int, group: int, bias: Any) -> Any:
    """`coded_linear` by operators that every reader of a program has; flambeau's reader makes `coded_linear` of them again (export/coded.py)."""
    rows = codes.shape[0]
    if bits == 4:
        half = codes.view(rows, -1, min(group, CODED_BLOCK) // 2)
        codes = torch.stack([half & 15, half >> 4], 2)
    weight = ((codes.view(rows, -1, group).float() - zeros.unsqueeze(-1)) * scales.unsqueeze(-1)).view(rows, -1)
    exact = input.dtype is torch.float32
    bias = None if bias is None else bias if bias.dtype is torch.float32 else bias.float()
    found = torch.nn.functional.linear(input if exact else input.float(), weight, bias)
    return found if exact else found.to(input.dtype)


def pack(integers: Tensor, group: int) -> Tensor:
    """(N, K / 2): integers of 0 to 15 (uint8, (N, K)), two a byte, in the order that `coded_linear` reads."""
    return packed(integers, group)  # type: ignore[no-any-return]


__all__ = ["coded_linear", "decoded", "is_group", "pack"]
