"""GraphModule: a Module whose forward is the code of a graph."""

from __future__ import annotations

import copy
import itertools
import linecache
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flambeau.fx.graph import Graph, PythonCode
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.runtime import whole_files
from flambeau.tensor import Tensor

_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"  # of `meta`: what passes give on from module to module
_counter = itertools.count()


def _exec(code: PythonCode) -> Callable[..., Any]:
    """The function of generated code; its source is where tracebacks find it."""
    name = f"<eval_with_key>.{next(_counter)}"
    scope = dict(code.globals)
    linecache.cache[name] = (len(code.src), None, code.src.splitlines(keepends=True), name)
    exec(compile(code.src, name, "exec"), scope)
    return scope["forward"]  # type: ignore[no-any-return]


def _forward_from_src(src: str, globals: dict[str, Any], co_fields: Any = None) -> Callable[..., Any]:
    """The function `forward` of a source, with these names around it."""
    return _exec(PythonCode(src, dict(globals)))


def _get_attr(model: Any, attr_name: str) -> Any:
    """What lies at a dotted name; AssertionError where a part on the way is not there, AttributeError where the last is not."""
    *way, last = attr_name.split(".")
    for name in way:
        model = getattr(model, name, None)
        if model is None:
            raise AssertionError(f"Attribute '{name}' not found in model")
    return getattr(model, last)


def _has_attr(model: Any, attr_name: str) -> bool:
    """Whether something lies at a dotted name."""
    for name in attr_name.split("."):
        if not hasattr(model, name):
            return False
        model = getattr(model, name)
    return True


def _del_attr(model: Any, attr_name: str) -> None:
    """Take away what lies at a dotted name."""
    way, _, last = attr_name.rpartition(".")
    delattr(_get_attr(model, way) if way else model, last)


def _copy_attr(from_module: Any, to_module: Module, target: str) -> None:
    """Give `to_module` what `from_module` has at a dotted name; modules on the way that are not there are made, tensors become buffers."""
    *way, last = target.split(".")
    for name in way:
        inner, here = getattr(from_module, name), getattr(to_module, name, None)
        if here is inner:
            return  # a parent is there already, and all that it holds
        if here is None:
            here = Module()
            setattr(to_module, name, here)
        from_module, to_module = inner, here
    _assign(to_module, last, getattr(from_module, last))


def _assign_attr(from_obj: Any, to_module: Module, target: str) -> None:
    """Put an object at a dotted name; modules on the way that are not there are made, a tensor becomes a buffer."""
    *way, last = target.split(".")
    for name in way:
        if getattr(to_module, name, None) is None:
            setattr(to_module, name, Module())
        to_module = getattr(to_module, name)
    _assign(to_module, last, from_obj)


def _assign(target: Module, field: str, value: Any) -> None:
    """Set an attribute; a tensor that is no parameter becomes a buffer."""
    if isinstance(value, Tensor) and not isinstance(value, Parameter) and field not in target.__dict__:
        target.register_buffer(field, value)
    else:
        setattr(target, field, value)


class GraphModule(Module):
    """A Module made of a graph and of those submodules and attributes of `root` (a Module, or a dict by path) that it uses.

    `graph` may be exchanged; after a change of it in place, `recompile()`.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        for base in cls.__mro__:  # every object has a class of its own, for its forward
            if base.__name__ == "GraphModuleImpl":
                return super().__new__(base.__mro__[1] if cls is base else cls)

        class GraphModuleImpl(cls):  # type: ignore[valid-type,misc]
            pass

        return super().__new__(GraphModuleImpl)

    def __init__(self, root: Module | dict[str, Any], graph: Graph, class_name: str = "GraphModule") -> None:
        super().__init__()
        self.__class__.__name__ = class_name
        if isinstance(root, Module):
            if hasattr(root, "training"):
                self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            targets = sorted({n.target for n in graph.nodes if n.op in ("get_attr", "call_module")}, key=lambda t: t.count("."))
            for target in targets:
                if target not in root:
                    raise RuntimeError(f"a node of the graph uses {target!r}, which the dict given as root of GraphModule does not have")
                _assign_attr(root[target], self, target)
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.graph = graph
        self.meta: dict[str, Any] = {}

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph

    @graph.setter
    def graph(self, g: Graph) -> None:
        if not isinstance(g, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(g)}")
        self.__dict__["_graph"] = g
        g.owning_module = self
        self.recompile()

    @property
    def code(self) -> str:
        """The source of forward."""
        return self._code  # type: ignore[no-any-return]

    def recompile(self) -> PythonCode:
        """Make forward anew from the graph."""
        made = self._graph.python_code(root_module="self")
        self.__dict__["_code"] = made.src
        type(self).forward = _exec(made)  # type: ignore[method-assign]
        return made

    def print_readable(self, print_output: bool = True, **_: Any) -> str:
        """The code as a class, printed and returned."""
        text = f"class {type(self).__name__}(torch.nn.Module):" + "\n".join("    " + line for line in self.code.split("\n")).rstrip()
        if print_output:
            print(text)
        return text

    def __str__(self) -> str:
        return f"{super().__repr__()}\n{self._code}\n# To see more debug info, please use `graph_module.print_readable()`"

    def _get_name(self) -> str:
        return type(self).__name__

    # -- submodules ----------------------------------------------------------------------------------------------
    def add_submodule(self, target: str, m: Module) -> bool:
        """Put a module under "a.b", with plain modules on the way; False where something else is in the way."""
        *prefix, field = target.split(".")
        at: Module = self
        for part in prefix:
            below = getattr(at, part, None)
            if below is None:
                below = Module()
                setattr(at, part, below)
            if not isinstance(below, Module):
                return False
            at = below
        at.add_module(field, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Take a submodule out; False if there is none of that path."""
        *prefix, field = target.split(".")
        at: Any = self
        for part in prefix:
            at = getattr(at, part, None)
        if at is None or not isinstance(getattr(at, field, None), Module):
            return False
        delattr(at, field)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Take out the submodules that no node uses."""
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used |= {".".join(parts[: i + 1]) for i in range(len(parts))}
                if node.op == "call_module":
                    used |= {f"{node.target}.{name}" for name, _ in self.get_submodule(node.target).named_modules() if name}
        for name in [n for n, _ in self.named_modules() if n and n not in used]:
            self.delete_submodule(name)

    def to_folder(self, folder: str | os.PathLike[str], module_name: str = "FxModule") -> None:
        """Write the code as a package: module.py, and the state_dict beside it."""
        from flambeau.io import save

        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        save(self.state_dict(), path / "state_dict.pt")
        lines = ["import torch", "from torch.nn import *", "", "", f"class {module_name}(torch.nn.Module):"]
        lines += ["    def __init__(self):", "        super().__init__()"]
        for name, child in self.named_children():
            save(child, path / f"{name}.pt")
            lines.append(f"        self.{name} = torch.load(__file__.rsplit('/', 1)[0] + '/{name}.pt', weights_only=False)")
        for kind, table in (("Parameter", self._parameters), ("Buffer", self._buffers)):
            for name, t in table.items():
                if t is not None:
                    made = f"torch.empty({list(t.shape)}, dtype={t.dtype})"
                    lines.append(f"        self.{name} = Parameter({made})" if kind == "Parameter" else f"        self.register_buffer('{name}', {made})")
        lines.append("        self.load_state_dict(torch.load(__file__.rsplit('/', 1)[0] + '/state_dict.pt'))")
        lines += ["    " + line for line in self.code.strip().split("\n")]
        for file_name, text in (("module.py", "\n".join(lines).rstrip() + "\n"), ("__init__.py", "from .module import *\n")):
            with whole_files.replacing(path / file_name) as file:
                file.write(text.encode())

    # -- copies --------------------------------------------------------------------------------------------------
    def _plain_dict(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}

    def __deepcopy__(self, memo: Any) -> GraphModule:
        made = GraphModule.__new__(type(self))
        memo[id(self)] = made
        made.__dict__.update(copy.deepcopy(self._plain_dict(), memo))
        type(made).__name__ = type(self).__name__
        made.graph = copy.deepcopy(self.graph)
        return made

    def __copy__(self) -> GraphModule:
        made = GraphModule.__new__(type(self))
        made.__dict__.update(self._plain_dict())
        type(made).__name__ = type(self).__name__
        made.graph = copy.deepcopy(self.graph)
        return made

    def __reduce__(self) -> Any:
        made = self.graph.python_code("self")
        names = {k: v for k, v in made.globals.items() if k not in ("torch", "device", "inf", "nan", "NoneType")}
        return rebuild, (self._plain_dict(), made.src, names, type(self).__name__)


class _CodeOnlyModule(Module):
    """What pickled code is traced on."""

    def __init__(self, body: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__.update(body)


def rebuild(body: dict[str, Any], source: str, names: dict[str, Any], class_name: str) -> GraphModule:
    """A GraphModule from its attributes and its code, which is traced again."""
    import math

    import flambeau
    from flambeau.fx.symbolic_trace import Tracer

    class KeepModules(Tracer):
        def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
            return True

    scope = {"inf": math.inf, "nan": math.nan, "NoneType": type(None), "torch": flambeau, "device": flambeau.device, **names}
    holder = type(class_name, (_CodeOnlyModule,), {"forward": _exec(PythonCode(source, scope))})(body)
    made = GraphModule(holder, KeepModules().trace(holder), class_name)
    made.__dict__.update({k: v for k, v in body.items() if k not in made.__dict__})
    return made
