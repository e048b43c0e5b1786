"""Padding layers: one class a mode, one subclass a number of dimensions."""

from __future__ import annotations

from typing import Any, ClassVar

from flambeau.nn import functional as F
from flambeau.nn.modules.module import Module
from flambeau.nn.modules.utils import _ntuple
from flambeau.tensor import Tensor


class _PadNd(Module):
    """Pads the last `_dims` dimensions by `padding` = (before, after of the last, ...), or one int for all."""

    __constants__ = ["padding"]
    _dims: ClassVar[int]
    _mode: ClassVar[str]

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _ntuple(2 * self._dims)(padding)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_PadNd):
    __constants__ = ["padding", "value"]

    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPadNd(_ConstantPadNd):
    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    _mode = "circular"

    def forward(self, input: Tensor) -> Tensor:
        low = self._dims + 1
        if input.ndim not in (low, low + 1):
            raise ValueError(f"expected {low}D or {low + 1}D input (got {input.ndim}D input)")
        return super().forward(input)


class _ReflectionPadNd(_PadNd):
    _mode = "reflect"


class _ReplicationPadNd(_PadNd):
    _mode = "replicate"


class ConstantPad1d(_ConstantPadNd):
    """A constant around the last dimension."""

    _dims = 1


class ConstantPad2d(_ConstantPadNd):
    """A constant around the last two dimensions."""

    _dims = 2


class ConstantPad3d(_ConstantPadNd):
    """A constant around the last three dimensions."""

    _dims = 3


class ZeroPad1d(_ZeroPadNd):
    """Zeros around the last dimension."""

    _dims = 1


class ZeroPad2d(_ZeroPadNd):
    """Zeros around the last two dimensions."""

    _dims = 2


class ZeroPad3d(_ZeroPadNd):
    """Zeros around the last three dimensions."""

    _dims = 3


class CircularPad1d(_CircularPadNd):
    """The other end of the last dimension."""

    _dims = 1


class CircularPad2d(_CircularPadNd):
    """The other end of the last two dimensions."""

    _dims = 2


class CircularPad3d(_CircularPadNd):
    """The other end of the last three dimensions."""

    _dims = 3


class ReflectionPad1d(_ReflectionPadNd):
    """A mirror image without the edge, of the last dimension."""

    _dims = 1


class ReflectionPad2d(_ReflectionPadNd):
    """A mirror image without the edge, of the last two dimensions."""

    _dims = 2


class ReflectionPad3d(_ReflectionPadNd):
    """A mirror image without the edge, of the last three dimensions."""

    _dims = 3


class ReplicationPad1d(_ReplicationPadNd):
    """The edge repeated, of the last dimension."""

    _dims = 1


class ReplicationPad2d(_ReplicationPadNd):
    """The edge repeated, of the last two dimensions."""

    _dims = 2


class ReplicationPad3d(_ReplicationPadNd):
    """The edge repeated, of the last three dimensions."""

    _dims = 3
