"""Node: one step of a graph.

`op` is one of placeholder (target: the parameter's name), get_attr (target: "a.b"), call_function (target: the function), call_method
(target: the method's name; args[0] is the object), call_module (target: "a.b"), output (args[0]: what is returned). Arguments hold
other nodes, constants, and tuples, lists, dicts and slices of them.
"""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.fx.immutable_collections import immutable_dict, immutable_list
from flambeau.module_names import is_ours, under_torch

if TYPE_CHECKING:
    from flambeau.fx.graph import Graph

Argument = Any  # names for annotations
Target = Callable[..., Any] | str
OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
_side_effectful: set[Callable[..., Any]] = set()


def has_side_effect(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Say that a function does something beside its result, so that its calls are never dead code."""
    _side_effectful.add(fn)
    return fn


def map_aggregate(a: Any, fn: Callable[[Any], Any]) -> Any:
    """`fn` of everything in nested tuples, lists, dicts and slices."""
    if isinstance(a, tuple):
        parts = tuple(map_aggregate(x, fn) for x in a)
        return type(a)(*parts) if hasattr(a, "_fields") else parts
    if isinstance(a, list):
        return immutable_list(map_aggregate(x, fn) for x in a)
    if isinstance(a, dict):
        return immutable_dict((k, map_aggregate(v, fn)) for k, v in a.items())
    if isinstance(a, slice):
        return slice(map_aggregate(a.start, fn), map_aggregate(a.stop, fn), map_aggregate(a.step, fn))
    return fn(a)


def map_arg(a: Any, fn: Callable[[Node], Any]) -> Any:
    """`fn` of every node in nested tuples, lists, dicts and slices."""
    if not callable(fn):
        raise AssertionError("torch.fx.map_arg(a, fn): fn must be a callable")
    return map_aggregate(a, lambda x: fn(x) if isinstance(x, Node) else x)


# Functions of nn.functional that are the torch namespace's in PyTorch.
_OF_TORCH = frozenset(
    """conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d bilinear hardshrink prelu pixel_shuffle pixel_unshuffle channel_shuffle
    cosine_similarity pairwise_distance avg_pool1d adaptive_avg_pool1d""".split()
)


def writes(target: Any) -> bool:
    """Whether an overload writes to its arguments: its schema says so."""
    from flambeau._ops import OpOverload

    try:
        return isinstance(target, OpOverload) and target._schema.is_mutable
    except RuntimeError:  # no schema is known
        return False


def qualified_name(func: Callable[..., Any]) -> str:
    """How code names a function: "torch.add", "operator.mul", "getattr"."""
    from flambeau._ops import OpOverload, OpOverloadPacket
    from flambeau.overrides import resolve_name

    if isinstance(func, (OpOverload, OpOverloadPacket)):
        return f"torch.ops.{func}"
    known = resolve_name(func)
    if known is not None:
        space, _, own = known.rpartition(".")
        return f"torch.{own}" if space == "torch.nn.functional" and own in _OF_TORCH else known
    if getattr(builtins, getattr(func, "__name__", ""), None) is func:
        return func.__name__
    if isinstance(func, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return f"{func.__objclass__.__module__}.{func.__objclass__.__name__}.{func.__name__}"
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", None)
    module = getattr(func, "__module__", None)
    if name is None or module is None:
        raise RuntimeError(f"torch.fx: {func!r} has no name by which code could call it")
    if module in ("_operator", "operator"):
        module = "operator"
    import flambeau

    if getattr(flambeau, name, None) is func:
        return f"torch.{name}"
    return f"{under_torch(module)}.{name}"


def type_repr(obj: Any) -> str:
    """A type as annotations write it."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        module = obj.__module__
        if is_ours(module):
            return "torch.Tensor" if obj.__name__ == "Tensor" else f"torch.{obj.__name__}"
        return f"{module}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    if isinstance(obj, types.FunctionType):
        return obj.__name__
    return repr(obj).replace("flambeau.tensor.Tensor", "torch.Tensor")


class ArgsKwargsPair(NamedTuple):
    """Arguments of a call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Node:
    """See the module. `users`: {node that uses this one: None}, in order. `meta`: whatever passes want to remember."""

    def __init__(self, graph: Graph, name: str, op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], return_type: Any | None = None) -> None:
        if op not in OPS:
            raise AssertionError(f"torch.fx.Node: op is one of {', '.join(OPS)}, not {op!r}")
        if op == "call_function" and not callable(target):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a Callable is expected")
        if op not in ("call_function", "root") and not isinstance(target, str):
            raise ValueError(f"Node [graph = {graph}, name = '{name}'] target {target} has type {type(target)} but a str is expected")
        self.graph = graph
        self.name = name
        self.op = op
        self.target = target
        self.type = return_type
        self.users: dict[Node, None] = {}
        self.meta: dict[str, Any] = {}
        self._input_nodes: dict[Node, None] = {}
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = immutable_dict()
        self._prev = self._next = self
        self._erased = False
        self._update(args, kwargs)

    # -- place in the graph --------------------------------------------------------------------------------------
    @property
    def next(self) -> Node:
        """The node after this one."""
        return self._next

    @property
    def prev(self) -> Node:
        """The node before this one."""
        return self._prev

    def prepend(self, x: Node) -> None:
        """Move `x` before this node."""
        if self.graph is not x.graph:
            raise AssertionError("Attempting to move a Node into a different Graph")
        if self is x:
            return
        x._remove_from_list()
        before = self._prev
        before._next, x._prev = x, before
        x._next, self._prev = self, x

    def append(self, x: Node) -> None:
        """Move `x` after this node."""
        self._next.prepend(x)

    def _remove_from_list(self) -> None:
        self._prev._next, self._next._prev = self._next, self._prev

    # -- arguments -----------------------------------------------------------------------------------------------
    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""
        return self._args

    @args.setter
    def args(self, a: tuple[Any, ...]) -> None:
        self._update(a, self._kwargs)

    @property
    def kwargs(self) -> dict[str, Any]:
        """The arguments by keyword."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, k: dict[str, Any]) -> None:
        self._update(self._args, k)

    def _update(self, args: Iterable[Any], kwargs: dict[str, Any]) -> None:
        for used in self._input_nodes:
            used.users.pop(self, None)
        self._input_nodes = {}

        def use(n: Node) -> Node:
            self._input_nodes.setdefault(n)
            n.users.setdefault(self)
            return n

        self._args = map_arg(tuple(args), use)
        self._kwargs = map_arg(dict(kwargs), use)

    @property
    def all_input_nodes(self) -> list[Node]:
        """The nodes that this one uses, each once."""
        return list(self._input_nodes)

    def update_arg(self, idx: int, arg: Any) -> None:
        """Exchange one positional argument."""
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx: int, arg: Any) -> None:
        """Put a positional argument before the one at `idx`."""
        if not 0 <= idx <= len(self.args):
            raise AssertionError(f"insert_args index must be between 0 and len(self.args), got {idx}")
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key: str, arg: Any) -> None:
        """Exchange one argument by keyword."""
        self.kwargs = {**self.kwargs, key: arg}

    def replace_all_uses_with(
        self, replace_with: Node, delete_user_cb: Callable[[Node], bool] = lambda user: True, *, propagate_meta: bool = False
    ) -> list[Node]:
        """Let those users of this node that `delete_user_cb` allows use another; returns them."""
        if propagate_meta:
            for key, value in self.meta.items():
                replace_with.meta[key] = value
        changed = []
        for user in list(self.users):
            if delete_user_cb(user):
                changed.append(user)
                user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input: Node, new_input: Any) -> None:
        """Use another node wherever this one uses `old_input`."""

        def exchange(n: Node) -> Any:
            return new_input if n is old_input else n

        self._update(map_arg(self.args, exchange), map_arg(self.kwargs, exchange))

    @property
    def stack_trace(self) -> str | None:
        """Where the user's program made this node, if a tracer has noted it."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random: bool = True) -> bool:
        """Whether the node does something beside its result, so that it is no dead code: in-place methods, random numbers and
        modules in training included where they are known to write.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            if writes(self.target):
                return True
            return self.target in _side_effectful or name in ("_assert", "setitem") or (name.endswith("_") and not name.endswith("__"))
        if self.op == "call_method":
            return self.target.endswith("_") and not self.target.endswith("__")
        if self.op == "call_module" and self.graph.owning_module is not None:
            target = self.graph.owning_module.get_submodule(self.target)
            return bool(getattr(target, "_is_impure", False))
        return False

    def normalized_arguments(self, root: Any, arg_types: Any = None, kwarg_types: Any = None, normalize_to_only_use_kwargs: bool = False) -> Any | None:
        """(args, kwargs) with every argument in the place, or under the name, that the callee's signature gives it; None if unknown."""
        import inspect

        callee = self.target if self.op == "call_function" else root.get_submodule(self.target).forward if self.op == "call_module" else None
        if callee is None:
            return None
        try:
            bound = inspect.signature(callee).bind(*self.args, **self.kwargs)
        except (TypeError, ValueError):
            return None
        bound.apply_defaults()
        return ArgsKwargsPair((), dict(bound.arguments)) if normalize_to_only_use_kwargs else ArgsKwargsPair(bound.args, bound.kwargs)

    # -- text ----------------------------------------------------------------------------------------------------
    def __repr__(self) -> str:
        return self.name

    def _pretty_target(self, target: Any) -> str:
        if isinstance(target, str):
            return target
        name = qualified_name(target)
        return f"builtins.{name}" if "." not in name else name

    def format_node(self, placeholder_names: list[str] | None = None, maybe_return_typename: list[str] | None = None, **_: Any) -> str | None:
        """The node as a line of a graph's text. Of placeholders and the output, the parts of the first line are noted in the lists."""
        count = f"[num_users={len(self.users)}]"
        if self.op == "placeholder":
            if placeholder_names is not None:
                placeholder_names.append(f"%{self.target}" + (f" : {type_repr(self.type)}" if self.type else ""))
            typed = f"{type_repr(self.type)} " if self.type else ""
            default = f"(default={self.args[0]})" if self.args else ""
            return f"%{self.name} : {typed}{count} = {self.op}[target={self.target}]{default}"
        if self.op == "get_attr":
            typed = f"{type_repr(self.type)} " if self.type is not None else ""
            return f"%{self.name} : {typed}{count} = {self.op}[target={self._pretty_target(self.target)}]"
        if self.op == "output":
            if self.type and maybe_return_typename is not None:
                maybe_return_typename[0] = f" -> {type_repr(self.type)}"
            return f"return {self.args[0]}"
        typed = f"{type_repr(self.type)} " if self.type is not None else ""
        return (
            f"%{self.name} : {typed}{count} = {self.op}[target={self._pretty_target(self.target)}]"
            f"(args = {_format(self.args)}, kwargs = {_format(self.kwargs)})"
        )

    def __lt__(self, other: Node) -> bool:
        return self.graph._position(self) < self.graph._position(other)

    def __gt__(self, other: Node) -> bool:
        return other < self


def _format(arg: Any) -> str:
    """Arguments as the text of a graph has them."""
    if isinstance(arg, list):
        return "[" + ", ".join(map(_format, arg)) + "]"
    if isinstance(arg, tuple):
        inner = ", ".join(map(_format, arg))
        return f"({inner},)" if len(arg) == 1 else f"({inner})"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{k}: {_format(v)}" for k, v in arg.items()) + "}"
    return f"%{arg.name}" if isinstance(arg, Node) else str(arg)


has_side_effect(operator.setitem)
