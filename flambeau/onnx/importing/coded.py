"""Products with constant weights of 8 and 4 bits: MatMulNBits, and MatMul of what DequantizeLinear makes, over the codes as they lie."""

from __future__ import annotations

from typing import Any, Final

import flambeau
from flambeau.composed.coded import coded_linear, is_group, pack
from flambeau.onnx.importing import values
from flambeau.onnx.importing.registry import Call, operator
from flambeau.ops.primitives.coded import dequantized

MICROSOFT: Final = "com.microsoft"
_KINDS: Final = {2: (8, 0), 3: (8, 128), 21: (4, 0), 22: (4, 8)}  # dtype -> (bits, what makes its elements codes from 0)


def _product(n: Call, x: Any, held: tuple[Any, ...], parts: Any, group: int, bits: int, bias: Any = None) -> Any:
    """x (..., K) times the transpose of a weight.

    `parts()`: its codes (N, K), one a byte, scales and zero points (N, K / group). `held`: what they follow from.
    """
    rows = x.numel() // x.shape[-1] if x.shape[-1] else 0
    exact = x.dtype is flambeau.float32 and is_group(group) and bits in (4, 8) and rows
    if flambeau.is_grad_enabled() or not exact:  # scales may be trained
        codes, scales, zeros = parts()
        made = flambeau.nn.functional.linear(x, dequantized(codes, scales, zeros, group).to(x.dtype))
        return made if bias is None else made + bias

    def packed() -> tuple[Any, Any, Any]:
        codes, scales, zeros = parts()
        return (pack(codes, group) if bits == 4 else codes).contiguous(), scales.contiguous(), zeros.contiguous()

    codes, scales, zeros = n.once(held, packed)
    return coded_linear(x, codes, scales, zeros, bits, group, bias)


@operator("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(n: Call, a: Any, b: Any, scales: Any, zeros: Any = None, order: Any = None, bias: Any = None) -> Any:
    """ONNX Runtime's product with a weight of K x N codes of 2, 4 or 8 bits in blocks along K; (N, blocks, bytes of a block)."""
    count, rows, group, bits = (n.get(name, default) for name, default in (("K", 0), ("N", 0), ("block_size", 0), ("bits", 4)))
    if order is not None or bits not in (2, 4, 8):
        raise n.refuse(f"codes of {bits} bits, or blocks in another order (g_idx)")
    blocks = -(-count // group)

    def parts() -> tuple[Any, Any, Any]:
        codes = _few(b.reshape(rows, -1), bits)[:, : blocks * group]
        if zeros is None:
            middle = flambeau.full((rows, blocks), float(1 << (bits - 1)))
        elif zeros.is_floating_point():
            middle = zeros.reshape(rows, blocks).float()
        else:
            middle = _few(zeros.reshape(rows, -1), bits)[:, :blocks].float()
        return codes, scales.reshape(rows, blocks).float(), middle

    x = a if blocks * group == count else flambeau.nn.functional.pad(a, (0, blocks * group - count))
    return _product(n, x, (b, scales, zeros), parts, group, bits, bias)


def _few(x: Any, bits: int) -> Any:
    """(N, bytes) -> (N, elements): several integers of a byte, the first in its lowest bits."""
    return x if bits == 8 else flambeau.stack([(x >> s) & ((1 << bits) - 1) for s in range(0, 8, bits)], 2).reshape(x.shape[0], -1)


def coded_matmul(dequantize: Call, codes: Any, shape: Any) -> Any:
    """What runs a MatMul by the codes of the DequantizeLinear before it; None if these are others than it can multiply."""
    kind, block, axis = values.number_of(codes), dequantize.get("block_size", 0), dequantize.get("axis", 1)
    if kind not in _KINDS or len(codes.shape) != 2 or dequantize.get("output_dtype", 0) not in (0, 1):
        return None
    count, columns = codes.shape
    single = len(shape) == 1 and shape[0] == columns and axis in (1, -1) and not block  # a scale for each column
    blocked = len(shape) == 2 and axis in (0, -2) and block and count % block == 0 and tuple(shape) == (count // block, columns)
    group, (bits, middle) = block if blocked else count, _KINDS[kind]
    if not (single or blocked) or not is_group(group):
        return None

    def run(n: Call, x: Any, codes: Any, scale: Any, zero: Any = None) -> Any:
        def parts() -> tuple[Any, Any, Any]:
            integers = (values.to_holder(codes).to(flambeau.int16) + middle).to(flambeau.uint8).t()
            scales = values.tensor(scale).reshape(-1, columns).t()
            zeros = flambeau.full(scales.shape, float(middle)) if zero is None else values.to_holder(zero).float().reshape(-1, columns).t() + middle
            return integers, scales, zeros

        return _product(n, values.tensor(x), (codes, scale, zero), parts, group, bits)

    return run
