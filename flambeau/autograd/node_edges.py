"""Where autograd's nodes lead (`grad_fn.next_functions`): PyTorch's edges, from the public call that made a tensor.

By default a call is one node (node_names.py), which leads to its tensors in the order of its arguments. The rules here are for calls that lead elsewhere:
in another order, past arguments, or that are several nodes in PyTorch. Compared with PyTorch 2.13 by tests/documentation/test_node_graphs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from flambeau.autograd.node_names import Call, name_of_call, name_of_linear, viewed_name
from flambeau.compiler.graph import Value
from flambeau.trace.meta import meta
from flambeau.trace.strides import view_strides


class Part(NamedTuple):
    """A node of a call: its name, what it leads to (a slot, a part of the same call, None: nothing that has gradients), and which of its results is used."""

    name: str
    edges: tuple[Any, ...]
    result: int = 0


Rule = str | Callable[[Call], tuple[Any, ...]]


def part_of(key: tuple[Any, ...], slot: int, values: Sequence[Value]) -> Part:
    """The node of a result (`slot`) of the call with this key."""
    full = key[0].name
    rule = EDGES.get(full) or EDGES.get(full.removeprefix("nn.functional.").replace(".", "_"))
    name = name_of_call(key, slot, values)
    call = Call(key, slot, values)
    if rule is None:
        return Part(name, _by_default(key, call))
    return Part(name, _arguments(call, rule) if isinstance(rule, str) else rule(call))


def _by_default(key: tuple[Any, ...], call: Call) -> tuple[Any, ...]:
    found: list[Any] = []
    for name, kind in zip(key[0].names, key[0].kinds, strict=True):
        given = call.arguments.get(name)
        if kind == "tensors":
            found.extend(slot for slot in given or () if slot is not None and _has_gradients(call, slot))
        elif kind == "operand":
            found.append(given if type(given) is int else None)
        elif kind == "tensor?" and given is None:
            found.append(None)
        elif kind in ("tensor", "tensor?") and type(given) is int and _has_gradients(call, given):
            found.append(given)
    return tuple(found)


def _has_gradients(call: Call, slot: int) -> bool:
    d = call.values[slot].dtype
    return d.is_floating_point or d.is_complex


def _arguments(call: Call, names: str) -> tuple[Any, ...]:
    """The slots of these arguments."""
    return tuple([given if type(given := call.arguments.get(name)) is int else None for name in names.split()])


def _one(name: str, *edges: Any) -> Part:
    return Part(name, edges)


def _reshaped(a: Call, name: str, shape: tuple[int, ...], expanded: bool = False) -> Part:
    """A tensor of the call in another shape: a view where its strides allow one, else a copy."""
    v = a.value(name)
    source: Any = _one("ExpandBackward0", a[name]) if expanded else a[name]
    if view_strides(meta(tuple(v.shape), v.strides, v.dtype), shape) is not None:
        return _one("ViewBackward0", source)
    return _one("UnsafeViewBackward0", _one("CloneBackward0", source))


def _flat(a: Call, name: str) -> Part:
    """All dims but the last one as one."""
    shape = a.value(name).shape
    return _reshaped(a, name, (prod(shape[:-1]), shape[-1]))


# -- kinds of rules -------------------------------------------------------------------------------------------------
def _second(name: str) -> Callable[[Call], tuple[Any, ...]]:
    """A number in this place belongs to another overload, which leads to the input alone."""
    return lambda a: (a["input"], a[name]) if a.is_tensor(name) else (a["input"],)


def _difference(name: str) -> Callable[[Call], tuple[Any, ...]]:
    """A loss of differences that is reduced afterwards."""

    def rule(a: Call) -> tuple[Any, ...]:
        inner = _one("SubBackward0", a["input"], a["target"])
        return (inner,) if a["reduction"] == "none" else (_one(name, inner),)

    return rule


def _by_batch(dims: int) -> Callable[[Call], tuple[Any, ...]]:
    """Convolutions add a dim to an input without a batch, and take it away."""

    def rule(a: Call) -> tuple[Any, ...]:
        rest = (a["weight"], a["bias"])
        if a.ndim("input") == dims + 2:
            return (a["input"], *rest)
        return (_one("ConvolutionBackward0", _one("UnsqueezeBackward0", a["input"]), *rest),)

    return rule


def _over_one_dim(name: str) -> Callable[[Call], tuple[Any, ...]]:
    """Pools over one dim are pools over two."""
    return lambda a: (_one(name, _one("UnsqueezeBackward0", a["input"])),)


# -- rules of single functions --------------------------------------------------------------------------------------
def _linear(a: Call) -> tuple[Any, ...]:
    x, weight, ndim = a["input"], _one("TBackward0", a["weight"]), a.ndim("input")
    if ndim == 2:
        return (a["bias"], x, weight) if a["bias"] is not None else (x, weight)
    if ndim == 1:
        rows = _one("ViewBackward0" if a["bias"] is not None else "UnsqueezeBackward0", x)
    else:
        rows = _flat(a, "input")
    if a["bias"] is None:
        return (_one("MmBackward0", rows, weight),)
    if name_of_linear(a) == "ViewBackward0":
        return (_one("AddmmBackward0", a["bias"], rows, weight),)
    return (_one("UnsafeViewBackward0", _one("MmBackward0", rows, weight)), a["bias"])


def _matmul(a: Call) -> tuple[Any, ...]:
    left, right, x, y = a.ndim("input"), a.ndim("other"), a["input"], a["other"]
    if (left, right) == (1, 2):
        return (_one("MmBackward0", _one("UnsqueezeBackward0", x), y),)
    if left <= 2 and right <= 2:
        return (x, y)
    if right <= 2:
        return (_one("MmBackward0" if right == 2 else "MvBackward0", _flat(a, "input"), y),)
    if left == 2 and right == 3:  # the transposed product of the transposed matrices
        rows = _one("UnsafeViewBackward0", _one("CloneBackward0", _one("TransposeBackward0", y)))
        return (_one("TransposeBackward0", _one("UnsafeViewBackward0", _one("MmBackward0", rows, _one("TBackward0", x)))),)
    both = []
    for name in ("input", "other"):
        shape = a.value(name).shape
        both.append(_reshaped(a, name, (prod(shape[:-2]), *shape[-2:]), expanded=True))
    return (_one("BmmBackward0", *both),)


def _viewed(a: Call) -> tuple[Any, ...]:
    return (a["input"] if viewed_name(a) == "ViewBackward0" else _one("CloneBackward0", a["input"]),)


def _div(a: Call) -> tuple[Any, ...]:
    if not a.is_tensor("input"):
        return (_one("ReciprocalBackward0", a["other"]), None)
    if a["rounding_mode"] is not None and not a.is_tensor("other"):
        return (a["input"],)
    return _arguments(a, "input other")


def _pow(a: Call) -> tuple[Any, ...]:
    return tuple([a[n] for n in ("input", "exponent") if a.is_tensor(n)])


def _classes(a: Call) -> tuple[Any, ...]:
    logs = _one("LogSoftmaxBackward0", a["input"])
    smooth, mean = a["label_smoothing"], a["reduction"] == "mean"
    if a.value("target").dtype.is_floating_point:
        target = _one("AddBackward1", _one("MulBackward1", a["target"])) if smooth else a["target"]
        product = _one("MulBackward0", logs, target)
        if a["reduction"] == "none":
            return (_one("SumBackward1", product),)
        total = _one("SumBackward0", product)
        return (_one("NegBackward0", total),) if mean else (total,)
    if not smooth:
        return (logs,)
    dims = "" if a.ndim("input") <= 2 else "2D"
    each = _one("MaskedFillBackward0", _one("NegBackward0", _one("SumBackward1", logs)))
    whole = each if a["reduction"] == "none" else _one("SumBackward0", each)
    rest = _one("DivBackward0", whole, None) if mean else whole
    return (_one("MulBackward1", _one(f"NllLoss{dims}Backward0", logs)), _one("MulBackward1", rest))


def _outer(a: Call) -> tuple[Any, ...]:
    return (_one("ViewBackward0", a["input"]), a["vec2"])


def _cosine(a: Call) -> tuple[Any, ...]:
    expanded = a.value("x1").shape != a.value("x2").shape

    def unit(name: str) -> Part:
        x = _one("ExpandBackward0", a[name]) if expanded else a[name]
        return _one("DivBackward0", x, _one("CloneBackward0", _one("LinalgVectorNormBackward0", x)))

    return (_one("MulBackward0", unit("x1"), unit("x2")),)


def _clamp(a: Call) -> tuple[Any, ...]:
    both = [a[n] if a[n] is not None and a.is_tensor(n) else None for n in ("min", "max")]
    return (a["input"],) if both == [None, None] else (a["input"], *both)


def _divergence(a: Call) -> tuple[Any, ...]:
    inner: Any = _one("MulBackward0", a["target"], a["input"])
    if a["log_target"]:
        inner = _one("MulBackward0", _one("ExpBackward0", a["target"]), _one("SubBackward0", a["target"], a["input"]))
    else:
        inner = _one("SubBackward0", _one("XlogyBackward0", a["target"], a["target"]), inner)
    if a["reduction"] == "none":
        return inner.edges  # type: ignore[no-any-return]
    return (_one("SumBackward0", inner), None) if a["reduction"] == "batchmean" else (inner,)


def _instance_norm(a: Call) -> tuple[Any, ...]:
    weights = [None if a[n] is None else _one("RepeatBackward0", a[n]) for n in ("weight", "bias")]
    return (_one("NativeBatchNormBackward0", _one("ViewBackward0", a["input"]), *weights),)


def _rms_norm(a: Call) -> tuple[Any, ...]:
    x = a["input"]
    root = _one("RsqrtBackward0", _one("AddBackward1", _one("MeanBackward1", _one("PowBackward0", x))))
    return (x, root) if a["weight"] is None else (_one("MulBackward0", x, root), a["weight"])


def _prelu(a: Call) -> tuple[Any, ...]:
    return (a["input"], a["weight"] if a.ndim("weight") == a.ndim("input") else _one("ViewBackward0", a["weight"]))


EDGES: Final[dict[str, Rule]] = {
    "linear": _linear, "matmul": _matmul, "outer": _outer, "reshape": _viewed, "flatten": _viewed, "ravel": _viewed,
    # a number is another overload
    "rsub": _second("other"), "floor_divide": _second("other"), "remainder": _second("other"), "fmod": _second("other"), "lerp": lambda a: (
        a["input"], a["end"], *((a["weight"],) if a.is_tensor("weight") else ())),
    "masked_fill": _second("value"), "index_fill": _second("value"), "scatter_values": _second("src"), "clamp_max": _second("max"),
    "clamp_min": _second("min"), "div": _div, "true_divide": _div, "pow": _pow, "square": "input",
    # what else is given has no gradient
    "gather": "input", "take_along_dim": "input", "nll_loss": "input", "dropout": lambda a: (a["input"], None),
    **dict.fromkeys(("batch_norm", "batch_norm_train", "batch_norm_eval"), "input weight bias"), "scaled_dot_product_attention": "query key value",
    **dict.fromkeys(
        ("mse_values", "smooth_l1_values", "huber_values", "binary_cross_entropy", "binary_cross_entropy_with_logits"), "input target"),
    # several nodes
    "prelu": _prelu, "clamp": _clamp, "kl_div": _divergence, "instance_norm": _instance_norm, "rms_norm": _rms_norm, "logdet": lambda a: (
        None, Part("LinalgSlogdetBackward0", (a["input"],), 1)),
    "cross_entropy": _classes, "l1_values": _difference("AbsBackward0"), "cosine_similarity": _cosine,
    **{f"conv{t}{d}d": _by_batch(d) for d in (1, 2, 3) for t in ("", "_transpose")},
    **dict.fromkeys(("max_pool1d", "max_pool1d_values"), _over_one_dim("MaxPool2DWithIndicesBackward0")),
    "avg_pool1d": _over_one_dim("AvgPool2DBackward0"), "adaptive_avg_pool1d": _over_one_dim("AdaptiveAvgPool2DBackward0"),
    "adaptive_max_pool1d": _over_one_dim("AdaptiveMaxPool2DBackward0"),
}  # fmt: skip
