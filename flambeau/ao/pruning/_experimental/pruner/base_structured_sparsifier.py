"""BaseStructuredSparsifier: masks of whole rows while the model is trained, then a model without these rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from itertools import product
from operator import getitem
from typing import Any

import flambeau as torch
from flambeau import nn
from flambeau.ao.pruning._experimental.pruner import prune_functions as functions
from flambeau.ao.pruning._experimental.pruner.match_utils import apply_match, live_users
from flambeau.ao.pruning._experimental.pruner.parametrization import BiasHook, FakeStructuredSparsity, module_contains_param
from flambeau.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier
from flambeau.fx import GraphModule, Node, map_arg, symbolic_trace
from flambeau.nn import functional as F
from flambeau.nn.modules.batchnorm import _BatchNorm
from flambeau.nn.modules.module import Module
from flambeau.nn.utils import parametrize
from flambeau.tensor import Tensor

_FUNCTIONS = (
    "relu rrelu hardtanh relu6 sigmoid hardsigmoid tanh silu mish hardswish elu celu selu hardshrink leaky_relu logsigmoid softplus prelu softsign "
    "tanhshrink gelu"
).split()
_MODULES = (
    "ReLU RReLU Hardtanh ReLU6 Sigmoid Hardsigmoid Tanh SiLU Mish Hardswish ELU CELU SELU Hardshrink LeakyReLU LogSigmoid Softplus PReLU Softsign "
    "Tanhshrink GELU"
).split()
_SAME_FUNCTIONS = (
    F.dropout, F.dropout2d, F.max_pool2d, F.avg_pool2d, F.max_pool1d, F.avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_max_pool2d,
    F.adaptive_avg_pool1d, F.adaptive_max_pool1d,
)  # fmt: skip


def _get_supported_structured_pruning_modules() -> set[type[Module]]:
    return {nn.Linear, nn.Conv2d, nn.LSTM}


def _get_supported_activation_functions() -> set[Any]:
    return {getattr(F, name) for name in _FUNCTIONS}


def _get_supported_activation_modules() -> set[type[Module]]:
    return {getattr(nn, name) for name in _MODULES}


def _get_default_structured_pruning_patterns() -> dict[tuple[Any, ...], Callable[..., None]]:
    """PyTorch's patterns: what stands in a graph, and the function that prunes it."""
    patterns: dict[tuple[Any, ...], Callable[..., None]] = {
        (nn.Linear, "output"): functions.prune_linear,
        (nn.Linear, nn.Linear): functions.prune_linear_linear,
        (nn.Conv2d, "output"): functions.prune_conv2d,
        (nn.Conv2d, nn.Conv2d): functions.prune_conv2d_conv2d,
        (nn.LSTM, getitem, nn.Linear): functions.prune_lstm_output_linear,
        (nn.LSTM, getitem, nn.LayerNorm, nn.Linear): functions.prune_lstm_output_layernorm_linear,
    }
    activations = [*_get_supported_activation_functions(), *_get_supported_activation_modules()]
    for activation in activations:
        patterns[nn.Linear, activation, nn.Linear] = functions.prune_linear_activation_linear
        patterns[nn.Conv2d, activation, nn.Conv2d] = functions.prune_conv2d_activation_conv2d
    for activation, pool in product(activations, (nn.AvgPool2d, F.avg_pool2d, nn.MaxPool2d, F.max_pool2d)):
        patterns[nn.Conv2d, activation, pool, nn.Conv2d] = functions.prune_conv2d_activation_pool_conv2d
        patterns[nn.Conv2d, pool, activation, nn.Conv2d] = functions.prune_conv2d_pool_activation_conv2d
    for pool, flatten in product((nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d), (nn.Flatten, torch.flatten)):
        patterns[nn.Conv2d, pool, flatten, nn.Linear] = functions.prune_conv2d_pool_flatten_linear
    return patterns


class BaseStructuredSparsifier(BaseSparsifier):
    """Masks of rows (output channels) of dense layers, convolutions and LSTMs; `prune()` gives the model without these rows.

    Classes that derive from this one say in `update_mask` which rows are masked. `patterns` are tuples of classes and functions that follow
    each other, with the function that prunes them; what no pattern describes is followed layer by layer, as far as it works channel by
    channel: normalisation of the batch, activations, pooling, dropout, flattening. In a group's configuration `prune_bias=False` keeps what
    the bias of a pruned channel adds to the next layer.
    """

    def __init__(self, defaults: dict[str, Any] | None = None, patterns: dict[Any, Callable[..., None]] | None = None) -> None:
        super().__init__(defaults)
        self.patterns = _get_default_structured_pruning_patterns() if patterns is None else patterns

    def make_config_from_model(self, model: Module, SUPPORTED_MODULES: set[type[Module]] | None = None) -> None:
        """The configuration for a model that is given none: the weights of all layers that can be pruned."""
        super().make_config_from_model(model, _get_supported_structured_pruning_modules() if SUPPORTED_MODULES is None else SUPPORTED_MODULES)

    def _prepare(self, *args: Any, **kwargs: Any) -> None:
        for group in self.groups:
            module, tensor_name = group["module"], group["tensor_name"]
            tensor = getattr(module, tensor_name)
            mask = group.get("mask")
            if mask is None:
                mask = torch.ones(tensor.shape[0], dtype=torch.bool, device=tensor.device)
            self.state[group["tensor_fqn"]]["mask"] = mask
            parametrize.register_parametrization(module, tensor_name, group.get("parametrization", FakeStructuredSparsity)(mask))
            if isinstance(module, (nn.Linear, *functions.CONVOLUTIONS)):
                module.prune_bias = prune_bias = group.get("prune_bias", True)
                if module.bias is not None:
                    module.register_parameter("_bias", nn.Parameter(module.bias.detach()))
                    module.bias = None
                module.register_forward_hook(BiasHook(module.parametrizations[tensor_name][0], prune_bias))

    def prune(self) -> GraphModule:
        """The traced model without the rows that are masked out; the layers of the model itself become smaller.

        Where a masked layer's result goes to more than one place, or to what mixes channels, nothing is changed and an error says so.
        """
        self.traced = symbolic_trace(self.model)
        modules: dict[str, Any] = dict(self.traced.named_modules())
        calls: dict[Any, list[Node]] = {}
        for node in self.traced.graph.nodes:
            if node.op == "call_module":
                calls.setdefault(modules[str(node.target)], []).append(node)
        todo: list[tuple[Callable[..., None], list[Any]]] = []
        planned: set[Any] = set()
        for module, nodes in calls.items():
            if not module_contains_param(module, FakeStructuredSparsity):
                continue
            if len(nodes) > 1:
                raise self._refused(module, f"it is called {len(nodes)} times")
            todo.append(self._plan(modules, calls, nodes[0]))
            planned.add(module)
        for module in self.traced.modules():
            if module not in planned and module_contains_param(module, FakeStructuredSparsity):
                raise self._refused(module, "the traced model does not call it as a layer")
        for function, block in todo:
            function(*block)
        self.traced.graph.lint()
        self.traced.recompile()
        return self.traced

    @staticmethod
    def _refused(module: Module, why: str) -> RuntimeError:
        return RuntimeError(f"Error: {module} still contains FakeStructuredSparsity parametrizations! It cannot be pruned: {why}.")

    def _plan(self, modules: dict[str, Any], calls: dict[Any, list[Node]], node: Node) -> tuple[Callable[..., None], list[Any]]:
        """The function that prunes a masked layer, and its arguments."""
        module = modules[str(node.target)]
        if getattr(module, "groups", 1) != 1:
            raise self._refused(module, f"its groups are {module.groups}, which must be 1")
        for pattern, function in self.patterns.items():
            matched = apply_match(modules, pattern, node, [])
            if matched is None:
                continue
            parts = [self._part(modules, n) for n in matched if n.op in ("call_module", "call_function")]
            self._check_last(modules, calls, module, matched[-1])
            return function, parts
        return functions.prune_chain, self._chain(modules, calls, node)

    def _check_last(self, modules: dict[str, Any], calls: dict[Any, list[Node]], module: Module, last: Node) -> None:
        """The layer behind must be this layer's only, and take all channels."""
        if last.op != "call_module":
            return
        behind = modules[str(last.target)]
        if getattr(behind, "groups", 1) != 1:
            raise self._refused(module, f"the groups of {last.target}, which takes its result, are {behind.groups}; they must be 1")
        if len(calls[behind]) > 1:
            raise self._refused(module, f"{last.target}, which takes its result, is called {len(calls[behind])} times")

    def _part(self, modules: dict[str, Any], node: Node) -> Any:
        """A node as a pruning function takes it: the module, or the function with its further arguments."""
        if node.op == "call_module":
            return modules[str(node.target)]
        target: Any = node.target
        if target is getitem or (len(node.args) < 2 and not node.kwargs):
            return target
        args, kwargs = map_arg((node.args[1:], node.kwargs), lambda other: self._number(other, node))
        return partial(_called, target, args, kwargs)

    def _number(self, node: Node, user: Node) -> Any:
        """A parameter of the model as a function's further argument: one number for all channels."""
        value = functools.reduce(getattr, str(node.target).split("."), self.traced) if node.op == "get_attr" else None
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise RuntimeError(f"prune: {user.name} takes {node.name} as an argument, which is not one number for all channels")
        return value

    def _chain(self, modules: dict[str, Any], calls: dict[Any, list[Node]], node: Node) -> list[Any]:
        """[layer, what stands behind it channel by channel, the layer that takes it all or None]."""
        module = modules[str(node.target)]
        between: list[Any] = []
        here = node
        while True:
            users = live_users(here)
            if len(users) != 1:
                raise self._refused(module, f"the result of {here.name} goes to {', '.join(u.name for u in users) or 'nobody'}; it must go to one layer")
            here = users[0]
            if here.op == "output":
                return [module, between, None]
            part = self._part(modules, here) if here.op in ("call_module", "call_function") else None
            kind = parametrize.type_before_parametrizations(part) if isinstance(part, Module) else None
            if kind is nn.Linear or kind in functions.CONVOLUTIONS:
                self._check_last(modules, calls, module, here)
                inputs, channels = functions._plain(part).shape[1], len(functions.row_mask(module))
                if inputs % channels or (inputs != channels and kind is not nn.Linear):
                    raise self._refused(module, f"{here.target} takes {inputs} inputs, which are not its {channels} channels")
                return [module, between, part]
            if isinstance(part, Module) and len(calls[part]) > 1 and any(True for _ in part.parameters()):
                raise self._refused(module, f"{here.target}, which has a number for each channel, is called {len(calls[part])} times")
            if kind in _get_supported_activation_modules() or (kind is not None and issubclass(kind, (*functions.SAME, _BatchNorm))):
                if isinstance(part, nn.Flatten) and part.start_dim != 1:
                    raise self._refused(module, f"{here.target} flattens from dim {part.start_dim} on; it must be 1")
                between.append(part)
            elif here.op == "call_function" and here.target in _get_supported_activation_functions() | {torch.relu, torch.sigmoid, torch.tanh}:
                between.append(part)
            elif here.op == "call_method" and here.target in _FUNCTIONS:
                between.append(partial(_method, str(here.target), here.args[1:], here.kwargs))
            elif not self._same(here):
                raise self._refused(module, f"{here.name} ({here.op} {here.target}) behind it may mix channels")

    @staticmethod
    def _same(node: Node) -> bool:
        """Whether a function or method leaves constants as they are: pooling without padding, dropout, flattening from dim 1 on."""
        if node.op == "call_function" and node.target in _SAME_FUNCTIONS:
            padded = node.target in (F.avg_pool1d, F.avg_pool2d) and (len(node.args) > 3 or "padding" in node.kwargs)
            return not padded
        if node.target is torch.flatten or (node.op == "call_method" and node.target == "flatten"):
            return (node.args[1] if len(node.args) > 1 else node.kwargs.get("start_dim", 0)) == 1
        return node.op == "call_method" and node.target == "contiguous"


def _called(function: Callable[..., Any], args: Any, kwargs: Any, x: Any) -> Any:
    return function(x, *args, **kwargs)


def _method(name: str, args: Any, kwargs: Any, x: Any) -> Any:
    return getattr(x, name)(*args, **kwargs)
