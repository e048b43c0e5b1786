"""A graph with observers made one of integers: quantized tensors begin and end where observers were, with quantized operations between."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import Any, Final

import flambeau as torch
from flambeau import nn
from flambeau.ao.nn import intrinsic as nni
from flambeau.ao.nn import qat as nnqat
from flambeau.ao.nn import quantized as nnq
from flambeau.ao.nn.intrinsic import qat as nniqat
from flambeau.ao.nn.intrinsic import quantized as nniq
from flambeau.ao.nn.quantized import dynamic as nnqd
from flambeau.ao.quantization.fx import roles
from flambeau.ao.quantization.fx.prepare import OBSERVED, Observed
from flambeau.ao.quantization.fx.roles import is_observer, is_relu, kind_of, nodes_in
from flambeau.ao.quantization.quantization_mappings import get_default_dynamic_quant_module_mappings, get_default_static_quant_module_mappings
from flambeau.fx import GraphModule, Node
from flambeau.quantized.operators import OPERATORS

_STATIC: Final = {**get_default_static_quant_module_mappings(), nn.Softmax: nnq.Softmax}
_DYNAMIC: Final = {**get_default_dynamic_quant_module_mappings(), nnqat.Linear: nnqd.Linear, nniqat.LinearReLU: nniq.DynamicLinearReLU}
_TRAINED: Final = tuple(k for k in roles.ROLES if isinstance(k, type) and k.__module__ in (nnqat.__name__, nniqat.__name__))
_FUSED: Final = {nn.Linear: nni.LinearReLU, nn.Conv1d: nni.ConvReLU1d, nn.Conv2d: nni.ConvReLU2d, nn.Conv3d: nni.ConvReLU3d}
_BINARY: Final = {operator.add: "add", torch.add: "add", operator.mul: "mul", torch.mul: "mul", torch.matmul: "matmul"}


def _is_dequantize(value: Any) -> bool:
    return isinstance(value, Node) and value.op == "call_method" and value.target == "dequantize"


def _is_dynamic(qconfig: Any) -> bool:
    return qconfig is not None and bool(getattr(qconfig.activation(), "is_dynamic", False))


class Converter:
    """The steps on one graph."""

    def __init__(self, model: GraphModule, observed: Observed) -> None:
        self.model, self.graph, self.observed = model, model.graph, observed
        self.modules: dict[str, Any] = dict(model.named_modules(remove_duplicate=False))
        called = [node.target for node in self.graph.nodes if node.op == "call_module"]
        self.several = {name for name in called if called.count(name) > 1}
        self.watchers: dict[Node, Any] = {}  # of nodes that quantize

    def run(self) -> GraphModule:
        """The converted model."""
        self._inputs()
        for node in list(self.graph.nodes):
            if is_observer(node, self.modules) and not self._is_weight(node):
                self._observed(node)
        for node in list(self.graph.nodes):
            if node.name in self.observed.names and node.op in ("call_module", "call_function"):
                self._dynamic(node)
        for node in [n for n in self.graph.nodes if n in self.watchers]:
            self._quantized(node)
        for node in list(self.graph.nodes):
            if is_observer(node, self.modules):
                self._weight_observed(node)
        self._outputs()
        self.graph.eliminate_dead_code()
        self._check()
        made = GraphModule(self.model, self.graph)
        made.delete_all_unused_submodules()
        return made

    # -- where quantized tensors begin and end -----------------------------------------------------------------------
    def _inputs(self) -> None:
        places = [n for n in self.graph.nodes if n.op == "placeholder"]
        for index in self.observed.custom.input_quantized_indexes:
            users = list(places[index].users)
            with self.graph.inserting_after(places[index]):
                real = self.graph.call_method("dequantize", (places[index],))
            for user in users:
                user.replace_input_with(places[index], real)

    def _outputs(self) -> None:
        for node in self.graph.nodes:
            asks = (node.op == "call_function" and node.target is getattr) or (node.op == "call_method" and node.target == "size")
            for value in node.args if asks else ():  # sizes are the same
                if _is_dequantize(value):
                    node.replace_input_with(value, value.args[0])
        chosen = self.observed.custom.output_quantized_indexes
        result = self.graph.output_node()
        found = result.args[0]
        parts = found if isinstance(found, (list, tuple)) else [found]
        for index in chosen:
            if _is_dequantize(parts[index]):
                result.replace_input_with(parts[index], parts[index].args[0])

    def _is_weight(self, node: Node) -> bool:
        return any(u.op == "call_function" and u.target in roles.WEIGHTED_FUNCTIONS and _operand(u, 1, "weight") is node for u in node.users)

    def _free(self, prefix: str) -> str:
        prefix = prefix.replace(".", "_")
        count = 0
        while hasattr(self.model, f"{prefix}{count}"):
            count += 1
        return f"{prefix}{count}"

    def _observed(self, node: Node) -> None:
        """An observer becomes: quantize, dequantize; nothing where it is for a dynamic operation, or for floats."""
        watcher, value = self.modules[node.target], node.args[0]
        if getattr(watcher, "is_dynamic", False) or watcher.dtype not in (torch.quint8, torch.qint8):
            node.replace_all_uses_with(value)
            self.graph.erase_node(node)
            return
        scale, zero_point = watcher.calculate_qparams()
        of = self.observed
        given = of.qconfigs.get(value.name) is None
        users = list(node.users)
        near = next((u for u in users if u.op == "call_function" and u.target is torch.nn.functional.linear), users[0] if users else None) if given else value
        path = of.scopes.get(near.name, ("",))[0] if near is not None else ""
        prefix = path + ("_input" if given else "")
        names = self._free(f"{prefix}_scale_"), self._free(f"{prefix}_zero_point_")
        self.model.register_buffer(names[0], torch.tensor(float(scale)))
        self.model.register_buffer(names[1], torch.tensor(int(zero_point)))
        with self.graph.inserting_before(node):
            numbers = [self.graph.get_attr(name) for name in names]
            codes = self.graph.call_function(torch.quantize_per_tensor, (value, *numbers, watcher.dtype))
            real = self.graph.call_method("dequantize", (codes,))
        self.watchers[codes] = watcher
        node.replace_all_uses_with(real)
        self.graph.erase_node(node)

    def _weight_observed(self, node: Node) -> None:
        """The weight of a function that did not become a module: rounded to codes where it is used."""
        watcher, value = self.modules[node.target], node.args[0]
        scale, zero_point = watcher.calculate_qparams()
        channels = scale.numel() > 1
        names = self._free("_weight_scale_"), self._free("_weight_zero_point_")
        self.model.register_buffer(names[0], scale if channels else torch.tensor(float(scale)))
        self.model.register_buffer(names[1], zero_point if channels else torch.tensor(int(zero_point)))
        with self.graph.inserting_before(node):
            numbers = [self.graph.get_attr(name) for name in names]
            axis = (watcher.ch_axis,) if channels else ()
            function = torch.quantize_per_channel if channels else torch.quantize_per_tensor
            codes = self.graph.call_function(function, (value, *numbers, *axis, watcher.dtype))
            real = self.graph.call_method("dequantize", (codes,))
        node.replace_all_uses_with(real)
        self.graph.erase_node(node)

    # -- modules -----------------------------------------------------------------------------------------------------
    def _put(self, node: Node, make: Callable[[Any], Any]) -> None:
        """Exchange the module that a node calls; where others call it too, this node gets one of its own."""
        name = node.target
        made = make(self.modules[name])
        if name in self.several:
            name = node.target = self._free(f"{name}_")
            self.model.add_module(name, made)
        else:
            owner, _, last = name.rpartition(".")
            setattr(self.modules[owner], last, made)
        self.modules[name] = made

    def _dynamic(self, node: Node) -> None:
        """Dense and recurrent layers of a dynamic QConfig, and tables."""
        qconfig, kind = self.observed.qconfigs[node.name], kind_of(node, self.modules)
        table = kind in (nn.Embedding, nn.EmbeddingBag)
        if not table and not _is_dynamic(qconfig):
            return
        if node.op == "call_module" and (table or kind in _DYNAMIC):
            self._put(node, lambda module: _DYNAMIC[kind].from_float(_with(module, qconfig)))
        elif kind is torch.nn.functional.linear:
            after = next(iter(node.users), None)
            relu = after if after is not None and len(node.users) == 1 and is_relu(after, self.modules) and after.name in self.observed.names else None
            module = self._module_of(node, relu is not None, qconfig)
            if module is not None:
                self._call(node, relu, _DYNAMIC[type(module)].from_float(module), _operand(node, 0, "input"), relu or node)

    def _call(self, node: Node, relu: Node | None, module: Any, value: Any, replaced: Node) -> None:
        """A call of a new module for a function (and a relu behind it, and what quantizes that)."""
        name = self._free(f"{self.observed.scopes[node.name][0]}_{node.name}_")
        self.model.add_module(name, module)
        self.modules[name] = module
        with self.graph.inserting_before(replaced):
            made = self.graph.call_module(name, (value,))
        replaced.replace_all_uses_with(made)
        for gone in dict.fromkeys([replaced, *([relu] if relu is not None else []), node]):
            self.graph.erase_node(gone)

    def _attribute(self, value: Any) -> Any:
        """The parameter of a get_attr node."""
        if not isinstance(value, Node) or value.op != "get_attr":
            return None
        found = self.model
        for part in value.target.split("."):
            found = getattr(found, part)
        return found

    def _module_of(self, node: Node, relu: bool, qconfig: Any) -> Any:
        """The float layer that a call of F.linear or F.conv stands for; None where its weight is computed or its padding is a word."""
        seen, bias = _operand(node, 1, "weight"), _operand(node, 2, "bias")
        weight = self._attribute(seen.args[0]) if is_observer(seen, self.modules) else None
        if weight is None or (bias is not None and self._attribute(bias) is None):
            return None
        if node.target is torch.nn.functional.linear:
            layer: Any = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
        else:
            names = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
            options = {name: _operand(node, 3 + i, name, value) for i, (name, value) in enumerate(names.items())}
            if any(isinstance(v, str) or list(nodes_in(v)) for v in options.values()):
                return None
            kind = getattr(nn, f"Conv{roles.CONV_FUNCTIONS[node.target]}d")
            layer = kind(weight.shape[1] * options["groups"], weight.shape[0], tuple(weight.shape[2:]), bias=bias is not None, **options)
        layer.weight = nn.Parameter(weight.detach())
        if bias is not None:
            layer.bias = nn.Parameter(self._attribute(bias).detach())
        made = _FUSED[type(layer)](layer, nn.ReLU()) if relu else layer
        made.qconfig, made.weight_fake_quant = qconfig, self.modules[seen.target]
        return made

    # -- what stands between dequantize and quantize -------------------------------------------------------------------
    def _quantized(self, codes: Node) -> None:
        """The operation whose result `codes` quantizes becomes one of integers, where there is one and its operands are integers."""
        node, relu = codes.args[0], None
        if is_relu(node, self.modules):
            inner = node.args[0]
            if inner.op == "call_function" and (inner.target in _BINARY or inner.target in roles.WEIGHTED_FUNCTIONS) and len(inner.users) == 1:
                node, relu = inner, node
        if node.name not in self.observed.names or len(node.users) != 1 or len((relu or node).users) != 1:
            return
        kind, qconfig = kind_of(node, self.modules), self.observed.qconfigs[node.name]
        value = next(iter([*node.args, *node.kwargs.values()]), None)
        if node.op == "call_function" and kind in _BINARY:
            self._binary(node, relu, codes)
        elif not all(map(_is_dequantize, value if isinstance(value, (list, tuple)) else [value])):
            return
        elif node.op == "call_function" and kind in roles.WEIGHTED_FUNCTIONS:
            module = self._module_of(node, relu is not None, qconfig)
            if module is not None:
                module.activation_post_process = self.watchers[codes]
                self._call(node, relu, _STATIC[type(module)].from_float(module), value.args[0], codes)
        elif node.op == "call_module" and kind in _STATIC:
            self._put(node, lambda module: _STATIC[kind].from_float(_with(module, qconfig, self.watchers[codes])))
            self._skip(node, value, codes)
        elif roles.ROLES.get(kind) in ("shared", "fixed"):
            self._skip(node, value, codes)

    def _skip(self, node: Node, value: Any, codes: Node) -> None:
        """Take away what dequantizes the operands and quantizes the result."""
        for real in nodes_in(value):
            node.replace_input_with(real, real.args[0])
        codes.replace_all_uses_with(node)
        self.graph.erase_node(codes)

    def _binary(self, node: Node, relu: Node | None, codes: Node) -> None:
        operands = list(node.args)
        integers = [v for v in operands if _is_dequantize(v)]
        if len(operands) != 2 or node.kwargs or not integers or any(isinstance(v, Node) and not _is_dequantize(v) for v in operands):
            return
        name, rest = _BINARY[node.target], codes.args[1:3]
        if len(integers) == 1:  # with a number: the integers stay, their meaning moves
            operands = [integers[0], next(v for v in operands if v is not integers[0])]
            name, rest = (f"{name}_scalar" if relu is not None else name), ()
        name += "_relu" if relu is not None else ""
        if name not in OPERATORS:
            return
        with self.graph.inserting_before(codes):
            values = [v.args[0] if isinstance(v, Node) else v for v in operands]
            made = self.graph.call_function(getattr(torch.ops.quantized, name), (*values, *rest))
        codes.replace_all_uses_with(made)
        for gone in [codes, *([relu] if relu is not None else []), node]:
            self.graph.erase_node(gone)

    def _check(self) -> None:
        for node in self.graph.nodes:
            if node.op == "call_module" and isinstance(self.modules[node.target], _TRAINED):
                raise NotImplementedError(
                    f"convert_fx: {node.target!r} ({type(self.modules[node.target]).__name__}) was trained with rounding, but its QConfig has codes for which "
                    "there is no quantized layer; use activations of quint8 and weights of qint8 (get_default_qat_qconfig_mapping)"
                )


def _operand(node: Node, place: int, name: str, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def _with(module: Any, qconfig: Any, watcher: Any = None) -> Any:
    """A module with what `from_float` looks at."""
    module.qconfig = qconfig
    if watcher is not None:
        module.activation_post_process = watcher
    return module


def convert(model: GraphModule) -> GraphModule:
    """A new GraphModule of integers, of a prepared one; AssertionError for another."""
    observed = model.meta.get(OBSERVED) if isinstance(model, GraphModule) else None
    if observed is None:
        raise AssertionError("convert_fx: incoming model must be produced by prepare_fx or prepare_qat_fx")
    made = Converter(copy.deepcopy(model), observed).run()
    for module in made.modules():
        if "qconfig" in module.__dict__:
            del module.qconfig
    made.meta = {key: value for key, value in model.meta.items() if key != OBSERVED}
    return made
