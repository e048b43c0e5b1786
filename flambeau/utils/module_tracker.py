"""torch.utils.module_tracker: in which modules a program is, by their names from the first one called."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from weakref import WeakKeyDictionary

from flambeau.nn.modules.hooks import RemovableHandle, register_module_forward_hook, register_module_forward_pre_hook


class ModuleTracker:
    """A block in which `parents` has the names of the modules whose forward is running: "Global", `Net`, `Net.layer1`, ..."""

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self._handles: list[RemovableHandle] = []

    def _name(self, module: Any) -> str:
        if module not in self._names:
            self._names[module] = type(module).__name__
        name = self._names[module]
        for part, child in module.named_children():
            if child not in self._names:
                self._names[child] = f"{name}.{part}"
        return name

    def _begin(self, module: Any, inputs: Any) -> None:
        self.parents.add(self._name(module))

    def _end(self, module: Any, inputs: Any, output: Any) -> None:
        self.parents.discard(self._name(module))

    def __enter__(self) -> Self:
        self._handles = [register_module_forward_pre_hook(self._begin), register_module_forward_hook(self._end, always_call=True)]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._forget_hooks()
        self.parents = {"Global"}

    def _forget_hooks(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
