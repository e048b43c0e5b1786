"""What nodes of a graph are for quantization: by the operation, whether its result has a scale of its own or shares its input's."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any, Final, Literal

import flambeau as torch
from flambeau import nn
from flambeau.ao.nn import intrinsic as nni
from flambeau.ao.nn import qat as nnqat
from flambeau.ao.nn.intrinsic import qat as nniqat
from flambeau.ao.quantization.fake_quantize import FakeQuantizeBase
from flambeau.ao.quantization.observer import ObserverBase

F = torch.nn.functional
# weighted: a layer whose weight is quantized too; binary: of one tensor and a number it is shared, of two own; own: a scale of its own;
# float_weight: own, with a weight that stays a float; fixed: a scale that follows from the operation; shared: the input's scale;
# recurrent: only dynamic; table: only the weight.
Role = Literal["weighted", "binary", "own", "float_weight", "fixed", "shared", "recurrent", "table"]


def _named(scope: Any, text: str) -> list[Any]:
    return [getattr(scope, name) for name in text.split()]


_FUSED_WEIGHTED: Final = [nni.ConvReLU1d, nni.ConvReLU2d, nni.ConvReLU3d, nni.LinearReLU]
_QAT: Final = [
    *_named(nnqat, "Linear Conv1d Conv2d Conv3d"),
    *_named(
        nniqat,
        "ConvBn1d ConvBn2d ConvBn3d ConvBnReLU1d ConvBnReLU2d ConvBnReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU LinearBn1d",
    ),
]
LINEAR: Final = frozenset([nn.Linear, nni.LinearReLU, nnqat.Linear, nniqat.LinearReLU, nniqat.LinearBn1d, F.linear])
CONV_FUNCTIONS: Final = {F.conv1d: 1, F.conv2d: 2, F.conv3d: 3}
WEIGHTED_FUNCTIONS: Final = frozenset([F.linear, *CONV_FUNCTIONS])
RELU_FUNCTIONS: Final = frozenset([F.relu, torch.relu])
SUMS: Final = frozenset([operator.add, torch.add])
PRODUCTS: Final = frozenset([operator.mul, torch.mul])
# (scale, zero point) that codes of quint8 of these results have.
_UNIT: Final = (1.0 / 256.0, 0)
_AROUND: Final = (2.0 / 256.0, 128)
FIXED: Final[dict[Any, tuple[float, int]]] = {
    **dict.fromkeys([nn.Hardsigmoid, nn.Sigmoid, nn.Softmax, F.hardsigmoid, torch.sigmoid, F.sigmoid], _UNIT),
    **dict.fromkeys(["hardsigmoid", "hardsigmoid_", "sigmoid", "sigmoid_"], _UNIT),
    **dict.fromkeys([nn.Tanh, torch.tanh, F.tanh, "tanh", "tanh_"], _AROUND),
}
_SHARED_MODULES: Final = _named(
    nn,
    "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AvgPool1d AvgPool2d AvgPool3d Hardtanh Identity MaxPool1d MaxPool2d MaxPool3d PixelShuffle "
    "PixelUnshuffle ReLU ReLU6",
)
_SHARED_FUNCTIONS: Final = [
    *_named(
        F,
        "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d hardtanh hardtanh_ interpolate max_pool1d max_pool2d max_pool3d pixel_shuffle "
        "pixel_unshuffle relu relu6 avg_pool1d avg_pool2d avg_pool3d",
    ),
    *_named(torch, "relu clamp flatten mean narrow repeat_interleave transpose squeeze stack unsqueeze cat"),
]
_SHARED_METHODS: Final = (
    "contiguous clamp detach detach_ mean permute repeat repeat_interleave reshape resize_ relu relu_ squeeze squeeze_ transpose unsqueeze unsqueeze_ view"
).split()
_OWN: Final = [
    *_named(nn, "ELU LeakyReLU Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d Dropout PReLU BatchNorm2d BatchNorm3d"),
    nni.BNReLU2d,
    nni.BNReLU3d,
    *_named(F, "elu hardswish leaky_relu dropout group_norm instance_norm"),
    torch.matmul,
]
ROLES: Final[dict[Any, Role]] = {
    **dict.fromkeys([nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d], "weighted"),
    **dict.fromkeys([*_FUSED_WEIGHTED, *_QAT, *WEIGHTED_FUNCTIONS], "weighted"),
    **dict.fromkeys([*SUMS, *PRODUCTS], "binary"),
    **dict.fromkeys(_OWN, "own"),
    **dict.fromkeys([nn.LayerNorm, F.layer_norm], "float_weight"),
    **dict.fromkeys(FIXED, "fixed"),
    **dict.fromkeys([*_SHARED_MODULES, *_SHARED_FUNCTIONS, *_SHARED_METHODS], "shared"),
    **dict.fromkeys([nn.LSTM, nn.GRU, nn.LSTMCell, nn.GRUCell, nn.RNNCell], "recurrent"),
    **dict.fromkeys([nn.Embedding, nn.EmbeddingBag], "table"),
}  # type: ignore[dict-item, assignment]
# Operands that stay floats, of functions whose weights do.
FLOAT_OPERANDS: Final[dict[Any, dict[int, str]]] = {
    F.layer_norm: {2: "weight", 3: "bias"}, F.group_norm: {2: "weight", 3: "bias"},
    F.instance_norm: {1: "running_mean", 2: "running_var", 3: "weight", 4: "bias"},
}  # fmt: skip


def kind_of(node: Any, modules: dict[str, Any]) -> Any:
    """What a node calls: the class of its module, the function, or the method's name; None for the rest."""
    if node.op == "call_module":
        return type(modules[node.target])
    return node.target if node.op in ("call_function", "call_method") else None


def is_observer(node: Any, modules: dict[str, Any]) -> bool:
    """Whether a value is a node that calls an observer."""
    return getattr(node, "op", None) == "call_module" and isinstance(modules[node.target], (ObserverBase, FakeQuantizeBase))


def is_relu(node: Any, modules: dict[str, Any]) -> bool:
    """Whether a node is a relu, of a module or a function."""
    kind = kind_of(node, modules)
    return kind is nn.ReLU or (node.op == "call_function" and kind in RELU_FUNCTIONS)


def nodes_in(value: Any) -> Iterator[Any]:
    """The nodes in an argument, which may be a list."""
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from nodes_in(part)
    elif hasattr(value, "op"):
        yield value


def no_tensor(node: Any) -> bool:
    """Whether a node surely gives no tensor: sizes, and what is computed of them."""
    if node.op == "call_function" and node.target is getattr:
        return node.args[1] in ("ndim", "shape")
    if node.op == "call_method" and node.target in ("size", "dim"):
        return True
    if node.op == "call_function" and node.target is operator.getitem:
        return no_tensor(node.args[0])
    if node.op in ("placeholder", "get_attr", "call_module", "output"):
        return False
    return all(no_tensor(n) for value in node.args for n in nodes_in(value))
