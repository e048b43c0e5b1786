"""torch.ao.quantization: quantized models: not there yet.

QuantStub and DeQuantStub, which mark where a model shall be quantized, are identities, so that a float model which has them runs.
"""

from __future__ import annotations

import sys
from typing import Any

from flambeau import absent as _absent
from flambeau.nn.modules.module import Module

_refuse = _absent.refusal(NotImplementedError, "quantization is not there yet", "use the float model, or .bfloat16() for half the memory")
_TABLE = """
quantize(model, run_fn, run_args, mapping=None, inplace=False) !
quantize_dynamic(model, qconfig_spec=None, dtype=None, mapping=None, inplace=False) !
quantize_qat(model, run_fn, run_args, inplace=False) !
prepare(model, inplace=False, allow_list=None, observer_non_leaf_module_list=None, prepare_custom_config_dict=None) !
prepare_qat(model, mapping=None, inplace=False) !
convert(module, mapping=None, inplace=False, remove_qconfig=True, is_reference=False, convert_custom_config_dict=None, use_precomputed_fake_quant=False) !
fuse_modules(model, modules_to_fuse, inplace=False, fuser_func=None, fuse_custom_config_dict=None) !
fuse_modules_qat(model, modules_to_fuse, inplace=False, fuser_func=None, fuse_custom_config_dict=None) !
get_default_qconfig(backend='x86', version=0) !
get_default_qat_qconfig(backend='x86', version=1) !
get_default_qconfig_mapping(backend='x86', version=0) !
propagate_qconfig_(module, qconfig_dict=None, prepare_custom_config_dict=None) !
add_quant_dequant(module) !
"""
_NAMES = _absent.define(globals(), _TABLE, _refuse, "quantizer")
_CLASSES = _absent.classes(
    globals(),
    "FakeQuantize MinMaxObserver MovingAverageMinMaxObserver PerChannelMinMaxObserver HistogramObserver PlaceholderObserver QConfig".split(),
    _refuse, "quantizer",
)  # fmt: skip


class QuantStub(Module):
    """Marks where quantized values would begin: an identity."""

    def __init__(self, qconfig: Any = None) -> None:
        super().__init__()

    def forward(self, x: Any) -> Any:
        return x


class DeQuantStub(QuantStub):
    """Marks where quantized values would end: an identity."""


class QuantWrapper(Module):
    """Calls the module that it holds."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.quant = QuantStub()
        self.dequant = DeQuantStub()
        self.module = module

    def forward(self, X: Any) -> Any:
        return self.dequant(self.module(self.quant(X)))


def __getattr__(name: str) -> Any:
    why = f"module 'torch.ao.quantization' has no attribute {name!r} in flambeau: quantization is not there yet"
    raise AttributeError(why, name=name, obj=sys.modules[__name__])
