"""torch.fx: a tracer that a package has written over the parts of torch.fx._symbolic_trace gives the graph that it gives with PyTorch."""

from __future__ import annotations

import importlib
import math
from typing import Any

import pytest

pytest.importorskip("torch")


def nodes(name: str) -> tuple[list[tuple[str, str]], list[float]]:
    """The graph of a small model by such a tracer, and the result of the graph's module."""
    torch, st = importlib.import_module(name), importlib.import_module(f"{name}.fx._symbolic_trace")

    class Scaled(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __call__(self, x: Any) -> Any:  # as classes that PyTorch's tracer does not know
            return self.forward(x)

        def forward(self, x: Any) -> Any:
            return x * 2

    class Model(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.scaled = torch.nn.Linear(2, 2), Scaled()
            self.register_buffer("shift", torch.ones(2))
            self.extra = torch.full((2,), 0.5)

        def forward(self, x: Any) -> Any:
            return torch.relu(self.layer(x)) + self.scaled(x) + self.shift + self.extra

    class Tracer(torch.fx.Tracer):  # type: ignore[misc,name-defined]
        @st.compatibility(is_backward_compatible=True)
        def trace(self, root: Any, concrete_args: Any = None) -> Any:
            self.root = root
            self.submodule_paths = {m: n for n, m in root.named_modules()}
            self.graph = torch.fx.Graph(tracer_cls=type(self))
            self.tensor_attrs: dict[Any, str] = {v: k for k, v in vars(root).items() if isinstance(v, (torch.Tensor, st.ScriptObject))}
            fn = type(root).forward
            assert isinstance(fn, st.FunctionType)
            fn, args = self.create_args_for_root(fn, True, concrete_args)
            cache: dict[str, st.Proxy] = {}

            @st.functools.wraps(st._orig_module_getattr)
            def attribute(mod: Any, attr: str) -> Any:
                return self.getattr(attr, st._orig_module_getattr(mod, attr), cache)

            @st.functools.wraps(st._orig_module_call)
            def call(mod: Any, *args: Any, **kwargs: Any) -> Any:
                return self.call_module(mod, lambda *a, **k: st._orig_module_call(mod, *a, **k), args, kwargs)

            with st._Patcher() as patcher:
                patcher.patch_method(torch.nn.Module, "__getattr__", attribute, deduplicate=False)
                patcher.patch_method(torch.nn.Module, "__call__", call, deduplicate=False)
                patcher.patch_method(Scaled, "__call__", call, deduplicate=False)
                st._patch_wrapped_functions(patcher)
                for module in self._autowrap_search:
                    st._autowrap_check(patcher, vars(module), self._autowrap_function_ids)
                self.create_node("output", "output", (self.create_arg(fn(*args)),), {})
            self.submodule_paths = None
            return self.graph

        def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
            return True

    torch.manual_seed(0)
    model = Model()
    graph = Tracer().trace(model)
    assert not st.is_fx_tracing() and math.sqrt(4) == 2 and "wrapped" not in repr(math.sqrt)
    assert model(torch.ones(2)).shape == (2,)
    made = torch.fx.GraphModule(model, graph)
    return [(n.op, n.name) for n in graph.nodes], made(torch.ones(2)).tolist()


def test_a_tracer_of_its_own() -> None:
    (ours, result), (theirs, expected) = nodes("flambeau"), nodes("torch")
    assert ours == theirs
    assert result == pytest.approx(expected, rel=1e-6)
