"""The JSON of a `.pt2` file (PyTorch's schema, version 8) as an ExportedProgram. What the file says is data: operators are looked up by name."""

from __future__ import annotations

import math
import operator
from typing import Any, Final

import flambeau
from flambeau.export import codes, expressions
from flambeau.export.graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from flambeau.export.program import ExportedProgram, ModuleCallEntry, ModuleCallSignature, ValueRange
from flambeau.export.schemas import schema_of
from flambeau.export.tracing import traced
from flambeau.fx.graph import Graph
from flambeau.fx.node import Node
from flambeau.nn.modules.module import Module
from flambeau.symbols import Recording
from flambeau.trace.meta import meta

_PLAIN: Final[dict[str, Any]] = {
    **{f"_operator.{n}": getattr(operator, n) for n in "add sub mul floordiv mod truediv pow neg eq ne lt le gt ge and_ or_ getitem".split()},
    **{f"torch.sym_{n}": getattr(flambeau, f"sym_{n}") for n in "max min int float not sum".split()},
    "math.trunc": math.trunc, "math.ceil": math.ceil, "math.floor": math.floor,
}  # fmt: skip


def program_of(data: dict[str, Any], state: dict[str, Any], constants: dict[str, Any], example: Any) -> ExportedProgram:
    """The program of a document and its tensors."""
    major = data["schema_version"]["major"]
    if major != codes.VERSION[0]:
        raise RuntimeError(f"torch.export.load: the file has schema version {major}, and {codes.VERSION[0]} is read")
    return _Reader(data, state, constants, example).program()


class _Reader:
    def __init__(self, data: dict[str, Any], state: dict[str, Any], constants: dict[str, Any], example: Any) -> None:
        self.data, self.state, self.constants, self.example = data, state, constants, example
        self.source = data["graph_module"]["graph"]
        self.graph = Graph()
        self.nodes: dict[str, Node] = {}
        self.numbers: dict[str, int] = {}  # of symbols, by their names in the file
        self.recording = Recording(())

    def program(self) -> ExportedProgram:
        whole = self.data["graph_module"]
        specs = [self._input_spec(s) for s in whole["signature"]["input_specs"]]
        for given, spec in zip(self.source["inputs"], specs, strict=True):
            key, value = _union(given)
            name = value["name"] if key == "as_tensor" else value.get("as_name") if key == "as_sym_int" else spec.arg.name
            node = self.graph.placeholder(name)
            self._named(name, node)
            node.meta["val"] = self._value(name) if key in ("as_tensor", "as_sym_int") else spec.arg.value
        for n in self.source["nodes"]:
            self._node(n)
        self.graph.output(tuple([self._argument(o) for o in self.source["outputs"]]))
        outputs = [self._output_spec(s) for s in whole["signature"]["output_specs"]]
        entries = []
        for e in whole["module_call_graph"]:
            s = e.get("signature")
            entries.append(ModuleCallEntry(e["fqn"], None if s is None else ModuleCallSignature(
                [], [], codes.tree_of(s["in_spec"]), codes.tree_of(s["out_spec"]), s.get("forward_arg_names"))))  # fmt: skip
        ranges = {}
        for name, r in self.data.get("range_constraints", {}).items():
            own = f"s{self.numbers[name]}" if name in self.numbers else name
            ranges[own] = ValueRange(r["min_val"] or 0, r["max_val"])
        made = ExportedProgram(Module(), self.graph, ExportGraphSignature(specs, outputs), self.state, ranges, entries, self.example, self.constants,
                               self.data.get("verifiers"))  # fmt: skip
        made.validate()
        return made

    # -- values -----------------------------------------------------------------------------------------------------
    def _symbol(self, name: str) -> Any:
        if name not in self.numbers:
            self.numbers[name] = len(self.numbers)
            hint = self._hint(name)
            self.recording.sizes = (*self.recording.sizes, hint)
            self.recording.count = len(self.recording.sizes)
        return self.recording.size(self.numbers[name])

    def _hint(self, name: str) -> int:
        """The value that a symbol had when the program was exported."""
        for values in (*[t["sizes"] for t in self.source["tensor_values"].values()], list(self.source["sym_int_values"].values())):
            for v in values:
                e = v.get("as_expr")
                if e and (e["expr_str"] == name or e["expr_str"].startswith(f"Symbol('{name}'")) and (e.get("hint") or {}).get("as_int") is not None:
                    return int(e["hint"]["as_int"])
        return 2

    def _size(self, v: dict[str, Any]) -> Any:
        if "as_int" in v:
            return int(v["as_int"])
        return expressions.value(v["as_expr"]["expr_str"], self._symbol)

    def _value(self, name: str) -> Any:
        m = self.source["tensor_values"].get(name)
        if m is not None:
            if m["layout"] != codes.STRIDED:
                raise NotImplementedError(f"torch.export.load: the tensor {name} is not strided")
            return traced(meta(tuple([self._size(s) for s in m["sizes"]]), tuple([self._size(s) for s in m["strides"]]), codes.dtype_of(m["dtype"]),
                               self._size(m["storage_offset"]), bool(m["requires_grad"])))  # fmt: skip
        for table in ("sym_int_values", "sym_float_values"):
            v = self.source.get(table, {}).get(name)
            if v is not None:
                return self._size(v) if "as_float" not in v else float(v["as_float"])
        return None

    def _named(self, name: str, node: Node) -> None:
        self.nodes[name] = node

    def _of(self, name: str) -> Node:
        if name not in self.nodes:
            raise ValueError(f"torch.export.load: the graph uses {name!r}, which nothing before it makes")
        return self.nodes[name]

    # -- nodes ------------------------------------------------------------------------------------------------------
    def _node(self, n: dict[str, Any]) -> None:
        target: str = n["target"]
        if target in _BLOCKS:
            self._block(n)
            return
        if target in _PLAIN:
            function = _PLAIN[target]
            args = tuple([self._argument(i["arg"]) for i in n["inputs"]])
            kwargs: dict[str, Any] = {}
        else:
            parts = target.split(".")
            if len(parts) != 5 or parts[:2] != ["torch", "ops"] or any(p.startswith("__") and p not in _DUNDER for p in parts):
                raise NotImplementedError(f"torch.export.load: the graph calls {target}, which is no operator that is read (higher-order operators and "
                                          "functions of other packages are not)")  # fmt: skip
            space, name, overload = parts[2:]
            try:
                function = getattr(getattr(getattr(flambeau.ops, space), name), overload)
            except AttributeError:
                if space not in ("aten", "prims"):
                    raise RuntimeError(f"torch.export.load: the graph calls the operator {space}::{name}, which is not registered here; import the package "
                                       "or the module that defines it (torch.library) before the program is loaded") from None  # fmt: skip
                raise NotImplementedError(f"torch.export.load: the graph calls {space}.{name}.{overload}, which flambeau has not") from None
            args, kwargs = self._inputs(n["inputs"], schema_of(function))
        outputs = n["outputs"]
        single = len(outputs) == 1 and _union(outputs[0])[0] not in ("as_tensors", "as_none")
        called = n.get("name") or (_name(outputs[0]) if single else None)
        node = self.graph.call_function(function, args, kwargs, name=called)
        if single:
            own = _name(outputs[0])
            self._named(own, node)
            node.meta["val"] = self._value(own)
            return
        names = _names(outputs)
        node.meta["val"] = tuple([None if n is None else self._value(n) for n in names]) or None
        for i, of_part in enumerate(names):
            if of_part is not None:
                part = self.graph.call_function(operator.getitem, (node, i), name=of_part)
                part.meta["val"] = self._value(of_part)
                self._named(of_part, part)

    def _block(self, n: dict[str, Any]) -> None:
        """A `with` block of the program, which PyTorch writes as a graph of its own: its nodes become nodes of the program."""
        before, inside = _BLOCKS[n["target"]], [i["arg"] for i in n["inputs"]]
        given = [self._argument(a) for a in inside[:before]]
        if n["target"].endswith("autocast") and given[2]:
            raise NotImplementedError(f"torch.export.load: the graph has a block with autocast to {given[1]} on {given[0]!r}, which is not read; export the "
                                      "model without autocast, or converted to that dtype")  # fmt: skip
        graph = inside[before]["as_graph"]["graph"]
        operands = [self._argument(a) for a in inside[before + 1 :]]
        source, nodes = self.source, self.nodes
        self.source, self.nodes = graph, {_name(i): node for i, node in zip(graph["inputs"], operands, strict=True)}
        for inner in graph["nodes"]:
            self._node(inner)
        results = [self._argument(o) for o in graph["outputs"]]
        self.source, self.nodes = source, nodes
        if n["target"].endswith("set_grad_enabled") and not given[0]:
            results = [self._without_gradient(r) if r not in operands else r for r in results]
        for name, result in zip(_names(n["outputs"]), results, strict=True):
            if name is not None:
                self._named(name, result)

    def _without_gradient(self, made: Node) -> Node:
        node = self.graph.call_function(flambeau.ops.aten.detach.default, (made,), name="detach")
        node.meta["val"] = made.meta["val"]
        return node

    def _inputs(self, inputs: list[Any], s: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args, kwargs = [], {}
        keyword = {p.name for p in s.parameters if p.keyword} if s is not None else set()
        for i in inputs:
            value = self._argument(i["arg"])
            if i.get("kind") == 2 or (i.get("kind") is None and i["name"] in keyword):
                kwargs[i["name"]] = value
            else:
                args.append(value)
        return tuple(args), kwargs

    def _argument(self, a: dict[str, Any]) -> Any:
        key, v = _union(a)
        if key == "as_none":
            return None
        if key in ("as_tensor", "as_optional_tensor"):
            return self._of(v["name"]) if "name" in v else self._argument(v)
        if key == "as_tensors":
            return [self._of(t["name"]) for t in v]
        if key == "as_optional_tensors":
            return [self._argument(t) for t in v]
        if key in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return self._of(v["as_name"]) if "as_name" in v else next(iter(v.values()))
        if key in ("as_sym_ints", "as_sym_floats"):
            return [self._argument({key[:-1]: t}) for t in v]
        if key in ("as_int", "as_bool", "as_string", "as_ints", "as_bools", "as_strings", "as_int_lists"):
            return v
        if key == "as_float":
            return codes.number_of(v)
        if key == "as_floats":
            return [codes.number_of(x) for x in v]
        if key == "as_scalar_type":
            return codes.dtype_of(v)
        if key == "as_memory_format":
            return codes.format_of(v)
        if key == "as_layout":
            return flambeau.strided
        if key == "as_device":
            return flambeau.device("cpu" if v["type"] != "meta" else "meta")
        if key == "as_complex":
            return complex(v["real"], v["imag"])
        raise NotImplementedError(f"torch.export.load: an argument of kind {key} is not read (sub-graphs and custom objects are not)")

    def _input_spec(self, s: dict[str, Any]) -> InputSpec:
        key, v = _union(s)
        if key == "user_input":
            kind, arg = _union(v["arg"])
            if kind == "as_tensor":
                return InputSpec(InputKind.USER_INPUT, TensorArgument(arg["name"]))
            if kind == "as_sym_int" and "as_name" in arg:
                return InputSpec(InputKind.USER_INPUT, SymIntArgument(arg["as_name"]))
            raise NotImplementedError(f"torch.export.load: a user's input of kind {kind}")
        if key == "parameter":
            return InputSpec(InputKind.PARAMETER, TensorArgument(v["arg"]["name"]), v["parameter_name"])
        if key == "buffer":
            return InputSpec(InputKind.BUFFER, TensorArgument(v["arg"]["name"]), v["buffer_name"], bool(v["persistent"]))
        if key == "tensor_constant":
            return InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(v["arg"]["name"]), v["tensor_constant_name"])
        if key == "constant_input":
            return InputSpec(InputKind.USER_INPUT, ConstantArgument(v["name"], self._argument(v["value"])))
        raise NotImplementedError(f"torch.export.load: an input of kind {key} is not read")

    def _output_spec(self, s: dict[str, Any]) -> OutputSpec:
        key, v = _union(s)
        if key == "user_output":
            kind, arg = _union(v["arg"])
            if kind == "as_tensor":
                return OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(arg["name"]))
            if kind == "as_sym_int":
                return OutputSpec(OutputKind.USER_OUTPUT, SymIntArgument(arg.get("as_name", "")))
            return OutputSpec(OutputKind.USER_OUTPUT, ConstantArgument("", self._argument(v["arg"])))
        kinds = {"buffer_mutation": (OutputKind.BUFFER_MUTATION, "buffer_name"), "user_input_mutation": (OutputKind.USER_INPUT_MUTATION, "user_input_name"),
                 "loss_output": (OutputKind.LOSS_OUTPUT, ""), "parameter_mutation": (OutputKind.PARAMETER_MUTATION, "parameter_name")}  # fmt: skip
        if key not in kinds:
            raise NotImplementedError(f"torch.export.load: an output of kind {key} is not read")
        role, target = kinds[key]
        return OutputSpec(role, TensorArgument(v["arg"]["name"]), v.get(target))


def _names(outputs: list[dict[str, Any]]) -> list[str | None]:
    """The names of a node's results, None for one that is nothing."""
    if len(outputs) == 1 and "as_tensors" in outputs[0]:
        return [a["name"] for a in outputs[0]["as_tensors"]]
    return [_name(o) if _union(o)[0] != "as_none" else None for o in outputs]


# Blocks, and how many arguments stand before their graph: autocast has device, dtype, whether it is on, and its cache; the other whether gradients are.
_BLOCKS: Final = {"torch.ops.higher_order.wrap_with_autocast": 4, "torch.ops.higher_order.wrap_with_set_grad_enabled": 1}
_DUNDER: Final = frozenset(f"__{n}__" for n in "and or xor lshift rshift iand ior ixor".split())


def _union(d: dict[str, Any]) -> tuple[str, Any]:
    """The one field of a union."""
    if len(d) != 1:
        raise ValueError(f"torch.export.load: a field with {len(d)} kinds, where one is told: {list(d)[:4]}")
    return next(iter(d.items()))


def _name(output: dict[str, Any]) -> str:
    key, v = _union(output)
    return str(v["name"] if key == "as_tensor" else v["as_name"])
