"""BaseSparsifier: which tensors of a model have masks, and the steps at which a rule (`update_mask`) chooses them anew."""

from __future__ import annotations

import abc
import copy
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import flambeau as torch
from flambeau.ao.pruning.sparsifier.utils import FakeSparsity, get_arg_info_from_tensor_fqn, module_contains_param, module_to_fqn, swap_module
from flambeau.nn.modules.linear import Linear
from flambeau.nn.modules.module import Module
from flambeau.nn.utils import parametrize

SUPPORTED_MODULES: set[type[Module]] = {Linear}
KEYS_NOT_IN_STATE_DICT = ["module", "module_fqn", "tensor_name"]


class BaseSparsifier(abc.ABC):
    """Masks of a model's tensors: `prepare(model, config)`, in training `step()`, at the end `squash_mask()`.

    A configuration is a list of dicts, each with `tensor_fqn` and what differs from `defaults` for this tensor; None means all layers that
    the sparsifier knows. Classes that derive from this one say in `update_mask` which elements are zeros.
    """

    model: Module
    config: list[dict[str, Any]] | None

    def __init__(self, defaults: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.defaults: dict[str, Any] = defaults or {}
        self.state: dict[str, dict[str, Any]] = defaultdict(dict)
        self.groups: list[dict[str, Any]] = []
        self.enable_mask_update = True

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "groups": self.groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.groups):
            text += f"\n\tGroup {i}\n\t    module: {group['module']}\n"
            for key in sorted(group):
                if key != "module":
                    text += f"\t    {key}: {group[key]}\n"
        return text + ")"

    def state_dict(self) -> dict[str, Any]:
        """The masks by the tensors' names (`state`), and the configuration of each (`groups`), without the modules."""
        return {"state": self.state, "groups": [{k: v for k, v in group.items() if k not in KEYS_NOT_IN_STATE_DICT} for group in self.groups]}

    def load_state_dict(self, state_dict: dict[str, Any], strict: bool = True) -> None:
        """Masks and configuration of a `state_dict`, put on the tensors of the model that is prepared."""
        groups = copy.deepcopy(state_dict["groups"])
        state = {name: dict(s) for name, s in state_dict["state"].items()}
        for name, entry in state.items():
            info = get_arg_info_from_tensor_fqn(self.model, name)
            module, tensor_name = info["module"], info["tensor_name"]
            if module is None:
                if strict:
                    raise RuntimeError(f"Error loading {name} into the model")
                continue
            masks = [p for p in module.parametrizations[tensor_name] if isinstance(p, FakeSparsity)] if parametrize.is_parametrized(module, tensor_name) else []
            if not masks:
                masks = [FakeSparsity(torch.ones(getattr(module, tensor_name).shape))]
                parametrize.register_parametrization(module, tensor_name, masks[0])
            if entry.get("mask") is not None:
                masks[0].mask = entry["mask"]
            for group in groups:
                if group["tensor_fqn"] == name:
                    group.update(info)
        self.__setstate__({"state": state, "groups": groups})

    def make_config_from_model(self, model: Module, SUPPORTED_MODULES: set[type[Module]] = SUPPORTED_MODULES) -> None:
        """The configuration for a model that is given none: the weights of all layers of the supported classes."""
        self.config = []
        stack = [model]
        while stack:
            for child in stack.pop().children():
                if type(child) in SUPPORTED_MODULES:
                    self.config.append({"tensor_fqn": f"{module_to_fqn(model, child)}.weight"})
                else:
                    stack.append(child)

    def prepare(self, model: Module, config: list[dict[str, Any]] | None) -> None:
        """Put masks on the tensors of a model, in place."""
        self.model = model
        self.config = config
        if self.config is None:
            self.make_config_from_model(model)
        if not isinstance(self.defaults, dict):
            raise AssertionError(f"{type(self).__name__}.prepare: defaults must be a dict, not {type(self.defaults).__name__}")
        for entry in self.config or ():
            if not isinstance(entry, dict):
                raise AssertionError(
                    f"{type(self).__name__}.prepare: config elements should be dicts i.e. [{{'tensor_fqn': 'foo.bar.weight'}}, ...], not {type(entry).__name__}"
                )
            group = copy.deepcopy(self.defaults)
            group.update(entry)
            name = group.get("tensor_fqn")
            if name is None:
                raise AssertionError(f"{type(self).__name__}.prepare: tensor_fqn is a required argument in the sparsity config; given are {sorted(entry)}")
            info = get_arg_info_from_tensor_fqn(model, name.removeprefix("."))
            for key, value in info.items():
                if key != "tensor_fqn" and key in group and not (group[key] is value or group[key] == value):
                    raise AssertionError(f"Given both `{key}` and `tensor_fqn` in the config, it is expected them to agree! {key} is {group[key]!r}")
            if getattr(info["module"], info["tensor_name"], None) is None:
                raise AttributeError(f"{type(self).__name__}.prepare: the model has no tensor {name!r}")
            group.update(info)
            self.groups.append(group)
        self._prepare()

    def _prepare(self, *args: Any, **kwargs: Any) -> None:
        for group in self.groups:
            module, tensor_name = group["module"], group["tensor_name"]
            mask = group.get("mask")
            if mask is None:
                mask = torch.ones_like(getattr(module, tensor_name))
            self.state[group["tensor_fqn"]]["mask"] = mask
            parametrize.register_parametrization(module, tensor_name, group.get("parametrization", FakeSparsity)(mask))

    def squash_mask(
        self,
        params_to_keep: tuple[str, ...] | None = None,
        params_to_keep_per_layer: Mapping[str, tuple[str, ...]] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Leave the zeros in the weights and take the masks away.

        What `params_to_keep` names of the configuration (and `params_to_keep_per_layer`, by the module's path) is left in
        `module.sparse_params`.
        """
        for group in self.groups:
            parametrize.remove_parametrizations(group["module"], group["tensor_name"], leave_parametrized=True)
            kept = [*(params_to_keep or ()), *((params_to_keep_per_layer or {}).get(group["module_fqn"]) or ())]
            if kept:
                group["module"].sparse_params = {key: group[key] for key in kept}

    def convert(
        self,
        module: Module,
        mapping: Mapping[type[Module], Any] | None = None,
        inplace: bool = False,
        parameterization: type[Module] = FakeSparsity,
    ) -> Module:
        """Submodules with masks as the classes that `mapping` has for theirs, by `from_dense`."""
        if mapping is None:
            raise NotImplementedError("convert: `mapping` must say which class becomes which (none is made by itself)")
        if not inplace:
            module = copy.deepcopy(module)
        for name, child in list(module.named_children()):
            if module_contains_param(child, parameterization) and parametrize.type_before_parametrizations(child) in mapping:
                module._modules[name] = swap_module(child, mapping)
            else:
                self.convert(child, mapping=mapping, inplace=True, parameterization=parameterization)
        return module

    def step(self, use_path: bool = True) -> None:
        """Choose the masks anew."""
        if not self.enable_mask_update:
            return
        with torch.no_grad():
            for group in self.groups:
                self.update_mask(**group)

    @abc.abstractmethod
    def update_mask(self, module: Any, tensor_name: str, **kwargs: Any) -> None:
        """Change the values of the mask of `module.tensor_name`."""
