"""Symbolic tracing: a program is called with proxies, and what it does becomes a graph.

While a program is traced, public functions have stubs (ops/instrument.py) and Module's `__call__` and `__getattr__` are exchanged, so
that leaf modules and parameters are met. Afterwards all is as it was.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import sys
import types
from collections.abc import Callable
from typing import Any

from flambeau.fx.graph import Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import map_aggregate
from flambeau.fx.proxy import ParameterProxy, Proxy, TracerBase
from flambeau.module_names import under_flambeau
from flambeau.nn.modules.module import Module
from flambeau.nn.parameter import Parameter
from flambeau.ops import instrument
from flambeau.queries import _assert
from flambeau.tensor import Tensor

_HAS_VARSTUFF = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}  # (id of a module's globals, name of a function in them) -> the globals
_wrapped_methods: list[tuple[type, str]] = []


_tracing = [0]  # how many traces are under way


def is_fx_tracing() -> bool:
    """Whether a program is being traced."""
    return _tracing[0] > 0


class PHBase:
    """A concrete argument that stays a parameter."""

    def __repr__(self) -> str:
        return "PH"


PH = PHBase()


class ProxyableClassMeta(type):
    """The metaclass of classes whose construction with proxies becomes a node."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy((args, kwargs))
        if proxy is not None:
            return proxy.tracer.create_proxy("call_function", cls, args, kwargs)
        return super().__call__(*args, **kwargs)


def _find_proxy(values: Any) -> Proxy | None:
    found: list[Proxy] = []

    def note(a: Any) -> Any:
        if isinstance(a, Proxy):
            found.append(a)
        return a

    map_aggregate(values, note)
    return found[0] if found else None


def _always(function: Callable[..., Any]) -> bool:
    return True


def _recording(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that becomes a node where an argument is a proxy."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy((args, kwargs))
        if proxy is not None and getattr(proxy.tracer, "_keeps_whole", _always)(function):
            made = proxy.tracer.create_proxy("call_function", function, args, kwargs)
            made.node.meta["is_wrapped"] = True
            return made
        return function(*args, **kwargs)

    return wrapped


def _recording_method(cls: type, name: str) -> Callable[..., Any]:
    original = getattr(cls, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _find_proxy((args, kwargs))
        if proxy is not None:
            return proxy.tracer.create_proxy("call_method", name, args, kwargs)
        return original(*args, **kwargs)

    return wrapped


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Say, at module scope, that calls of a function of this module (given, or named: "len") shall become nodes."""
    if not callable(fn_or_name) and not isinstance(fn_or_name, str):
        raise RuntimeError("Unsupported type for global function! Must be either a callable or string name")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[(id(frame.f_globals), name)] = frame.f_globals
    return fn_or_name


class _Patcher:
    """A block in which a program is traced: public functions have stubs, and what is exchanged goes back at its end.

    Tracers written over PyTorch's use it by its names there.
    """

    def __init__(self) -> None:
        self.undo: list[Callable[[], None]] = []
        self.visited: set[int] = set()
        self.stubs = instrument.everything()

    def patch(self, frame_dict: dict[str, Any], name: str, new_fn: Callable[..., Any], deduplicate: bool = True) -> None:
        """Exchange an entry of a module's globals (or a builtin, for that module), unless it has been; `deduplicate` marks it for the next who asks."""
        there, before = name in frame_dict, frame_dict.get(name)
        if getattr(before, "__fx_already_patched", False):
            return

        def restore() -> None:
            if there:
                frame_dict[name] = before
            else:
                del frame_dict[name]

        new_fn.__fx_already_patched = deduplicate  # type: ignore[attr-defined]
        self.undo.append(restore)
        frame_dict[name] = new_fn

    def patch_method(self, cls: Any, name: str, new_fn: Callable[..., Any], deduplicate: bool = True) -> None:
        """Exchange an attribute of a class, as `patch` does an entry."""
        before = getattr(cls, name)
        if getattr(before, "__fx_already_patched", False):
            return
        own = name in vars(cls)
        new_fn.__fx_already_patched = deduplicate  # type: ignore[attr-defined]
        self.undo.append((lambda: setattr(cls, name, before)) if own else (lambda: delattr(cls, name)))
        setattr(cls, name, new_fn)

    def visit_once(self, thing: object) -> bool:
        """Whether nobody has asked for this object before."""
        new = id(thing) not in self.visited
        self.visited.add(id(thing))
        return new

    def __enter__(self) -> _Patcher:
        _tracing[0] += 1
        self.stubs.__enter__()
        return self

    def __exit__(self, *exception: Any) -> None:
        while self.undo:
            self.undo.pop()()
        self.stubs.__exit__(*exception)
        _tracing[0] -= 1


def _patch_wrapped_functions(patcher: _Patcher) -> None:
    """Exchange what `wrap` has named."""
    for (_, name), table in list(_wrapped.items()):
        function = table.get(name, getattr(builtins, name, None))
        if function is not None:
            patcher.patch(table, name, _recording(function))
    for cls, name in _wrapped_methods:
        patcher.patch_method(cls, name, _recording_method(cls, name))


def _autowrap_check(patcher: _Patcher, frame_dict: dict[str, Any], function_ids: set[int]) -> None:
    """Exchange those of a module's globals whose calls are to become nodes."""
    if patcher.visit_once(frame_dict):
        for name, value in list(frame_dict.items()):
            if id(value) in function_ids and not name.startswith("_") and callable(value):
                patcher.patch(frame_dict, name, _recording(value))


def _assert_is_none(value: Any, message: str) -> None:
    if value is not None:
        raise AssertionError(message)


class Tracer(TracerBase):
    """Makes graphs. A subclass may decide which modules are leaves, and how calls and arguments become nodes.

    `autowrap_modules`: modules of Python functions (math) whose calls with proxies become nodes; `autowrap_functions`: functions alike.
    """

    def __init__(
        self, autowrap_modules: tuple[types.ModuleType, ...] = (math,), autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._autowrap_search = list(autowrap_modules)
        self._autowrap_function_ids = {id(f) for f in autowrap_functions}
        for module in autowrap_modules:
            self._autowrap_function_ids |= {id(v) for n, v in vars(module).items() if not n.startswith("_") and callable(v)}
        self.param_shapes_constant = param_shapes_constant
        self.root: Module = Module()
        self.tensor_attrs: dict[Any, str] = {}
        self.submodule_paths: dict[Module, str] | None = None
        self.module_stack: dict[str, Any] = {}
        self.proxy_buffer_attributes = False

    def get_fresh_qualname(self, prefix: str) -> str:
        """An attribute name of the root that is free."""
        i = 0
        while hasattr(self.root, f"{prefix}{i}"):
            i += 1
        return f"{prefix}{i}"

    def create_arg(self, a: Any) -> Any:
        """An argument of a node. Parameters, buffers and modules become get_attr nodes; other tensors become constants of the root."""
        if isinstance(a, Parameter):
            for name, p in self.root.named_parameters():
                if a is p:
                    return self.create_node("get_attr", name, (), {})
            raise NameError("parameter is not a member of this module")
        if isinstance(a, Tensor):
            buffer = next((n for n, b in self.root.named_buffers() if b is a), None)
            path = buffer or self.tensor_attrs.get(a)
            if path is None:
                path = self.get_fresh_qualname("_tensor_constant")
                self.tensor_attrs[a] = path
                setattr(self.root, path, a)
            return self.create_node("get_attr", path, (), {})
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(a, tuple) and hasattr(a, "_fields"):  # a named tuple is made by a call
            return self.create_node("call_function", type(a), tuple([self.create_arg(x) for x in a]), {})
        return super().create_arg(a)

    def is_leaf_module(self, m: Module, module_qualified_name: str) -> bool:
        """Whether a call of a module is one node: the layers of torch.nn, but Sequential."""
        from flambeau.nn.modules.container import Sequential

        return under_flambeau(type(m).__module__).startswith("flambeau.nn") and not isinstance(m, Sequential)

    def path_of_module(self, mod: Module) -> str:
        """The path of a submodule of the root; NameError if it is none."""
        if self.submodule_paths is not None and mod in self.submodule_paths:
            return self.submodule_paths[mod]
        for name, m in self.root.named_modules():
            if m is mod:
                return name
        raise NameError("module is not installed as a submodule")

    def call_module(self, m: Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What a call of a submodule does: a node for a leaf, else its own forward is traced."""
        name = self.path_of_module(m)
        if not self.is_leaf_module(m, name):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", name, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """What a module's attribute gives: of a parameter (and of a buffer with `proxy_buffer_attributes`) its proxy."""
        if not isinstance(attr_val, Tensor):
            return attr_val
        tables: list[Any] = []
        if isinstance(attr_val, Parameter):
            tables.append(self.root.named_parameters())
        elif self.proxy_buffer_attributes:
            tables.append(self.root.named_buffers())
        for table in tables:
            for name, value in table:
                if value is attr_val:
                    if name not in parameter_proxy_cache:
                        factory = None
                        if self.param_shapes_constant:
                            factory = functools.partial(lambda n, v, node: ParameterProxy(self, node, n, v), name, value)
                        parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {}, proxy_factory_fn=factory)
                    return parameter_proxy_cache[name]
        return attr_val

    def create_args_for_root(
        self, root_fn: Callable[..., Any], is_module: bool, concrete_args: dict[str, Any] | tuple[Any, ...] | None = None
    ) -> tuple[Callable[..., Any], list[Any]]:
        """A placeholder's proxy (or the concrete argument) for every parameter of the program; and the function to call with them."""
        fn = inspect.unwrap(root_fn)
        code = fn.__code__
        total = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames[:total])
        signature = inspect.signature(fn)
        annotations = getattr(fn, "__annotations__", {})
        args: list[Any] = []
        if is_module:
            if not names:
                raise RuntimeError("``self`` argument cannot be part of *args expansion!")
            args.append(self.root)
            names = names[1:]
        if isinstance(concrete_args, tuple):
            if len(names) != len(concrete_args):
                raise RuntimeError(f"Tracing expected {len(names)} arguments but got {len(concrete_args)} concrete arguments")
            concrete_args = dict(zip(names, concrete_args, strict=True))

        def typed(name: str) -> Any:
            hint = annotations.get(name)
            return {"int": int, "float": float, "bool": bool, "str": str, "Tensor": Tensor, "torch.Tensor": Tensor}.get(hint) if isinstance(hint, str) else hint

        def placeholder(name: str) -> Any:
            parameter = signature.parameters.get(name)
            default = () if parameter is None or parameter.default is parameter.empty else (parameter.default,)
            if concrete_args is not None and name in concrete_args and concrete_args[name] is not PH:
                value = concrete_args[name]
                made = self.create_proxy("placeholder", f"{name}_1", default, {})
                if type(value) in (bool, int, float, str):
                    _assert(made == value, f"{name} has been specialized to have value {value} but got another value")
                elif value is None:
                    message = f"{name} has been specialized to have value None but got another value"
                    self.create_proxy("call_function", _assert_is_none, (made, message), {})
                return value
            return self.create_proxy("placeholder", name, default, {}, type_expr=typed(name))

        positional = names[: code.co_argcount - int(is_module)]
        keywords = names[code.co_argcount - int(is_module) :]
        args += [placeholder(name) for name in positional]
        named = {name: placeholder(name) for name in keywords}
        rest = total
        gathered: list[Any] = []
        extra: dict[str, Any] = {}
        if code.co_flags & inspect.CO_VARARGS:
            gathered = _GatheredArgs(self.create_proxy("placeholder", f"*{code.co_varnames[rest]}", (), {}))  # type: ignore[assignment]
            rest += 1
        if code.co_flags & inspect.CO_VARKEYWORDS:
            extra = _GatheredKeywords(self.create_proxy("placeholder", f"**{code.co_varnames[rest]}", (), {}))  # type: ignore[assignment]
        if code.co_flags & _HAS_VARSTUFF:
            fn = _with_gathered(fn, code, names, gathered, extra, total)
            return fn, [*args, *named.values()]
        if named:
            return (lambda *a: fn(*a[: len(positional) + int(is_module)], **dict(zip(keywords, a[len(positional) + int(is_module) :], strict=True)))), [
                *args, *named.values(),
            ]  # fmt: skip
        return fn, args

    def trace(self, root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> Graph:
        """The graph of a module's forward, or of a function."""
        if isinstance(root, Module):
            self.root = root
            if not hasattr(type(root), self.traced_func_name):
                raise AssertionError(f"traced_func_name={self.traced_func_name} doesn't exist in {type(root).__name__}")
            fn = getattr(type(root), self.traced_func_name)
            self.submodule_paths = {mod: name for name, mod in root.named_modules()}
        else:
            self.root = Module()
            fn = root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs = {}

        def collect(m: Module, prefix: list[str]) -> None:
            for k, v in m.__dict__.items():
                if isinstance(v, Tensor):
                    self.tensor_attrs[v] = ".".join([*prefix, k])
            for k, child in m.named_children():
                collect(child, [*prefix, k])

        collect(self.root, [])
        fn_globals = inspect.unwrap(fn).__globals__ if hasattr(inspect.unwrap(fn), "__globals__") else {}
        cache: dict[str, Any] = {}
        original_call, original_getattr = Module.__call__, Module.__getattr__

        def call(mod: Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*a: Any, **k: Any) -> Any:
                return original_call(mod, *a, **k)

            return self.call_module(mod, forward, args, kwargs)

        def attribute(mod: Module, attr: str) -> Any:
            return self.getattr(attr, original_getattr(mod, attr), cache)

        with _Patcher() as patcher:
            fn, args = self.create_args_for_root(fn, isinstance(root, Module), concrete_args)
            patcher.patch_method(Module, "__call__", call, deduplicate=False)
            patcher.patch_method(Module, "__getattr__", attribute, deduplicate=False)
            _patch_wrapped_functions(patcher)
            for table in (fn_globals, *[vars(module) for module in self._autowrap_search]):
                _autowrap_check(patcher, table, self._autowrap_function_ids)
            result = self.create_arg(fn(*args))
            hints = getattr(fn, "__annotations__", {})
            kind = hints.get("return")
            self.create_node("output", "output", (result,), {}, type_expr=None if isinstance(kind, str) else kind)
        self.submodule_paths = None
        return self.graph


class _GatheredArgs(tuple[Any, ...]):
    """What `*args` is while a program is traced: the proxy of the tuple."""

    proxy: Proxy

    def __new__(cls, proxy: Proxy) -> _GatheredArgs:
        made = super().__new__(cls)
        made.proxy = proxy
        return made


class _GatheredKeywords(dict[str, Any]):
    """What `**kwargs` is while a program is traced: the proxy of the dict."""

    def __init__(self, proxy: Proxy) -> None:
        super().__init__()
        self.proxy = proxy


def _with_gathered(fn: Any, code: types.CodeType, names: list[str], gathered: Any, extra: Any, total: int) -> Any:
    """The function with `*args` and `**kwargs` as ordinary parameters, so that they can be proxies."""
    flags = code.co_flags & ~_HAS_VARSTUFF
    more = int(isinstance(gathered, _GatheredArgs)) + int(isinstance(extra, _GatheredKeywords))
    made = types.FunctionType(
        code.replace(co_flags=flags, co_argcount=total + more, co_posonlyargcount=0, co_kwonlyargcount=0), fn.__globals__, fn.__name__, None, fn.__closure__
    )
    added = [g.proxy for g in (gathered, extra) if isinstance(g, (_GatheredArgs, _GatheredKeywords))]
    return lambda *args: made(*args, *added)


def symbolic_trace(root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None) -> GraphModule:
    """A GraphModule that does what a module or function does. Conditions on values cannot be traced: TraceError.

    `concrete_args`: {parameter: value} that the program is specialised to.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else getattr(root, "__name__", "GraphModule")
    return GraphModule(tracer.root, graph, name)


__all__ = ["PH", "ProxyableClassMeta", "Tracer", "symbolic_trace", "wrap"]
