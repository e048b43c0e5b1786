"""A program in core operators: its graph is traced again, operators that are not core as their decompositions, writes as new values.

What is written to a view changes the tensor that it is a view of, and all other views of that. So each view keeps how it follows from its source, and how
the source follows from it: a write gives a new value to every tensor on the way to the first source, and views that were made before are made again
when they are next used.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import flambeau
from flambeau._ops import OpOverload
from flambeau.export.graph_signature import InputKind, InputSpec, OutputKind, OutputSpec, TensorArgument
from flambeau.export.program import ExportedProgram
from flambeau.export.schemas import Schema, schema
from flambeau.export.shapes import layout_of
from flambeau.export.tracing import Traced, Tracer, traced
from flambeau.fx.node import Node, map_arg, writes
from flambeau.symbols import Expr, Recording, Sym
from flambeau.utils._pytree import tree_leaves, tree_map

Table = dict[Any, Callable[..., Any]]


@cache
def core() -> frozenset[str]:
    """Core operators, as PyTorch 2.13 tags them: "add.Tensor"."""
    return frozenset((Path(__file__).parents[1] / "data" / "aten_core.txt").read_text().split())


class _View(NamedTuple):
    """How a tensor follows from its source, and how the source's new value follows from its own."""

    tensor: Traced
    source: Traced
    again: Callable[[Any], Any]
    back: Callable[[Any, Any], Any]


class Decomposer(Tracer):
    """Records a program again. `table`: what operators are made of, by "name.overload" or by name."""

    def __init__(self, recording: Recording, table: Table) -> None:
        super().__init__(recording)
        self.table = table
        self.views: dict[int, _View] = {}
        self.versions: dict[int, tuple[Traced, int]] = {}  # how often the first source was written to when the tensor's node was made
        self.busy: set[str] = set()

    # -- writes -------------------------------------------------------------------------------------------------------
    def _first(self, t: Traced) -> Traced:
        while id(t) in self.views:
            t = self.views[id(t)].source
        return t

    def _version(self, t: Traced) -> int:
        return self.versions.get(id(t), (t, 0))[1]

    def current(self, x: Any) -> Any:
        """A tensor with the node of its present value: views are made again if something was written to their source."""
        if not isinstance(x, Traced) or id(x) not in self.views:
            return x
        view, now = self.views[id(x)], self._version(self._first(x))
        if self._version(x) != now:
            x.node = view.again(self.current(view.source)).node
            self.versions[id(x)] = x, now
        return x

    def write(self, t: Traced, value: Any) -> None:
        """Give a tensor a value, and what it is a view of."""
        t = self.current(t)
        m, given = layout_of(t), layout_of(value)
        if given.dtype is not m.dtype:
            value = flambeau.ops.aten._to_copy.default(value, dtype=m.dtype)
        if len(given.shape) != len(m.shape):
            value = flambeau.ops.aten.expand.default(value, list(m.shape))
        chain: list[tuple[Traced, Any]] = [(t, value)]
        while id(chain[-1][0]) in self.views:
            at, new = chain[-1]
            view = self.views[id(at)]
            chain.append((view.source, view.back(self.current(view.source), new)))
        number = self._version(chain[-1][0]) + 1
        for at, new in chain:
            at.node = new.node
            self.versions[id(at)] = at, number

    def _written(self, s: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        name = {"__iand__": "__and__", "__ior__": "__or__", "__ixor__": "__xor__", "__ilshift__": "__lshift__", "__irshift__": "__rshift__"}.get(
            s.name, s.name.removesuffix("_"))  # fmt: skip
        if schema(name, s.overload) is None or not s.parameters[0].written or len([p for p in s.parameters if p.written]) > 1:
            raise NotImplementedError(f"run_decompositions: aten.{s.full} writes to its arguments, and there is no operator that gives the values instead")
        self.write(args[0], getattr(getattr(flambeau.ops.aten, name), s.overload)(*args, **kwargs))
        return args[0]

    def _own(self, s: Schema, args: Sequence[Any], kwargs: dict[str, Any], function: OpOverload) -> Any:
        """An operator of torch.library. What it writes to are copies, which then are the values of its arguments."""
        given = dict(zip([p.name for p in s.parameters if not p.keyword], args, strict=False)) | kwargs
        written = [t for p in s.parameters if p.written for t in tree_leaves(given.get(p.name)) if isinstance(t, Traced)]
        copies = {id(t): flambeau.ops.aten.clone.default(t) for t in written}
        args, kwargs = tree_map(lambda x: copies.get(id(x), x), (tuple(args), dict(kwargs)))
        result = super().record(s, args, kwargs, function, (args, kwargs))
        for t in written:
            self.write(t, copies[id(t)])
        return result

    # -- operators ------------------------------------------------------------------------------------------------------
    def record(self, s: Schema, args: Sequence[Any], kwargs: dict[str, Any], function: Any, call: tuple[Sequence[Any], dict[str, Any]]) -> Any:
        """A call: as it is if it is core, as its decomposition, or as it is for want of one."""
        args, kwargs = tree_map(self.current, (tuple(args), dict(kwargs)))
        decomposition = self.table.get(s.full) or self.table.get(s.name)
        if decomposition is not None and s.full not in core() and s.full not in self.busy:
            result = decomposition(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if isinstance(function, OpOverload) and function.namespace != "aten":
            return self._own(s, args, kwargs, function)
        if any(p.written for p in s.parameters) and s.name != "_native_batch_norm_legit_functional":
            return self._written(s, args, kwargs)
        result = super().record(s, args, kwargs, function, (args, kwargs))
        made = _VIEWS.get(s.name)
        if made is not None and s.full in core():
            for i, part in enumerate(result if isinstance(result, (tuple, list)) else (result,)):
                again, back = made(args[0], i, *args[1:], **kwargs)
                self.views[id(part)] = _View(part, args[0], again, back)
                self.versions[id(part)] = part, self._version(self._first(args[0]))
        return result

    def node_of(self, t: Any) -> Node:
        """The node of a tensor's present value."""
        return super().node_of(self.current(t))


# -- views: how they are made again, and what a write to them makes of their source ------------------------------------------
def _overload(name: str, *args: Any) -> Any:
    packet, overload = name.split(".")
    return getattr(getattr(flambeau.ops.aten, packet), overload)(*args)


def _select(x: Any, i: int, dim: int, index: Any) -> Any:
    return lambda new: _overload("select.int", new, dim, index), lambda old, new: _overload("select_scatter.default", old, new, dim, index)


def _slice(x: Any, i: int, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    return (lambda new: _overload("slice.Tensor", new, dim, start, end, step),
            lambda old, new: _overload("slice_scatter.default", old, new, dim, start, end, step))  # fmt: skip


def _split(x: Any, i: int, sizes: Any, dim: int = 0) -> Any:
    start = sum(sizes[:i])
    return _slice(x, i, dim, start, start + sizes[i])


def _shaped(name: str) -> Callable[..., Any]:
    def made(x: Any, i: int, *args: Any) -> Any:
        shape = list(layout_of(x).shape)
        return lambda new: _overload(name, new, *args), lambda old, new: _overload("view.default", new, shape)

    return made


def _permuted(x: Any, i: int, dims: Sequence[int]) -> Any:
    back = [0] * len(dims)
    for place, dim in enumerate(dims):
        back[dim] = place
    return lambda new: _overload("permute.default", new, dims), lambda old, new: _overload("permute.default", new, back)


def _refused(name: str) -> Callable[..., Any]:
    def back(old: Any, new: Any) -> Any:
        raise NotImplementedError(f"run_decompositions: a write to what aten.{name} gives is not decomposed; write to a clone of it")

    return lambda x, i, *args, **kwargs: (lambda new: _overload(name, new, *args), back)


_VIEWS: Final[dict[str, Callable[..., Any]]] = {
    "select": _select, "slice": _slice, "split_with_sizes": _split, "permute": _permuted, "view": _shaped("view.default"), "alias": _shaped("alias.default"),
    "unsqueeze": _shaped("unsqueeze.default"), "expand": _refused("expand.default"), "diagonal": _refused("diagonal.default"),
    "as_strided": _refused("as_strided.default"),
    "squeeze": lambda x, i, dim: _shaped("squeeze.dims" if isinstance(dim, (list, tuple)) else "squeeze.dim")(x, i, dim),
}  # fmt: skip


# -- the whole -----------------------------------------------------------------------------------------------------------------
def decomposed(program: ExportedProgram, table: Table) -> ExportedProgram:
    """The program with the operators of `table` replaced, and without writes: buffers and inputs that change are outputs."""
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    values = [n.meta.get("val") for n in placeholders]
    recording = next((s.rec for v in values for s in _symbols(v)), Recording([]))
    tracer = Decomposer(recording, table)
    known: dict[Node, Any] = {}
    for n, value in zip(placeholders, values, strict=True):
        node = tracer.graph.placeholder(n.name)
        tracer.last_input = node
        node.meta = dict(n.meta)
        if isinstance(value, Traced):
            value = traced(layout_of(value))
            tracer.name(value, node)
            for d, size in enumerate(layout_of(value).shape):
                if isinstance(size, Sym) and isinstance(size.expr, Expr) and size.expr.op == "size":
                    tracer.sources.setdefault(size.expr.a, (node, d))
        elif isinstance(value, Sym):
            tracer.sources.setdefault(value.expr.a, node)
        known[n] = value
    inputs = {n: (known[n], known[n].node) for n in placeholders if isinstance(known[n], Traced)}

    def interpret() -> Any:
        for n in program.graph.nodes:
            if n.op == "call_function":
                if isinstance(n.meta.get("val"), Sym):
                    known[n] = n.meta["val"]
                    continue
                args, kwargs = map_arg(n.args, lambda a: known[a]), map_arg(n.kwargs, lambda a: known[a])
                if n.target is operator.getitem:
                    known[n] = args[0][args[1]]
                    continue
                if not isinstance(n.target, OpOverload):
                    raise NotImplementedError(f"run_decompositions: {n.name} calls {n.target}, which is no operator")
                known[n] = n.target(*args, **kwargs)
            elif n.op == "output":
                return tree_map(tracer.current, map_arg(n.args[0], lambda a: known[a]))  # views are made again while calls are recorded
        return None

    results = tracer.run(interpret, (), {})
    signature = program.graph_signature
    specs, returned = [], []
    for n, spec in zip(placeholders, signature.input_specs, strict=True):
        if n in inputs and inputs[n][0].node is not inputs[n][1]:
            specs.append(_mutation(spec, inputs[n][0].node.name))
            returned.append(inputs[n][0].node)
    for value, out in zip(results, signature.output_specs, strict=True):
        node = tracer.nodes(value)
        returned.append(node)
        specs.append(OutputSpec(out.kind, type(out.arg)(node.name), out.target) if isinstance(node, Node) else out)
    tracer.graph.output(tuple(returned))
    _without_unused(tracer.graph)
    made = ExportedProgram(program.graph_module, tracer.graph, type(signature)(list(signature.input_specs), specs), program.state_dict,
                           program.range_constraints, program.module_call_graph, program.example_inputs, program.constants, ["ATEN"])  # fmt: skip
    made.validate()
    return made


def _symbols(value: Any) -> list[Sym]:
    found = layout_of(value).shape if isinstance(value, Traced) else (value,)
    return [s for s in tree_leaves(tuple(found)) if isinstance(s, Sym)]


def _mutation(spec: InputSpec, name: str) -> OutputSpec:
    kinds = {InputKind.BUFFER: OutputKind.BUFFER_MUTATION, InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION}
    if spec.kind is InputKind.USER_INPUT:
        return OutputSpec(OutputKind.USER_INPUT_MUTATION, TensorArgument(name), spec.arg.name)
    if spec.kind not in kinds:
        raise RuntimeError(f"run_decompositions: the program writes to its constant {spec.target!r}: make it a buffer")
    return OutputSpec(kinds[spec.kind], TensorArgument(name), spec.target)


def _without_unused(graph: Any) -> None:
    """Take away calls whose results nothing uses."""
    for n in reversed(list(graph.nodes)):
        if n.op == "call_function" and not n.users and "assert" not in str(n.target) and not writes(n.target):
            graph.erase_node(n)
