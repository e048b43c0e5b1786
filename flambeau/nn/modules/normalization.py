"""Layer, RMS and group normalisation."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor


class _Affine(Module):
    """weight (ones) and bias (zeros) of a given shape, or None for either."""

    if TYPE_CHECKING:  # None in a layer without one; PyTorch's types say so, as most programs know that it is there
        weight: Parameter
        bias: Parameter

    def _make(self, shape: Any, weight: bool, bias: bool, device: Any, dtype: Any) -> None:
        self.register_parameter("weight", Parameter(torch.empty(shape, device=device, dtype=dtype)) if weight else None)
        self.register_parameter("bias", Parameter(torch.empty(shape, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)
        if self._parameters.get("bias") is not None:
            init.zeros_(self.bias)  # type: ignore[arg-type]


class CrossMapLRN2d(Module):
    """Local response normalisation over channels (N, C, H, W): x (k + alpha / size * sum of squares nearby) ** -beta.

    As in PyTorch, the square of the first channel stays in the sums of all later ones.
    """

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.ndim}D instead.")
        reach = int((self.size - 1) / 2)  # channels on either side
        squares = F.pad(input * input, (0, 0, 0, 0, reach, reach))
        total: Any = sum(squares[:, i : i + input.shape[1]] for i in range(2 * reach + 1))
        if input.shape[1] > reach + 1:
            total = torch.cat([total[:, : reach + 1], total[:, reach + 1 :] + input[:, :1] * input[:, :1]], dim=1)
        return input * (self.k + total * (self.alpha / self.size)) ** -self.beta  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LayerNorm(_Affine):
    """Standardise over the last dimensions, which must be `normalized_shape`."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self._make(self.normalized_shape, elementwise_affine, elementwise_affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        own = self._parameters  # as in Linear
        weight, bias = own.get("weight"), own.get("bias")
        return F.layer_norm(
            input, self.normalized_shape, weight if weight is not None or "weight" in own else self.weight,
            bias if bias is not None or "bias" in own else self.bias, self.eps,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, bias={self.bias is not None}"


class RMSNorm(Module):
    """Divide by the root mean square over the last dimensions."""

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]
    if TYPE_CHECKING:  # None in a layer without one; PyTorch's types say so, as most programs know that it is there
        weight: Parameter

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True,
        device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.normalized_shape = (normalized_shape,) if isinstance(normalized_shape, numbers.Integral) else tuple(normalized_shape)
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        empty = Parameter(torch.empty(self.normalized_shape, device=device, dtype=dtype)) if elementwise_affine else None
        self.register_parameter("weight", empty)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            init.ones_(self.weight)

    def forward(self, x: Tensor) -> Tensor:
        own = self._parameters  # as in Linear
        return F.rms_norm(x, self.normalized_shape, own["weight"] if "weight" in own else self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(_Affine):
    """Standardise groups of channels of (N, C, ...)."""

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(
        self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        if num_channels % num_groups:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.affine = affine
        self._make(num_channels, affine, affine and bias, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        own = self._parameters  # as in Linear
        weight, bias = own["weight"] if "weight" in own else self.weight, own["bias"] if "bias" in own else self.bias
        return F.group_norm(input, self.num_groups, weight, bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}"


class LocalResponseNorm(Module):
    """Divide by a power of the mean square over neighbouring channels."""

    __constants__ = ["size", "alpha", "beta", "k"]

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size = size
        self.alpha = alpha
        self.beta = beta
        self.k = k

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
