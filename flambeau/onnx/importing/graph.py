"""A graph of nodes as steps in order: which operator, from which places, to which places, and what is not needed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

import flambeau
from flambeau.onnx.importing import host, values
from flambeau.onnx.importing.coded import coded_matmul
from flambeau.onnx.importing.registry import OPERATORS, Call, state_of
from flambeau.onnx.package import onnx, part

MOST_NESTED = 64  # functions within functions, and graphs within graphs


class Step:
    """One node: the function that runs it, the places of its inputs (-1: none) and outputs, and the places that nothing needs after it."""

    __slots__ = ("done", "inputs", "node", "outputs", "raw", "run")

    def __init__(self, node: Call, run: Callable[..., Any], raw: bool, inputs: list[int], outputs: list[int]) -> None:
        self.node, self.run, self.raw, self.inputs, self.outputs = node, run, raw, inputs, outputs
        self.done: list[int] = []


class Context:
    """What all graphs of a model share: opsets, functions, and where initializers go."""

    def __init__(self, opsets: dict[str, int], functions: dict[tuple[str, str, str], Any], hold: Callable[[str, Any], Any]) -> None:
        self.opsets, self.functions, self.hold = opsets, functions, hold
        self.missing: list[str] = []
        self.depth = 0


class Graph:
    """A graph that can be run. `outer`: the names of values around it that it uses."""

    def __init__(self, context: Context, nodes: Sequence[Any], inputs: Sequence[str], outputs: Sequence[str], initializers: dict[str, Any],
                 attributes: dict[str, Any] | None = None) -> None:  # fmt: skip
        self.context = context
        self.inputs, self.outputs = list(inputs), list(outputs)
        self.places: dict[str, int] = {}
        self.outer: list[str] = []
        self.constants: dict[int, Any] = {}
        self.tensors: dict[int, Any] = {}  # constants on the host as tensors, by their places
        self.steps: list[Step] = []
        self.before: list[Step] = []
        self.rest: list[Step] = []
        self.needed: list[int] = []
        self.fixed: set[int] = set()
        self.parameters: list[int] = []
        self.kept: Any = None  # what follows from the parameters alone, and their state when it was made
        context.depth += 1
        if context.depth > MOST_NESTED:
            raise RecursionError("flambeau.onnx: functions or graphs of the model are nested too deeply, or call themselves")
        try:
            for name in self.inputs:
                self._place(name)
            for name, value in initializers.items():
                self.constants[self._place(name)] = value
            for proto in nodes:
                self._step(proto, attributes or {})
            for name in self.outputs:
                if name not in self.places:
                    self._outer(name)
        finally:
            context.depth -= 1
        self._ends()

    def _place(self, name: str) -> int:
        return self.places.setdefault(name, len(self.places))

    def _outer(self, name: str) -> int:
        if name not in self.outer:
            self.outer.append(name)
        return self._place(name)

    def _step(self, proto: Any, bound: dict[str, Any]) -> None:
        context = self.context
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        node = Call(proto.op_type, domain, context.opsets.get(domain, 1), {}, list(proto.output), proto.name)
        node.proto, node.owner = proto, self
        if proto.op_type == "Constant" and not domain:
            value = _constant(node, proto, bound, self)
            self.constants[self._place(proto.output[0])] = value
            return
        for a in proto.attribute:
            if a.ref_attr_name:
                if a.ref_attr_name in bound:
                    node.attributes[a.name] = bound[a.ref_attr_name]
            else:
                node.attributes[a.name] = _attribute(a, self)
        inside = [name for v in node.attributes.values() for g in (v if isinstance(v, list) else [v]) if isinstance(g, Graph) for name in g.outer]
        inputs = [self.places[name] if name in self.places else self._outer(name) if name else -1 for name in proto.input]
        node.kept["captured"] = list(dict.fromkeys(inside))
        hidden = [self.places[name] if name in self.places else self._outer(name) for name in node.kept["captured"]]
        run, raw = self._function(node, proto)
        node.kept["inputs"] = len(inputs)
        self.steps.append(Step(node, run, raw, inputs + hidden, [self._place(name) if name else -1 for name in proto.output]))

    def _function(self, node: Call, proto: Any) -> tuple[Callable[..., Any], bool]:
        """What runs a node: a function of the model, an operator, or the body that the format gives an operator."""
        context = self.context
        body = context.functions.get((proto.domain, proto.op_type, proto.overload))
        if body is not None:
            graph = function_graph(context, body, node.attributes)
            return lambda n, *xs: _results(graph.called(xs)), True
        found = OPERATORS.get((node.domain, node.op))
        if found is not None:
            return found.run, found.raw
        body_of = self.body(node)
        if body_of is not None:
            return body_of, True
        context.missing.append(f"{node.domain + '.' if node.domain else ''}{node.op}")
        return _absent, True

    def body(self, node: Call) -> Callable[..., Any] | None:
        """The body that the format itself gives an operator, if it does."""
        schema = _schema(node)
        if schema is not None and schema.has_function:
            graph = function_graph(self.context, schema.function_body, _with_defaults(node, schema))
            return lambda n, *xs: _results(graph.called(xs))
        if schema is not None and schema.has_context_dependent_function:
            return _by_types(schema)
        return None

    def _ends(self) -> None:
        """Note after which step a place is not needed any more: what is alive decides what the engine fuses."""
        kept = {self.places[name] for name in self.outputs} | set(self.constants)
        seen: set[int] = set()
        for step in reversed(self.steps):
            for place in {*step.inputs, *step.outputs} - {-1}:
                if place not in seen and place not in kept:
                    seen.add(place)
                    step.done.append(place)

    def settle(self, parameters: Sequence[str], held: Sequence[Any]) -> None:
        """Inputs that are the model's parameters, with their values.

        Steps that need nothing else are done once while these stay as they are and no gradient is recorded.
        """
        known = {self.places[name] for name in parameters} | set(self.constants)
        self._see_codes(known, held)
        self.parameters = [self.places[name] for name in parameters]
        fixed = [s for s in self.steps if _settled(s, known)]
        self.fixed = {place for s in fixed for place in s.outputs} - {-1}
        if fixed:
            gone = set(map(id, fixed))
            self.before, self.rest = fixed, [s for s in self.steps if id(s) not in gone]
            needed = {place for s in self.rest for place in s.inputs} | {self.places[name] for name in self.outputs}
            self.needed = [place for place in self.fixed if place in needed]

    def _see_codes(self, known: set[int], held: Sequence[Any]) -> None:
        """Products with weights that DequantizeLinear makes of constants multiply their codes."""
        now = {**dict(zip([self.places[name] for name in self.inputs[len(self.inputs) - len(held) :]], held, strict=True)), **self.constants}
        makers = {s.outputs[0]: s for s in self.steps if s.node.op == "DequantizeLinear" and not s.node.domain and known.issuperset(s.inputs)}
        seen: set[int] = set()
        for step in self.steps:
            if step.node.op == "MatMul" and not step.node.domain and (maker := makers.get(step.inputs[1])) is not None:
                run = coded_matmul(maker.node, now.get(maker.inputs[0]), now[maker.inputs[1]].shape)
                if run is not None:
                    step.run, step.raw, step.inputs = run, True, [step.inputs[0], *maker.inputs]
                    seen.add(maker.outputs[0])
        gone = seen - {i for s in self.steps for i in s.inputs} - {self.places[name] for name in self.outputs}
        self.steps = [s for s in self.steps if s.outputs[0] not in gone]
        for step in self.steps:
            step.done = []
        self._ends()

    def run(self, inputs: Sequence[Any], around: Sequence[Any] = ()) -> list[Any]:
        """The outputs. `around`: the values of the names in `outer`."""
        env: list[Any] = [None] * len(self.places)
        for place, value in self.constants.items():
            env[place] = value
        for name, value in zip(self.inputs, inputs, strict=False):
            env[self.places[name]] = value
        for name, value in zip(self.outer, around, strict=True):
            env[self.places[name]] = value
        if self.before and not flambeau.is_grad_enabled():
            now = state_of([env[place] for place in self.parameters])
            if self.kept is None or self.kept[0] != now:
                first = list(env)
                self._do(self.before, first, False)
                self.kept = now, {place: first[place] for place in self.needed}
            for place, value in self.kept[1].items():
                env[place] = value
            self._do(self.rest, env, True)
        else:
            self._do(self.steps, env, True)
        return [env[self.places[name]] for name in self.outputs]

    def _do(self, steps: list[Step], env: list[Any], forget: bool) -> None:
        """Run steps in order; what nothing needs any more is let go of."""
        for step in steps:
            args = [env[i] if i >= 0 else None for i in step.inputs]
            made = host.run(step.node, args) if args and isinstance(args[0], np.ndarray) else NotImplemented
            if made is NotImplemented:
                try:
                    if not step.raw:
                        args = [self._tensor(i, x) if isinstance(x, np.ndarray) else x for i, x in zip(step.inputs, args, strict=True)]
                    made = step.run(step.node, *args)
                    if made is NotImplemented:  # these attributes are not in the operator's form: its body in the format has them
                        made = self._by_body(step.node, args)
                except Exception as error:
                    error.add_note(f"in the node {step.node.name or step.node.outputs[0]!r} ({step.node.op}) of the ONNX model")
                    raise
            del args
            if isinstance(made, tuple):
                for place, value in zip(step.outputs, made, strict=False):
                    if place >= 0:
                        env[place] = value
            else:
                env[step.outputs[0]] = made
            made = None
            if forget:
                for place in step.done:
                    env[place] = None

    def called(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of a function's body; None for those that it leaves out."""
        return self.run(inputs, [None] * len(self.outer))

    def _by_body(self, node: Call, args: list[Any]) -> Any:
        if "body" not in node.kept:
            node.kept["body"] = self.body(node)
        if node.kept["body"] is None:
            raise node.refuse("these attributes are not there")
        return node.kept["body"](node, *args)

    def _tensor(self, place: int, x: Any) -> Any:
        """A host array as a tensor; constants are turned into one once."""
        kept = self.tensors.get(place)
        if kept is not None and kept[0] is x:
            return kept[1]
        made = values.tensor(x)
        if self.constants.get(place) is x:
            self.tensors[place] = (x, made)
        return made


def _settled(step: Step, known: set[int]) -> bool:
    """Whether a step needs only what is known, and gives the same each time; then its results are known, too."""
    if any(i >= 0 and i not in known for i in step.inputs) or not step.inputs or step.node.op in _DRAWS:
        return False
    known.update(step.outputs)
    return True


_DRAWS: Final = frozenset("RandomUniformLike RandomNormalLike Bernoulli Multinomial Dropout If Loop Scan SequenceMap".split())


def _results(made: list[Any]) -> Any:
    return tuple(made)


def _absent(n: Call, *xs: Any) -> Any:
    raise n.refuse("the operator is not there")


def _attribute(a: Any, owner: Graph) -> Any:
    kind = onnx("flambeau.onnx").AttributeProto
    match a.type:
        case kind.FLOAT:
            return a.f
        case kind.INT:
            return a.i
        case kind.STRING:
            return a.s.decode()
        case kind.TENSOR:
            return values.from_proto(a.t, host=True)
        case kind.GRAPH:
            return subgraph(owner.context, a.g)
        case kind.FLOATS:
            return list(a.floats)
        case kind.INTS:
            return list(a.ints)
        case kind.STRINGS:
            return [s.decode() for s in a.strings]
        case kind.TENSORS:
            return [values.from_proto(t, host=True) for t in a.tensors]
        case kind.GRAPHS:
            return [subgraph(owner.context, g) for g in a.graphs]
        case kind.TYPE_PROTO:
            return a.tp
        case _:
            raise NotImplementedError(f"flambeau.onnx: the attribute {a.name!r} is of a kind that is not read ({kind.AttributeType.Name(a.type)})")


def _constant(node: Call, proto: Any, bound: dict[str, Any], owner: Graph) -> Any:
    [a] = proto.attribute
    value = bound[a.ref_attr_name] if a.ref_attr_name else _attribute(a, owner)
    if a.name == "value":
        return value
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64, "value_string": object,
             "value_strings": object}  # fmt: skip
    if a.name not in kinds:
        raise node.refuse(f"a constant that is a {a.name}")
    return np.array(value, kinds[a.name])


def subgraph(context: Context, proto: Any) -> Graph:
    """The graph of an attribute (a branch, a body)."""
    if proto.sparse_initializer:
        raise NotImplementedError("flambeau.onnx: sparse initializers are not there")
    held = {t.name: context.hold(t.name, t) for t in proto.initializer}
    inputs = [v.name for v in proto.input if v.name not in held]
    return Graph(context, proto.node, inputs, [v.name for v in proto.output], held)


def function_graph(context: Context, proto: Any, attributes: dict[str, Any]) -> Graph:
    """The body of a function with a call's attributes."""
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    before, context.opsets = context.opsets, {**context.opsets, **opsets}
    try:
        bound = {a.name: a for a in proto.attribute_proto}
        graph = Graph.__new__(Graph)
        defaults = {}
        graph.context = context
        for name, a in bound.items():
            defaults[name] = _attribute(a, graph)
        graph.__init__(context, proto.node, list(proto.input), list(proto.output), {}, {**defaults, **attributes})  # type: ignore[misc]
        unknown = [name for name in graph.outer if name not in proto.output]
        if unknown:
            raise ValueError(f"flambeau.onnx: no node or input of the function {proto.name!r} gives {unknown[0]!r}")
        return graph
    finally:
        context.opsets = before


def _schema(node: Call) -> Any:
    defs = part("defs", "flambeau.onnx")
    try:
        return defs.get_schema(node.op, node.version, node.domain)
    except Exception:  # the package's own exception for a name that it does not know
        return None


def _with_defaults(node: Call, schema: Any) -> dict[str, Any]:
    found = {name: _attribute(a.default_value, node.owner) for name, a in schema.attributes.items() if a.default_value.name}
    return {**found, **node.attributes}


def _by_types(schema: Any) -> Callable[..., Any]:
    """An operator whose body depends on the types of its inputs: found when they are known."""

    def run(n: Call, *xs: Any) -> Any:
        package = onnx("flambeau.onnx")
        kinds = [None if x is None else (values.number_of(x), len(x.shape)) if not isinstance(x, list) else "sequence" for x in xs]
        sizes = [None if x is None or isinstance(x, list) else tuple(x.shape) for x in xs]
        for key in ((*kinds,), (*kinds, *sizes)):  # few bodies depend on the sizes
            if key in n.kept:
                return _results(n.kept[key].called(xs[: n.kept["inputs"]]))
        for key in ((*kinds,), (*kinds, *sizes)):
            types = []
            for x in xs[: n.kept["inputs"]]:
                t = package.TypeProto()
                if isinstance(x, list):
                    t.sequence_type.elem_type.tensor_type.elem_type = values.number_of(x[0]) if x else 1
                elif x is not None:
                    t.tensor_type.elem_type = values.number_of(x)
                    for size in x.shape:
                        d = t.tensor_type.shape.dim.add()
                        if len(key) > len(kinds):
                            d.dim_value = int(size)
                types.append(t.SerializeToString())
            usable = [v for v in schema.context_dependent_function_opset_versions if v <= max(n.version, schema.since_version)]
            if not usable:
                raise n.refuse("the operator is not there")
            body = schema.get_context_dependent_function_with_opset_version(max(usable), n.proto.SerializeToString(), types)
            if not body:
                continue
            proto = package.FunctionProto()
            proto.ParseFromString(body)
            context = n.owner.context
            before = len(context.missing)
            graph = n.kept[key] = function_graph(context, proto, _with_defaults(n, schema))
            if len(context.missing) > before:
                raise n.refuse(f"its body needs {', '.join(context.missing[before:])}")
            return _results(graph.called(xs[: n.kept["inputs"]]))
        raise n.refuse("the operator is not there for these inputs")

    return run
