"""QConfigMapping: which parts of a model are quantized how."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.quantization import fake_quantize as fake
from flambeau.ao.quantization import observer as watch
from flambeau.ao.quantization.qconfig import (
    QConfig,
    default_quint8_weight_qconfig,
    default_reuse_input_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
)


class QConfigMapping:
    """QConfigs for everything (`set_global`), for classes and functions (`set_object_type`), and for names; a later one of these wins."""

    def __init__(self) -> None:
        self.global_qconfig: Any = None
        self.object_type_qconfigs: dict[Any, Any] = {}
        self.module_name_regex_qconfigs: dict[str, Any] = {}
        self.module_name_qconfigs: dict[str, Any] = {}
        self.module_name_object_type_order_qconfigs: dict[tuple[str, Any, int], Any] = {}

    def set_global(self, global_qconfig: Any) -> QConfigMapping:
        """The default."""
        self.global_qconfig = global_qconfig
        return self

    def set_object_type(self, object_type: Any, qconfig: Any) -> QConfigMapping:
        """Of a class of modules, or a function."""
        self.object_type_qconfigs[object_type] = qconfig
        return self

    def set_module_name_regex(self, module_name_regex: str, qconfig: Any) -> QConfigMapping:
        """Of modules whose names match."""
        self.module_name_regex_qconfigs[module_name_regex] = qconfig
        return self

    def set_module_name(self, module_name: str, qconfig: Any) -> QConfigMapping:
        """Of one module and those inside."""
        self.module_name_qconfigs[module_name] = qconfig
        return self

    def set_module_name_object_type_order(self, module_name: str, object_type: Any, index: int, qconfig: Any) -> QConfigMapping:
        """Of the index-th call of a class or function in a module; wins over all others."""
        self.module_name_object_type_order_qconfigs[module_name, object_type, index] = qconfig
        return self

    def to_dict(self) -> dict[str, Any]:
        """As a dict: "", object_type, module_name_regex, module_name, module_name_object_type_order."""
        return {
            "": self.global_qconfig, "object_type": list(self.object_type_qconfigs.items()),
            "module_name_regex": list(self.module_name_regex_qconfigs.items()), "module_name": list(self.module_name_qconfigs.items()),
            "module_name_object_type_order": [(*key, qconfig) for key, qconfig in self.module_name_object_type_order_qconfigs.items()],
        }  # fmt: skip

    @classmethod
    def from_dict(cls, qconfig_dict: dict[str, Any]) -> QConfigMapping:
        """The inverse of to_dict."""
        made = cls().set_global(qconfig_dict.get(""))
        for name in ("object_type", "module_name_regex", "module_name"):
            getattr(made, f"{name}_qconfigs").update(dict(qconfig_dict.get(name, ())))
        for module_name, kind, index, qconfig in qconfig_dict.get("module_name_object_type_order", ()):
            made.set_module_name_object_type_order(module_name, kind, index, qconfig)
        return made

    def of(self, name: str, kind: Any, default: Any = ...) -> Any:
        """The QConfig of a module or function; `default` where nothing is set for its name or class, by default the global one."""
        import re

        at = name
        while at:
            if at in self.module_name_qconfigs:
                return self.module_name_qconfigs[at]
            at = at.rpartition(".")[0]
        for pattern, found in self.module_name_regex_qconfigs.items():
            if re.match(pattern, name):
                return found
        return self.object_type_qconfigs.get(kind, self.global_qconfig if default is ... else default)


def _mapping(qconfig: QConfig, is_qat: bool, backend: str) -> QConfigMapping:
    """A QConfig for everything, and others for what has a weight without channels, a float weight, a scale that is known, or its input's scale."""
    nn, F = torch.nn, torch.nn.functional
    weight = fake.default_weight_fake_quant if is_qat else watch.default_weight_observer
    transposed = QConfig(qconfig.activation, weight) if backend in ("fbgemm", "x86") else qconfig
    made = QConfigMapping().set_global(qconfig).set_object_type("reshape", default_reuse_input_qconfig)
    for d in (1, 2, 3):
        made.set_object_type(getattr(nn, f"ConvTranspose{d}d"), transposed).set_object_type(getattr(F, f"conv_transpose{d}d"), transposed)
    with_float_weight = QConfig(qconfig.activation, watch.default_placeholder_observer)
    made.set_object_type(nn.LayerNorm, with_float_weight).set_object_type(F.layer_norm, with_float_weight)
    made.set_object_type(nn.PReLU, default_quint8_weight_qconfig)
    unit, around = watch.default_fixed_qparams_range_0to1_observer, watch.default_fixed_qparams_range_neg1to1_observer
    kinds = {
        unit: (nn.Hardsigmoid, F.hardsigmoid, "hardsigmoid", "hardsigmoid_", nn.Sigmoid, torch.sigmoid, F.sigmoid, "sigmoid", "sigmoid_", nn.Softmax),
        around: (nn.Tanh, torch.tanh, F.tanh, "tanh", "tanh_"),
    }
    for observer, listed in kinds.items():
        known = QConfig(fake.FixedQParamsFakeQuantize.with_args(observer=observer) if is_qat else observer, weight)
        for kind in listed:
            made.set_object_type(kind, known)
    return made


def get_default_qconfig_mapping(backend: str = "x86", version: int = 0) -> QConfigMapping:
    """get_default_qconfig for everything, and what sigmoid, tanh, transposed convolutions and the like need instead."""
    return _mapping(get_default_qconfig(backend, version), False, backend)


def get_default_qat_qconfig_mapping(backend: str = "x86", version: int = 1) -> QConfigMapping:
    """As get_default_qconfig_mapping, of get_default_qat_qconfig."""
    return _mapping(get_default_qat_qconfig(backend, version), True, backend)
