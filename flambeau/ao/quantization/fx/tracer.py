"""QuantizationTracer: records a model for quantization: layers are leaves, and for each node it is known which module called it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.ao.nn.intrinsic import _FusedModule
from flambeau.fx import Tracer


class QuantizationTracer(Tracer):
    """A Tracer for which the modules of these names and classes are leaves too; `node_name_to_scope` has (path, class) of each node's module."""

    def __init__(self, skipped_module_names: Sequence[str], skipped_module_classes: Sequence[Any]) -> None:
        super().__init__()
        self.skipped_module_names = list(skipped_module_names)
        self.skipped_module_classes = list(skipped_module_classes)
        self.node_name_to_scope: dict[str, tuple[str, Any]] = {}
        self._scope: tuple[str, Any] = ("", None)

    def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
        """Whether a call of a module is one node."""
        if module_qualified_name in self.skipped_module_names or type(m) in self.skipped_module_classes or isinstance(m, _FusedModule):
            return True
        from flambeau.ao.nn.quantized import FloatFunctional

        if isinstance(m, FloatFunctional):
            return False
        return type(m).__module__.startswith("flambeau.ao.nn") or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m: Any, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A node for a leaf; else the module's own forward, in whose scope nodes are."""
        before, self._scope = self._scope, (self.path_of_module(m), type(m))
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self._scope = before

    def create_node(self, *args: Any, **kwargs: Any) -> Any:
        """A node in the tracer's graph, with its scope noted."""
        node = super().create_node(*args, **kwargs)
        self.node_name_to_scope[node.name] = self._scope
        return node
