"""torch.onnx.export: a module is exported (torch.export), and its program written as an ONNX model."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import flambeau
from flambeau.export import Dim, ExportedProgram
from flambeau.export import export as export_program
from flambeau.export.dims import _DerivedDim, arguments, leaves
from flambeau.export.graph_signature import ConstantArgument, InputKind, OutputKind
from flambeau.fx.node import Node
from flambeau.nn.modules.module import Module
from flambeau.onnx.errors import OnnxExporterError
from flambeau.onnx.exporting import coded
from flambeau.onnx.exporting.builder import Builder, SizeVal, Val, described
from flambeau.onnx.exporting.program import ONNXProgram
from flambeau.onnx.exporting.translation import Translation
from flambeau.onnx.importing.values import NUMBERS, to_array
from flambeau.onnx.package import onnx
from flambeau.symbols import Sym
from flambeau.tensor import Tensor

OLDEST: Final = 20


def export(
    model: Any, args: Any = (), f: str | os.PathLike[str] | None = None, *, kwargs: dict[str, Any] | None = None, verbose: bool | None = None,
    input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None, opset_version: int | None = None, dynamo: bool = True,
    external_data: bool = True, dynamic_shapes: Any = None, custom_translation_table: Mapping[Any, Callable[..., Any]] | None = None, report: bool = False,
    optimize: bool = True, verify: bool = False, profile: bool = False, dump_exported_program: bool = False, artifacts_dir: str | os.PathLike[str] = ".",
    export_params: bool = True, keep_initializers_as_inputs: bool = False, dynamic_axes: Any = None, training: Any = None, operator_export_type: Any = None,
    do_constant_folding: bool = True, custom_opsets: Mapping[str, int] | None = None, export_modules_as_functions: bool | Collection[Any] = False,
    autograd_inlining: bool = True,
) -> ONNXProgram:  # fmt: skip
    """An nn.Module or an ExportedProgram as an ONNX model, of opset 20 or newer; written to `f` if that is given. Weights of 4 bits need 21.

    `dynamic_shapes` as in torch.export, names in it or in `dynamic_axes` become the names of the model's dims. UnsupportedOperatorError names an operator that
    has no form. `verify` compares the model's outputs with the program's. What only the older exporter knew is refused.
    """
    package = onnx("torch.onnx.export")
    if not dynamo:
        raise NotImplementedError("torch.onnx.export: dynamo=False, the older exporter over TorchScript, is not there; leave it out")
    for name, asked in (("custom_translation_table", custom_translation_table), ("custom_opsets", custom_opsets),
                        ("export_modules_as_functions", export_modules_as_functions)):  # fmt: skip
        if asked:
            raise NotImplementedError(f"torch.onnx.export: {name} is not there")
    newest = package.defs.onnx_opset_version()
    if opset_version is not None and not OLDEST <= opset_version <= newest:
        raise ValueError(f"torch.onnx.export: opset_version must be from {OLDEST} to {newest} (the newest of the package onnx), got {opset_version}")
    program, dims = _program(model, args, dict(kwargs or {}), input_names, dynamic_shapes, dynamic_axes)
    opset = opset_version or max(OLDEST, coded.least_opset(program))
    made = ONNXProgram(model_proto(program, opset, input_names, output_names, dims, type(model).__name__), program)
    if verify:
        example = program.example_inputs
        made.check(*example[0], **example[1])
    if f is not None:
        made.save(f, include_initializers=export_params, keep_initializers_as_inputs=keep_initializers_as_inputs, external_data=external_data)
    return made


def _program(model: Any, args: Any, kwargs: dict[str, Any], input_names: Any, dynamic_shapes: Any, dynamic_axes: Any) -> tuple[Any, dict[tuple[int, int], str]]:
    """(the program, the names of dims by leaf and dim)."""
    if isinstance(model, ExportedProgram):
        return model, {}
    if not isinstance(model, Module):
        raise TypeError(f"torch.onnx.export: model must be a torch.nn.Module or a torch.export.ExportedProgram, got {type(model).__name__}")
    args = args if isinstance(args, tuple) else (args,)
    if args and isinstance(args[-1], dict) and not kwargs and _keywords(model, args):
        args, kwargs = args[:-1], dict(args[-1])
    given = arguments(model, args, kwargs)
    names: dict[tuple[int, int], str] = {}
    if dynamic_axes and dynamic_shapes is None:
        dynamic_shapes = _from_axes(given, input_names, dynamic_axes, names)
    made: dict[str, Any] = {}
    dynamic_shapes = _strings(dynamic_shapes, made)
    for i, (_, _, spec) in enumerate(leaves(given, dynamic_shapes)):
        for d, what in spec.items():
            if isinstance(what, (Dim, _DerivedDim)):
                names[i, d] = what.__name__
    return export_program(model, args, kwargs, dynamic_shapes=dynamic_shapes), names


def _keywords(model: Module, args: tuple[Any, ...]) -> bool:
    """Whether a dict at the end of the arguments holds keyword arguments."""
    names = inspect.signature(model.forward).parameters
    return all(isinstance(k, str) and k in names for k in args[-1]) and len(args[-1]) > 0


def _from_axes(given: dict[str, Any], input_names: Any, axes: Any, names: dict[tuple[int, int], str]) -> dict[str, Any]:
    """dynamic_shapes of dynamic_axes: dims that may change unless the program asks for them."""
    own = list(input_names or given)
    places = {n: i for i, n in enumerate(own)}
    found: dict[str, Any] = dict.fromkeys(given)
    order = list(given)
    for name, spec in axes.items():
        where = order.index(name) if name in given else places.get(name)
        if where is None or where >= len(order):
            continue  # the axes of outputs follow from the inputs'
        leaf = given[order[where]]
        if not isinstance(leaf, Tensor):
            raise ValueError(f"torch.onnx.export: dynamic_axes names {name!r}, which is no tensor; use dynamic_shapes")
        dims = {d % leaf.ndim: label for d, label in spec.items()} if isinstance(spec, Mapping) else {d % leaf.ndim: None for d in spec}
        found[order[where]] = dict.fromkeys(dims, Dim.AUTO)
        for d, label in dims.items():
            if label:
                names[where, d] = label
    return found


def _strings(shapes: Any, made: dict[str, Any]) -> Any:
    """Names in place of dims as dims; the same name is the same dim."""
    if isinstance(shapes, str):
        return made.setdefault(shapes, Dim(shapes))
    if isinstance(shapes, Mapping):
        return {k: _strings(v, made) for k, v in shapes.items()}
    return type(shapes)([_strings(v, made) for v in shapes]) if type(shapes) in (tuple, list) else shapes


def model_proto(program: ExportedProgram, opset: int, input_names: Any, output_names: Any, dims: dict[tuple[int, int], str], name: str) -> Any:
    """The protobuf of a program."""
    package = onnx("torch.onnx.export")
    b = Builder(opset)
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    pairs = list(zip(placeholders, program.graph_signature.input_specs, strict=True))
    given: dict[Node, Any] = {}
    inputs: list[Any] = []
    asked = list(input_names or [])
    labels: dict[str, str] = {}
    user = [(n, s) for n, s in pairs if s.kind is InputKind.USER_INPUT]
    b.names.update(asked, output_names or [])
    tensors = 0
    for i, (n, s) in enumerate(user):
        if isinstance(s.arg, ConstantArgument):
            given[n] = s.arg.value
            continue
        kind, shape = described(n.meta["val"])
        own = asked[tensors] if tensors < len(asked) else b.fresh(n.name)
        tensors += 1
        given[n] = Val(own, kind, shape)
        for d, size in enumerate(shape):
            if isinstance(size, Sym) and (i, d) in dims:
                labels.setdefault(str(size.expr), dims[i, d])
        inputs.append((own, kind, shape))
    if len(asked) > tensors:
        raise ValueError(f"torch.onnx.export: input_names has {len(asked)} names, the model {tensors} inputs")
    shared: dict[int, str] = {}
    for n, s in pairs:
        if s.kind is InputKind.USER_INPUT:
            continue
        held = program.tensor(str(s.target))
        kind, shape = described(n.meta["val"])
        if id(held) not in shared:
            stem = b.fresh(str(s.target))
            shared[id(held)] = stem
            b.initializers[stem] = b.numpy_helper.from_array(to_array(held), stem)
        given[n] = Val(shared[id(held)], kind, shape)
    results = Translation(program, b).run(given, {})
    outputs = _outputs(program, b, results, list(output_names or []))
    info = package.helper.make_tensor_value_info

    def declared(own: str, kind: Any, shape: Any) -> Any:
        return info(own, NUMBERS[kind.name], [labels.get(str(s.expr), str(s.expr)) if isinstance(s, Sym) else int(s) for s in shape])

    used = {i for n in b.nodes for i in n.input} | {o[0] for o in outputs}
    held = [t for n, t in b.initializers.items() if n in used]
    graph = package.helper.make_graph(b.nodes, name, [declared(*x) for x in inputs], [declared(*x) for x in outputs], held)
    imports = [package.helper.make_opsetid("", opset)]
    proto = package.helper.make_model(graph, opset_imports=imports, producer_name="flambeau", producer_version=flambeau.__version__)
    proto.ir_version = package.helper.find_min_ir_version_for(imports)
    if sum([len(t.raw_data) for t in held]) < 1 << 30:
        package.checker.check_model(proto)
    return proto


def _outputs(program: ExportedProgram, b: Builder, results: list[Any], asked: list[str]) -> list[tuple[str, Any, Any]]:
    """(name, dtype, shape) of what the caller gets; numbers that the program returns are constants."""
    found: list[tuple[str, Any, Any]] = []
    nodes = next(n for n in program.graph.nodes if n.op == "output").args[0]
    for value, spec, node in zip(results, program.graph_signature.output_specs, nodes, strict=True):
        if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT) or value is None:
            continue
        if isinstance(value, SizeVal):
            kind, shape, source = flambeau.float32 if value.is_float else flambeau.int64, (), b.op("Squeeze", value.name, b.ints([0]))
        elif isinstance(value, Val):
            (kind, shape), source = described(node.meta["val"]), value.name
        elif isinstance(value, (bool, int, float)):
            made = flambeau.tensor(value)
            kind, shape, source = made.dtype, (), b.number(value, made.dtype)
        else:
            raise OnnxExporterError(f"torch.onnx.export: the model returns {value!r}, which is no tensor and no number")
        own = asked[len(found)] if len(found) < len(asked) else b.fresh(f"output_{len(found)}" if not isinstance(node, Node) else f"{node.name}_out")
        b.nodes.append(b.helper.make_node("Identity", [source], [own], name=f"{own}_identity"))
        found.append((own, kind, shape))
    if len(asked) > len(found):
        raise ValueError(f"torch.onnx.export: output_names has {len(asked)} names, the model {len(found)} outputs")
    return found
