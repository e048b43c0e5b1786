"""Lazy modules: parameters whose shapes come from the first input. A module becomes its plain class when they are known."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

import flambeau as torch
from flambeau.nn.modules.batchnorm import BatchNorm1d, BatchNorm2d, BatchNorm3d, _NormBase
from flambeau.nn.modules.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    _ConvNd,
)  # fmt: skip
from flambeau.nn.modules.instancenorm import InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from flambeau.nn.modules.linear import Linear
from flambeau.nn.parameter import UninitializedBuffer, UninitializedParameter, is_lazy
from flambeau.tensor import Tensor


class LazyModuleMixin:
    """Before a plain module class: its `initialize_parameters(*args)` gives shapes to the parameters at the first forward."""

    cls_to_become: ClassVar[type[Any] | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)  # type: ignore[attr-defined]
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)  # type: ignore[attr-defined]

    def _tensors(self) -> dict[str, Any]:
        return {**self._parameters, **self._buffers}  # type: ignore[attr-defined]

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        transient = self._non_persistent_buffers_set  # type: ignore[attr-defined]
        for name, value in self._tensors().items():
            if value is not None and name not in transient:
                destination[prefix + name] = value if keep_vars or is_lazy(value) else value.detach()

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """Give a parameter the shape that the file has for it."""
        for name, value in self._tensors().items():
            saved = state_dict.get(prefix + name)
            if saved is not None and is_lazy(value) and not is_lazy(saved):
                with torch.no_grad():
                    value.materialize(saved.shape)

    def _load_one(self, name: str, key: str, target: Any, source: Any, assign: bool) -> str | None:
        if is_lazy(target) and is_lazy(source):
            return None  # neither has values yet
        return super()._load_one(name, key, target, source, assign)  # type: ignore[misc, no-any-return]

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Materialize the parameters for these arguments of forward."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer has no shape yet."""
        return any(is_lazy(value) for value in self._tensors().values())

    @staticmethod
    def _infer_parameters(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {module._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self) -> NoReturn:
        raise RuntimeError(
            "Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy forward pass to correctly initialize the modules"
        )


class LazyLinear(LazyModuleMixin, Linear):
    """Linear whose in_features is the size of the first input's last dimension."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:  # type: ignore[override]
        if self.has_uninitialized_params():
            with torch.no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))  # type: ignore[attr-defined]
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))  # type: ignore[attr-defined]
                self.reset_parameters()
        if self.in_features == 0:
            if input.shape[-1] != self.weight.shape[-1]:
                raise AssertionError(
                    f"The in_features inferred from input: {input.shape[-1]} is not equal to in_features from self.weight: {self.weight.shape[-1]}"
                )
            self.in_features = input.shape[-1]


class _LazyConv(LazyModuleMixin, _ConvNd):
    """A convolution whose in_channels comes from its first input."""

    transposed: bool
    _dims: int

    def _lazy(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def _channels_of(self, input: Tensor) -> int:
        if input.ndim not in (self._dims + 1, self._dims + 2):
            raise RuntimeError(
                f"Expected {self._dims + 1}D (unbatched) or {self._dims + 2}D (batched) input to {type(self).__name__}, but got input of size: {input.shape}"
            )
        return input.shape[input.ndim - self._dims - 1]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._channels_of(input)
        if self.in_channels % self.groups:
            raise ValueError(f"in_channels must be divisible by groups, but got {self.in_channels} and groups={self.groups}")
        ends = (self.in_channels, self.out_channels // self.groups) if self.transposed else (self.out_channels, self.in_channels // self.groups)
        with torch.no_grad():
            self.weight.materialize((*ends, *self.kernel_size))  # type: ignore[attr-defined]
            if self.bias is not None:
                self.bias.materialize((self.out_channels,))  # type: ignore[attr-defined]
            self.reset_parameters()


class _LazyForward(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1,
        bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode)
        self._lazy(out_channels, bias, device, dtype)


class _LazyTranspose(_LazyConv):
    def __init__(
        self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0, groups: int = 1,
        bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None, dtype: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode)
        self._lazy(out_channels, bias, device, dtype)


class LazyConv1d(_LazyForward, Conv1d):
    """Conv1d that learns in_channels from its first input."""

    cls_to_become = Conv1d


class LazyConv2d(_LazyForward, Conv2d):
    """Conv2d that learns in_channels from its first input."""

    cls_to_become = Conv2d


class LazyConv3d(_LazyForward, Conv3d):
    """Conv3d that learns in_channels from its first input."""

    cls_to_become = Conv3d


class LazyConvTranspose1d(_LazyTranspose, ConvTranspose1d):
    """ConvTranspose1d that learns in_channels from its first input."""

    cls_to_become = ConvTranspose1d


class LazyConvTranspose2d(_LazyTranspose, ConvTranspose2d):
    """ConvTranspose2d that learns in_channels from its first input."""

    cls_to_become = ConvTranspose2d


class LazyConvTranspose3d(_LazyTranspose, ConvTranspose3d):
    """ConvTranspose3d that learns in_channels from its first input."""

    cls_to_become = ConvTranspose3d


class _LazyNorm(LazyModuleMixin, _NormBase):
    """A norm whose num_features is the size of its first input's dim 1."""

    def _lazy(self, affine: bool, track_running_stats: bool, bias: bool, device: Any, dtype: Any) -> None:
        self.affine = affine
        self.track_running_stats = track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            if bias:
                self.bias = UninitializedParameter(device=device, dtype=dtype)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = torch.tensor(0, dtype=torch.int64)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:  # type: ignore[override]
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for value in (self.weight, self.bias, self.running_mean, self.running_var):
            if value is not None:
                value.materialize((self.num_features,))  # type: ignore[attr-defined]
        self.reset_parameters()


class _LazyBatchNorm(_LazyNorm):
    def __init__(
        self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True, track_running_stats: bool = True,
        device: Any = None, dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False)
        self._lazy(affine, track_running_stats, bias, device, dtype)


class _LazyInstanceNorm(_LazyNorm):
    def __init__(
        self, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True, track_running_stats: bool = True, device: Any = None,
        dtype: Any = None, *, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__(0, eps, momentum, False, False)
        self._lazy(affine, track_running_stats, bias, device, dtype)


class LazyBatchNorm1d(_LazyBatchNorm, BatchNorm1d):
    """BatchNorm1d that learns num_features from its first input."""

    cls_to_become = BatchNorm1d


class LazyBatchNorm2d(_LazyBatchNorm, BatchNorm2d):
    """BatchNorm2d that learns num_features from its first input."""

    cls_to_become = BatchNorm2d


class LazyBatchNorm3d(_LazyBatchNorm, BatchNorm3d):
    """BatchNorm3d that learns num_features from its first input."""

    cls_to_become = BatchNorm3d


class LazyInstanceNorm1d(_LazyInstanceNorm, InstanceNorm1d):
    """InstanceNorm1d that learns num_features from its first input."""

    cls_to_become = InstanceNorm1d


class LazyInstanceNorm2d(_LazyInstanceNorm, InstanceNorm2d):
    """InstanceNorm2d that learns num_features from its first input."""

    cls_to_become = InstanceNorm2d


class LazyInstanceNorm3d(_LazyInstanceNorm, InstanceNorm3d):
    """InstanceNorm3d that learns num_features from its first input."""

    cls_to_become = InstanceNorm3d
