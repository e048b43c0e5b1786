"""Convolutions: plain, transposed, deformable."""

from __future__ import annotations

from typing import Any

import flambeau
from flambeau.nn import functional
from flambeau.onnx.importing.registry import Call, operator

CONVOLUTIONS: dict[int, Any] = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED: dict[int, Any] = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def padding(n: Call, sizes: Any, kernel: list[int], stride: list[int], dilation: list[int]) -> tuple[list[int], list[int]]:
    """How many elements come before and after each dim."""
    rank, how = len(kernel), n.get("auto_pad", "NOTSET")
    if how in ("NOTSET", ""):
        pads = n.get("pads", [0] * 2 * rank)
        return list(pads[:rank]), list(pads[rank:])
    if how == "VALID":
        return [0] * rank, [0] * rank
    before, after = [], []
    for size, k, s, d in zip(sizes, kernel, stride, dilation, strict=True):
        total = max((-(-size // s) - 1) * s + d * (k - 1) + 1 - size, 0)
        small, large = total // 2, total - total // 2
        before.append(small if how == "SAME_UPPER" else large)
        after.append(large if how == "SAME_UPPER" else small)
    return before, after


def flat_pads(before: list[int], after: list[int]) -> list[int]:
    """As functional.pad takes them."""
    return [v for pair in zip(before[::-1], after[::-1], strict=True) for v in pair]


@operator("Conv")
def conv(n: Call, x: Any, w: Any, bias: Any = None) -> Any:
    """Convolutions of one to three dims."""
    rank = x.ndim - 2
    if rank not in CONVOLUTIONS:
        raise n.refuse(f"convolutions of {rank} dims are not there")
    stride, dilation = n.get("strides", [1] * rank), n.get("dilations", [1] * rank)
    before, after = padding(n, x.shape[2:], n.get("kernel_shape", list(w.shape[2:])), stride, dilation)
    if before != after:
        x, before = functional.pad(x, flat_pads(before, after)), [0] * rank
    return CONVOLUTIONS[rank](x, w, bias, tuple(stride), tuple(before), tuple(dilation), n.get("group", 1))


@operator("ConvTranspose")
def conv_transpose(n: Call, x: Any, w: Any, bias: Any = None) -> Any:
    """Transposed convolutions: what is over is cut off."""
    rank = x.ndim - 2
    if rank not in _TRANSPOSED:
        raise n.refuse(f"transposed convolutions of {rank} dims are not there")
    stride, dilation = n.get("strides", [1] * rank), n.get("dilations", [1] * rank)
    kernel, extra = n.get("kernel_shape", list(w.shape[2:])), n.get("output_padding", [0] * rank)
    full = [s * (size - 1) + e + (k - 1) * d + 1 for s, size, e, k, d in zip(stride, x.shape[2:], extra, kernel, dilation, strict=True)]
    how, wanted = n.get("auto_pad", "NOTSET"), n.get("output_shape")
    if wanted is None and how in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * s for size, s in zip(x.shape[2:], stride, strict=True)]
    pads = n.get("pads", [0] * 2 * rank)
    before, after = list(pads[:rank]), list(pads[rank:])
    if wanted is not None:
        total = [f - o for f, o in zip(full, wanted[-rank:], strict=True)]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        before, after = (small, large) if how == "SAME_UPPER" else (large, small)
        before, after = [max(b, 0) for b in before], [t if t < 0 else a for t, a in zip(total, after, strict=True)]
    if before == after and min(before) >= 0 and all(e < max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        return _TRANSPOSED[rank](x, w, bias, tuple(stride), tuple(before), tuple(extra), n.get("group", 1), tuple(dilation))
    made = _TRANSPOSED[rank](x, w, bias, stride, 0, 0, n.get("group", 1), dilation)
    # What output_padding adds, and negative pads, are elements that only the bias is in.
    cut = [-b for b in before], [e - a for e, a in zip(extra, after, strict=True)]
    if bias is None or not any(v > 0 for v in (*cut[0], *cut[1])):
        return functional.pad(made, flat_pads(*cut))
    plain = functional.pad(made - bias.reshape(-1, *[1] * rank), flat_pads(*cut))
    return plain + bias.reshape(-1, *[1] * rank)


@operator("DeformConv")
def deform_conv(n: Call, x: Any, w: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """Convolutions that read at places that are moved by offsets, by bilinear interpolation."""
    if x.ndim != 4:
        raise n.refuse(f"deformable convolutions of {x.ndim - 2} dims are not there")
    stride, dilation = n.get("strides", [1, 1]), n.get("dilations", [1, 1])
    kernel, pads, groups, parts = list(w.shape[2:]), n.get("pads", [0] * 4), n.get("group", 1), n.get("offset_group", 1)
    many, channels, height, width = x.shape
    rows, columns = offset.shape[2:]
    offset = offset.reshape(many, parts, kernel[0], kernel[1], 2, rows, columns)
    place = []
    for d, count in ((0, rows), (1, columns)):
        start = flambeau.arange(count) * stride[d] - pads[d]
        taps = flambeau.arange(kernel[d]) * dilation[d]
        view: list[int] = [1] * 6
        view[2 + d], other = kernel[d], [1] * 6
        other[4 + d] = count
        place.append(taps.reshape(view) + start.reshape(other) + offset[:, :, :, :, d])
    y, z = place  # [many, parts, kh, kw, rows, columns]
    top, left = y.floor(), z.floor()
    each = x.reshape(many, parts, channels // parts, height * width)
    taken: Any = 0
    for dy in (0, 1):
        for dz in (0, 1):
            at, by = top + dy, left + dz
            weight = (1 - (y - at).abs()) * (1 - (z - by).abs())
            inside = (at >= 0) & (at < height) & (by >= 0) & (by < width)
            index = (at.clamp(0, height - 1) * width + by.clamp(0, width - 1)).to(flambeau.int64)
            index = index.reshape(many, parts, 1, -1).expand(-1, -1, channels // parts, -1)
            value = each.gather(3, index).reshape(many, parts, channels // parts, *kernel, rows, columns)
            taken = taken + value * (weight * inside).unsqueeze(2)
    if mask is not None:
        taken = taken * mask.reshape(many, parts, 1, *kernel, rows, columns)
    columns_of = taken.reshape(many, groups, channels // groups * kernel[0] * kernel[1], rows * columns)
    weights = w.reshape(groups, w.shape[0] // groups, -1)
    made = (weights @ columns_of).reshape(many, w.shape[0], rows, columns)
    return made if bias is None else made + bias.reshape(-1, 1, 1)
