"""Affine codes: real = (integer - zero point) * scale, as recorded compositions that fuse with what is around them.

Roundings are those of PyTorch's kernels for x86 (fbgemm): to the nearest, ties to even, of a product that is not rounded before the zero point is
added where there is one scale, and of a rounded product where there are several.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import flambeau as torch
from flambeau import dtypes
from flambeau.quantized.schemes import per_channel_affine, per_channel_affine_float_qparams, per_tensor_affine, qscheme
from flambeau.tensor import Tensor

RANGES: Final = {
    torch.quint8: (0, 255), torch.qint8: (-128, 127), torch.qint32: (-(2**31), 2**31 - 1), torch.quint4x2: (0, 15), torch.quint2x4: (0, 3),
}  # fmt: skip


class Affine(NamedTuple):
    """What gives integers their meaning: one scale and zero point (numbers, `axis` None), or one of each index of dim `axis` (tensors)."""

    dtype: dtypes.dtype
    scale: Any
    zero_point: Any
    axis: int | None = None

    @property
    def scheme(self) -> qscheme:
        """The torch.qscheme."""
        if self.axis is None:
            return per_tensor_affine
        return per_channel_affine_float_qparams if self.zero_point.dtype.is_floating_point else per_channel_affine

    @property
    def limits(self) -> tuple[int, int]:
        """The least and the greatest integer."""
        return RANGES[self.dtype]

    def along(self, t: Tensor, ndim: int) -> Tensor:
        """Scales or zero points in a shape that broadcasts with a tensor of `ndim` dims."""
        shape = [1] * ndim
        shape[self.axis or 0] = -1
        return t.view(shape)


def single(number: float) -> float:
    """The float32 next to a number."""
    return dtypes.held(number, torch.float32)


def inverse(scale: float) -> float:
    """1 / scale in float32; infinity where the scale is 0."""
    held = single(scale)
    return single(1.0 / held) if held else float("inf")


def rounded(x: Tensor, scale: float, zero_point: int) -> Tensor:
    """x / scale + zero_point, rounded to whole numbers in float32: one scale. The product is exact in float64, as a fused multiply-add's."""
    return (x.double() * inverse(scale) + float(zero_point)).float().round()


def integers(x: Tensor, a: Affine) -> Tensor:
    """The integers nearest to a float tensor, of the dtype that holds them."""
    low, high = a.limits
    kind = dtypes.INTEGER_OF[a.dtype]
    if a.axis is None:
        q = rounded(x, a.scale, a.zero_point)
    else:
        scale = a.along(a.scale, x.ndim)
        zero_point = a.along(a.zero_point, x.ndim)
        if a.scheme is per_channel_affine:
            q = (x * scale.float().reciprocal()).round() + zero_point.float()
        else:  # the zero point is real: it is added before the rounding
            q = (x * scale.float().reciprocal() + zero_point.float()).round()
    if kind is torch.int32:
        q = q.double()
    return q.clamp(low, high).to(kind)  # type: ignore[no-any-return]


def real(integers: Tensor, a: Affine) -> Tensor:
    """What integers stand for, in float32."""
    if a.axis is None:
        if a.dtype is torch.qint32:  # differences of 32 bits are exact in float64 only
            return (integers.double() - float(a.zero_point)).float() * single(a.scale)  # type: ignore[no-any-return]
        return (integers.float() - float(a.zero_point)) * single(a.scale)  # type: ignore[attr-defined, no-any-return]
    zero_point, scale = a.along(a.zero_point, integers.ndim), a.along(a.scale, integers.ndim)
    return (integers.float() - zero_point.float()) * scale.float()  # type: ignore[attr-defined, no-any-return]


def requantized(total: Tensor, factor: Any, zero_point: int, low: int, high: int, kind: dtypes.dtype) -> Tensor:
    """Sums of products (float32, whole numbers as far as 24 bits hold them) in units of another scale: round(total * factor) + zero_point, clamped."""
    return ((total * factor).round() + float(zero_point)).clamp(low, high).to(kind)  # type: ignore[no-any-return]


def chosen(low: float, high: float, qmin: int, qmax: int, symmetric: bool = False, signed: bool = True) -> tuple[float, int]:
    """(scale, zero point) of a range of values: PyTorch's ChooseQuantizationParams (quant_utils.h).

    The range is made to hold zero, which must have a code of its own; the zero point is rounded from the end whose error is smaller.
    """
    low, high = min(low, 0.0), max(high, 0.0)
    if symmetric and signed:
        bound = max(-low, high)
        low, high = -bound, bound
        steps = qmax - qmin
        if steps == 255:
            qmin, qmax = -127, 127
    low, high = single(low), single(high)
    scale = (high - low) / (qmax - qmin)
    if single(scale) == 0.0 or single(1.0 / scale) == float("inf"):
        scale = 0.1
    if scale < single(6.1e-5):  # the least that float16 keeps as a normal number: so that devices can compute with it
        before, scale = scale, single(6.1e-5)
        if low == 0.0:
            high = scale * (qmax - qmin)
        elif high == 0.0:
            low = -scale * (qmax - qmin)
        else:
            low, high = low * scale / before, high * scale / before
    from_low, from_high = qmin - low / scale, qmax - high / scale
    low_error, high_error = abs(qmin) - abs(low / scale), abs(qmax) - abs(high / scale)
    zero = from_low if low_error < high_error else from_high
    if symmetric and signed:
        zero = (qmin + qmax) / 2 if qmin + qmax else 0.0
    return scale, int(min(max(round(zero), qmin), qmax))
