"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import _ntuple, _reverse_repeat_tuple
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor

_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Module):
    """Arguments, parameters and text shared by all; weight and bias are uniform in +-1/sqrt(fan_in)."""

    __constants__ = [
        "stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels", "out_channels",
        "kernel_size",
    ]  # fmt: skip
    weight: Tensor
    bias: Tensor | None

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: tuple[int, ...], stride: tuple[int, ...],
        padding: str | tuple[int, ...], dilation: tuple[int, ...], transposed: bool, output_padding: tuple[int, ...],
        groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups:
            raise ValueError(f"in_channels must be divisible by groups, but got {in_channels} and groups={groups}")
        if out_channels % groups:
            raise ValueError(f"out_channels must be divisible by groups, but got {out_channels} and groups={groups}")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(f"padding_mode must be one of {set(_MODES)}, but got padding_mode='{padding_mode}'")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        self._reversed_padding_repeated_twice = self._reversed_padding()
        channels = (in_channels, out_channels // groups) if transposed else (out_channels, in_channels // groups)
        self.weight = Parameter(torch.empty((*channels, *kernel_size), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(torch.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _reversed_padding(self) -> tuple[int, ...]:
        """The padding in the order of F.pad, for the modes that pad before a convolution without padding."""
        if not isinstance(self.padding, str):
            return _reverse_repeat_tuple(self.padding, 2)
        if self.padding == "valid":
            return (0, 0) * len(self.kernel_size)
        totals = [d * (k - 1) for d, k in zip(self.dilation, self.kernel_size, strict=False)]  # of other lengths: the weight is refused
        return tuple(p for total in reversed(totals) for p in (total // 2, total - total // 2))

    def reset_parameters(self) -> None:
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        s = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        n = len(self.kernel_size)
        if self.padding != (0,) * len(self.padding):
            s += f", padding={self.padding}"
        if self.dilation != (1,) * n:
            s += f", dilation={self.dilation}"
        if self.output_padding != (0,) * n:
            s += f", output_padding={self.output_padding}"
        if self.groups != 1:
            s += f", groups={self.groups}"
        if self.bias is None:
            s += ", bias=False"
        if self.padding_mode != "zeros":
            s += f", padding_mode={self.padding_mode}"
        return s


class _Conv(_ConvNd):
    """A convolution over `_dims` spatial dimensions."""

    _dims: int
    _function: Callable[..., Tensor]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
        groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        many = _ntuple(self._dims)
        super().__init__(
            in_channels, out_channels, many(kernel_size), many(stride), padding if isinstance(padding, str) else many(padding),
            many(dilation), False, many(0), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if self.padding_mode != "zeros":
            padded = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            return type(self)._function(padded, weight, bias, self.stride, (0,) * self._dims, self.dilation, self.groups)
        return type(self)._function(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        own = self._parameters  # see Linear
        weight, bias = own.get("weight"), own.get("bias")
        return self._conv_forward(input, self.weight if weight is None else weight, bias if bias is not None or "bias" in own else self.bias)


class Conv1d(_Conv):
    """Convolution of (N, C, L) or (C, L)."""

    _dims = 1
    _function = staticmethod(F.conv1d)


class Conv2d(_Conv):
    """Convolution of (N, C, H, W) or (C, H, W)."""

    _dims = 2
    _function = staticmethod(F.conv2d)


class Conv3d(_Conv):
    """Convolution of (N, C, D, H, W) or (C, D, H, W)."""

    _dims = 3
    _function = staticmethod(F.conv3d)


class _ConvTransposeNd(_ConvNd):
    """A transposed convolution over `_dims` spatial dimensions."""

    _dims: int
    _function: Callable[..., Tensor]

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
        output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros",
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        many = _ntuple(self._dims)
        super().__init__(
            in_channels, out_channels, many(kernel_size), many(stride), many(padding), many(dilation), True,
            many(output_padding), groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        extra = self.output_padding if output_size is None else self._output_padding(input, output_size)
        own = self._parameters  # see Linear
        weight, bias = own["weight"] if "weight" in own else self.weight, own["bias"] if "bias" in own else self.bias
        return type(self)._function(input, weight, bias, self.stride, self.padding, extra, self.groups, self.dilation)

    def _output_padding(self, input: Tensor, output_size: Sequence[int]) -> tuple[int, ...]:
        """The output_padding that gives the wanted size."""
        n = self._dims
        leading = input.ndim - n
        wanted = tuple(output_size)[leading:] if len(output_size) == input.ndim else tuple(output_size)
        if len(wanted) != n:
            raise ValueError(f"ConvTranspose{n}D: for {input.ndim}D input, output_size must have {n} or {input.ndim} elements (got {len(output_size)})")
        assert not isinstance(self.padding, str)
        low = [
            (size - 1) * s - 2 * p + d * (k - 1) + 1
            for size, s, p, d, k in zip(input.shape[leading:], self.stride, self.padding, self.dilation, self.kernel_size, strict=True)
        ]
        high = [a + s - 1 for a, s in zip(low, self.stride, strict=True)]
        if any(not a <= w <= b for a, w, b in zip(low, wanted, high, strict=True)):
            raise ValueError(f"requested an output size of {list(wanted)}, but valid sizes range from {low} to {high} (for an input of {input.shape[2:]})")
        return tuple(w - a for w, a in zip(wanted, low, strict=True))


class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of (N, C, L) or (C, L)."""

    _dims = 1
    _function = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of (N, C, H, W) or (C, H, W)."""

    _dims = 2
    _function = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of (N, C, D, H, W) or (C, D, H, W)."""

    _dims = 3
    _function = staticmethod(F.conv_transpose3d)
