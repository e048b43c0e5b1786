"""Which module becomes which."""

from __future__ import annotations

import copy
from typing import Any, Final

from flambeau import nn
from flambeau.ao.nn import intrinsic as nni
from flambeau.ao.nn import qat as nnqat
from flambeau.ao.nn import quantized as nnq
from flambeau.ao.nn.intrinsic import qat as nniqat
from flambeau.ao.nn.intrinsic import quantized as nniq
from flambeau.ao.nn.quantized import dynamic as nnqd
from flambeau.ao.quantization.fake_quantize import default_fixed_qparams_range_0to1_fake_quant, default_fixed_qparams_range_neg1to1_fake_quant
from flambeau.ao.quantization.stubs import DeQuantStub, QuantStub
from flambeau.nn.modules.linear import NonDynamicallyQuantizableLinear

_SAME = (
    "BatchNorm2d BatchNorm3d Dropout Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d ELU Embedding EmbeddingBag GroupNorm Hardswish "
    "InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm LeakyReLU Linear ReLU6 PReLU"
)
DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: Final[dict[Any, Any]] = {
    QuantStub: nnq.Quantize, DeQuantStub: nnq.DeQuantize, **{getattr(nn, name): getattr(nnq, name) for name in _SAME.split()},
    NonDynamicallyQuantizableLinear: nnq.Linear, nnq.FloatFunctional: nnq.QFunctional, nni.BNReLU2d: nniq.BNReLU2d, nni.BNReLU3d: nniq.BNReLU3d,
    **{getattr(nni, f"ConvReLU{d}d"): getattr(nniq, f"ConvReLU{d}d") for d in (1, 2, 3)}, nni.LinearReLU: nniq.LinearReLU,
    **{getattr(nniqat, f"ConvBn{d}d"): getattr(nnq, f"Conv{d}d") for d in (1, 2, 3)},
    **{getattr(nniqat, f"ConvBnReLU{d}d"): getattr(nniq, f"ConvReLU{d}d") for d in (1, 2, 3)},
    **{getattr(nniqat, f"ConvReLU{d}d"): getattr(nniq, f"ConvReLU{d}d") for d in (1, 2, 3)},
    nniqat.LinearReLU: nniq.LinearReLU, nniqat.LinearBn1d: nnq.Linear, nnqat.Linear: nnq.Linear,
    **{getattr(nnqat, f"Conv{d}d"): getattr(nnq, f"Conv{d}d") for d in (1, 2, 3)},
}  # fmt: skip
DEFAULT_QAT_MODULE_MAPPINGS: Final[dict[Any, Any]] = {
    nn.Conv2d: nnqat.Conv2d, nn.Conv3d: nnqat.Conv3d, nn.Linear: nnqat.Linear, NonDynamicallyQuantizableLinear: nnqat.Linear,
    **{getattr(nni, f"{kind}{d}d"): getattr(nniqat, f"{kind}{d}d") for kind in ("ConvBn", "ConvBnReLU") for d in (1, 2, 3)},
    nni.ConvReLU2d: nniqat.ConvReLU2d, nni.ConvReLU3d: nniqat.ConvReLU3d, nni.LinearReLU: nniqat.LinearReLU, nni.LinearBn1d: nniqat.LinearBn1d,
}  # fmt: skip
DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: Final[dict[Any, Any]] = {
    nn.Linear: nnqd.Linear, NonDynamicallyQuantizableLinear: nnqd.Linear, nn.LSTM: nnqd.LSTM, nn.GRU: nnqd.GRU, nn.LSTMCell: nnqd.LSTMCell,
    nn.GRUCell: nnqd.GRUCell, nn.RNNCell: nnqd.RNNCell, nni.LinearReLU: nniq.DynamicLinearReLU, nn.EmbeddingBag: nnq.EmbeddingBag, nn.Embedding: nnq.Embedding,
}  # fmt: skip
DEFAULT_MODULE_TO_ACT_POST_PROCESS: Final[dict[Any, Any]] = {
    nn.Hardsigmoid: default_fixed_qparams_range_0to1_fake_quant, nn.Sigmoid: default_fixed_qparams_range_0to1_fake_quant,
    nn.Softmax: default_fixed_qparams_range_0to1_fake_quant, nn.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}  # fmt: skip


def get_default_static_quant_module_mappings() -> dict[Any, Any]:
    """What `convert` makes of observed modules."""
    return copy.copy(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_default_qat_module_mappings() -> dict[Any, Any]:
    """What `prepare_qat` makes of float modules."""
    return copy.copy(DEFAULT_QAT_MODULE_MAPPINGS)


def get_default_dynamic_quant_module_mappings() -> dict[Any, Any]:
    """What `quantize_dynamic` makes of float modules."""
    return copy.copy(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS)


def get_default_qconfig_propagation_list() -> set[Any]:
    """Classes of modules whose results are observed."""
    keys = {*DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, *DEFAULT_QAT_MODULE_MAPPINGS, *DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS}
    return keys | {nn.Sequential} | set(DEFAULT_QAT_MODULE_MAPPINGS.values())


def _class_of(table: dict[Any, Any], kind: Any, more: Any, what: str) -> Any:
    found = {**table, **(more or {})}.get(kind)
    if found is None:
        raise AssertionError(f"Floating point module class {kind} does not have a corresponding {what} module class")
    return found


def get_static_quant_module_class(float_module_class: Any, additional_static_quant_mapping: Any = None, is_reference: bool = False) -> Any:
    """What `convert` makes of a class."""
    return _class_of(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, float_module_class, additional_static_quant_mapping, "quantized")


def get_dynamic_quant_module_class(float_module_class: Any, additional_dynamic_quant_mapping: Any = None) -> Any:
    """What `quantize_dynamic` makes of a class."""
    return _class_of(DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS, float_module_class, additional_dynamic_quant_mapping, "dynamic quantized")


def no_observer_set() -> set[Any]:
    """Classes that have observers inside."""
    return set()
