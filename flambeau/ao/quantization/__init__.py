"""torch.ao.quantization: quantized models.

model.qconfig = torch.ao.quantization.get_default_qconfig("x86")
prepared = torch.ao.quantization.prepare(model)      # observers
prepared(batch)                                      # typical inputs
quantized = torch.ao.quantization.convert(prepared)  # integers
"""

from __future__ import annotations

from typing import Any

from flambeau.ao.quantization.calibrated import awq, awq_linear, gptq, gptq_linear
from flambeau.ao.quantization.fake_quantize import *
from flambeau.ao.quantization.fake_quantize import disable_fake_quant, disable_observer, enable_fake_quant, enable_observer
from flambeau.ao.quantization.fuse_modules import (
    fuse_conv_bn,
    fuse_conv_bn_relu,
    fuse_convtranspose_bn,
    fuse_linear_bn,
    fuse_modules,
    fuse_modules_qat,
    get_fuser_method,
)
from flambeau.ao.quantization.observer import *
from flambeau.ao.quantization.qconfig import *
from flambeau.ao.quantization.qconfig_mapping import QConfigMapping, get_default_qat_qconfig_mapping, get_default_qconfig_mapping
from flambeau.ao.quantization.quant_api import (
    AOBaseConfig,
    Float8DynamicActivationFloat8WeightConfig,
    Float8WeightOnlyConfig,
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    MappingType,
    PerAxis,
    PerGroup,
    PerRow,
    PerTensor,
    quantize_,
)
from flambeau.ao.quantization.quantization_mappings import *
from flambeau.ao.quantization.quantize import (
    add_quant_dequant,
    convert,
    get_observer_state_dict,
    load_observer_state_dict,
    prepare,
    prepare_qat,
    propagate_qconfig_,
    quantize,
    quantize_dynamic,
    quantize_qat,
    swap_module,
)
from flambeau.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper
from flambeau.ao.quantization.table_codes import Linear4bit, Linear8bit, dequantize_4bit, quantize_4bit


def __getattr__(name: str) -> Any:
    if name in ("backend_config", "fx", "quantize_fx"):
        import importlib

        return importlib.import_module(f"flambeau.ao.quantization.{name}")
    from flambeau.names import otherwise

    return otherwise("torch.ao.quantization", name, globals())
