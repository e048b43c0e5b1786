"""Observers put into a graph: before operations that shall be quantized, and behind them."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.ao.nn import intrinsic as nni
from flambeau.ao.nn import qat as nnqat
from flambeau.ao.nn.intrinsic import qat as nniqat
from flambeau.ao.nn.intrinsic.fused import _FusedModule
from flambeau.ao.quantization.fx import roles
from flambeau.ao.quantization.fx.custom_config import PrepareCustomConfig
from flambeau.ao.quantization.fx.roles import Role, is_observer, kind_of, no_tensor, nodes_in
from flambeau.ao.quantization.observer import FixedQParamsObserver, ReuseInputObserver
from flambeau.ao.quantization.qconfig import qconfig_equals
from flambeau.ao.quantization.qconfig_mapping import QConfigMapping
from flambeau.ao.quantization.quantization_mappings import get_default_qat_module_mappings
from flambeau.ao.quantization.quantize import swap_module
from flambeau.fx import GraphModule

OBSERVED = "_observed_graph_module_attrs"  # of a GraphModule's `meta`
_CODES = (torch.quint8, torch.qint8)


@dataclass
class Observed:
    """What `convert_fx` has to know of a prepared graph: QConfigs and scopes of nodes by name, the nodes that are quantized, and the configuration."""

    qconfigs: dict[str, Any]
    scopes: dict[str, tuple[str, Any]]
    names: set[str]
    custom: PrepareCustomConfig
    mapping: QConfigMapping
    is_qat: bool


@dataclass
class _Part:
    """One node that shall be quantized: with the first and the last node of its group (an operation, or an operation and a relu)."""

    role: Role
    first: Any
    last: Any
    qconfig: Any
    supported: bool = field(default=False)


def _fused_kind(module: Any, mapping: QConfigMapping) -> Any:
    """The class by which a QConfig is found: a fused module's is that of its parts, which must have one QConfig; LookupError otherwise."""
    if not isinstance(module, _FusedModule):
        return type(module)
    kinds = [type(m) for m in module]
    table = mapping.object_type_qconfigs
    first = table.get(kinds[0])
    for kind in kinds[1:]:
        if not qconfig_equals(table.get(kind), first):
            raise LookupError(
                f"During fusion, we need to specify the same qconfigs for all module types in {type(module)} offending type: {kind}; "
                f"call set_object_type for each of {[k.__name__ for k in kinds]}"
            )
    return kinds[0]


def qconfigs_of(model: GraphModule, mapping: QConfigMapping, scopes: dict[str, tuple[str, Any]]) -> dict[str, Any]:
    """The QConfig of each node that calls something: by the name or class of its module, or by its function and the module that calls it."""
    modules: dict[str, Any] = dict(model.named_modules(remove_duplicate=False))
    found: dict[str, Any] = {}
    order: dict[tuple[str, Any], int] = {}

    def by_order(path: str, kind: Any, qconfig: Any) -> Any:
        index = order[path, kind] = order.get((path, kind), -1) + 1
        return mapping.module_name_object_type_order_qconfigs.get((path, kind, index), qconfig)

    for node in model.graph.nodes:
        if node.op == "call_module":
            module = modules[node.target]
            qconfig = mapping.of(node.target, _fused_kind(module, mapping))
            found[node.name] = module.qconfig = by_order(scopes[node.name][0].rpartition(".")[0], scopes[node.name][1], qconfig)
        elif node.op in ("call_function", "call_method"):
            path, kind = scopes[node.name]
            outer = mapping.object_type_qconfigs.get(kind, mapping.object_type_qconfigs.get(node.target, mapping.global_qconfig))
            qconfig = mapping.of(path, None, outer)
            found[node.name] = by_order(path, node.target, qconfig) if node.op == "call_function" else qconfig
    return found


def qat_classes() -> dict[Any, Any]:
    """What modules become in training: as in eager mode, and convolutions of one dim."""
    return {**get_default_qat_module_mappings(), nn.Conv1d: nnqat.Conv1d, nni.ConvReLU1d: nniqat.ConvReLU1d}


def _swap_for_training(model: GraphModule) -> None:
    table = qat_classes()
    modules: dict[str, Any] = dict(model.named_modules(remove_duplicate=False))
    for name in {n.target for n in model.graph.nodes if n.op == "call_module"}:
        module = modules[name]
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.qconfig is not None:
            raise NotImplementedError(
                f"prepare_qat_fx: {type(module).__name__} ({name!r}) has no module for training with rounding; give it no QConfig: "
                f"qconfig_mapping.set_object_type(torch.nn.{type(module).__name__}, None)"
            )
        owner, _, last = name.rpartition(".")
        modules[name] = modules[owner]._modules[last] = swap_module(module, table)


def _supported(part: _Part, kind: Any) -> bool:
    """Whether integers of these kinds are there for the operation: codes of quint8 (weights of qint8); dense and recurrent layers also dynamic."""
    watcher, weight = part.qconfig.activation(), part.qconfig.weight()
    activation, of_weight = getattr(watcher, "dtype", None), getattr(weight, "dtype", None)
    dynamic = bool(getattr(watcher, "is_dynamic", False))
    if part.role == "table":
        return activation is torch.float32 and of_weight in (torch.quint8, torch.quint4x2)
    if dynamic:
        return (part.role == "recurrent" or kind in roles.LINEAR) and (activation, of_weight) in ((torch.quint8, torch.qint8), (torch.float16, torch.float16))
    if activation is not torch.quint8 or part.role == "recurrent":
        return False
    if part.role == "weighted":
        return of_weight is torch.qint8
    if part.role == "float_weight":
        return of_weight in (torch.float32, None)
    if part.role == "fixed":
        inner = getattr(watcher, "activation_post_process", watcher)
        return isinstance(inner, FixedQParamsObserver) and (float(inner.scale), int(inner.zero_point)) == roles.FIXED[kind]
    return True


def _role(node: Any, modules: dict[str, Any]) -> Role | None:
    role = roles.ROLES.get(kind_of(node, modules))
    if role == "binary":
        tensors = sum(not no_tensor(n) for n in node.args if hasattr(n, "op"))
        return "shared" if tensors == 1 else "binary"
    return role


def _parts(model: GraphModule, modules: dict[str, Any], qconfigs: dict[str, Any]) -> dict[Any, _Part]:
    """The nodes that shall be quantized; a relu behind a sum, a product or a layer's function goes with it."""
    found: dict[Any, _Part] = {}
    for last in reversed(list(model.graph.nodes)):
        if last in found:
            continue
        first = last
        if roles.is_relu(last, modules) and last.args and getattr(last.args[0], "op", None) == "call_function" and len(last.args[0].users) == 1:
            inner = last.args[0]
            if roles.ROLES.get(inner.target) == "binary" or inner.target in roles.WEIGHTED_FUNCTIONS:
                first = inner
        role = _role(first, modules)
        for node in (first, last) if role is not None else ():
            qconfig = qconfigs.get(node.name)
            if qconfig is not None:
                found[node] = _Part(role, first, last, qconfig)
                found[node].supported = not no_tensor(node) and _supported(found[node], kind_of(first, modules))
    return {node: part for node, part in found.items() if part.supported}


class _Inserter:
    """A graph into which observers are put."""

    def __init__(self, model: GraphModule, parts: dict[Any, _Part], quantized_inputs: list[int]) -> None:
        self.model, self.parts, self.graph = model, parts, model.graph
        self.modules: dict[str, Any] = dict(model.named_modules(remove_duplicate=False))
        inputs = [n for n in model.graph.nodes if n.op == "placeholder"]
        self.given = {inputs[i] for i in quantized_inputs}  # inputs that are quantized already
        self.count = 0

    def run(self) -> None:
        """Every node in turn: its operands, then its result."""
        for node in list(self.graph.nodes):
            part = self.parts.get(node)
            if part is None:
                continue
            if node is part.first:
                seen = [self._operands(part, node, value, index) for index, value in enumerate(node.args)]
                named = {name: self._operands(part, node, value, name) for name, value in node.kwargs.items()}
                node.args, node.kwargs = tuple(seen), named
            if node is part.last:
                self._result(part, node)

    def _put(self, node: Any, watcher: Any) -> Any:
        while hasattr(self.model, f"activation_post_process_{self.count}"):
            self.count += 1
        name = f"activation_post_process_{self.count}"
        watcher.train(self.model.training)
        self.model.add_module(name, watcher)
        self.modules[name] = watcher
        with self.graph.inserting_after(node):
            return self.graph.call_module(name, (node,))

    def _dtype(self, node: Any) -> Any:
        """What a node's result is in the quantized model: that of its observer, or a float."""
        if is_observer(node, self.modules):
            return self.modules[node.target].dtype
        if node in self.given:
            return torch.quint8
        part = self.parts.get(node)
        return torch.float32 if part is None else part.qconfig.activation().dtype

    def _operands(self, part: _Part, node: Any, value: Any, place: int | str) -> Any:
        """An argument with observers behind the nodes in it."""
        if isinstance(value, (list, tuple)):
            return type(value)([self._operands(part, node, v, place) for v in value])
        if not hasattr(value, "op") or no_tensor(value):
            return value
        make = part.qconfig.activation
        if node.op == "call_function" and node.target in roles.WEIGHTED_FUNCTIONS:
            if place in (2, "bias"):
                return value
            if place in (1, "weight"):
                make = part.qconfig.weight
        if node.op == "call_function" and any(place in pair for pair in roles.FLOAT_OPERANDS.get(node.target, {}).items()):
            return value
        watcher = make()
        wanted = getattr(watcher, "dtype", torch.float32)
        if getattr(watcher, "is_dynamic", False):
            needed = place == 0
        elif isinstance(watcher, ReuseInputObserver):
            needed = False
        else:
            needed = wanted in _CODES and wanted is not self._dtype(value)
        if not needed:
            return value
        for user in value.users:
            if is_observer(user, self.modules):
                there = self.modules[user.target]
                if type(there) is type(watcher) and there.dtype is wanted:
                    return user
        return self._put(value, watcher)

    def _result(self, part: _Part, node: Any) -> None:
        watcher = part.qconfig.activation()
        if getattr(watcher, "is_dynamic", False) or getattr(watcher, "dtype", None) not in _CODES:
            return
        users = list(node.users)
        seen = self._put(node, watcher)
        for user in users:
            user.replace_input_with(node, seen)
        own = part.role != "shared" and node.target is not torch.cat
        of_input = next(iter(nodes_in(node.args)), None)
        if own or of_input in self.given:
            return
        if not self._share(node, seen):
            seen.replace_all_uses_with(node)
            self.graph.erase_node(seen)

    def _observer_before(self, node: Any) -> Any:
        """The observer whose scale a value has: its own, or that of the operation's input; None where there is none."""
        while node is not None and not is_observer(node, self.modules):
            node = next((n for value in node.args for n in nodes_in(value)), None) if node in self.parts else None
        return node

    def _share(self, node: Any, seen: Any) -> bool:
        """One observer for the result and all operands of the first argument: the first's. False where that has none."""
        first = next((value for value in node.args if isinstance(value, (list, tuple)) or hasattr(value, "op")), None)
        before = [self._observer_before(n) for n in nodes_in(first)]
        if not before or None in before:
            return False
        shared = self.modules[before[0].target]
        for other in [*before[1:], seen]:
            setattr(self.model, other.target, shared)
            self.modules[other.target] = shared
        return True


def prepare(model: GraphModule, mapping: QConfigMapping, is_qat: bool, scopes: dict[str, tuple[str, Any]], custom: PrepareCustomConfig) -> GraphModule:
    """A GraphModule with observers, of a traced and fused one; `scopes` are QuantizationTracer's."""
    mapping = copy.deepcopy(mapping)
    qconfigs = qconfigs_of(model, mapping, scopes)
    if is_qat:
        _swap_for_training(model)
    modules: dict[str, Any] = dict(model.named_modules(remove_duplicate=False))
    parts = _parts(model, modules, qconfigs)
    _Inserter(model, parts, custom.input_quantized_indexes).run()
    names = {node.name for node in parts}
    made = GraphModule(model, model.graph)
    made.train(model.training)
    made.meta[OBSERVED] = Observed(qconfigs, scopes, names, custom, mapping, is_qat)
    return made
