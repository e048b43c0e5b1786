"""Pooling layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import _ntuple, _single
from flambeau.tensor import Tensor


class _MaxPoolNd(Module):
    __constants__ = ["kernel_size", "stride", "padding", "dilation", "return_indices", "ceil_mode"]
    _function: Callable[..., Any]

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.dilation = dilation
        self.return_indices = return_indices
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, dilation={self.dilation}, ceil_mode={self.ceil_mode}"


class MaxPool1d(_MaxPoolNd):
    """Maxima over windows of (N, C, L)."""

    _function = staticmethod(F.max_pool1d)


class MaxPool2d(_MaxPoolNd):
    """Maxima over windows of (N, C, H, W)."""

    _function = staticmethod(F.max_pool2d)


class MaxPool3d(_MaxPoolNd):
    """Maxima over windows of (N, C, D, H, W)."""

    _function = staticmethod(F.max_pool3d)


class _MaxUnpoolNd(Module):
    _dims: int
    _function: Callable[..., Tensor]

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0) -> None:
        super().__init__()
        many = _ntuple(self._dims)
        self.kernel_size = many(kernel_size)
        self.stride = many(kernel_size if stride is None else stride)
        self.padding = many(padding)

    def forward(self, input: Tensor, indices: Tensor, output_size: Any = None) -> Tensor:
        return type(self)._function(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(_MaxUnpoolNd):
    """Puts maxima of MaxPool1d back."""

    _dims, _function = 1, staticmethod(F.max_unpool1d)


class MaxUnpool2d(_MaxUnpoolNd):
    """Puts maxima of MaxPool2d back."""

    _dims, _function = 2, staticmethod(F.max_unpool2d)


class MaxUnpool3d(_MaxUnpoolNd):
    """Puts maxima of MaxPool3d back."""

    _dims, _function = 3, staticmethod(F.max_unpool3d)


class _FractionalMaxPoolNd(Module):
    __constants__ = ["kernel_size", "return_indices", "output_size", "output_ratio"]
    _dims: int
    _function: Callable[..., Any]

    def __init__(
        self, kernel_size: Any, output_size: Any = None, output_ratio: Any = None, return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        many = _ntuple(self._dims)
        self.kernel_size = many(kernel_size)
        sizes = kernel_size if isinstance(kernel_size, (tuple, list)) else (kernel_size,) if isinstance(kernel_size, int) else ()
        if self._dims == 3 and not all(k > 0 for k in sizes):  # of others the call says what is wrong
            raise ValueError(f"kernel_size must be greater than 0, but got {kernel_size}")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else many(output_size)
        self.output_ratio = None if output_ratio is None else many(output_ratio)
        if output_size is None and output_ratio is None:
            raise ValueError(f"{type(self).__name__} requires specifying either an output size, or a pooling ratio")
        if output_size is not None and output_ratio is not None:
            raise ValueError("only one of output_size and output_ratio may be specified")
        if self.output_ratio is not None:
            for i in range(self._dims):  # the values that are there come before their number
                if i == len(self.output_ratio):
                    raise IndexError(f"{type(self).__name__}: output_ratio must be a number or {self._dims} of them, got {output_ratio}")
                if not 0 < self.output_ratio[i] < 1:
                    raise ValueError(f"{type(self).__name__}: output_ratio must be between 0 and 1 (got {output_ratio})")

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples)


class FractionalMaxPool2d(_FractionalMaxPoolNd):
    """Maxima over windows of (N, C, H, W) at random distances (Graham, 2014)."""

    _dims, _function = 2, staticmethod(F.fractional_max_pool2d)


class FractionalMaxPool3d(_FractionalMaxPoolNd):
    """Maxima over windows of (N, C, D, H, W) at random distances (Graham, 2014)."""

    _dims, _function = 3, staticmethod(F.fractional_max_pool3d)


class _AvgPoolNd(Module):
    kernel_size: Any
    stride: Any
    padding: Any

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(_AvgPoolNd):
    """Means over windows of (N, C, L)."""

    def __init__(self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True) -> None:
        super().__init__()
        self.kernel_size = _single(kernel_size)
        self.stride = _single(kernel_size if stride is None else stride)
        self.padding = _single(padding)
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool1d(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)


class _AvgPoolOverride(_AvgPoolNd):
    _function: Callable[..., Tensor]

    def __init__(
        self, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False, count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        self.padding = padding
        self.ceil_mode = ceil_mode
        self.count_include_pad = count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._function(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad, self.divisor_override)


class AvgPool2d(_AvgPoolOverride):
    """Means over windows of (N, C, H, W)."""

    _function = staticmethod(F.avg_pool2d)


class AvgPool3d(_AvgPoolOverride):
    """Means over windows of (N, C, D, H, W)."""

    _function = staticmethod(F.avg_pool3d)


class _LPPoolNd(Module):
    _function: Callable[..., Tensor]

    def __init__(self, norm_type: float, kernel_size: Any, stride: Any = None, ceil_mode: bool = False) -> None:
        super().__init__()
        self.norm_type = norm_type
        self.kernel_size = kernel_size
        self.stride = stride
        self.ceil_mode = ceil_mode

    def forward(self, input: Tensor) -> Tensor:
        return type(self)._function(input, float(self.norm_type), self.kernel_size, self.stride, self.ceil_mode)

    def extra_repr(self) -> str:
        return f"norm_type={self.norm_type}, kernel_size={self.kernel_size}, stride={self.stride}, ceil_mode={self.ceil_mode}"


class LPPool1d(_LPPoolNd):
    """p-norms over windows of (N, C, L)."""

    _function = staticmethod(F.lp_pool1d)


class LPPool2d(_LPPoolNd):
    """p-norms over windows of (N, C, H, W)."""

    _function = staticmethod(F.lp_pool2d)


class LPPool3d(_LPPoolNd):
    """p-norms over windows of (N, C, D, H, W)."""

    _function = staticmethod(F.lp_pool3d)


class _AdaptiveNd(Module):
    __constants__ = ["output_size"]
    _function: Callable[..., Any]

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(_AdaptiveNd):
    """Means over output_size windows of L."""

    _function = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(_AdaptiveNd):
    """Means over output_size windows of (H, W)."""

    _function = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(_AdaptiveNd):
    """Means over output_size windows of (D, H, W)."""

    _function = staticmethod(F.adaptive_avg_pool3d)


class _AdaptiveMaxNd(_AdaptiveNd):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return type(self)._function(input, self.output_size, self.return_indices)


class AdaptiveMaxPool1d(_AdaptiveMaxNd):
    """Maxima over output_size windows of L."""

    _function = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(_AdaptiveMaxNd):
    """Maxima over output_size windows of (H, W)."""

    _function = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(_AdaptiveMaxNd):
    """Maxima over output_size windows of (D, H, W)."""

    _function = staticmethod(F.adaptive_max_pool3d)
