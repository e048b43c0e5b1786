"""An ExportedProgram as the JSON of a `.pt2` file (PyTorch's schema, version 8)."""

from __future__ import annotations

import operator
from typing import Any

import flambeau
from flambeau._ops import OpOverload
from flambeau.devices import Device
from flambeau.dtypes import dtype
from flambeau.export import codes, expressions
from flambeau.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument
from flambeau.export.program import ExportedProgram
from flambeau.export.schemas import Schema, schema_of
from flambeau.export.shapes import layout_of
from flambeau.fx.node import Node
from flambeau.layouts import layout
from flambeau.symbols import Sym, SymFloat
from flambeau.tensor import Tensor


def document(program: ExportedProgram) -> dict[str, Any]:
    """The content of models/model.json."""
    graph, signature = program.graph, program.graph_signature
    tensors: dict[str, Any] = {}
    sizes: dict[str, Any] = {}
    floats: dict[str, Any] = {}
    nodes: list[Any] = []
    for node in graph.nodes:
        _describe(node.name, node.meta.get("val"), tensors, sizes, floats)
        if node.op == "call_function" and node.target is not operator.getitem:
            nodes.append(_node(node, tensors))
        elif node.op not in ("placeholder", "output", "call_function"):
            raise NotImplementedError(f"torch.export.save: a node {node.op} of the graph has no form in a file")
    results = next(n for n in graph.nodes if n.op == "output").args[0]
    inputs = []
    for node, spec in zip([n for n in graph.nodes if n.op == "placeholder"], signature.input_specs, strict=True):
        inputs.append(_constant(spec.arg.value) if isinstance(spec.arg, ConstantArgument) else _argument(node))
    call = program.module_call_graph[0].signature
    assert call is not None
    entries: list[Any] = [
        {"fqn": "", "signature": {"inputs": [], "outputs": [], "in_spec": codes.tree_text(call.in_spec), "out_spec": codes.tree_text(call.out_spec),
                                  "forward_arg_names": call.forward_arg_names}},
        *[{"fqn": e.fqn, "signature": None} for e in program.module_call_graph[1:]],
    ]  # fmt: skip
    return {
        "graph_module": {
            "graph": {
                "inputs": inputs, "outputs": [_argument(r) for r in results], "nodes": nodes, "tensor_values": tensors, "sym_int_values": sizes,
                "sym_bool_values": {}, "is_single_tensor_return": False, "custom_obj_values": {}, "sym_float_values": floats,
            },
            "signature": {"input_specs": [_input_spec(s) for s in signature.input_specs], "output_specs": [_output_spec(s) for s in signature.output_specs]},
            "module_call_graph": entries, "metadata": {}, "treespec_namedtuple_fields": {},
        },
        "opset_version": {"aten": 10},
        "range_constraints": {k: {"min_val": v.lower, "max_val": v.upper} for k, v in program.range_constraints.items()},
        "schema_version": {"major": codes.VERSION[0], "minor": codes.VERSION[1]},
        "verifiers": program.verifiers, "torch_version": flambeau.__version__, "guards_code": [],
    }  # fmt: skip


def tensor_meta(t: Tensor, requires_grad: bool = False) -> dict[str, Any]:
    """The layout of a tensor."""
    m = layout_of(t)
    return {
        "dtype": codes.dtype_number(m.dtype), "sizes": [_size(n) for n in m.shape], "requires_grad": requires_grad,
        "device": {"type": "cpu", "index": None}, "strides": [_size(n) for n in m.strides], "storage_offset": _size(m.offset), "layout": codes.STRIDED,
    }  # fmt: skip


def _size(n: Any) -> dict[str, Any]:
    if isinstance(n, Sym):
        return {"as_expr": {"expr_str": expressions.text(n.expr), "hint": {"as_int": int.__int__(n)}}}
    return {"as_int": int(n)}


def _describe(name: str, value: Any, tensors: dict[str, Any], sizes: dict[str, Any], floats: dict[str, Any]) -> None:
    if isinstance(value, Tensor):
        from flambeau.tensor import Tensor as plain

        tensors[name] = tensor_meta(value, vars(plain)["_meta"].__get__(value).requires_grad)
    elif isinstance(value, Sym):
        sizes[name] = _size(value)
    elif isinstance(value, SymFloat):
        floats[name] = {"as_expr": {"expr_str": expressions.text(value.expr), "hint": {"as_float": float.__float__(value)}}}


def _node(node: Node, tensors: dict[str, Any]) -> dict[str, Any]:
    target = node.target
    value = node.meta.get("val")
    if isinstance(target, OpOverload):
        name = f"torch.ops.{target.namespace}.{target.overloadpacket.__name__}.{target._overloadname}"
        found = schema_of(target)
        if found is None:
            raise NotImplementedError(f"torch.export.save: the operator {target} has no schema that a file could name")
        inputs = _inputs(node, found)
    else:
        module = getattr(target, "__module__", "")
        name = f"_operator.{target.__name__}" if module in ("operator", "_operator") else f"torch.{target.__name__}"
        inputs = [{"name": n, "arg": _argument(a), "kind": 1} for n, a in zip("ab", node.args, strict=False)]
    return {
        "target": name, "inputs": inputs, "outputs": _outputs(node, value, tensors), "metadata": {}, "is_hop_single_tensor_return": None, "name": node.name,
    }  # fmt: skip


def _inputs(node: Node, s: Schema) -> list[Any]:
    by_name = {p.name: p for p in s.parameters}
    places = [p for p in s.parameters if not p.keyword]
    made = [{"name": p.name, "arg": _argument(a, p), "kind": 1} for p, a in zip(places, node.args, strict=False)]
    return made + [{"name": n, "arg": _argument(a, by_name.get(n)), "kind": 2} for n, a in node.kwargs.items()]


def _outputs(node: Node, value: Any, tensors: dict[str, Any]) -> list[Any]:
    if isinstance(value, (Tensor, Sym, SymFloat)):
        return [_argument(node)]
    if value is None:
        return []
    names: dict[int, str] = {user.args[1]: user.name for user in node.users if user.target is operator.getitem}
    parts = []
    for i, part in enumerate(value):
        name = names.get(i) or f"{node.name}_unused_{i}"
        if isinstance(part, Tensor):
            tensors.setdefault(name, tensor_meta(part))
            parts.append({"name": name})
    several = isinstance(value, list) or (node.target._overloadname in ("Tensor", "sizes") and "aten.split" in str(node.target)) or _lists(node)
    return [{"as_tensors": parts}] if several else [{"as_tensor": p} for p in parts]


def _lists(node: Node) -> bool:
    """Whether the operator returns one list of tensors."""
    found = schema_of(node.target)
    return found is not None and found.returns == ("Tensor[]",)


def _constant(x: Any) -> dict[str, Any]:
    return _argument(x)


def _argument(x: Any, p: Any = None) -> dict[str, Any]:
    """A value as an argument of the schema."""
    if isinstance(x, Node):
        value = x.meta.get("val")
        if isinstance(value, Sym):
            return {"as_sym_int": {"as_name": x.name}}
        return {"as_sym_float": {"as_name": x.name}} if isinstance(value, SymFloat) else {"as_tensor": {"name": x.name}}
    if x is None:
        return {"as_none": True}
    for kinds, key, form in _FORMS:
        if isinstance(x, kinds):
            return {key: form(x)}
    if isinstance(x, (list, tuple)):
        return _list(list(x), p)
    if type(x).__name__ == "memory_format":
        return {"as_memory_format": codes.format_number(x)}
    raise NotImplementedError(f"torch.export.save: an argument of type {type(x).__name__} has no form in a file")


_FORMS: Any = (
    (bool, "as_bool", lambda x: x), (int, "as_int", int), (float, "as_float", codes.number_text), (str, "as_string", str),
    (complex, "as_complex", lambda x: {"real": x.real, "imag": x.imag}), (dtype, "as_scalar_type", codes.dtype_number),
    (Device, "as_device", lambda x: {"type": x.type, "index": x.index}), (layout, "as_layout", lambda x: codes.STRIDED),
)  # fmt: skip


def _list(x: list[Any], p: Any) -> dict[str, Any]:
    kind = p.kind if p is not None else None
    if kind == "Tensor":
        if p.none_inside:
            return {"as_optional_tensors": [{"as_none": True} if t is None else {"as_tensor": {"name": t.name}} for t in x]}
        return {"as_tensors": [{"name": t.name} for t in x]}
    if any(isinstance(v, Node) for v in x):
        return {"as_sym_ints": [{"as_name": v.name} if isinstance(v, Node) else {"as_int": v} for v in x]}
    if kind == "float" or (x and isinstance(x[0], float)):
        return {"as_floats": [codes.number_text(float(v)) for v in x]}
    if kind == "bool" or (x and all(isinstance(v, bool) for v in x)):
        return {"as_bools": x}
    if x and isinstance(x[0], str):
        return {"as_strings": x}
    return {"as_ints": [int(v) for v in x]}


def _input_spec(s: Any) -> dict[str, Any]:
    if s.kind is InputKind.USER_INPUT:
        if isinstance(s.arg, ConstantArgument):
            return {"constant_input": {"name": s.arg.name, "value": _constant(s.arg.value)}}
        return {"user_input": {"arg": {"as_sym_int": {"as_name": s.arg.name}} if isinstance(s.arg, SymIntArgument) else {"as_tensor": {"name": s.arg.name}}}}
    arg = {"name": s.arg.name}
    if s.kind is InputKind.PARAMETER:
        return {"parameter": {"arg": arg, "parameter_name": s.target}}
    if s.kind is InputKind.BUFFER:
        return {"buffer": {"arg": arg, "buffer_name": s.target, "persistent": s.persistent}}
    return {"tensor_constant": {"arg": arg, "tensor_constant_name": s.target}}


def _output_spec(s: Any) -> dict[str, Any]:
    if s.kind is OutputKind.USER_OUTPUT:
        if isinstance(s.arg, ConstantArgument):
            return {"user_output": {"arg": _constant(s.arg.value)}}
        return {"user_output": {"arg": {"as_sym_int": {"as_name": s.arg.name}} if isinstance(s.arg, SymIntArgument) else {"as_tensor": {"name": s.arg.name}}}}
    arg = {"name": s.arg.name}
    if s.kind is OutputKind.BUFFER_MUTATION:
        return {"buffer_mutation": {"arg": arg, "buffer_name": s.target}}
    if s.kind is OutputKind.USER_INPUT_MUTATION:
        return {"user_input_mutation": {"arg": arg, "user_input_name": s.target}}
    if s.kind is OutputKind.LOSS_OUTPUT:
        return {"loss_output": {"arg": arg}}
    raise NotImplementedError(f"torch.export.save: an output of kind {s.kind.name}")
