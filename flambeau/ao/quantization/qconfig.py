"""QConfig: how a module is quantized: what watches its results, and what watches its weight."""

from __future__ import annotations

from typing import Any, NamedTuple

import flambeau as torch
from flambeau.ao.quantization import fake_quantize as fake
from flambeau.ao.quantization import observer as watch
from flambeau.ao.quantization.fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from flambeau.ao.quantization.observer import (
    HistogramObserver,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PlaceholderObserver,
)
from flambeau.nn import Identity
from flambeau.nn.modules.module import Module


class QConfig(NamedTuple("QConfig", [("activation", Any), ("weight", Any)])):  # type: ignore[misc]
    """Classes (or classes with arguments: `with_args`) of observers, of which each module gets objects of its own."""

    __slots__ = ()

    def __new__(cls, activation: Any, weight: Any) -> QConfig:
        if isinstance(activation, Module) or isinstance(weight, Module):
            raise ValueError(
                "QConfig received observer instance, please pass observer class instead. Use MyObserver.with_args(x=1) to override arguments to "
                "constructor if needed"
            )
        return super().__new__(cls, activation, weight)  # type: ignore[no-any-return]


QConfigAny = QConfig | None
default_qconfig = QConfig(watch.default_observer, watch.default_weight_observer)
default_debug_qconfig = QConfig(watch.default_debug_observer, watch.default_weight_observer)
default_per_channel_qconfig = QConfig(watch.default_observer, watch.default_per_channel_weight_observer)
default_dynamic_qconfig = QConfig(watch.default_dynamic_quant_observer, watch.default_weight_observer)
float16_dynamic_qconfig = QConfig(PlaceholderObserver.with_args(dtype=torch.float16, is_dynamic=True), PlaceholderObserver.with_args(dtype=torch.float16))
float16_static_qconfig = QConfig(PlaceholderObserver.with_args(dtype=torch.float16), PlaceholderObserver.with_args(dtype=torch.float16))
per_channel_dynamic_qconfig = QConfig(watch.default_dynamic_quant_observer, watch.default_per_channel_weight_observer)
float_qparams_weight_only_qconfig = QConfig(watch.default_placeholder_observer, watch.default_float_qparams_observer)
float_qparams_weight_only_qconfig_4bit = QConfig(watch.default_placeholder_observer, watch.default_float_qparams_observer_4bit)
default_qat_qconfig = QConfig(fake.default_fake_quant, fake.default_weight_fake_quant)
default_dynamic_qat_qconfig = QConfig(fake.default_dynamic_fake_quant, fake.default_weight_fake_quant)
default_weight_only_qconfig = QConfig(Identity, fake.default_weight_fake_quant)
default_activation_only_qconfig = QConfig(fake.default_fake_quant, Identity)
default_qat_qconfig_v2 = QConfig(fake.default_fused_act_fake_quant, fake.default_fused_wt_fake_quant)
default_reuse_input_qconfig = QConfig(watch.default_reuse_input_observer, NoopObserver)
default_embedding_qat_qconfig = QConfig(NoopObserver.with_args(dtype=torch.float32), fake.default_embedding_fake_quant)
default_embedding_qat_qconfig_4bit = QConfig(NoopObserver.with_args(dtype=torch.float32), fake.default_embedding_fake_quant_4bit)
default_quint8_weight_qconfig = QConfig(HistogramObserver, MinMaxObserver)
default_symmetric_qnnpack_qconfig = QConfig(
    HistogramObserver.with_args(dtype=torch.qint8, reduce_range=False, eps=2**-12), watch.weight_observer_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    HistogramObserver.with_args(dtype=torch.qint8, reduce_range=False, eps=2**-12), watch.per_channel_weight_observer_range_neg_127_to_127
)
_BACKENDS = ("fbgemm", "x86", "qnnpack", "onednn")


def _check_backend(backend: str, version: int, versions: tuple[int, ...], name: str) -> None:
    if backend not in _BACKENDS:
        raise AssertionError(f"{name}: backend: {backend} not supported. backend must be one of {list(_BACKENDS)}")
    if version not in versions:
        raise AssertionError(f"Version number: {version} in {name} is not supported. Version number must be {' or '.join(map(str, versions))}")


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """What `prepare` should use: histograms of results, in 7 bits for fbgemm and x86, and ranges of each channel's weights."""
    _check_backend(backend, version, (0,), "get_default_qconfig")
    weight = watch.default_weight_observer if backend == "qnnpack" else watch.default_per_channel_weight_observer
    return QConfig(HistogramObserver.with_args(reduce_range=backend in ("fbgemm", "x86")), weight)


def get_default_qat_qconfig(backend: str = "x86", version: int = 1) -> QConfig:
    """What `prepare_qat` should use: moving averages, and rounding in training."""
    _check_backend(backend, version, (0, 1), "get_default_qat_qconfig")
    kind: Any = FusedMovingAvgObsFakeQuantize if version else FakeQuantize
    of_all = fake.default_fused_wt_fake_quant if version else fake.default_weight_fake_quant
    of_channels = fake.default_fused_per_channel_wt_fake_quant if version else fake.default_per_channel_weight_fake_quant
    reduce = {} if backend == "onednn" else {"reduce_range": backend != "qnnpack"}
    activation = kind.with_args(observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255, **reduce)
    return QConfig(activation, of_all if backend == "qnnpack" else of_channels)


def get_default_qconfig_dict(backend: str = "x86", version: int = 0) -> dict[str, Any]:
    """get_default_qconfig_mapping as a dict."""
    from flambeau.ao.quantization.qconfig_mapping import get_default_qconfig_mapping

    return get_default_qconfig_mapping(backend, version).to_dict()


def get_default_qat_qconfig_dict(backend: str = "x86", version: int = 1) -> dict[str, Any]:
    """get_default_qat_qconfig_mapping as a dict."""
    from flambeau.ao.quantization.qconfig_mapping import get_default_qat_qconfig_mapping

    return get_default_qat_qconfig_mapping(backend, version).to_dict()


def qconfig_equals(q1: Any, q2: Any) -> bool:
    """Whether two make equal observers."""
    if q1 is None or q2 is None:
        return q1 is q2
    return all(_same(a, b) for a, b in zip(q1, q2, strict=True))


def _same(a: Any, b: Any) -> bool:
    pair = [(p.p.func, p.p.keywords) if isinstance(p, watch._Partial) and hasattr(p.p, "func") else (p, {}) for p in (a, b)]
    return pair[0][0] == pair[1][0] and pair[0][1] == pair[1][1]
