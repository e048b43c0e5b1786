"""torch.jit.save and load: a program in a file, without its classes.

The file is a checkpoint (io/checkpoint.py) of plain values: the torch.fx graph of the module as JSON, in which user modules are opened
and layers of torch.nn are kept by class and attributes, and all tensors. Loading executes nothing from the file: a graph may only name
functions of torch, operator and math, methods of Tensor, and classes of torch.nn. It is not TorchScript's format.
"""

from __future__ import annotations

import builtins
import json
import math
import operator
import zipfile
from collections.abc import Callable
from typing import Any

import flambeau
from flambeau.devices import Device
from flambeau.dtypes import dtype
from flambeau.fx import Graph, GraphModule, Node, Tracer
from flambeau.jit.script import RecursiveScriptModule, ScriptFunction, ScriptModule, original, rewrap
from flambeau.module_names import is_ours, under_torch
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.queries import memory_format
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size

_KEY = "flambeau_script"
_VERSION = 1
_BUILTINS = ("getattr", "abs", "len", "min", "max", "sum", "int", "float", "bool", "round", "tuple", "list", "divmod", "pow")
_PLAIN = frozenset(Module().__dict__) - {"training"}


# -- values as JSON -----------------------------------------------------------------------------------------------------
def _function_name(function: Any) -> str:
    from flambeau.overrides import resolve_name

    name = resolve_name(function)
    if name is not None:
        return name
    if function is flambeau._assert:
        return "torch._assert"
    if getattr(function, "__module__", None) in ("_operator", "operator"):
        return f"operator.{function.__name__}"
    own = getattr(function, "__name__", "")
    if own in _BUILTINS and getattr(builtins, own) is function:
        return f"builtins.{own}"
    if getattr(math, own, None) is function:
        return f"math.{own}"
    raise RuntimeError(
        f"torch.jit.save: the program calls {function!r}, which is no function of torch, operator or math; save state_dict() instead and make "
        "the module from its class"
    )


def _function(name: str) -> Callable[..., Any]:
    from flambeau.overrides import _names

    space, _, own = name.rpartition(".")
    if space == "operator" and not own.startswith("_"):
        return getattr(operator, own)  # type: ignore[no-any-return]
    if space == "builtins" and own in _BUILTINS:
        return getattr(builtins, own)  # type: ignore[no-any-return]
    if space == "math" and not own.startswith("_"):
        return getattr(math, own)  # type: ignore[no-any-return]
    if name == "torch._assert":
        return flambeau._assert
    for function, known in _names().items():
        if known == name:
            return function  # type: ignore[no-any-return]
    raise RuntimeError(f"torch.jit.load: the file names the function {name!r}, which a saved program may not call")


def _encode(a: Any) -> Any:
    """A constant, or nested constants and nodes, as JSON."""
    if a is None or type(a) in (bool, int, float, str):
        return a
    if isinstance(a, Node):
        return {"node": a.name}
    if isinstance(a, Size):
        return {"size": list(a)}
    if isinstance(a, (tuple, list)):
        return {"tuple" if isinstance(a, tuple) else "list": [_encode(x) for x in a]}
    if isinstance(a, dict):
        return {"dict": [[_encode(k), _encode(v)] for k, v in a.items()]}
    if isinstance(a, slice):
        return {"slice": [_encode(a.start), _encode(a.stop), _encode(a.step)]}
    if isinstance(a, (dtype, Device, memory_format)):
        return {type(a).__name__: str(a) if not isinstance(a, memory_format) else a.name}
    if a is ...:
        return {"ellipsis": 0}
    if isinstance(a, complex):
        return {"complex": [a.real, a.imag]}
    if callable(a):
        return {"function": _function_name(a)}
    raise RuntimeError(f"torch.jit.save: a value of type {type(a).__name__} cannot be saved as a part of a program")


def _decode(a: Any, nodes: dict[str, Node]) -> Any:
    if not isinstance(a, dict):
        return a
    ((kind, value),) = a.items()
    if kind == "node":
        return nodes[value]
    if kind in ("tuple", "list"):
        parts = [_decode(x, nodes) for x in value]
        return tuple(parts) if kind == "tuple" else parts
    if kind == "size":
        return Size(value)
    if kind == "dict":
        return {_decode(k, nodes): _decode(v, nodes) for k, v in value}
    if kind == "slice":
        return slice(*[_decode(x, nodes) for x in value])
    if kind == "dtype":
        found = getattr(flambeau, value.removeprefix("torch."))
        if isinstance(found, dtype):
            return found
    if kind == "Device":
        return Device(value)
    if kind == "memory_format" and value in ("contiguous_format", "channels_last", "channels_last_3d", "preserve_format"):
        return getattr(flambeau, value)
    if kind == "ellipsis":
        return ...
    if kind == "complex":
        return complex(*value)
    if kind == "function":
        return _function(value)
    raise RuntimeError(f"torch.jit.load: the file holds a value of an unknown kind, {kind!r}")


# -- modules ------------------------------------------------------------------------------------------------------------
def _describe(module: Module) -> Any:
    """A layer of torch.nn: its class, its plain attributes, the names of its tensors, its own submodules."""
    cls = type(module)
    if not under_torch(cls.__module__).startswith("torch.nn.") or not is_ours(cls.__module__):
        raise RuntimeError(f"torch.jit.save: {cls.__name__} is a module inside a layer of torch.nn and no layer of torch.nn itself; save state_dict() instead")
    attributes = {k: _encode(v) for k, v in module.__dict__.items() if k not in _PLAIN and not (k.startswith("_") and _holds_tensors(v))}
    return {
        "class": f"{under_torch(cls.__module__)}.{cls.__qualname__}", "attributes": attributes,
        "parameters": list(module._parameters), "buffers": [[n, n not in module._non_persistent_buffers_set] for n in module._buffers],
        "modules": {name: _describe(child) for name, child in module._modules.items() if child is not None},
    }  # fmt: skip


def _holds_tensors(value: Any) -> bool:
    return isinstance(value, Tensor) or (isinstance(value, (list, tuple)) and any(map(_holds_tensors, value)))


def _rebuild(description: Any, path: str, tensors: dict[str, Any]) -> Module:
    space, _, name = description["class"].rpartition(".")
    cls: Any = None
    if space == "torch.nn" or space.startswith("torch.nn."):
        import importlib

        cls = getattr(importlib.import_module("flambeau" + space[len("torch") :]), name, None)
    if not (isinstance(cls, type) and issubclass(cls, Module)):
        raise RuntimeError(f"torch.jit.load: the file names the class {description['class']!r}, which is no layer of torch.nn")
    made: Module = cls.__new__(cls)
    Module.__init__(made)
    for key, value in description["attributes"].items():
        made.__dict__[key] = _decode(value, {})
    for key in description["parameters"]:
        made.register_parameter(key, tensors.get(f"{path}{key}"))
    for key, persistent in description["buffers"]:
        made.register_buffer(key, tensors.get(f"{path}{key}"), persistent)
    for key, child in description["modules"].items():
        made.add_module(key, _rebuild(child, f"{path}{key}.", tensors))
    refresh = getattr(made, "_init_flat_weights", None)
    if refresh is not None:
        refresh()
    return made


class _Nameable(Tracer):
    """Opens functions that `torch.fx.wrap` keeps whole, where a file cannot name them."""

    def _keeps_whole(self, function: Callable[..., Any]) -> bool:
        try:
            _function_name(function)
        except RuntimeError:
            return False
        return True


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a scripted or traced module or function to a file or stream. `_extra_files`: {name: str or bytes} beside it.

    A module that was read from a TorchScript archive is written as one, with its present tensors, which PyTorch reads again.
    RuntimeError where conditions depend on values, or where the program calls what a file cannot name: save `state_dict()` then.
    """
    if not isinstance(m, (ScriptModule, ScriptFunction)):
        raise RuntimeError(f"torch.jit.save: expected a ScriptModule or ScriptFunction (see torch.jit.script), got {type(m).__name__}")
    if "_script" in m.__dict__:  # read from a TorchScript archive
        from flambeau.jit.torchscript.writing import write

        write(m, f, _extra_files or {})  # type: ignore[arg-type]
        return
    root = m._function if isinstance(m, ScriptFunction) else original(m)
    tracer = _Nameable()
    try:
        graph = tracer.trace(root)
    except Exception as error:
        raise RuntimeError(
            f"torch.jit.save: the program could not be written as a graph ({error}); save state_dict() and make the module from its class"
        ) from error
    holder = GraphModule(tracer.root, graph)
    leaves = {n.target: _describe(holder.get_submodule(n.target)) for n in graph.nodes if n.op == "call_module"}
    nodes = [
        {"op": n.op, "name": n.name, "target": n.target if isinstance(n.target, str) else _function_name(n.target), "args": _encode(tuple(n.args)),
         "kwargs": _encode(dict(n.kwargs))}
        for n in graph.nodes
    ]  # fmt: skip
    attributes = {n.target for n in graph.nodes if n.op == "get_attr"}
    tensors = dict(holder.named_parameters()) | dict(holder.named_buffers())
    for name in attributes - set(tensors):
        value: Any = holder
        for part in name.split("."):
            value = getattr(value, part)
        if not isinstance(value, Tensor):
            raise RuntimeError(f"torch.jit.save: the program uses the attribute {name!r}, which is a {type(value).__name__} and no tensor")
        tensors[name] = value
    needs = {name: t.requires_grad for name, t in tensors.items() if isinstance(t, Parameter)}
    content = {
        _KEY: _VERSION, "name": m.name if isinstance(m, ScriptFunction) else m.original_name, "training": bool(getattr(m, "training", False)),
        "graph": json.dumps({"nodes": nodes, "modules": leaves, "parameters": needs, "attributes": sorted(attributes)}),
        "tensors": {name: t.detach() for name, t in tensors.items()},
        "extra": {name: v if isinstance(v, str) else bytes(v).decode("latin-1") for name, v in (_extra_files or {}).items()},
    }  # fmt: skip
    flambeau.save(content, f)


def load(f: Any, map_location: Any = None, _extra_files: dict[str, Any] | None = None, _restore_shapes: bool = False) -> Any:
    """The module of a file that torch.jit.save has written, PyTorch's (a TorchScript archive) or flambeau's: its forward and state_dict.

    `_extra_files` is filled in place. Nothing in a file is executed: the code of an archive is read, and run by flambeau's own operators.
    RuntimeError, which names what was met, for a file that is damaged, hostile, or uses what is not read (docs/export.md).
    """
    if _is_torchscript(f):
        from flambeau.jit.torchscript.archive import read  # late: it asks for the schemas of operators, which come with torch.export
        from flambeau.jit.torchscript.modules import module_of

        found = read(f, map_location)
        for key in _extra_files if _extra_files is not None else ():
            if key in found.extra:
                _extra_files[key] = found.extra[key]  # type: ignore[index]
        return module_of(found)
    content = flambeau.load(f, map_location=map_location, weights_only=True)
    if not isinstance(content, dict) or content.get(_KEY) != _VERSION:
        raise RuntimeError("torch.jit.load: the file was not written by torch.jit.save; torch.load reads checkpoints")
    text = json.loads(content["graph"])
    tensors: dict[str, Any] = {name: Parameter(t, text["parameters"][name]) if name in text["parameters"] else t for name, t in content["tensors"].items()}
    members: dict[str, Any] = {path: _rebuild(d, f"{path}.", tensors) for path, d in text["modules"].items()}
    members |= {name: tensors[name] for name in text["attributes"]}
    graph = Graph()
    nodes: dict[str, Node] = {}
    for n in text["nodes"]:
        if n["op"] == "call_method" and n["target"].startswith("__"):
            raise RuntimeError(f"torch.jit.load: the file calls the method {n['target']!r}, which a saved program may not")
        target = _function(n["target"]) if n["op"] == "call_function" else n["target"]
        if target is getattr:
            name = _decode(n["args"], nodes)[1]
            if not isinstance(name, str) or name.startswith("_"):
                raise RuntimeError(f"torch.jit.load: the file reads the attribute {name!r}, which a saved program may not")
        if not str(n["name"]).isidentifier() or (n["op"] == "placeholder" and not n["target"].lstrip("*").isidentifier()):
            raise RuntimeError(f"torch.jit.load: {n['name']!r} is no name for a value")
        nodes[n["name"]] = graph.create_node(n["op"], target, _decode(n["args"], nodes), _decode(n["kwargs"], nodes), n["name"])
    made = GraphModule(members, graph, content["name"])
    made.training = content["training"]
    for key in _extra_files if _extra_files is not None else ():
        if key in content["extra"]:
            _extra_files[key] = content["extra"][key]  # type: ignore[index]
    return rewrap(made, RecursiveScriptModule)


def _is_torchscript(f: Any) -> bool:
    """Whether a file is a zip archive with TorchScript code in it."""
    try:
        with zipfile.ZipFile(f) as archive:
            return any("/code/" in name or name.endswith("/constants.pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, OSError, TypeError, ValueError):
        return False
    finally:
        if hasattr(f, "seek"):
            f.seek(0)
