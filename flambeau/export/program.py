"""ExportedProgram: a graph of aten with its signature, its tensors and the sizes for which it holds; and the module that runs it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import flambeau
from flambeau.export.coded import coded_linear, products
from flambeau.export.graph_signature import ExportGraphSignature, InputKind, OutputKind
from flambeau.export.shapes import layout_of
from flambeau.fx.graph import CodeGen, Graph
from flambeau.fx.graph_module import GraphModule
from flambeau.fx.node import Node, map_arg
from flambeau.nn.modules.module import Module
from flambeau.symbols import Sym
from flambeau.tensor import Tensor
from flambeau.utils._pytree import TreeSpec, tree_flatten, tree_flatten_with_path


class ValueRange(NamedTuple):
    """The sizes that a symbol may have; `upper` None: no limit."""

    lower: int
    upper: int | None

    def __str__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper is None else self.upper}]"

    def __repr__(self) -> str:
        return str(self)


@dataclass
class ModuleCallSignature:
    """How a module was called: specs of its arguments and results."""

    inputs: list[Any]
    outputs: list[Any]
    in_spec: TreeSpec
    out_spec: TreeSpec
    forward_arg_names: list[str] | None = None


@dataclass
class ModuleCallEntry:
    """A module of the program, by its name."""

    fqn: str
    signature: ModuleCallSignature | None = None


class CallSpec(NamedTuple):
    """The trees of the program's arguments and results."""

    in_spec: TreeSpec
    out_spec: TreeSpec


_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8",
          "uint8": "u8", "bool": "b8", "complex64": "c64", "complex128": "c128"}  # fmt: skip


class ExportedProgram:
    """What torch.export.export and torch.export.load return."""

    def __init__(
        self, root: Any, graph: Graph, graph_signature: ExportGraphSignature, state_dict: dict[str, Any], range_constraints: dict[str, ValueRange],
        module_call_graph: list[ModuleCallEntry], example_inputs: Any = None, constants: dict[str, Any] | None = None, verifiers: Any = None,
    ) -> None:  # fmt: skip
        self._graph_module = GraphModule(root, graph)
        self.graph_signature = graph_signature
        self.state_dict = state_dict
        self.constants = constants or {}
        self.tensor_constants = self.constants
        self.range_constraints = range_constraints
        self.module_call_graph = module_call_graph
        self.example_inputs = example_inputs
        self.verifiers = verifiers or ["TRAINING"]

    @property
    def graph_module(self) -> GraphModule:
        """The graph as a module whose inputs are the parameters, the buffers, the constants and what the caller gives."""
        return self._graph_module

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._graph_module.graph

    @property
    def call_spec(self) -> CallSpec:
        """The trees of arguments and results."""
        s = self.module_call_graph[0].signature
        assert s is not None
        return CallSpec(s.in_spec, s.out_spec)

    def parameters(self) -> Any:
        """The parameters."""
        return iter([p for _, p in self.named_parameters()])

    def named_parameters(self) -> Any:
        """(name, parameter) of each."""
        return iter([(n, self.state_dict[n]) for n in self.graph_signature.parameters])

    def buffers(self) -> Any:
        """The buffers."""
        return iter([b for _, b in self.named_buffers()])

    def named_buffers(self) -> Any:
        """(name, buffer) of each."""
        hidden = set(self.graph_signature.non_persistent_buffers)
        return iter([(n, self.constants[n] if n in hidden else self.state_dict[n]) for n in self.graph_signature.buffers])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("Unable to call ExportedProgram directly. You should use `exported_program.module()` instead.")

    def module(self, check_guards: bool = True) -> GraphModule:
        """A module that runs the program, with its parameters and buffers under their names."""
        return _module(self, check_guards)

    def tensor(self, name: str) -> Any:
        """The parameter, buffer or constant of this name."""
        return self.state_dict[name] if name in self.state_dict else self.constants[name]

    def run_decompositions(self, decomp_table: Any = None, decompose_custom_triton_ops: bool = False) -> ExportedProgram:
        """The program in core operators of ATen. `decomp_table`: {operator: function of its arguments}; None: flambeau's own (export/decompositions.py).

        Writes become values: buffers and inputs that change are outputs, as in PyTorch. What is neither core nor in the table stays as it is.
        """
        from flambeau.export.decomposing import decomposed
        from flambeau.export.decompositions import TABLE

        given = TABLE if decomp_table is None else {_operator_name(k): v for k, v in decomp_table.items()}
        return decomposed(self, given)

    def validate(self) -> None:
        """RuntimeError unless the graph and the signature belong together."""
        names = [n.name for n in self.graph.nodes if n.op == "placeholder"]
        wanted = [s.arg.name for s in self.graph_signature.input_specs]
        if names != wanted:
            raise RuntimeError(f"ExportedProgram: the graph's inputs are {names}, its signature says {wanted}")

    def __str__(self) -> str:
        code = "\n        " + _readable(self.graph).lstrip().replace("\n", "\n    ")
        signature = str(self.graph_signature).replace("\n", "\n    ")
        ranges = "{" + ", ".join([f"{k}: {v}" for k, v in self.range_constraints.items()]) + "}"
        return f"ExportedProgram:\n    class GraphModule(torch.nn.Module):{code}\nGraph signature: \n    {signature}\nRange constraints: {ranges}\n"


def _operator_name(key: Any) -> str:
    """ "add.Tensor" of torch.ops.aten.add.Tensor; "add" of all its overloads."""
    return str(key).removeprefix("aten.")


def _readable(graph: Graph) -> str:
    """The code of a graph, with the type of each value."""
    lines = graph.python_code("self").src.split("\n")
    types = {n.name: described(n.meta.get("val")) for n in graph.nodes if described(n.meta.get("val"))}
    shown = []
    for line in lines:
        if line.startswith("def forward("):
            head, _, rest = line.partition("(")
            line = head + "(" + re.sub(r"(\w+)(?=[,)])", lambda m: f'{m[1]}: "{types[m[1]]}"' if m[1] in types else m[1], rest)
        else:
            line = re.sub(r"^(\s+)(\w+)( = )", lambda m: f'{m[1]}{m[2]}: "{types[m[2]]}"{m[3]}' if m[2] in types else m[0], line)
        shown.append(line)
    return "\n    ".join(shown).rstrip()


def described(v: Any) -> str:
    """ "f32[s0, 4]"; "" of what is no tensor and no size."""
    if isinstance(v, Sym):
        return f"Sym({v.expr})"
    if isinstance(v, Tensor):
        m = layout_of(v)
        return f"{_SHORT.get(m.dtype.name, m.dtype.name)}[{', '.join([str(n.expr) if isinstance(n, Sym) else str(n) for n in m.shape])}]"
    return ""


# -- the module that runs a program ---------------------------------------------------------------------------------
class _TreeCodeGen(CodeGen):
    """forward(*args, **kwargs) over trees: arguments are flattened and checked, results put together."""

    def __init__(self, flatten: Callable[..., Any], unflatten: Callable[..., Any], writes: list[str]) -> None:
        super().__init__()
        self.flatten, self.unflatten, self.writes = flatten, unflatten, writes

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The line `def forward(...)`, and the one that takes the arguments apart."""
        names = [v for v in free_vars if v != "self"]
        target = f"{', '.join(names)}, = " if names else ""
        return f"def forward(self, *args, **kwargs):\n    {target}_flat_inputs(args, kwargs)"

    def generate_output(self, output_args: Any) -> str:
        """The line that puts the results together."""
        from flambeau.fx.graph import _source

        return f"return _as_tree({_source(output_args)})"

    def additional_globals(self) -> list[tuple[str, Any]]:
        """The two functions of the trees."""
        return [("_flat_inputs", self.flatten), ("_as_tree", self.unflatten)]


def _module(program: ExportedProgram, check: bool) -> GraphModule:
    root = Module()
    graph = Graph()
    copies: dict[Node, Node] = {}
    signature = program.graph_signature
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    held = [(n, s) for n, s in zip(placeholders, signature.input_specs, strict=True) if s.kind is not InputKind.USER_INPUT]
    given = [(n, s) for n, s in zip(placeholders, signature.input_specs, strict=True) if s.kind is InputKind.USER_INPUT]
    for n, _ in given:
        copies[n] = graph.placeholder(n.name)
        copies[n].meta = dict(n.meta)
    shared: dict[int, Any] = {}
    coded, dead = products(program.graph)
    for n, s in held:
        name = str(s.target)
        value = program.tensor(name)
        _place(root, name, value, s.kind, bool(s.persistent), shared)
        copies[n] = graph.get_attr(name)
        copies[n].meta = dict(n.meta)
    for n in program.graph.nodes:
        if n.op == "output":
            results = map_arg(n.args[0], lambda x: copies[x])
            user: list[Any] = []
            for value, out in zip(results, signature.output_specs, strict=True):
                if out.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION):
                    where = next(c for p, c in copies.items() if p.op == "placeholder" and _target(p, out, signature))
                    graph.call_function(flambeau.ops.aten.copy_.default, (where, value))
                elif out.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT):
                    user.append(value)
            graph.output(tuple(user))
        elif n in coded:
            copies[n] = graph.call_function(coded_linear, map_arg(tuple(coded[n]), lambda x: copies[x]))
            copies[n].meta = dict(n.meta)
        elif n not in copies and n not in dead:
            copies[n] = graph.node_copy(n, lambda x: copies[x])
    entry = program.module_call_graph[0].signature
    assert entry is not None
    inputs = Inputs([n for n, _ in given], entry.in_spec, entry.forward_arg_names, program.range_constraints, check)
    out_spec = entry.out_spec
    graph.set_codegen(_TreeCodeGen(inputs.flat, lambda flat: out_spec.unflatten(flat), []))
    made = GraphModule(root, graph)
    made.meta["inputs"] = inputs
    for _, s in held:  # also those that no node uses
        _place(made, str(s.target), program.tensor(str(s.target)), s.kind, bool(s.persistent), shared)
    return made


def _target(p: Node, s: Any, signature: ExportGraphSignature) -> bool:
    found = next(i for i in signature.input_specs if i.arg.name == p.name)
    return p.name == s.target if s.kind is OutputKind.USER_INPUT_MUTATION else found.target == s.target


def _place(root: Module, name: str, value: Any, kind: InputKind, persistent: bool, shared: dict[int, Any]) -> None:
    *path, last = name.split(".")
    at = root
    for part in path:
        if part not in at._modules:
            at.add_module(part, Module())
        at = at._modules[part]  # type: ignore[assignment]
    if kind is InputKind.PARAMETER:
        at.register_parameter(last, value)
    elif kind is InputKind.BUFFER:
        at.register_buffer(last, value, persistent=persistent)
    else:
        at.register_buffer(last, value, persistent=False)


class Inputs:
    """What a program takes: trees are flattened and compared with the specs, sizes with the ranges for which the program holds."""

    def __init__(self, nodes: list[Node], spec: TreeSpec, names: list[str] | None, ranges: dict[str, ValueRange], check: bool) -> None:
        self.values = [n.meta.get("val") for n in nodes]
        self.spec, self.names, self.ranges, self.check = spec, names, ranges, check
        self.count = len(spec.children_specs[0].children_specs)
        self.keywords = list(spec.children_specs[1].context or [])

    def flat(self, args: Any, kwargs: Any) -> list[Any]:
        """The leaves of a call's arguments. ValueError for another tree, AssertionError for sizes for which the program does not hold."""
        if len(args) > self.count and self.names:
            extra = list(self.names[self.count :])
            kwargs = {**dict(zip(extra, args[self.count :], strict=False)), **kwargs}
            args = args[: self.count]
        elif len(args) < self.count and self.names:
            missing = [n for n in self.names[len(args) : self.count] if n in kwargs]
            args = (*args, *[kwargs[n] for n in missing])
            kwargs = {k: v for k, v in kwargs.items() if k not in missing}
        if set(kwargs) == set(self.keywords):
            kwargs = {k: kwargs[k] for k in self.keywords}
        given = tuple(args), kwargs
        leaves, spec = tree_flatten(given)
        if spec != self.spec:
            raise ValueError(
                f"Trying to flatten user inputs with exported input tree spec: \n{self.spec}\nbut actually got inputs with tree spec of: \n{spec}.\n"
                "Please check that the inputs have the same number and type of args and kwargs as the ones you used when tracing."
            )
        if self.check:
            self._check(given, leaves)
        return leaves

    def _label(self, given: Any, i: int) -> str:
        path = tree_flatten_with_path(given)[0][i][0]
        first = path[1].idx if path[0].idx == 0 else path[1].key
        name = self.names[first] if isinstance(first, int) and self.names else str(first)
        return name + "".join([str(p) for p in path[2:]])

    def _check(self, given: Any, leaves: list[Any]) -> None:
        known: dict[Any, Any] = {}
        for i, (leaf, value) in enumerate(zip(leaves, self.values, strict=True)):
            if not isinstance(value, Tensor):
                if not isinstance(value, Sym) and type(leaf) is not Tensor and leaf != value:
                    raise AssertionError(f"Guard failed: {self._label(given, i)} == {value!r}: it is {leaf!r}, and a constant of the exported program")
                continue
            m = layout_of(value)
            if not isinstance(leaf, Tensor):
                raise AssertionError(f"Guard failed: {self._label(given, i)} is a tensor: got {type(leaf).__name__}")
            if leaf.ndim != m.ndim or leaf.dtype is not m.dtype:
                raise AssertionError(f"Guard failed: {self._label(given, i)} is {m.dtype} with {m.ndim} dims: got {leaf.dtype} with {leaf.ndim}")
            for d, (size, wanted) in enumerate(zip(leaf.shape, m.shape, strict=True)):
                if not isinstance(wanted, Sym):
                    if size != wanted:
                        raise AssertionError(f"Guard failed: {self._label(given, i)}.size()[{d}] == {wanted}: it is {size}")
                    continue
                name = str(wanted.expr)
                if known.setdefault(name, size) != size:
                    raise AssertionError(f"Guard failed: {self._label(given, i)}.size()[{d}] == {known[name]}: it is {size}, and the same size as another dim")
                low, high = self.ranges.get(name, ValueRange(0, None))
                if size < low or (high is not None and size > high):
                    bound = f">= {low}" if size < low else f"<= {high}"
                    raise AssertionError(f"Guard failed: {self._label(given, i)}.size()[{d}] {bound}: it is {size}")
