"""Proxy: stands for a value while a program is traced; what is done with it becomes nodes of the graph.

A Proxy is no tensor. It answers `__torch_function__` (overrides.py), operators and methods; what Python must know at once (the truth of a
condition, a length, a number) it refuses.
"""

from __future__ import annotations

import dis
import enum
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

from flambeau.devices import Device
from flambeau.dtypes import dtype
from flambeau.fx.graph import _MAGIC, Graph
from flambeau.fx.node import Node, map_aggregate
from flambeau.ops import instrument
from flambeau.ops.dispatch import _Getter
from flambeau.queries import memory_format
from flambeau.tensor import Tensor
from flambeau.trace.meta import Size

_REFLECTED = "add sub mul floordiv truediv mod pow lshift rshift and_ or_ xor getitem matmul".split()
_BASE = (str, int, float, bool, complex, dtype, Tensor, Device, memory_format, type(None), type(...))


class TraceError(ValueError):
    """The program needs to know a value that is not known while it is traced."""


class TracerBase:
    """What makes nodes and proxies; see symbolic_trace.Tracer."""

    graph: Graph
    traced_func_name: str = "forward"

    def create_node(self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None, type_expr: Any | None = None) -> Node:
        """A node in the tracer's graph."""
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node: Node) -> Proxy:
        """The proxy that stands for a node's result."""
        return Proxy(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None, type_expr: Any | None = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:  # fmt: skip
        """A node whose arguments may hold proxies, and its own proxy."""
        args_, kwargs_ = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, args_, kwargs_, name, type_expr)
        return self.proxy(node) if proxy_factory_fn is None else proxy_factory_fn(node)

    def create_arg(self, a: Any) -> Any:
        """An argument of a node: proxies become their nodes. NotImplementedError for an object that no code can write."""
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            return type(a)(*[self.create_arg(x) for x in a])
        if isinstance(a, Size):
            return tuple(self.create_arg(x) for x in a)
        if isinstance(a, (tuple, list)):
            return type(a)([self.create_arg(x) for x in a])
        if isinstance(a, dict):
            for k in a:
                if isinstance(k, Proxy):
                    raise RuntimeError(f"Keys for dictionaries used as an argument cannot contain a Node. Got key: {k}")
            return {k: self.create_arg(v) for k, v in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, (*_BASE, enum.Enum)) or callable(a):
            return a
        raise NotImplementedError(f"argument of type: {type(a)}")

    def to_bool(self, obj: Proxy) -> bool:
        """What `if proxy:` asks: refused."""
        raise TraceError("symbolically traced variables cannot be used as inputs to control flow")

    def iter(self, obj: Any) -> Iterator[Any]:
        """What `for x in proxy:` asks: known only where a sequence is unpacked into names."""
        frame = sys._getframe(2)
        instructions = {i.offset: i for i in dis.get_instructions(frame.f_code)}
        at = instructions.get(frame.f_lasti)
        if at is not None and at.opname == "UNPACK_SEQUENCE":
            return (obj[i] for i in range(at.argval))
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or **kwargs function "
            "argument. See the torch.fx docs on pytorch.org for a more detailed explanation of what types of control flow can be traced, and "
            "check out the Proxy docstring for help troubleshooting Proxy iteration errors"
        )

    def keys(self, obj: Proxy) -> Any:
        """What `**proxy` asks."""
        return Attribute(obj, "keys")()


class GraphAppendingTracer(TracerBase):
    """Appends to a graph that exists."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


# Its own attributes before they are there, and those by which a wrapper knows a tensor of ours (ops/wrapper.py).
_NOT_ANSWERED = frozenset(("node", "tracer", "_gen", "_slot", "_meta"))


class Proxy:
    """Stands for the result of `node`."""

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        instrument.functions()  # a proxy answers outside of a trace, too: e3nn writes graphs with it
        self.tracer = tracer if tracer is not None else GraphAppendingTracer(node.graph)
        self.node = node

    def __repr__(self) -> str:
        return f"Proxy({self.node.name})"

    def __getattr__(self, k: str) -> Any:
        if k in _NOT_ANSWERED or (k.startswith("__") and k.endswith("__")):
            raise AttributeError(f"'Proxy' object has no attribute {k!r}")
        return Attribute(self, k)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self) -> Iterator[Any]:
        return self.tracer.iter(self)

    def __bool__(self) -> bool:
        return self.tracer.to_bool(self)

    def __len__(self) -> int:
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call torch.fx.wrap('len') at module scope"
        )

    def __abs__(self) -> Proxy:
        return self.tracer.create_proxy("call_function", abs, (self,), {})

    def keys(self) -> Any:
        """What `**proxy` asks."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, orig_method: Any, types: Any, args: Any = None, kwargs: Any = None) -> Any:
        from flambeau.overrides import resolve_name

        args, kwargs = args or (), kwargs or {}
        tracers: dict[Any, None] = {}

        def note(a: Any) -> Any:
            if isinstance(a, Proxy):
                tracers[a.tracer] = None
            return a

        map_aggregate(tuple(args), note)
        map_aggregate(dict(kwargs), note)
        if len(tracers) > 1:
            raise RuntimeError(f"Found multiple different tracers {list(tracers)} while trying to trace operations {orig_method}")
        (tracer,) = tracers
        if isinstance(orig_method, _Getter):
            return Attribute(args[0], getattr(orig_method.plain, "fget", orig_method).__name__)
        name = resolve_name(orig_method)
        if name is not None and name.startswith("torch.Tensor."):
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        if name in ("torch.nn.functional.sigmoid", "torch.nn.functional.tanh"):  # which call the method in PyTorch
            return tracer.create_proxy("call_method", orig_method.__name__, args, kwargs)
        if name is not None and name.startswith("torch.nn.functional.") and name.rsplit(".", 1)[-1] not in _BUILT_IN:
            args, kwargs = _spelled_out(orig_method, args, kwargs)
        return tracer.create_proxy("call_function", orig_method, args, kwargs)


# Functions of nn.functional that are built in in PyTorch: their calls are recorded as they are written.
_BUILT_IN = frozenset(
    """linear bilinear gelu scaled_dot_product_attention logsigmoid softplus softshrink hardshrink one_hot prelu pixel_shuffle pixel_unshuffle
    channel_shuffle native_channel_shuffle cosine_similarity pairwise_distance pdist avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d conv_tbc celu_ selu_ relu_ threshold_ leaky_relu_ hardtanh_ elu_ rrelu_""".split()
)


def _spelled_out(function: Any, args: Any, kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A call with its required arguments by position and all others by keyword, as PyTorch's nn.functional hands them on."""
    try:
        signature = getattr(function, "__signature__", None) or inspect.signature(instrument.original(function))
        bound = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        return tuple(args), kwargs
    bound.apply_defaults()
    parameters = signature.parameters
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters.values()):
        return tuple(args), kwargs
    given = tuple(bound.arguments[n] for n, p in parameters.items() if p.default is p.empty)
    return given, {n: bound.arguments[n] for n, p in parameters.items() if p.default is not p.empty}


class Attribute(Proxy):
    """`proxy.name`: a node of its own only where it is used as a value, not where it is called."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.root = root
        self.attr = attr
        self.tracer = root.tracer
        self._node: Node | None = None

    @property
    def node(self) -> Node:  # type: ignore[override]
        """The node of getattr, made now."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


class ParameterProxy(Proxy):
    """Stands for a parameter, whose shape is known."""

    def __init__(self, tracer: TracerBase, node: Node, name: str, param: Any) -> None:
        super().__init__(node, tracer)
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    @property
    def shape(self) -> Any:
        """The parameter's shape."""
        return self.param.shape

    def size(self, *args: Any) -> Any:
        """The parameter's size."""
        return self.param.size(*args)

    def dim(self) -> int:
        """The parameter's number of dimensions."""
        return self.param.dim()  # type: ignore[no-any-return]

    @property
    def ndim(self) -> int:
        """The parameter's number of dimensions."""
        return self.param.ndim  # type: ignore[no-any-return]

    def numel(self) -> int:
        """The parameter's number of elements."""
        return self.param.numel()  # type: ignore[no-any-return]

    def nelement(self) -> int:
        """The parameter's number of elements."""
        return self.param.numel()  # type: ignore[no-any-return]


def _operator_method(name: str) -> Any:
    target = getattr(operator, name)

    def method(*args: Any, **kwargs: Any) -> Any:
        return args[0].tracer.create_proxy("call_function", target, args, kwargs)

    method.__name__ = f"__{name.strip('_')}__"
    return method


def _reflected_method(name: str) -> Any:
    target = getattr(operator, name)

    def method(self: Proxy, other: Any) -> Any:
        return self.tracer.create_proxy("call_function", target, (other, self), {})

    method.__name__ = f"__r{name.strip('_')}__"
    return method


for _name in _MAGIC:
    setattr(Proxy, f"__{_name.strip('_')}__", _operator_method(_name))
for _name in _REFLECTED:
    setattr(Proxy, f"__r{_name.strip('_')}__", _reflected_method(_name))
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
