"""Modules of TorchScript archives: torch.nn's Modules whose forward and methods are the archive's code, over parameters that train as any others."""

from __future__ import annotations

import copy
import types
from pickle import PickleError
from typing import Any

from flambeau.jit.script import RecursiveScriptModule
from flambeau.jit.torchscript.archive import Content, Pickled, mapped
from flambeau.jit.torchscript.code import ScriptClass
from flambeau.jit.torchscript.errors import refuse
from flambeau.jit.torchscript.functions import Function
from flambeau.jit.torchscript.objects import Instance
from flambeau.jit.torchscript.packed import PickledWeights
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.tensor import Tensor

_SHOWN = frozenset(("forward", "__len__", "__getitem__", "__contains__"))


class TorchScriptModule(RecursiveScriptModule):
    """A module of an archive. Its attributes, parameters and buffers are those that its class declares."""

    def __init__(self) -> None:
        raise RuntimeError("torch.jit.load makes TorchScript's modules")

    @property
    def original_name(self) -> str:
        """The class that was scripted or traced."""
        return self._script.name  # type: ignore[no-any-return]

    @property
    def code(self) -> str:
        """The code of forward, as it is in the archive."""
        found: Function | None = self._script.methods.get("forward")
        if found is None:
            raise AttributeError("'RecursiveScriptModule' object has no attribute 'forward'")
        return found.code

    @property
    def graph(self) -> Any:
        """The torch.fx graph of forward; TraceError where conditions depend on values."""
        from flambeau.fx import symbolic_trace

        return symbolic_trace(self).graph

    inlined_graph = graph

    def __getattr__(self, name: str) -> Any:
        script = self.__dict__.get("_script")
        if script is not None:
            if name in script.methods and not name.startswith("__"):
                return types.MethodType(_method(script.methods[name]), self)
            if name in script.constants:
                return script.constants[name]
            if name == "forward" and "forward__0" in script.methods:
                raise AttributeError(f"{script.name} has no forward: its overloads are {', '.join(m for m in script.methods if m.startswith('forward__'))}")
        return super().__getattr__(name)

    def __deepcopy__(self, memo: dict[int, Any]) -> TorchScriptModule:
        made = object.__new__(type(self))
        memo[id(self)] = made
        script = {"_script": self.__dict__["_script"], "_content": self.__dict__.get("_content")}
        rest = {k: v for k, v in self.__dict__.items() if k not in script}
        object.__setattr__(made, "__dict__", script | copy.deepcopy(rest, memo))
        return made

    def __reduce__(self) -> Any:
        raise PickleError("ScriptModules cannot be saved using torch.save. To save this module, use torch.jit.save, or torch.save of its state_dict()")

    __reduce_ex__ = lambda self, protocol: self.__reduce__()  # noqa: E731


def _method(function: Function) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return function.call_checked((self, *args), kwargs)

    method.__name__ = function.node.name
    return method


def _hook(function: Function) -> Any:
    return lambda module, *given: function.call((module, *given))


def _no_forward(self: Any) -> Any:
    raise AttributeError("'RecursiveScriptModule' object has no attribute 'forward'")


def module_of(content: Content) -> TorchScriptModule:
    """The top module of an archive."""
    builder = _Builder()
    builder.collect(content.root)
    made = builder.value(content.root)
    assert isinstance(made, TorchScriptModule)
    made.__dict__["_content"] = content
    return made


class _Builder:
    def __init__(self) -> None:
        self.classes: dict[str, type] = {}
        self.done: dict[int, Any] = {}
        self.parameters: dict[int, Parameter] = {}
        self.seen: dict[int, Any] = {}

    def collect(self, v: Any, depth: int = 0) -> Any:
        """Make all parameters first: lists of weights and tied modules refer to them from anywhere."""
        if isinstance(v, PickledWeights):
            return mapped(v.state, lambda x: self.collect(x, depth + 1), self.seen)
        if not isinstance(v, Pickled):
            return v
        if depth > 100:
            refuse("the modules of data.pkl are nested more than 100 deep")
        state = v.state if isinstance(v.state, dict) else {}
        for name in v.script.parameters:
            t = state.get(name)
            if isinstance(t, Tensor) and id(t) not in self.parameters:
                self.parameters[id(t)] = Parameter(t.detach(), t.requires_grad)
        mapped(v.state, lambda x: self.collect(x, depth + 1), self.seen)
        return v

    def value(self, v: Any) -> Any:
        """The object of a pickled one; anything else as it is, a tensor that is a parameter as that."""
        if isinstance(v, Tensor):
            return self.parameters.get(id(v), v)
        if isinstance(v, PickledWeights):
            return v.made(mapped(v.state, self.value, self.done))
        if not isinstance(v, Pickled):
            return v
        if v.script.base == "Module":
            made: Any = self._module(v)
        elif v.script.base == "":
            made = Instance(v.script)
            made.values.update(self._state(v))
        else:
            refuse(f"data.pkl has an object of {v.script.qualified}, a {v.script.base}")
        restore = v.script.methods.get("__setstate__")
        if restore is not None:
            restore.call((made, mapped(v.state, self.value, self.done)))
        return made

    def _state(self, v: Pickled) -> dict[str, Any]:
        if "__setstate__" in v.script.methods:
            return {}
        if not isinstance(v.state, dict) or not all(isinstance(k, str) for k in v.state):
            refuse(f"data.pkl gives an object of {v.script.qualified} a state that is no dict of names")
        unknown = [k for k in v.state if k not in v.script.attributes]
        if unknown:
            refuse(f"data.pkl gives an object of {v.script.qualified} the attribute {unknown[0]!r}, which the class does not declare")
        return {k: mapped(x, self.value, self.done) for k, x in v.state.items()}

    def _class(self, script: ScriptClass) -> type:
        found = self.classes.get(script.qualified)
        if found is None:
            members: dict[str, Any] = {"forward": property(_no_forward), "__module__": RecursiveScriptModule.__module__}
            members |= {n: _method(f) for n, f in script.methods.items() if n in _SHOWN}
            found = self.classes[script.qualified] = type("RecursiveScriptModule", (TorchScriptModule,), members)
        return found

    def _module(self, v: Pickled) -> TorchScriptModule:
        script = v.script
        made: TorchScriptModule = object.__new__(self._class(script))
        Module.__init__(made)
        made.__dict__["_script"] = script
        made.training = False  # of a frozen module, which has no such attribute
        for hooks, register in ((script.forward_pre_hooks, made.register_forward_pre_hook), (script.forward_hooks, made.register_forward_hook)):
            for name in hooks:  # of a call from Python: calls in the archive's code have those of the modules that they call written out
                if name not in script.methods:
                    refuse(f"{script.qualified} names the hook {name!r}, which it has not")
                register(_hook(script.methods[name]))
        self.done[id(v)] = made
        for name, value in self._state(v).items():
            if name in script.parameters:
                if value is not None and not isinstance(value, Parameter):
                    refuse(f"data.pkl gives the parameter {name!r} of {script.qualified} a {type(value).__name__}")
                made._parameters[name] = value
            elif name in script.buffers:
                if value is not None and not isinstance(value, Tensor):
                    refuse(f"data.pkl gives the buffer {name!r} of {script.qualified} a {type(value).__name__}")
                made._buffers[name] = value
            elif isinstance(value, Module):
                made._modules[name] = value
            else:
                made.__dict__[name] = value
        return made
