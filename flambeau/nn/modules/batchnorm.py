"""Batch normalisation: one class over the checks of the input's dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import flambeau as torch
from flambeau.nn import functional as F
from flambeau.nn import init
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor
from flambeau.upward import upward


class _NormBase(Module):
    """Scale and shift of each channel, and running statistics, for batch and instance norm."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]
    _expected: ClassVar[str] = ""
    _ndims: ClassVar[tuple[int, ...]] = ()
    if TYPE_CHECKING:  # None in a layer without one; PyTorch's types say so, as most programs know that it is there
        weight: Parameter
        bias: Parameter
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_features = num_features
        self.eps = eps
        self.momentum = momentum
        self.affine = affine
        self.track_running_stats = track_running_stats
        for name, wanted in (("weight", affine), ("bias", affine and bias)):
            empty = Parameter(torch.empty(num_features, device=device, dtype=dtype)) if wanted else None
            self.register_parameter(name, empty)
        if track_running_stats:
            self.register_buffer("running_mean", torch.zeros(num_features, device=device, dtype=dtype))
            self.register_buffer("running_var", torch.ones(num_features, device=device, dtype=dtype))
            self.register_buffer("num_batches_tracked", torch.tensor(0, dtype=torch.int64, device=device))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            for buffer, value in ((self.running_mean, 0), (self.running_var, 1), (self.num_batches_tracked, 0)):
                assert buffer is not None
                buffer.fill_(value)

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        if self.weight is not None:
            init.ones_(self.weight)
        if self.bias is not None:
            init.zeros_(self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim not in self._ndims:
            raise ValueError(f"expected {self._expected} input (got {input.ndim}D input of shape {tuple(input.shape)})")

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}"
        )

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        version = local_metadata.get("version")
        key = prefix + "num_batches_tracked"
        if (version is None or version < 2) and self.track_running_stats and key not in state_dict:
            tracked = self.num_batches_tracked  # files of version 1 lack the counter
            state_dict[key] = torch.tensor(0, dtype=torch.int64) if tracked is None else tracked
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)


class _BatchNorm(_NormBase):
    """Batch norm of (N, C, ...); in training the batch's statistics, in evaluation the running ones, if they are kept."""

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        training, buffers, parameters = self.training, self._buffers, self._parameters  # see Linear
        momentum = 0.0 if self.momentum is None else self.momentum
        if training and self.track_running_stats:
            tracked = buffers["num_batches_tracked"] if "num_batches_tracked" in buffers else self.num_batches_tracked
            if tracked is not None:
                tracked.add_(1)
                if self.momentum is None:  # a cumulative average
                    momentum = 1.0 / float(tracked)
        mean = buffers["running_mean"] if "running_mean" in buffers else self.running_mean
        variance = buffers["running_var"] if "running_var" in buffers else self.running_var
        weight = parameters["weight"] if "weight" in parameters else self.weight
        bias = parameters["bias"] if "bias" in parameters else self.bias
        keep = not training or self.track_running_stats
        own_statistics = training or (mean is None and variance is None)
        return F.batch_norm(input, mean if keep else None, variance if keep else None, weight, bias, own_statistics, momentum, self.eps)


class BatchNorm1d(_BatchNorm):
    """Batch norm of (N, C) or (N, C, L)."""

    _expected, _ndims = "2D or 3D", (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch norm of (N, C, H, W)."""

    _expected, _ndims = "4D", (4,)


class BatchNorm3d(_BatchNorm):
    """Batch norm of (N, C, D, H, W)."""

    _expected, _ndims = "5D", (5,)


@upward
def rank_and_size(group: Any = None) -> tuple[int, int]:
    """Of this process and of how many (distributed/group.py)."""
    raise NotImplementedError


@upward
def all_reduce(tensor: Tensor, *, group: Any) -> Tensor:
    """The sum over all ranks, with gradients (distributed/nn/functional.py)."""
    raise NotImplementedError


class SyncBatchNorm(_BatchNorm):
    """Batch norm whose statistics, in training, are those of the batches of all ranks of a group, with gradients through them.

    In evaluation, and in one process, it is plain batch norm.
    """

    _expected, _ndims = "at least 2D", tuple(range(2, 65))

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None, *,
        bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        own_statistics = self.training or (self.running_mean is None and self.running_var is None)
        if not own_statistics or rank_and_size(self.process_group)[1] <= 1:
            return super().forward(input)
        return self._over_ranks(input)

    def _over_ranks(self, input: Tensor) -> Tensor:
        """The mean over all ranks first, then the variance about it: as accurate as of one batch."""
        kind = torch.float32 if input.dtype in (torch.float16, torch.bfloat16) else input.dtype
        x = input.to(kind)
        dims = [d for d in range(input.ndim) if d != 1]
        shape = [1, -1] + [1] * (input.ndim - 2)
        counted = torch.full((1,), float(x.numel() // x.shape[1]), dtype=kind)
        sums = all_reduce(torch.cat([x.sum(dims), counted]), group=self.process_group)
        count = sums[-1].detach()
        mean = sums[:-1] / count
        centred = x - mean.reshape(shape)
        variance = all_reduce((centred * centred).sum(dims), group=self.process_group) / count
        if self.training and self.track_running_stats:
            self._note(mean.detach(), variance.detach() * (count / (count - 1)))
        result = centred * torch.rsqrt(variance + self.eps).reshape(shape)
        if self.weight is not None:
            result = result * self.weight.reshape(shape)
        if self.bias is not None:
            result = result + self.bias.reshape(shape)
        return result.to(input.dtype)

    def _note(self, mean: Tensor, variance: Tensor) -> None:
        """Running statistics."""
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        assert self.running_mean is not None and self.running_var is not None
        share = 1.0 / float(self.num_batches_tracked) if self.momentum is None else self.momentum  # type: ignore[arg-type]
        with torch.no_grad():
            self.running_mean.mul_(1 - share).add_(mean.to(self.running_mean.dtype), alpha=share)
            self.running_var.mul_(1 - share).add_(variance.to(self.running_var.dtype), alpha=share)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """`module` with every batch norm in it as a SyncBatchNorm over the same parameters and buffers."""
        result = module
        if isinstance(module, _BatchNorm):
            result = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group)
            if module.affine:
                result.weight, result.bias = module.weight, module.bias
            result.running_mean, result.running_var = module.running_mean, module.running_var
            result.num_batches_tracked = module.num_batches_tracked
            result.training = module.training
        for name, child in module.named_children():
            result.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return result
