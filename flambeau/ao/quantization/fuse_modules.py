"""Layers and what follows them made one module, so that they are quantized as one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final

from flambeau import nn
from flambeau.ao.nn import intrinsic as nni
from flambeau.ao.nn.intrinsic.folding import folded_into

_CONV_RELU: Final = {nn.Conv1d: nni.ConvReLU1d, nn.Conv2d: nni.ConvReLU2d, nn.Conv3d: nni.ConvReLU3d}
_CONV_BN: Final = {nn.Conv1d: nni.ConvBn1d, nn.Conv2d: nni.ConvBn2d, nn.Conv3d: nni.ConvBn3d}
_CONV_BN_RELU: Final = {nn.Conv1d: nni.ConvBnReLU1d, nn.Conv2d: nni.ConvBnReLU2d, nn.Conv3d: nni.ConvBnReLU3d}
_NORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def _same_mode(parts: Sequence[Any]) -> None:
    if len({m.training for m in parts}) != 1:
        raise AssertionError(f"{' and '.join(type(m).__name__ for m in parts)} must be in the same mode (train or eval).")


def fuse_conv_bn(is_qat: bool, conv: Any, bn: Any) -> Any:
    """A convolution with the normalisation folded into it; for training with rounding, both as one module."""
    _same_mode((conv, bn))
    if not is_qat:
        return folded_into(conv, bn)
    return _CONV_BN[type(conv)](conv, bn)


def fuse_conv_bn_relu(is_qat: bool, conv: Any, bn: Any, relu: Any) -> Any:
    """As fuse_conv_bn, with relu at the end."""
    _same_mode((conv, bn, relu))
    if is_qat:
        return _CONV_BN_RELU[type(conv)](conv, bn, relu)
    return _CONV_RELU[type(conv)](folded_into(conv, bn), relu)


def fuse_linear_bn(is_qat: bool, linear: Any, bn: Any) -> Any:
    """A dense layer with the normalisation folded into it; for training with rounding, both as one module."""
    _same_mode((linear, bn))
    return nni.LinearBn1d(linear, bn) if is_qat else folded_into(linear, bn)


def fuse_convtranspose_bn(is_qat: bool, convt: Any, bn: Any) -> Any:
    """A transposed convolution with the normalisation folded into it; not for training."""
    _same_mode((convt, bn))
    if is_qat:
        raise Exception("Fusing ConvTranspose+BatchNorm not yet supported in QAT.")
    return folded_into(convt, bn, transpose=True)


def _sequential(kind: Any) -> Callable[..., Any]:
    def fuse(is_qat: bool, *parts: Any) -> Any:
        _same_mode(parts)
        return kind(*parts)

    return fuse


_METHODS: Final[dict[tuple[Any, ...], Callable[..., Any]]] = {
    **dict.fromkeys(zip(_CONV_BN, _NORMS, strict=True), fuse_conv_bn),
    **{(c, b, nn.ReLU): fuse_conv_bn_relu for c, b in zip(_CONV_BN, _NORMS, strict=True)},
    **{(c, nn.ReLU): _sequential(kind) for c, kind in _CONV_RELU.items()},
    (nn.Linear, nn.ReLU): _sequential(nni.LinearReLU), (nn.Linear, nn.BatchNorm1d): fuse_linear_bn,
    (nn.BatchNorm2d, nn.ReLU): _sequential(nni.BNReLU2d), (nn.BatchNorm3d, nn.ReLU): _sequential(nni.BNReLU3d),
    **dict.fromkeys(zip((nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d), _NORMS, strict=True), fuse_convtranspose_bn),
}  # fmt: skip


def get_fuser_method(op_list: tuple[Any, ...], additional_fuser_method_mapping: Any = None) -> Any:
    """The function that fuses modules of these classes; NotImplementedError if there is none."""
    found = {**_METHODS, **(additional_fuser_method_mapping or {})}.get(tuple(op_list))
    if found is None:
        names = ", ".join(getattr(c, "__name__", str(c)) for c in op_list)
        raise NotImplementedError(f"Cannot fuse modules: ({names}); there are {[' '.join(c.__name__ for c in k) for k in _METHODS]}")
    return found


def fuse_known_modules(mod_list: Sequence[Any], is_qat: bool, additional_fuser_method_mapping: Any = None) -> list[Any]:
    """The fused module, then an Identity for each of the others. Hooks before the first and behind the last go with it."""
    kinds = tuple([type(m) for m in mod_list])
    fused = get_fuser_method(kinds, additional_fuser_method_mapping)(is_qat, *mod_list)
    fused.train(mod_list[0].training)
    for hook in list(mod_list[0]._forward_pre_hooks.values()):
        fused.register_forward_pre_hook(hook)
    mod_list[0]._forward_pre_hooks.clear()
    for hook in list(mod_list[-1]._forward_hooks.values()):
        fused.register_forward_hook(hook)
    mod_list[-1]._forward_hooks.clear()
    rest = [nn.Identity() for _ in mod_list[1:]]
    for identity in rest:
        identity.training = mod_list[0].training
    return [fused, *rest]


def _fuse(model: Any, names: Sequence[str], is_qat: bool, fuser: Any, custom: Any) -> None:
    made = fuser([model.get_submodule(n) for n in names], is_qat, (custom or {}).get("additional_fuser_method_mapping"))
    for name, module in zip(names, made, strict=True):
        owner, _, last = name.rpartition(".")
        setattr(model.get_submodule(owner), last, module)


def _fused(model: Any, modules_to_fuse: Any, is_qat: bool, inplace: bool, fuser: Any, custom: Any) -> Any:
    model = model if inplace else copy.deepcopy(model)
    groups = [modules_to_fuse] if all(isinstance(n, str) for n in modules_to_fuse) else modules_to_fuse
    for names in groups:
        _fuse(model, names, is_qat, fuser, custom)
    return model


def fuse_modules(model: Any, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = fuse_known_modules, fuse_custom_config_dict: Any = None) -> Any:
    """A copy of the model in which each list of names (["conv1", "bn1", "relu1"]) is one module; the others become Identity. In `eval` mode."""
    return _fused(model, modules_to_fuse, False, inplace, fuser_func, fuse_custom_config_dict)


def fuse_modules_qat(model: Any, modules_to_fuse: Any, inplace: bool = False, fuser_func: Any = fuse_known_modules, fuse_custom_config_dict: Any = None) -> Any:
    """As fuse_modules, for training with rounding: normalisations stay, beside their layers. In `train` mode."""
    return _fused(model, modules_to_fuse, True, inplace, fuser_func, fuse_custom_config_dict)
