"""torch.ao.quantization.quantize_fx: quantization of a traced model.

mapping = torch.ao.quantization.get_default_qconfig_mapping("x86")
prepared = prepare_fx(model.eval(), mapping, (batch,))  # traced, fused, with observers
prepared(batch)                                         # typical inputs
quantized = convert_fx(prepared)                        # integers
"""

from __future__ import annotations

from typing import Any, NoReturn

from flambeau.ao.quantization import backend_config as backends
from flambeau.ao.quantization.fx import convert as converting
from flambeau.ao.quantization.fx import fuse as fusing
from flambeau.ao.quantization.fx import prepare as preparing
from flambeau.ao.quantization.fx.custom_config import ConvertCustomConfig, FuseCustomConfig, PrepareCustomConfig, taken
from flambeau.ao.quantization.fx.tracer import QuantizationTracer
from flambeau.ao.quantization.qconfig_mapping import QConfigMapping
from flambeau.fx import GraphModule


def _keep(made: Any, model: Any, names: list[str]) -> Any:
    for name in names:
        if hasattr(model, name):
            setattr(made, name, getattr(model, name))
    return made


def fuse_fx(model: Any, fuse_custom_config: Any = None, backend_config: Any = None) -> GraphModule:
    """A GraphModule of a model in `eval` mode, with convolutions, normalisations and relus that follow each other as one module."""
    custom = taken(fuse_custom_config, FuseCustomConfig, "fuse_fx: fuse_custom_config")
    backends.taken(backend_config, "fuse_fx")
    traced = GraphModule(model, QuantizationTracer([], []).trace(model))
    return _keep(fusing.fuse(traced, False), model, custom.preserved_attributes)  # type: ignore[no-any-return]


def _prepared(name: str, model: Any, mapping: Any, is_qat: bool, custom: Any, equalization: Any, backend_config: Any) -> GraphModule:
    custom = taken(custom, PrepareCustomConfig, f"{name}: prepare_custom_config")
    backends.taken(backend_config, name)
    if equalization is not None:
        raise NotImplementedError(f"{name}: _equalization_config is not supported in flambeau; leave it out")
    if isinstance(mapping, dict):
        mapping = QConfigMapping.from_dict(mapping)
    if not isinstance(mapping, QConfigMapping):
        raise TypeError(f"{name}: qconfig_mapping: expected a QConfigMapping, got {type(mapping).__name__}; see get_default_qconfig_mapping")
    tracer = QuantizationTracer(custom.non_traceable_module_names, custom.non_traceable_module_classes)
    traced = fusing.fuse(GraphModule(model, tracer.trace(model)), is_qat)
    return _keep(preparing.prepare(traced, mapping, is_qat, tracer.node_name_to_scope, custom), model, custom.preserved_attributes)  # type: ignore[no-any-return]


def prepare_fx(
    model: Any, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any = None, _equalization_config: Any = None, backend_config: Any = None
) -> GraphModule:
    """A GraphModule of a model in `eval` mode: traced, fused, with observers where `qconfig_mapping` says so. Feed it with typical inputs, then convert_fx.

    `example_inputs` are taken as in PyTorch and not needed. AssertionError where a normalisation would be folded in `train` mode.
    """
    return _prepared("prepare_fx", model, qconfig_mapping, False, prepare_custom_config, _equalization_config, backend_config)


def prepare_qat_fx(model: Any, qconfig_mapping: Any, example_inputs: Any, prepare_custom_config: Any = None, backend_config: Any = None) -> GraphModule:
    """A GraphModule of a model in `train` mode whose layers round their weights and results: train it, then `convert_fx(model.eval())`."""
    return _prepared("prepare_qat_fx", model, qconfig_mapping, True, prepare_custom_config, None, backend_config)


def convert_fx(
    graph_module: Any, convert_custom_config: Any = None, _remove_qconfig: bool = True, qconfig_mapping: Any = None, backend_config: Any = None,
    keep_original_weights: bool = False,
) -> GraphModule:  # fmt: skip
    """The model of integers of what prepare_fx or prepare_qat_fx gave, which stays as it is.

    `qconfig_mapping`: what prepare was given, by default.
    """
    custom = taken(convert_custom_config, ConvertCustomConfig, "convert_fx: convert_custom_config")
    backends.taken(backend_config, "convert_fx")
    if qconfig_mapping is not None or keep_original_weights or not _remove_qconfig:
        raise NotImplementedError("convert_fx: qconfig_mapping, keep_original_weights and _remove_qconfig=False are not supported in flambeau; leave them out")
    return _keep(converting.convert(graph_module), graph_module, custom.preserved_attributes)  # type: ignore[no-any-return]


def convert_to_reference_fx(*args: Any, **kwargs: Any) -> NoReturn:
    """NotImplementedError: there are no reference modules."""
    raise NotImplementedError("convert_to_reference_fx: there are no reference modules in flambeau; convert_fx gives a model that computes with integers")
