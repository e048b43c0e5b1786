"""torch.jit.script and its kin: decorators that return what they are given, and the wrappers that programs ask for `code` and `save`."""

from __future__ import annotations

import builtins
import functools
import inspect
import textwrap
import types
import typing
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

from flambeau.futures import Future
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import is_lazy
from flambeau.queries import typename


class Error(RuntimeError):
    """TorchScript's error."""


class ScriptWarning(Warning):
    """TorchScript's warning."""


class Attribute(NamedTuple):
    """A value and its type, assigned to an attribute of a module."""

    value: Any
    type: Any


def _source(function: Any) -> str:
    """The source of a function, without its decorators."""
    try:
        lines = textwrap.dedent(inspect.getsource(inspect.unwrap(function))).splitlines()
    except (OSError, TypeError) as error:
        raise RuntimeError(f"torch.jit: the source of {function!r} is not known: {error}") from None
    start = next((i for i, line in enumerate(lines) if line.lstrip().startswith(("def ", "async def ", "lambda"))), 0)
    return "\n".join(lines[start:]) + "\n"


class ScriptFunction:
    """A function, with its name, its Python source (`code`) and its torch.fx graph (`graph`)."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self.qualified_name = f"__torch__.{getattr(function, '__qualname__', self.name)}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else types.MethodType(self, instance)

    @property
    def code(self) -> str:
        """The Python source."""
        return _source(self._function)

    @property
    def graph(self) -> Any:
        """The torch.fx graph; TraceError where conditions depend on values."""
        from flambeau.fx import symbolic_trace

        return symbolic_trace(self._function).graph

    inlined_graph = graph

    def graph_for(self, *args: Any, **kwargs: Any) -> Any:
        """The graph, whatever the arguments."""
        return self.graph

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """See torch.jit.save."""
        from flambeau.jit.saving import save

        save(self, f, _extra_files)

    def __deepcopy__(self, memo: Any) -> ScriptFunction:
        return self


class ScriptModule(Module):
    """Base of scripted modules; a class of one's own may derive from it and mark methods with `script_method`."""

    @property
    def original_name(self) -> str:
        """The class that was scripted."""
        return _original_class(type(self)).__name__

    @property
    def code(self) -> str:
        """The Python source of forward (of a loaded module, that of its graph)."""
        own = self.__dict__.get("_code")
        return own if own is not None else _source(type(self).forward)

    @property
    def graph(self) -> Any:
        """The torch.fx graph of forward; TraceError where conditions depend on values."""
        from flambeau.fx import symbolic_trace

        own = self.__dict__.get("_graph")
        return own if own is not None else symbolic_trace(original(self)).graph

    @property
    def inlined_graph(self) -> Any:
        """As `graph`, with the layers of torch.nn opened."""
        from flambeau.fx import Tracer

        class Opened(Tracer):
            def is_leaf_module(self, m: Any, module_qualified_name: str) -> bool:
                return False

        return Opened().trace(original(self))

    def graph_for(self, *args: Any, **kwargs: Any) -> Any:
        """The graph, whatever the arguments."""
        return self.graph

    def save(self, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
        """See torch.jit.save."""
        from flambeau.jit.saving import save

        save(self, f, _extra_files)

    def define(self, src: str) -> None:
        """RuntimeError: TorchScript as text is not read."""
        raise RuntimeError("ScriptModule.define: TorchScript as text is not read here; write the method in the class")


class RecursiveScriptModule(ScriptModule):
    """What torch.jit.script makes of a module: the same object by another class, with the same parameters and attributes."""

    def _get_name(self) -> str:
        return "RecursiveScriptModule"

    def extra_repr(self) -> str:
        return f"original_name={self.original_name}"

    def __reduce__(self) -> Any:
        return rewrap, (original(self), _wrapper_base(type(self)))


class _LeftOut:
    """In the place of a method that the scripted module has not: getting it raises AttributeError."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        raise AttributeError(f"'RecursiveScriptModule' object has no attribute '{self._name}'")


def _names_in(code: types.CodeType) -> set[str]:
    """The names that code uses, and the functions inside of it."""
    inner = (_names_in(part) for part in code.co_consts if isinstance_(part, types.CodeType))
    return set(code.co_names).union(*inner)


def _left_out(cls: type) -> set[str]:
    """The methods of a module's own classes that neither forward nor what is exported reaches; what is marked as ignored or unused stays."""
    methods: dict[str, types.FunctionType] = {}
    roots: list[Any] = []
    for each in reversed(cls.__mro__[: cls.__mro__.index(Module)]):
        for name, value in vars(each).items():
            if isinstance_(value, types.FunctionType):
                methods[name] = value
            elif isinstance_(value, property):
                roots.append(value.fget)
    roots += [f for name, f in methods.items() if name == "forward" or name.startswith("__") or hasattr(Module, name) or _marked(f)]
    todo, reached = [f.__code__ for f in roots if isinstance_(f, types.FunctionType)], {f.__name__ for f in roots if f is not None}
    while todo:
        for name in _names_in(todo.pop()) & methods.keys() - reached:
            reached.add(name)
            todo.append(methods[name].__code__)
    return methods.keys() - reached - {name for name, f in methods.items() if f in roots}


@cache
def _class_for(cls: type, base: type) -> type:
    members = {"_original_class": cls, "_wrapper_base": base, "__module__": base.__module__}
    if base is RecursiveScriptModule:
        members |= {name: _LeftOut() for name in _left_out(cls)}
    return type(base.__name__, (base, cls), members)


def _original_class(cls: type) -> type:
    return getattr(cls, "_original_class", cls)  # type: ignore[no-any-return]


def _wrapper_base(cls: type) -> type:
    return getattr(cls, "_wrapper_base", cls)  # type: ignore[no-any-return]


def rewrap(module: Module, base: type) -> Any:
    """A module by a class that is both its own and `base`; both objects share all that they hold."""
    cls = _class_for(type(module), base)  # type: ignore[arg-type]
    made: Any = object.__new__(cls)
    object.__setattr__(made, "__dict__", module.__dict__)
    return made


def original(module: Module) -> Module:
    """The module that was wrapped (an object of its class that shares all)."""
    cls = _original_class(type(module))
    if cls is type(module):
        return module
    made: Any = object.__new__(cls)
    object.__setattr__(made, "__dict__", module.__dict__)
    return made  # type: ignore[no-any-return]


def script(obj: Any, optimize: None = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> Any:
    """A function as a ScriptFunction, a module as a RecursiveScriptModule with the same parameters, a class as it is."""
    if isinstance_(obj, (ScriptModule, ScriptFunction)):
        return obj
    if isinstance_(obj, Module):
        for module in obj.modules():
            for name, t in (*module._parameters.items(), *module._buffers.items()):
                if is_lazy(t):
                    raise RuntimeError(f"'{typename(module)}' has uninitialized parameters {name}. Did you forget to run a forward pass?")
        return rewrap(obj, RecursiveScriptModule)
    if inspect.isclass(obj):
        if obj.__module__ == "builtins":
            raise TypeError(f"{obj} is a built-in class")
        return obj
    if isinstance_(obj, (dict, list)):
        return obj
    if callable(obj) and (inspect.isfunction(obj) or inspect.ismethod(obj) or hasattr(obj, "__name__")):
        return ScriptFunction(obj)
    raise TypeError(f"{type(obj)} is a built-in class" if type(obj).__module__ == "builtins" else f"torch.jit.script: cannot script {obj!r}")


def _mark(fn: Any, how: str) -> Any:
    """Write on a function, as PyTorch does, what torch.jit.script is to do with it."""
    for each in (fn.fget, fn.fset) if isinstance_(fn, property) else (fn,):
        if each is not None:
            each._torchscript_modifier = how
    return fn


def _marked(fn: Any) -> bool:
    """Whether a function is exported, ignored or unused: a scripted module has it, reached or not."""
    return hasattr(fn, "_torchscript_modifier")


def script_method(fn: Any) -> Any:
    """The method itself; a scripted module keeps it."""
    return _mark(fn, "export (compile this function even if nothing calls it)")


def export(fn: Any) -> Any:
    """The method itself; a scripted module keeps it, even if forward does not call it."""
    return _mark(fn, "export (compile this function even if nothing calls it)")


def unused(fn: Any) -> Any:
    """The function itself; a scripted module keeps it."""
    return _mark(fn, "unused (ignore and replace with raising of an exception)")


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself, or a decorator that returns it; a scripted module keeps it."""
    how = "ignore (leave as a call to Python, cannot be torch.jit.save'd)"
    return _mark(drop, how) if callable(drop) else (lambda fn: _mark(fn, how))


def interface(obj: Any) -> Any:
    """The class itself."""
    if not inspect.isclass(obj):
        raise RuntimeError("interface must be applied to a class")
    return obj


def _overload(func: Any) -> Any:
    """The function itself."""
    return func


_overload_method = _overload


def script_if_tracing(fn: Any) -> Any:
    """The function itself."""
    return fn


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def is_scripting() -> bool:
    """False: the Python runs."""
    return False


isinstance_ = builtins.isinstance


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether an object is of a type that may be generic (list[int], Optional[Tensor], dict[str, int]), its elements included."""
    if isinstance_(target_type, tuple):
        return any(isinstance(obj, t) for t in target_type)
    source, parts = typing.get_origin(target_type), typing.get_args(target_type)
    if target_type is None or target_type is type(None):
        return obj is None
    if target_type is Any:
        return True
    if source is None:
        return isinstance_(obj, target_type)
    if source in (typing.Union, types.UnionType):
        return any(isinstance(obj, t) for t in parts)
    if not isinstance_(obj, source):
        return False
    if source is dict:
        return all(isinstance(k, parts[0]) and isinstance(v, parts[1]) for k, v in obj.items())
    if source is tuple and not (len(parts) == 2 and parts[1] is Ellipsis):
        return len(obj) == len(parts) and all(isinstance(o, t) for o, t in zip(obj, parts, strict=True))
    return all(isinstance(o, parts[0]) for o in obj) if parts else True


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """The result of a call as a future. The call is made at once: its operations are recorded and run in parallel anyway."""
    made: Future[Any] = Future()
    try:
        made.set_result(func(*args, **kwargs))
    except Exception as error:
        made.set_exception(error)
    return made


def wait(future: Future[Any]) -> Any:
    """The result of a fork."""
    return future.wait()


def freeze(mod: Any, preserved_attrs: list[str] | None = None, optimize_numerics: bool = True) -> Any:
    """The module itself; RuntimeError unless it is scripted and in eval mode. Constants are found when it runs."""
    if not isinstance_(mod, ScriptModule):
        raise RuntimeError(
            f"Freezing expects a ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'; got {type(mod)}"
        )
    if mod.training:
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode. Please call .eval() on your module before freezing.")
    return mod


def optimize_for_inference(mod: Any, other_methods: list[str] | None = None) -> Any:
    """The module itself, in eval mode; ValueError unless it is scripted."""
    if not isinstance_(mod, ScriptModule):
        raise ValueError("optimize_for_inference expects ScriptModule as input. Please use torch.jit.script or torch.jit.trace to script your 'nn.Module'.")
    return freeze(mod)


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Accepted; what it was."""
    return [("STATIC", 2), ("DYNAMIC", 10)]


class strict_fusion(nullcontext[None]):
    """A block that changes nothing."""


def optimized_execution(should_optimize: bool) -> AbstractContextManager[None]:
    """A block that changes nothing."""
    return nullcontext()


_onednn = [False]


def enable_onednn_fusion(enabled: bool) -> None:
    """Accepted and remembered."""
    _onednn[0] = enabled


def onednn_fusion_enabled() -> bool:
    """What enable_onednn_fusion said."""
    return _onednn[0]


def export_opnames(m: Any) -> list[str]:
    """The names of the functions, methods and layers of a scripted module's graph."""
    from flambeau.fx.node import qualified_name

    names = {qualified_name(n.target) if callable(n.target) else n.target for n in m.graph.nodes if n.op.startswith("call")}
    return sorted(names)


class CompilationUnit:
    """RuntimeError with source: TorchScript as text is not read."""

    def __init__(self, lang: str | None = None, _frames_up: int = 0) -> None:
        if lang is not None:
            raise RuntimeError("torch.jit.CompilationUnit: TorchScript as text is not read here; write a Python function")
