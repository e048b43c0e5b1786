"""Instance normalisation."""

from __future__ import annotations

from typing import Any, ClassVar

from flambeau.nn import functional as F
from flambeau.nn.modules.batchnorm import _NormBase
from flambeau.tensor import Tensor


class _InstanceNorm(_NormBase):
    """Each channel of each sample is standardised over space; an input without a batch is a batch of one."""

    _unbatched: ClassVar[int]

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
        track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        axis = input.ndim - self._unbatched
        if input.shape[axis] != self.num_features:
            text = f"expected input's size at dim={axis} to match num_features ({self.num_features}), but got: {input.shape[axis]}."
            if self.affine:
                raise ValueError(text)
        single = input.ndim == self._unbatched
        buffers, own = self._buffers, self._parameters  # see Linear
        mean = buffers["running_mean"] if "running_mean" in buffers else self.running_mean
        variance = buffers["running_var"] if "running_var" in buffers else self.running_var
        weight, bias = own["weight"] if "weight" in own else self.weight, own["bias"] if "bias" in own else self.bias
        y = F.instance_norm(
            input.unsqueeze(0) if single else input, mean, variance, weight, bias, self.training or not self.track_running_stats,
            0.0 if self.momentum is None else self.momentum, self.eps,
        )  # fmt: skip
        return y.squeeze(0) if single else y


class InstanceNorm1d(_InstanceNorm):
    """Instance norm of (N, C, L) or (C, L)."""

    _expected, _ndims, _unbatched = "2D or 3D", (2, 3), 2


class InstanceNorm2d(_InstanceNorm):
    """Instance norm of (N, C, H, W) or (C, H, W)."""

    _expected, _ndims, _unbatched = "3D or 4D", (3, 4), 3


class InstanceNorm3d(_InstanceNorm):
    """Instance norm of (N, C, D, H, W) or (C, D, H, W)."""

    _expected, _ndims, _unbatched = "4D or 5D", (4, 5), 4
