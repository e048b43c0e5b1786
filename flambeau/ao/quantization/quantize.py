"""Eager quantization: a model is prepared (observers are put in), fed with typical inputs, and converted."""

from __future__ import annotations

import copy
import inspect
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.ao.nn import quantized as nnq
from flambeau.ao.nn.intrinsic.fused import _FusedModule
from flambeau.ao.quantization import qconfig as configs
from flambeau.ao.quantization.fake_quantize import FakeQuantizeBase
from flambeau.ao.quantization.observer import ObserverBase, PlaceholderObserver
from flambeau.ao.quantization.quantization_mappings import (
    DEFAULT_MODULE_TO_ACT_POST_PROCESS,
    get_default_dynamic_quant_module_mappings,
    get_default_qat_module_mappings,
    get_default_qconfig_propagation_list,
    get_default_static_quant_module_mappings,
)
from flambeau.ao.quantization.stubs import DeQuantStub, QuantWrapper
from flambeau.trace.once import warn_here


def propagate_qconfig_(module: Any, qconfig_dict: Any = None, prepare_custom_config_dict: Any = None) -> None:
    """Give each submodule a `qconfig`: its own, that of its name or class in `qconfig_dict`, or its parent's."""
    _propagate(module, qconfig_dict or {}, None, "", prepare_custom_config_dict or {})


def _propagate(module: Any, table: Any, parent: Any, prefix: str, custom: Any) -> None:
    found = table.get(type(module), parent)
    found = table.get(prefix, found)
    module.qconfig = getattr(module, "qconfig", found)
    for name, child in module.named_children():
        if name in custom.get("non_traceable_module_name", ()) or type(child) in custom.get("non_traceable_module_class", ()):
            continue
        _propagate(child, table, module.qconfig, f"{prefix}.{name}" if prefix else name, custom)


def _observer_forward_hook(self: Any, input: Any, output: Any) -> Any:
    return self.activation_post_process(output)


def _needs_observation(m: Any) -> bool:
    return getattr(m, "qconfig", None) is not None


def _is_one(m: Any) -> bool:
    """Whether a module is observed and converted as a whole: a fused one, or one whose weight is rounded."""
    return isinstance(m, _FusedModule) or hasattr(m, "weight_fake_quant")


def _insert(m: Any, special: Any = None) -> None:
    """Put an observer behind a module."""
    if not _needs_observation(m) or isinstance(m, DeQuantStub):
        return
    kind = m.qconfig.activation if special is None else special
    watcher = kind()
    if isinstance(watcher, PlaceholderObserver) and watcher.is_dynamic and special is None:
        return
    m.add_module("activation_post_process", watcher)
    m.register_forward_hook(_observer_forward_hook, prepend=True)


def _add_observers(module: Any, listed: set[Any], non_leaf: Any, custom: Any) -> None:
    for name, child in list(module.named_children()):
        kind = type(child)
        if kind is nn.Dropout or isinstance(child, (ObserverBase, FakeQuantizeBase)):
            continue
        if isinstance(child, (nnq.FloatFunctional, nnq.QFunctional)):
            if _needs_observation(child):
                child.activation_post_process = child.qconfig.activation()
        elif _is_one(child) or (non_leaf is not None and kind in non_leaf):
            _insert(child)
        elif kind in DEFAULT_MODULE_TO_ACT_POST_PROCESS:
            if _needs_observation(child):
                trained = isinstance(child.qconfig.activation(), FakeQuantizeBase)
                special = DEFAULT_MODULE_TO_ACT_POST_PROCESS[kind]
                _insert(child, special if trained else special.p.keywords["observer"])
        elif _needs_observation(child) and kind in custom:
            observed = custom[kind].from_float(child)
            setattr(module, name, observed)
            _insert(observed)
        else:
            _add_observers(child, listed, non_leaf, custom)
    leaf = not any(not isinstance(c, (ObserverBase, FakeQuantizeBase)) for c in module.children())
    if leaf and not isinstance(module, nn.Sequential) and type(module) in listed and not hasattr(module, "activation_post_process"):
        _insert(module)


def prepare(
    model: Any, inplace: bool = False, allow_list: Any = None, observer_non_leaf_module_list: Any = None, prepare_custom_config_dict: Any = None
) -> Any:
    """A copy of a model with observers behind the modules that have a QConfig (`model.qconfig = get_default_qconfig()`): feed it with typical inputs."""
    custom = (prepare_custom_config_dict or {}).get("float_to_observed_custom_module_class", {})
    model = model if inplace else copy.deepcopy(model)
    listed = get_default_qconfig_propagation_list() if allow_list is None else allow_list
    propagate_qconfig_(model)
    if not any(getattr(m, "qconfig", None) for m in model.modules()):
        warn_here(
            "None of the submodule got qconfig applied. Make sure you passed correct configuration through `qconfig_dict` or by assigning the "
            "`.qconfig` attribute directly on submodules",
        )  # fmt: skip
    _add_observers(model, listed, observer_non_leaf_module_list, custom)
    return model


def _strip(module: Any) -> None:
    """Take QConfigs and observers away."""
    for child in module.children():
        _strip(child)
    if hasattr(module, "qconfig"):
        del module.qconfig
    if isinstance(getattr(module, "activation_post_process", None), (ObserverBase, FakeQuantizeBase)):
        del module.activation_post_process
    for key, hook in list(module._forward_hooks.items()):
        if hook is _observer_forward_hook:
            module._forward_hooks.pop(key)


def swap_module(mod: Any, mapping: Any, custom_module_class_mapping: Any = None, use_precomputed_fake_quant: bool = False) -> Any:
    """What a module with a QConfig becomes, with its hooks; itself where nothing is listed for its class."""
    if not _needs_observation(mod):
        return mod
    custom = custom_module_class_mapping or {}
    if type(mod) in custom:
        made = custom[type(mod)].from_observed(mod)
    elif type(mod) in mapping:
        make = mapping[type(mod)].from_float
        precomputed = {"use_precomputed_fake_quant": use_precomputed_fake_quant} if "use_precomputed_fake_quant" in inspect.signature(make).parameters else {}
        made = make(mod, **precomputed)
    else:
        return mod
    for before in mod._forward_pre_hooks.values():
        made.register_forward_pre_hook(before)
    for hook in mod._forward_hooks.values():
        if hook is not _observer_forward_hook:
            made.register_forward_hook(hook)
    return made


def _convert(module: Any, mapping: Any, custom: Any, precomputed: bool) -> None:
    for name, child in list(module.named_children()):
        if not _is_one(child) and type(child) not in custom:
            _convert(child, mapping, custom, precomputed)
        module._modules[name] = swap_module(child, mapping, custom, precomputed)


def convert(
    module: Any, mapping: Any = None, inplace: bool = False, remove_qconfig: bool = True, is_reference: bool = False, convert_custom_config_dict: Any = None,
    use_precomputed_fake_quant: bool = False,
) -> Any:  # fmt: skip
    """A copy of a prepared model in which each observed module is the quantized one of `mapping`."""
    if is_reference:
        raise NotImplementedError("convert: is_reference=True: there are no reference modules here; leave it out for modules that compute with integers")
    module = module if inplace else copy.deepcopy(module)
    custom = (convert_custom_config_dict or {}).get("observed_to_quantized_custom_module_class", {})
    _convert(module, get_default_static_quant_module_mappings() if mapping is None else mapping, custom, use_precomputed_fake_quant)
    if remove_qconfig:
        _strip(module)
    return module


def quantize(model: Any, run_fn: Any, run_args: Any, mapping: Any = None, inplace: bool = False) -> Any:
    """prepare, run_fn(model, *run_args), convert."""
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    prepare(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, mapping, inplace=True)


def quantize_dynamic(model: Any, qconfig_spec: Any = None, dtype: Any = torch.qint8, mapping: Any = None, inplace: bool = False) -> Any:
    """A copy of a model whose dense and recurrent layers (`qconfig_spec`: a set of classes, or QConfigs by name or class) have quantized weights.

    `dtype`: torch.qint8 or torch.float16 (weights); torch.quint8 or torch.quint4x2 (embeddings). Inputs are quantized as they come.
    """
    by_dtype = {
        torch.qint8: configs.default_dynamic_qconfig, torch.float16: configs.float16_dynamic_qconfig, torch.quint8: configs.float_qparams_weight_only_qconfig,
        torch.quint4x2: configs.float_qparams_weight_only_qconfig_4bit,
    }  # fmt: skip
    if qconfig_spec is None or isinstance(qconfig_spec, (set, list, tuple)):
        if dtype not in by_dtype:
            raise ValueError(f"Don't know how to quantize with default settings for {dtype}. Provide full qconfig please")
        layers = {nn.Linear, nn.LSTM, nn.GRU, nn.LSTMCell, nn.RNNCell, nn.GRUCell}
        defaults = {torch.quint8: {nn.EmbeddingBag, nn.Embedding}, torch.quint4x2: {nn.EmbeddingBag}}.get(dtype, layers)
        qconfig_spec = dict.fromkeys(defaults if qconfig_spec is None else qconfig_spec, by_dtype[dtype])
    model = model if inplace else copy.deepcopy(model)
    model.eval()
    propagate_qconfig_(model, qconfig_spec)
    return convert(model, get_default_dynamic_quant_module_mappings() if mapping is None else mapping, inplace=True)


def prepare_qat(model: Any, mapping: Any = None, inplace: bool = False) -> Any:
    """A copy of a model in `train` mode whose layers round their weights and results: train it, then `convert(model.eval())`."""
    if not model.training:
        raise AssertionError("prepare_qat only works on models in training mode")
    table = get_default_qat_module_mappings() if mapping is None else mapping
    model = model if inplace else copy.deepcopy(model)
    propagate_qconfig_(model)
    convert(model, table, inplace=True, remove_qconfig=False)
    return prepare(model, inplace=True, observer_non_leaf_module_list=set(table.values()))


def quantize_qat(model: Any, run_fn: Any, run_args: Any, inplace: bool = False) -> Any:
    """prepare_qat, run_fn(model, *run_args), convert."""
    model = model if inplace else copy.deepcopy(model)
    model.train()
    prepare_qat(model, inplace=True)
    run_fn(model, *run_args)
    return convert(model, inplace=True)


def add_quant_dequant(module: Any) -> Any:
    """Each leaf with a QConfig between a QuantStub and a DeQuantStub."""
    if not list(module.children()) and getattr(module, "qconfig", None):
        return QuantWrapper(module)
    for name, child in list(module.named_children()):
        module._modules[name] = add_quant_dequant(child)
    return module


def get_observer_state_dict(mod: Any) -> Any:
    """The parts of a state_dict that are observers'."""
    return {k: v for k, v in mod.state_dict().items() if "activation_post_process" in k}


def load_observer_state_dict(mod: Any, obs_dict: Any) -> None:
    """Take what get_observer_state_dict gave."""
    mod.load_state_dict(obs_dict, strict=False)
