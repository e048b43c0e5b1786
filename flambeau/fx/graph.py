"""Graph: nodes in the order in which they run, and the Python code that runs them."""

from __future__ import annotations

import builtins
import inspect
import keyword
import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import flambeau
from flambeau.fx.node import Node, map_arg, qualified_name, type_repr

_MAGIC = {
    "eq": "{} == {}", "ne": "{} != {}", "lt": "{} < {}", "gt": "{} > {}", "le": "{} <= {}", "ge": "{} >= {}", "pos": "+{}", "neg": "-{}",
    "invert": "~{}", "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "floordiv": "{} // {}", "truediv": "{} / {}", "mod": "{} % {}",
    "pow": "{} ** {}", "lshift": "{} << {}", "rshift": "{} >> {}", "and_": "{} & {}", "or_": "{} | {}", "xor": "{} ^ {}",
    "getitem": "{}[{}]", "matmul": "{} @ {}",
}  # fmt: skip
_INPLACE = {
    "iadd": "{} += {}", "iand": "{} &= {}", "ifloordiv": "{} //= {}", "ilshift": "{} <<= {}", "imod": "{} %= {}", "imul": "{} *= {}",
    "imatmul": "{} @= {}", "ior": "{} |= {}", "ipow": "{} **= {}", "irshift": "{} >>= {}", "isub": "{} -= {}", "itruediv": "{} /= {}",
    "ixor": "{} ^= {}", "setitem": "{}[{}] = {}",
}  # fmt: skip


class PythonCode:
    """Source of `forward`, and the globals that it uses."""

    def __init__(self, src: str, globals: dict[str, Any]) -> None:
        self.src = src
        self.globals = globals


def _at(path: list[str]) -> Any:
    """What is at a path of names under torch: a function may hide the module of its name (symbolic_trace)."""
    found: Any = flambeau
    for part in path:
        found = getattr(found, part, None)
    return found


class _Names:
    """Names of one graph: no two nodes have the same, and none hides a builtin or a keyword."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.of: dict[Any, str] = {}
        self.count: dict[str, int] = {}

    def create(self, candidate: str, obj: Any) -> str:
        if obj is not None and obj in self.of:
            return self.of[obj]
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        found = re.match(r"(.*)_(\d+)$", candidate)
        base, number = (found[1], int(found[2])) if found else (candidate, None)
        name = candidate
        if number is None or name in self.used:
            number = self.count.get(base, 0)
        while name in self.used or keyword.iskeyword(name) or name in _RESERVED:
            number += 1
            name = f"{base}_{number}"
        self.count[base] = max(number, self.count.get(base, 0))
        self.used.add(name)
        if obj is not None:
            self.of[obj] = name
        return name


# Names that code has a use for; a node is never called so.
_RESERVED = frozenset((*dir(builtins), "inf", "nan", "NoneType", "torch", "device", "self"))


class _NodeList:
    """The nodes of a graph, in order or backwards. What is added behind the place where one is, is met."""

    def __init__(self, graph: Graph, forwards: bool = True) -> None:
        self.graph = graph
        self.forwards = forwards

    def __len__(self) -> int:
        return self.graph._len

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        node = root._next if self.forwards else root._prev
        while node is not root:
            following = node
            if not node._erased:
                yield node
            node = following._next if self.forwards else following._prev

    def __reversed__(self) -> _NodeList:
        return _NodeList(self.graph, not self.forwards)


class _Insert:
    """Where new nodes go, for a block or from now on."""

    def __init__(self, graph: Graph, insert: Callable[[Node], None]) -> None:
        self.graph = graph
        self.before = graph._insert
        graph._insert = insert

    def __enter__(self) -> None:
        return None

    def __exit__(self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None) -> None:
        self.graph._insert = self.before


class CodeGen:
    """How a graph becomes code. A subclass may change how arguments come in and results go out."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line `def forward(self, ...):`."""
        if not free_vars or free_vars[0] != "self":
            free_vars = ["self", *free_vars]
        return f"def forward({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any) -> str:
        """The line that returns."""
        return f"return {_source(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The arguments as the graph's placeholders take them."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """The results as the caller gets them."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """More names that the code needs."""
        return []


def _source(a: Any) -> str:
    """An argument as source text."""
    if isinstance(a, Node):
        return a.name
    if isinstance(a, tuple):
        if hasattr(a, "_fields"):
            return f"{type(a).__name__}({', '.join(map(_source, a))})"
        inner = ", ".join(map(_source, a))
        return f"({inner},)" if len(a) == 1 else f"({inner})"
    if isinstance(a, list):
        return "[" + ", ".join(map(_source, a)) + "]"
    if isinstance(a, dict):
        return "{" + ", ".join(f"{k!r}: {_source(v)}" for k, v in a.items()) + "}"
    if isinstance(a, slice):
        return f"slice({_source(a.start)}, {_source(a.stop)}, {_source(a.step)})"
    if isinstance(a, float) and (math.isinf(a) or math.isnan(a)):
        return {"inf": "inf", "-inf": "-inf", "nan": "nan"}[str(a)]
    if isinstance(a, type) or callable(a):
        name: str = getattr(a, "__name__", "")
        return name if getattr(builtins, name, None) is a else qualified_name(a)
    return repr(a)


class Graph:
    """Nodes in the order in which they run. New ones go to the end, or where `inserting_before` and `inserting_after` say."""

    def __init__(self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: dict[str, Any] | None = None) -> None:
        self._root = Node(self, "", "root", "", (), {})
        self._names = _Names()
        self._insert: Callable[[Node], None] = self._root.prepend
        self._len = 0
        self._codegen = CodeGen()
        self._owning_module = owning_module
        self._tracer_cls = tracer_cls
        self._tracer_extras = tracer_extras

    @property
    def owning_module(self) -> Any:
        """The GraphModule whose graph this is."""
        return self._owning_module

    @owning_module.setter
    def owning_module(self, mod: Any) -> None:
        self._owning_module = mod

    @property
    def nodes(self) -> _NodeList:
        """The nodes in order; `reversed(graph.nodes)` backwards."""
        return _NodeList(self)

    def output_node(self) -> Node:
        """The node that returns."""
        return next(n for n in reversed(self.nodes) if n.op == "output")

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes with this op, and target if one is given."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def _position(self, node: Node) -> int:
        return next(i for i, n in enumerate(self.nodes) if n is node)

    # -- making nodes --------------------------------------------------------------------------------------------
    def create_node(
        self, op: str, target: Any, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None, name: str | None = None,
        type_expr: Any | None = None,
    ) -> Node:  # fmt: skip
        """A new node at the place of insertion."""
        args, kwargs = args or (), kwargs or {}
        if not isinstance(args, tuple):
            raise AssertionError("args must be a tuple")
        if not isinstance(kwargs, dict):
            raise AssertionError("kwargs must be a dict")
        node = Node(self, self._names.create(name if name is not None else _candidate(op, target), None), op, target, args, kwargs, type_expr)
        self._names.of[node] = node.name
        self._insert(node)
        self._len += 1
        return node

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out of the graph; RuntimeError if others use it."""
        if to_erase.users:
            raise RuntimeError(f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in the graph: {to_erase.users}!")
        if to_erase.graph is not self:
            raise RuntimeError(f"Attempting to remove {to_erase} from wrong graph!")
        if to_erase._erased:
            return
        to_erase._update((), {})
        to_erase._remove_from_list()
        to_erase._erased = True
        self._len -= 1

    def inserting_before(self, n: Node | None = None) -> _Insert:
        """New nodes go before `n` (at the start without one) inside `with` this, or from now on."""
        if n is None:
            return self.inserting_after(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return _Insert(self, n.prepend)

    def inserting_after(self, n: Node | None = None) -> _Insert:
        """New nodes go after `n` (at the end without one), in order."""
        if n is None:
            return self.inserting_before(self._root)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        following = n._next
        return _Insert(self, following.prepend)

    def placeholder(self, name: str, type_expr: Any | None = None, default_value: Any = inspect.Signature.empty) -> Node:
        """A parameter of the function. A name that starts with `*` gathers."""
        default = () if default_value is inspect.Signature.empty else (default_value,)
        return self.create_node("placeholder", name, default, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any | None = None) -> Node:
        """An attribute ("a.b") of the module."""
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name: str, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None, type_expr: Any | None = None) -> Node:
        """A call of a submodule."""
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name: str, args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None, type_expr: Any | None = None) -> Node:
        """A call of a method of args[0]."""
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self, the_function: Callable[..., Any], args: tuple[Any, ...] | None = None, kwargs: dict[str, Any] | None = None,
        type_expr: Any | None = None, name: str | None = None,
    ) -> Node:  # fmt: skip
        """A call of a function."""
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result: Any, type_expr: Any | None = None) -> Node:
        """What is returned."""
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """A copy of a node of another graph; `arg_transform` gives this graph's node for each one that it uses."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        made.meta = dict(node.meta)
        return made

    def graph_copy(self, g: Graph, val_map: dict[Node, Node], return_output_node: bool = False) -> Any:
        """Copies of all nodes of `g` that are not in `val_map` yet; returns what it returns."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return result if not return_output_node else (result, node)
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    def __deepcopy__(self, memo: Any = None) -> Graph:
        g = Graph(tracer_cls=self._tracer_cls)
        values: dict[Node, Node] = {}
        output = g.graph_copy(self, values, return_output_node=True)
        g._codegen = self._codegen
        if output is not None:
            made = g.output(output[0], type_expr=getattr(output[1], "type", None))
            made.meta = dict(output[1].meta)
        return g

    # -- code ----------------------------------------------------------------------------------------------------
    def process_inputs(self, *args: Any) -> Any:
        """The arguments as the placeholders take them."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """The results as the caller gets them."""
        return self._codegen.process_outputs(out)

    def set_codegen(self, codegen: CodeGen) -> None:
        """Exchange how code is made."""
        self._codegen = codegen

    @contextmanager
    def on_generate_code(self, make_transformer: Callable[[Any], Any]) -> Iterator[None]:
        """A block in which lines of code go through `make_transformer(before)`: lines -> lines."""
        before = getattr(self._codegen, "_body_transformer", None)
        self._codegen._body_transformer = make_transformer(before)  # type: ignore[attr-defined]
        try:
            yield
        finally:
            self._codegen._body_transformer = before  # type: ignore[attr-defined]

    def python_code(self, root_module: str = "self", *, verbose: bool = False, **_: Any) -> PythonCode:
        """The function's source and its globals."""
        scope: dict[str, Any] = {"inf": math.inf, "nan": math.nan, "NoneType": type(None), "torch": flambeau, "device": flambeau.device}
        scope.update(self._codegen.additional_globals())

        def name_of(function: Any) -> str:
            name = qualified_name(function)
            first, *rest = name.split(".")
            if not rest:
                if getattr(builtins, name, None) is not function:
                    scope[name] = function
                return name
            if first == "torch" and _at(rest) is function:
                return name
            own = name.replace(".", "_").replace("<", "_").replace(">", "_")
            while own in scope and scope[own] is not function:
                own += "_"
            scope[own] = function
            return own

        last: dict[Node, Node] = {}
        dead: dict[Node, list[Node]] = {}
        for node in reversed(self.nodes):
            for used in node.all_input_nodes:
                if used not in last:
                    last[used] = node
                    dead.setdefault(node, []).append(used)
        free: list[str] = []
        body: list[str] = []
        returns = ""

        def drop(node: Node) -> str:
            if node.op in ("placeholder", "output"):
                return "\n" if node.op == "placeholder" else ""
            names = [n.name for n in dead.get(node, [])]
            if not node.users:
                names.append(node.name)
            return f";  {' = '.join([*names, 'None'])}\n" if names else "\n"

        for node in self.nodes:
            typed = "" if node.type is None else f" : {_annotation(node.type, scope)}"
            args = ", ".join([*map(_source_in(name_of), node.args), *[f"{k} = {_source_in(name_of)(v)}" for k, v in node.kwargs.items()]])
            if node.op == "placeholder":
                default = "" if not node.args else f" = {_source(node.args[0])}"
                free.append(f"{node.target}{typed}{default}")
                raw = node.target.replace("*", "")
                if raw != node.name:
                    body.append(f"{node.name} = {raw}\n")
                continue
            if node.op == "call_method":
                first, rest = node.args[0], node.args[1:]
                inner = ", ".join([*map(_source_in(name_of), rest), *[f"{k} = {_source_in(name_of)(v)}" for k, v in node.kwargs.items()]])
                line = f"{node.name}{typed} = {_receiver(first)}.{node.target}({inner})"
            elif node.op == "call_function":
                target = node.target
                plain = getattr(target, "__module__", None) in ("_operator", "operator")
                if plain and target.__name__ in _MAGIC and not node.kwargs:
                    line = f"{node.name}{typed} = {_MAGIC[target.__name__].format(*[_source_in(name_of)(a) for a in node.args])}"
                elif plain and target.__name__ in _INPLACE and not node.kwargs:
                    change = _INPLACE[target.__name__].format(*[_source_in(name_of)(a) for a in node.args])
                    line = f"{change};  {node.name}{typed} = {_source(node.args[0])}"
                elif target is getattr and len(node.args) == 2 and isinstance(node.args[1], str) and node.args[1].isidentifier():
                    line = f"{node.name}{typed} = {_receiver(node.args[0])}.{node.args[1]}"
                else:
                    line = f"{node.name}{typed} = {name_of(target)}({args})"
            elif node.op == "call_module":
                line = f"{node.name}{typed} = {_attribute(root_module, node.target)}({args})"
            elif node.op == "get_attr":
                line = f"{node.name}{typed} = {_attribute(root_module, node.target)}"
            else:
                if node.type is not None:
                    returns = f" -> {_annotation(node.type, scope)}"
                body.append(f"return {_source_in(name_of)(node.args[0])}" if type(self._codegen) is CodeGen else self._codegen.generate_output(node.args[0]))
                continue
            body.append(line + drop(node))
        if not body:
            body.append("pass\n")
        transform = getattr(self._codegen, "_body_transformer", None)
        if transform is not None:
            body = transform(body)
        head = self._codegen.gen_fn_def(free, returns)
        code = "\n".join("    " + line for line in "".join(body).split("\n"))
        return PythonCode(f"\n\n\n{head}\n{code}\n    ", scope)

    def __str__(self) -> str:
        names: list[str] = []
        returned = [""]
        lines = [n.format_node(names, returned) for n in self.nodes]
        return f"graph(){returned[0]}:" + "".join(f"\n    {line}" for line in lines if line)

    def print_tabular(self) -> None:
        """Print the nodes as a table: op, name, target, args, kwargs."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(dict(n.kwargs))) for n in self.nodes]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        rows.insert(1, tuple("-" * w for w in widths))  # type: ignore[arg-type]
        print("\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows))

    # -- checks and clean-up -------------------------------------------------------------------------------------
    def lint(self) -> None:
        """RuntimeError unless every node comes after those that it uses, belongs to this graph, has a name of its own and an
        attribute or submodule that exists.
        """
        names: set[str] = set()
        seen: set[Node] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            for used in node.all_input_nodes:
                if used.graph is not self:
                    raise RuntimeError(f"Argument '{used}' of Node '{node}' does not belong to this Graph, but was used as an argument!")
                if used not in seen:
                    raise RuntimeError(
                        f"Argument '{used}' of Node '{node}' was used before it has been defined! Please check that Nodes in the graph are "
                        f"topologically ordered\n{self}"
                    )
            seen.add(node)
            if node.name in names:
                raise RuntimeError(f"Node redefined name {node.name}!")
            names.add(node.name)
            if node.op in ("get_attr", "call_module") and self.owning_module is not None:
                at = self.owning_module
                for part in node.target.split("."):
                    if not hasattr(at, part):
                        raise RuntimeError(f"Node {node} target {node.target} references nonexistent attribute {part}")
                    at = getattr(at, part)

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Take out nodes that nobody uses and that do nothing beside their result; returns whether there were any."""
        self.lint()
        impure = is_impure_node or (lambda n: n.is_impure())
        changed = False
        for node in reversed(self.nodes):
            if not node.users and not impure(node) and node.op not in ("placeholder", "output"):
                self.erase_node(node)
                changed = True
        return changed


def _source_in(name_of: Callable[[Callable[..., Any]], str]) -> Callable[[Any], str]:
    """`_source`, where functions and classes among the arguments become names that the code's globals have."""

    def source(a: Any) -> str:
        if isinstance(a, Node) or a is None or isinstance(a, (bool, int, float, str, slice)):
            return _source(a)
        if isinstance(a, tuple) and not hasattr(a, "_fields"):
            inner = ", ".join(map(source, a))
            return f"({inner},)" if len(a) == 1 else f"({inner})"
        if isinstance(a, tuple):
            return f"{name_of(type(a))}({', '.join(map(source, a))})"
        if isinstance(a, list):
            return "[" + ", ".join(map(source, a)) + "]"
        if isinstance(a, dict):
            return "{" + ", ".join(f"{k!r}: {source(v)}" for k, v in a.items()) + "}"
        if callable(a) and hasattr(a, "__name__"):
            return name_of(a)
        return _source(a)

    return source


def _annotation(t: Any, scope: dict[str, Any]) -> str:
    text = type_repr(t)
    if isinstance(t, type) and t.__module__ != "builtins" and t is not flambeau.Tensor:
        scope[t.__name__] = t
        return t.__name__
    if not isinstance(t, type):
        import typing

        scope["typing"] = typing
    return text


def _receiver(a: Any) -> str:
    return f"({a!r})" if isinstance(a, (int, float)) else _source(a)


def _attribute(root: str, target: str) -> str:
    """`self.a.b`; parts that are no names, by getattr."""
    text = root
    for part in target.split("."):
        text = f"{text}.{part}" if part.isidentifier() and not keyword.iskeyword(part) else f'getattr({text}, "{part}")'
    return text


def _candidate(op: str, target: Any) -> str:
    """The name that a node asks for: what it calls, in snake case."""
    if callable(target):
        name = getattr(target, "__name__", type(target).__name__)
        if hasattr(target, "overloadpacket"):
            name = name.replace(".", "_")  # "sin_default": an overload
        from flambeau.overrides import resolve_name

        name = (resolve_name(target) or name).rsplit(".", 1)[-1]
    else:
        name = target.replace(".", "_") if op in ("get_attr", "call_module") else target
        name = name.lstrip("*")
        if target.startswith("*"):
            name = f"_{name}"
    return re.sub(r"(?<=[a-z0-9])([A-Z])", lambda m: "_" + m[1].lower(), name[:1].lower() + name[1:] if op == "call_function" else name)
