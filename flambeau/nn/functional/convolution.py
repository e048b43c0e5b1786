"""Convolutions over 1, 2 and 3 spatial dimensions. The primitive has two: 1-D adds a dimension of size 1, 3-D is a sum of
2-D convolutions over the kernel's depth."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import flambeau as torch
from flambeau.nn.functional.engine import Tensor, entries, exact_entries, functional, primitives, widen
from flambeau.ops.result_strides import as_suggested, row_major
from flambeau.runtime.buffers import check_available
from flambeau.runtime.target import Target

Size = int | Sequence[int]


def _check(name: str, input: Tensor, weight: Tensor, bias: Tensor | None, dims: int, groups: int, transposed: bool) -> tuple[Tensor, bool]:
    """The input with a batch dimension, and whether it had one; RuntimeError where the arguments do not fit."""
    if input.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got input of size: {list(input.shape)}")
    if weight.ndim != dims + 2:
        raise RuntimeError(f"{name}: expected a {dims + 2}-dimensional weight, but got weight of size {list(weight.shape)}")
    if groups <= 0:
        raise RuntimeError(f"{name}: non-positive groups is not supported, but got {groups}")
    batched = input.ndim == dims + 2
    if not batched:
        input = input.unsqueeze(0)
    channels = input.shape[1]
    expected = weight.shape[0] if transposed else weight.shape[1] * groups
    if channels != expected:
        raise RuntimeError(
            f"{name}: Given groups={groups}, weight of size {list(weight.shape)}, expected input{list(input.shape)} to have "
            f"{expected} channels, but got {channels} channels instead"
        )
    if weight.shape[0] % groups:
        raise RuntimeError(
            f"{name}: Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size {list(weight.shape)} instead"
        )
    out = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and tuple(bias.shape) != (out,):
        raise RuntimeError(
            f"{name}: Given weight of size {list(weight.shape)}, expected bias to be 1-dimensional with {out} elements, but "
            f"got bias of size {list(bias.shape)} instead"
        )
    if not all(weight.shape[2:]):
        raise RuntimeError(f"{name}: kernel size should be greater than zero, but got a weight of size {list(weight.shape)}")
    if not weight.shape[0]:
        raise RuntimeError(f"{name}: Given groups={groups}, expected weight to be at least 1 at dimension 0, but got weight of size {list(weight.shape)}")
    if not out:
        raise RuntimeError(f"{name}: expected a weight that is not empty, but got: {list(weight.shape)}")
    if not all(input.shape[2:]) and input.shape[0] and channels:
        raise RuntimeError(f"{name}: Only zero batch or zero channel inputs are supported, but got input shape: {list(input.shape)}")
    if input.dtype != weight.dtype or (bias is not None and bias.dtype != weight.dtype):
        raise RuntimeError(
            f"{name}: Input type ({input.dtype}), weight type ({weight.dtype}) and bias type "
            f"({None if bias is None else bias.dtype}) should be the same; cast one of them with .to(dtype)"
        )
    return input, batched


def _steps(name: str, dims: int, **values: Any) -> list[tuple[int, ...]]:
    """stride, padding, dilation as tuples; RuntimeError where one is out of range."""
    result = []
    for what, value in values.items():
        items = entries(value, dims, what, name)
        lowest = 0 if "padding" in what else 1
        if min(items) < lowest:
            raise RuntimeError(f"{name}: {'negative' if lowest == 0 else 'non-positive'} {what} is not supported, got {list(items)}")
        result.append(items)
    return result


def _same_padding(name: str, weight: Tensor, stride: Any, padding: Any, dilation: Any, dims: int) -> list[tuple[int, int]]:
    """(before, after) for each spatial dimension, for numbers and for 'valid' and 'same'."""
    if not isinstance(padding, str):
        return [(p, p) for p in _steps(name, dims, padding=padding)[0]]
    if padding == "valid":
        return [(0, 0)] * dims
    if padding != "same":
        raise RuntimeError(f"{name}: Invalid padding string: {padding!r}; it must be 'valid' or 'same'")
    if any(s != 1 for s in entries(stride, dims, "stride", name)):
        raise RuntimeError(f"{name}: padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for d, k in zip(entries(dilation, dims, "dilation", name), weight.shape[2:], strict=True)]
    return [(t // 2, t - t // 2) for t in totals]


def _check_fits(name: str, input: Tensor, weight: Tensor, pads: Sequence[tuple[int, int]], dilation: Sequence[int]) -> None:
    padded = [n + a + b for n, (a, b) in zip(input.shape[2:], pads, strict=True)]
    kernel = [d * (k - 1) + 1 for d, k in zip(dilation, weight.shape[2:], strict=True)]
    if any(k > n for k, n in zip(kernel, padded, strict=True)):
        raise RuntimeError(
            f"{name}: Calculated padded input size per channel: ({' x '.join(map(str, padded))}). Kernel size: "
            f"({' x '.join(map(str, kernel))}). Kernel size can't be greater than actual input size"
        )


def _operands(x: Tensor, w: Tensor, bias: Tensor | None, dims: int) -> tuple[Tensor, Tensor]:
    """What is multiplied. bfloat16 stays as it is where dot instructions multiply it: sums are float32 and rounded once, unless something is added to them."""
    host = Target.host()
    if bias is None and dims < 3 and x.dtype is torch.bfloat16 and "bfloat16" in host.dots - host.matrix_dtypes:
        return x, w
    return widen(x), widen(w)


def _finish(y: Tensor, bias: Tensor | None, batched: bool, dtype: Any) -> Tensor:
    if bias is not None:
        y = y + widen(bias).reshape((-1,) + (1,) * (y.ndim - 2))
    y = y.to(dtype)
    return y if batched else y.squeeze(0)


def _complex(convolve: Callable[[Tensor, Tensor], Tensor], input: Tensor, weight: Tensor, bias: Tensor | None, dims: int) -> Tensor:
    """A complex convolution by four real ones."""
    a, b, c, d = input.real, input.imag, weight.real, weight.imag
    y = torch.complex(convolve(a, c) - convolve(b, d), convolve(a, d) + convolve(b, c))
    return y if bias is None else y + bias.reshape((-1,) + (1,) * dims)


def _convolve(name: str, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int, dims: int) -> Tensor:
    x, batched = _check(name, input, weight, bias, dims, groups, False)
    if input.is_complex():
        return _complex(lambda x, w: _convolve(name, x, w, None, stride, padding, dilation, groups, dims), input, weight, bias, dims)
    stride, dilation = _steps(name, dims, stride=stride, dilation=dilation)
    pads = _same_padding(name, weight, stride, padding, dilation, dims)
    _check_fits(name, x, weight, pads, dilation)
    x, w = _operands(x, weight, bias, dims)
    if any(a != b for a, b in pads):
        x = torch.nn.functional.pad(x, [p for a, b in reversed(pads) for p in (0, b - a)])
    before = tuple(a for a, _ in pads)
    if dims == 1:
        x, w = x.unsqueeze(2), w.unsqueeze(2)
        stride, before, dilation = (1, *stride), (0, *before), (1, *dilation)
    convolution = primitives().convolution
    if dims < 3:
        y = convolution(x, w, stride=stride, padding=before, dilation=dilation, groups=groups)
        return _finish(y.squeeze(2) if dims == 1 else y, bias, batched, input.dtype)
    if before[0]:
        x = torch.nn.functional.pad(x, (0, 0, 0, 0, before[0], before[0]))
    n, c, depth, height, width = x.shape
    out_depth = (depth - dilation[0] * (w.shape[2] - 1) - 1) // stride[0] + 1
    total = None
    for k in range(w.shape[2]):
        first = k * dilation[0]
        planes = x[:, :, first : first + (out_depth - 1) * stride[0] + 1 : stride[0]]
        planes = planes.transpose(1, 2).reshape(n * out_depth, c, height, width)
        part = convolution(planes, w[:, :, k], stride=stride[1:], padding=before[1:], dilation=dilation[1:], groups=groups)
        total = part if total is None else total + part
    assert total is not None
    y = total.reshape(n, out_depth, *total.shape[1:]).transpose(1, 2).contiguous()
    return _finish(y, bias, batched, input.dtype)


def _volumes(body: Any) -> Any:
    """The layout of convolutions of volumes: channels last as the input or the weight is, but row-major in float64, as PyTorch's."""
    either, plain = as_suggested(0, 1, dims=3, batch=True)(body), row_major(body)

    @functools.wraps(body)
    def call(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return (plain if input.dtype is torch.float64 else either)(input, *args, **kwargs)  # type: ignore[no-any-return]

    return call


@functional
@as_suggested(1, dims=1, batch=True)
def conv1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size | str = 0, dilation: Size = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlation of (N, C, L) with weight (O, C / groups, K); padding: ints, 'valid' or 'same'."""
    return _convolve("conv1d", input, weight, bias, stride, padding, dilation, groups, 1)


@functional
@as_suggested(0, 1, dims=2, batch=True)
def conv2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size | str = 0, dilation: Size = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlation of (N, C, H, W) with weight (O, C / groups, KH, KW); padding: ints, 'valid' or 'same'."""
    return _convolve("conv2d", input, weight, bias, stride, padding, dilation, groups, 2)


@functional
@_volumes
def conv3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size | str = 0, dilation: Size = 1,
    groups: int = 1,
) -> Tensor:  # fmt: skip
    """Cross-correlation of (N, C, D, H, W) with weight (O, C / groups, KD, KH, KW)."""
    return _convolve("conv3d", input, weight, bias, stride, padding, dilation, groups, 3)


def _convolve_transposed(
    name: str, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, output_padding: Any, groups: int,
    dilation: Any, dims: int,
) -> Tensor:  # fmt: skip
    """The gradient of a convolution to its input, as an operation of its own."""
    x, batched = _check(name, input, weight, bias, dims, groups, True)
    if input.is_complex():
        return _complex(
            lambda x, w: _convolve_transposed(name, x, w, None, stride, padding, output_padding, groups, dilation, dims),
            input, weight, bias, dims,
        )  # fmt: skip
    stride, padding, output_padding, dilation = _steps(name, dims, stride=stride, padding=padding, output_padding=output_padding, dilation=dilation)
    for o, s, d in zip(output_padding, stride, dilation, strict=True):
        if o >= max(s, d):
            raise RuntimeError(
                f"{name}: output padding must be smaller than either stride or dilation, but got output_padding "
                f"{output_padding}, stride {stride}, dilation {dilation}"
            )
    shape = [x.shape[0], weight.shape[1] * groups]
    for i in range(dims):
        size = (x.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (weight.shape[2 + i] - 1) + output_padding[i] + 1
        if size <= 0:
            raise RuntimeError(
                f"{name}: Given input size per channel: {list(x.shape[2:])}. Calculated output size per channel has the "
                f"size {size} in dimension {i}. Output size is too small"
            )
        shape.append(size)
    check_available(prod(shape) * input.dtype.itemsize)
    x, w = _operands(x, weight, bias, dims)
    if dims == 1:
        x, w = x.unsqueeze(2), w.unsqueeze(2)
        shape.insert(2, 1)
        stride, padding, dilation = (1, *stride), (0, *padding), (1, *dilation)
    transpose = primitives().convolution_input_gradient
    if dims < 3:
        y = transpose(x, w, shape=tuple(shape), stride=stride, padding=padding, dilation=dilation, groups=groups)
        return _finish(y.squeeze(2) if dims == 1 else y, bias, batched, input.dtype)
    n, c, depth, height, width = x.shape
    planes = x.transpose(1, 2).reshape(n * depth, c, height, width)
    full = (depth - 1) * stride[0] + dilation[0] * (w.shape[2] - 1) + 1
    total = None
    for k in range(w.shape[2]):
        part = transpose(
            planes, w[:, :, k], shape=(n * depth, shape[1], *shape[3:]), stride=stride[1:], padding=padding[1:],
            dilation=dilation[1:], groups=groups,
        )  # fmt: skip
        part = part.reshape(n, depth, 1, *part.shape[1:])
        gap = torch.nn.functional.pad(part, (0, 0, 0, 0, 0, 0, 0, stride[0] - 1))
        spread = gap.reshape(n, depth * stride[0], *gap.shape[3:])[:, : (depth - 1) * stride[0] + 1]
        first = k * dilation[0]
        placed = torch.nn.functional.pad(spread, (0, 0, 0, 0, 0, 0, first, full - first - spread.shape[1]))
        total = placed if total is None else total + placed
    assert total is not None
    y = torch.nn.functional.pad(total, (0, 0, 0, 0, 0, 0, -padding[0], shape[2] - full + padding[0]))
    return _finish(y.transpose(1, 2).contiguous(), bias, batched, input.dtype)


@functional
@as_suggested(1, dims=1, batch=True)
def conv_transpose1d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
    groups: int = 1, dilation: Size = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of (N, C, L) with weight (C, O / groups, K)."""
    return _convolve_transposed("conv_transpose1d", input, weight, bias, stride, padding, output_padding, groups, dilation, 1)


@functional
@as_suggested(0, 1, dims=2, batch=True)
def conv_transpose2d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
    groups: int = 1, dilation: Size = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of (N, C, H, W) with weight (C, O / groups, KH, KW)."""
    return _convolve_transposed("conv_transpose2d", input, weight, bias, stride, padding, output_padding, groups, dilation, 2)


@functional
@_volumes
def conv_transpose3d(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Size = 1, padding: Size = 0, output_padding: Size = 0,
    groups: int = 1, dilation: Size = 1,
) -> Tensor:  # fmt: skip
    """Transposed convolution of (N, C, D, H, W) with weight (C, O / groups, KD, KH, KW)."""
    return _convolve_transposed("conv_transpose3d", input, weight, bias, stride, padding, output_padding, groups, dilation, 3)


@functional
def unfold(input: Tensor, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> Tensor:
    """Sliding blocks of (N, C, H, W) as columns: (N, C * KH * KW, number of blocks)."""
    if input.ndim < 3:
        raise IndexError(f"unfold(): Dimension out of range: expected a 3D or 4D (batch mode) tensor, but got input of shape {list(input.shape)}")
    if input.ndim > 4 or 0 in input.shape[-3:]:
        raise RuntimeError(
            f"unfold(): Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {list(input.shape)}"
        )
    kernel, dilation, padding, stride = (
        exact_entries(v, 2, what, "unfold") for what, v in (("kernel_size", kernel_size), ("dilation", dilation), ("padding", padding), ("stride", stride))
    )
    x = input if input.ndim == 4 else input.unsqueeze(0)
    x = torch.nn.functional.pad(x, (padding[1], padding[1], padding[0], padding[0]))
    size = [(x.shape[2 + i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    if min(size) < 1:
        raise RuntimeError(
            f"unfold: Given input with spatial size {list(input.shape[-2:])}, kernel_size={kernel}, dilation={dilation}, "
            f"padding={padding}, calculated shape of the array of sliding blocks as {tuple(size)}, but its components must be "
            "at least one."
        )
    parts = [_block(x, ky * dilation[0], kx * dilation[1], size, stride) for ky in range(kernel[0]) for kx in range(kernel[1])]
    y = torch.stack(parts, 2).reshape(x.shape[0], x.shape[1] * kernel[0] * kernel[1], size[0] * size[1])
    return y if input.ndim == 4 else y.squeeze(0)


def _block(x: Tensor, top: int, left: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    """The elements that one kernel position sees."""
    return x[:, :, top : top + (size[0] - 1) * stride[0] + 1 : stride[0], left : left + (size[1] - 1) * stride[1] + 1 : stride[1]]


@functional
def fold(input: Tensor, output_size: Size, kernel_size: Size, dilation: Size = 1, padding: Size = 0, stride: Size = 1) -> Tensor:
    """Sums the columns of unfold back: (N, C * KH * KW, blocks) -> (N, C, *output_size)."""
    output, kernel, dilation, padding, stride = (
        exact_entries(v, 2, what, "fold")
        for what, v in (
            ("output_size", output_size), ("kernel_size", kernel_size), ("dilation", dilation), ("padding", padding),
            ("stride", stride),
        )
    )  # fmt: skip
    if input.ndim not in (2, 3) or 0 in input.shape[-2:]:
        raise RuntimeError(
            "fold(): Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for input, but got: "
            f"{list(input.shape)}"
        )
    x = input if input.ndim == 3 else input.unsqueeze(0)
    size = [(output[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    area = kernel[0] * kernel[1]
    if x.shape[1] % area or x.shape[2] != size[0] * size[1]:
        raise RuntimeError(
            f"fold: Given output_size={output}, kernel_size={kernel}, dilation={dilation}, padding={padding}, stride={stride}, "
            f"expected input of shape (N, C * {area}, {size[0] * size[1]}), but got {list(input.shape)}"
        )
    n, c = x.shape[0], x.shape[1] // area
    # Column k of a channel is a transposed convolution with a kernel that is 1 at k: one group for each channel.
    unit = torch.eye(area, dtype=x.dtype).reshape(area, 1, *kernel).repeat(c, 1, 1, 1)
    y = primitives().convolution_input_gradient(
        widen(x).reshape(n, c * area, *size), widen(unit), shape=(n, c, *output), stride=stride, padding=padding,
        dilation=dilation, groups=c,
    ).to(x.dtype)  # fmt: skip
    return y if input.ndim == 3 else y.squeeze(0)


__all__ = [
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "fold", "unfold",
]  # fmt: skip
