"""Fake quantization: modules that watch values and round them to what codes can hold, in floats, so that a network learns to live with it."""

from __future__ import annotations

from functools import partial
from typing import Any

import flambeau as torch
from flambeau.ao.quantization.observer import (
    _BY_CHANNELS,
    FixedQParamsObserver,
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    _Partial,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)
from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor


class FakeQuantizeBase(Module):
    """The base: two switches, whether values are watched and whether they are rounded."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.uint8))
        self._rounds = self._watches = True  # the switches, without a look at a tensor's value

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: forward")

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """(scales, zero points)."""
        raise NotImplementedError(f"{type(self).__name__}: calculate_qparams")

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Whether values are rounded."""
        self._rounds = bool(enabled)
        self.fake_quant_enabled.fill_(int(enabled))

    def disable_fake_quant(self) -> None:
        """Values are not rounded."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Whether values are watched."""
        self._watches = bool(enabled)
        self.observer_enabled.fill_(int(enabled))

    def disable_observer(self) -> None:
        """Values are not watched: scales stay."""
        self.enable_observer(False)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("scale", "zero_point"):
            if prefix + name in state_dict:
                setattr(self, name, torch.empty_like(state_dict[prefix + name]))
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._rounds, self._watches = bool(self.fake_quant_enabled[0]), bool(self.observer_enabled[0])

    @classmethod
    def with_args(cls, **kwargs: Any) -> _Partial:
        """The class with some of its arguments: what a QConfig holds."""
        return _Partial(partial(cls, **kwargs))


class FakeQuantize(FakeQuantizeBase):
    """Watches by an observer, and rounds to its codes."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self, observer: Any = MovingAverageMinMaxObserver, quant_min: Any = None, quant_max: Any = None, is_dynamic: bool = False, **observer_kwargs: Any
    ) -> None:  # fmt: skip
        super().__init__()
        if quant_min is not None and quant_max is not None:
            if quant_min > quant_max:
                raise AssertionError("quant_min must be less than or equal to quant_max")
            observer_kwargs = {**observer_kwargs, "quant_min": quant_min, "quant_max": quant_max}
        observer_kwargs["is_dynamic"] = is_dynamic
        self.activation_post_process = observer(**observer_kwargs)
        watcher = self.activation_post_process
        self.quant_min, self.quant_max, self.is_dynamic = watcher.quant_min, watcher.quant_max, is_dynamic
        self.dtype, self.qscheme, self.ch_axis = watcher.dtype, watcher.qscheme, getattr(watcher, "ch_axis", -1)
        self.is_per_channel = self.qscheme in _BY_CHANNELS
        real = self.qscheme is torch.per_channel_affine_float_qparams
        self.register_buffer("scale", torch.tensor([1.0]))
        self.register_buffer("zero_point", torch.tensor([0.0] if real else [0], dtype=torch.float32 if real else torch.int32))

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """(scales, zero points) of what was seen."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        if self._watches:
            self.activation_post_process(X.detach())
            scale, zero_point = self.calculate_qparams()
            self.scale, self.zero_point = scale, zero_point.to(self.zero_point.dtype)
        if self._rounds:
            if self.is_per_channel:
                return torch.fake_quantize_per_channel_affine(  # type: ignore[no-any-return]
                    X, self.scale, self.zero_point, self.ch_axis, self.quant_min, self.quant_max
                )
            return torch.fake_quantize_per_tensor_affine(X, self.scale, self.zero_point, self.quant_min, self.quant_max)  # type: ignore[no-any-return]
        return X

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme}, ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds to codes whose scale and zero point are known before."""

    def __init__(self, observer: Any) -> None:
        super().__init__(observer=observer)
        if not isinstance(self.activation_post_process, FixedQParamsObserver):
            raise AssertionError(f"{type(self).__name__}'s observer must be a FixedQParamsObserver")
        self.scale, self.zero_point = self.activation_post_process.scale, self.activation_post_process.zero_point

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """What was given."""
        return self.scale, self.zero_point


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """FakeQuantize by a moving average: everything that a recorded call does is fused here anyway, so it is the same module."""

    def __init__(
        self, observer: Any = MovingAverageMinMaxObserver, quant_min: int = 0, quant_max: int = 255, is_dynamic: bool = False, **observer_kwargs: Any
    ) -> None:
        super().__init__(observer, quant_min, quant_max, is_dynamic, **observer_kwargs)
        if not isinstance(self.activation_post_process, (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)):
            raise AssertionError("Fused observer+fake_quant module only works with MovingAverageMinMaxObserver")


_ACTIVATION = {"observer": MovingAverageMinMaxObserver, "quant_min": 0, "quant_max": 255, "dtype": torch.quint8}
_WEIGHT = {"observer": MovingAverageMinMaxObserver, "quant_min": -128, "quant_max": 127, "dtype": torch.qint8, "qscheme": torch.per_tensor_symmetric}
_CHANNELS = {**_WEIGHT, "observer": MovingAveragePerChannelMinMaxObserver, "qscheme": torch.per_channel_symmetric}
_TABLE = {"observer": MovingAveragePerChannelMinMaxObserver, "qscheme": torch.per_channel_affine_float_qparams, "ch_axis": 0, "averaging_constant": 1}
_TO_127 = {"quant_min": -127, "eps": 2**-12}
default_fake_quant = FakeQuantize.with_args(**_ACTIVATION, qscheme=torch.per_tensor_affine, reduce_range=True)
default_weight_fake_quant = FakeQuantize.with_args(**_WEIGHT, reduce_range=False)
default_dynamic_fake_quant = FakeQuantize.with_args(**_ACTIVATION, is_dynamic=True, averaging_constant=1)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(observer=default_fixed_qparams_range_neg1to1_observer)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(observer=default_fixed_qparams_range_0to1_observer)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(**_CHANNELS, reduce_range=False, ch_axis=0)
default_embedding_fake_quant = FakeQuantize.with_args(**_TABLE, dtype=torch.quint8, quant_min=0, quant_max=255)
default_embedding_fake_quant_4bit = FakeQuantize.with_args(**_TABLE, dtype=torch.quint4x2)
default_histogram_fake_quant = FakeQuantize.with_args(**{**_ACTIVATION, "observer": HistogramObserver}, qscheme=torch.per_tensor_affine, reduce_range=True)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_ACTIVATION)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_WEIGHT)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_CHANNELS)
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(**{**_WEIGHT, **_TO_127})
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(**{**_CHANNELS, **_TO_127})


def disable_fake_quant(mod: Any) -> None:
    """For Module.apply: values are not rounded."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_fake_quant()


def enable_fake_quant(mod: Any) -> None:
    """For Module.apply: values are rounded."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_fake_quant()


def disable_observer(mod: Any) -> None:
    """For Module.apply: scales stay as they are."""
    if isinstance(mod, FakeQuantizeBase):
        mod.disable_observer()


def enable_observer(mod: Any) -> None:
    """For Module.apply: scales follow the values."""
    if isinstance(mod, FakeQuantizeBase):
        mod.enable_observer()
