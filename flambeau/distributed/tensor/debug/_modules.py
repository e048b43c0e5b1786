"""What CommDebugMode knows of modules: which calls which, how deep they are, and how their parameters lie."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from flambeau.distributed._tools.mod_tracker import ModTracker
from flambeau.distributed.tensor.api import DTensor
from flambeau.nn.modules.hooks import RemovableHandle, register_module_full_backward_pre_hook


class CommModules(ModTracker):
    """A block; `name` is the module whose forward or backward is running."""

    def __init__(self) -> None:
        super().__init__()
        self.module_helper_dict: dict[str, dict[str, Any]] = {}
        self.module_parameters_dict: dict[str, dict[str, Any]] = {}
        self.module_parents_dict: dict[str, set[str]] = {}
        self.parent_dict: dict[str, list[str]] = {}
        self.parent_list: list[str] = []
        self.sharding_dict: dict[str, Any] = {}
        self.activation_checkpointing = False
        self.name = "Global"
        self._last_hooks: dict[str, RemovableHandle] = {}

    def _begin(self, module: Any, inputs: Any) -> None:
        self.activation_checkpointing = self.is_bw
        self.name = self._name(module)
        super()._begin(module, inputs)
        if not self.activation_checkpointing:
            self._learn(module, self.name)
            self.parent_list.append(self.name)
            if self.name not in self._last_hooks:
                self._last_hooks[self.name] = module.register_forward_hook(self._left_for_good)

    def _learn(self, module: Any, name: str) -> None:
        """Keep what a module is, and how its own parameters lie."""
        about = self.module_helper_dict.setdefault(name, {})
        about["module_type"] = str(type(module)).replace("<", "").replace(">", "")
        about["depth"] = len(self.parents) - 1
        for key, parameter in module.named_parameters(recurse=False):
            self.module_parameters_dict.setdefault(name, {})[key] = parameter.data
            if isinstance(parameter, DTensor):
                self.sharding_dict[f"{name}.{key}"] = parameter.placements
                about.setdefault("parameters", {})[key] = str(parameter.placements)
        self.module_parents_dict.setdefault(name, set(self.parents))
        self.parent_dict.setdefault(self.parent_list[-1], []).append(name)

    def _left_for_good(self, module: Any, inputs: Any, output: Any) -> None:
        """The module's last hook: what its other hooks do is still its own."""
        if not self.is_bw:
            self.parent_list.pop()
            self.name = self.parent_list[-1]

    def _backward_of(self, module: Any, gradients: Any) -> None:
        self.activation_checkpointing = False
        self.name = self._name(module)

    def __enter__(self) -> Self:
        for kept in (self.module_parameters_dict, self.sharding_dict, self.parent_dict, self.module_helper_dict, self.module_parents_dict):
            kept.clear()
        self.activation_checkpointing, self.name, self.parent_list = False, "Global", ["Global"]
        self.module_helper_dict["Global"] = {"depth": 0}
        self.module_parents_dict["Global"] = set()
        super().__enter__()
        self._handles.append(register_module_full_backward_pre_hook(self._backward_of))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        super().__exit__(kind, error, traceback)
        for handle in self._last_hooks.values():
            handle.remove()
        self._last_hooks = {}
        self.parents = {"Global"}

    def print_paramater_info(self) -> None:
        """Print the parameters by module."""
        print(self.module_parameters_dict)

    def print_sharding_info(self) -> None:
        """Print how parameters lie."""
        for name, placements in self.sharding_dict.items():
            print(f"{name}: {placements}")
