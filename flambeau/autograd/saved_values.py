"""What a node of the history has saved, by PyTorch's names: `grad_fn._saved_self`, `_saved_result`, `_saved_dim`, ..., as programs that draw histories ask.

Nothing is kept for it. A value is that of the trace or of what its segment keeps, or is computed again from that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flambeau.autograd.node_names import Call
from flambeau.autograd.segment import BY_NUMBER, SegmentForward
from flambeau.trace.meta import Size, meta
from flambeau.trace.objects import _TENSOR, bare
from flambeau.trace.recorder import Fragment, Trace, local, run_in
from flambeau.trace.storage import Storage

AGAIN: Final = "saved again"  # the first part of the key of an edge that computes a value of a segment


class Source:
    """Where what a node has saved comes from: the arguments of its call, and its result."""

    def __init__(self, call: Call, owner: Any, slot: int) -> None:
        self.call, self.owner, self.slot = call, owner, slot

    def has(self, name: str) -> bool:
        """Whether the call has such an argument, and it is a tensor."""
        return type(self.call.arguments.get(name)) is int

    def needs(self, name: str) -> bool:
        """Whether an argument is a tensor with gradients."""
        given = self.call.arguments.get(name)
        return type(given) is int and (given in self.owner.boundaries or self.owner.needs(given))

    def tensor(self, name: str) -> Any:
        """The tensor that was given; None where none was."""
        given = self.call.arguments.get(name)
        return value_at(self.owner, given) if type(given) is int else given

    def result(self) -> Any:
        """What the call has made."""
        return value_at(self.owner, self.slot)


Rule = Callable[[Source], Any]


class NotKept(Exception):
    """Of a number that is given at run time only the class is known afterwards; of a tensor that no gradient needs a segment keeps nothing."""


def _given(name: str) -> Rule:
    def rule(s: Source) -> Any:
        given = s.call.arguments.get(name)
        if isinstance(given, type):
            raise NotKept
        if isinstance(given, tuple) and given and isinstance(given[0], type):  # an exponent: its class and its value
            return given[1]
        return s.tensor(name)

    return rule


def _result(s: Source) -> Any:
    return s.result()


def _number(name: str) -> Rule:
    return _given(name)


def _dims(s: Source) -> Any:
    d = s.call.arguments.get("dim")
    return d if d is None or isinstance(d, tuple) else (d,)


def _one_dim(s: Source) -> Any:
    return s.call.arguments.get("dim")


def _sizes(name: str) -> Rule:
    return lambda s: tuple(s.call.value(name).shape)


def _count(s: Source) -> int:
    return Size(s.call.value("input").shape).numel()


def _factor(mine: str, other: str) -> Rule:
    """A factor is saved for the gradient of the other one; of a number only the class is known."""

    def rule(s: Source) -> Any:
        if not s.needs(other):
            return None
        return _given(mine)(s)

    return rule


_INPUT: Final[dict[str, Rule]] = {"self": _given("input")}
_RESULT: Final[dict[str, Rule]] = {"result": _result}
_REDUCED: Final[dict[str, Rule]] = {"self_sym_sizes": _sizes("input"), "dim": _dims, "keepdim": _number("keepdim")}
_SIZES: Final[dict[str, Rule]] = {"self_sym_sizes": _sizes("input")}
_MATRICES: Final[dict[str, Rule]] = {"self": _factor("input", "mat2"), "mat2": _factor("mat2", "input")}
# By the node's name and the names of the arguments that its rules ask for.
RULES: Final[dict[str, dict[str, Rule]]] = {
    "MulBackward0": {"self": _factor("input", "other"), "other": _factor("other", "input")},
    "DivBackward0": {"self": lambda s: s.tensor("input") if s.needs("other") else None, "other": lambda s: _factor("other", "other" if s.has("other") and not
        s.needs("input") else "input")(s)},
    "PowBackward0": {"self": _given("input"), "exponent": _number("exponent")},
    "PowBackward1": {"self": _given("input"), "exponent": _given("exponent"), "result": _result},
    **{f"{name}Backward0": _RESULT for name in "Exp Expm1 Tanh Relu Sigmoid Sqrt Rsqrt Reciprocal Exp2 Tan".split()},
    **{f"{name}Backward0": _INPUT for name in (
        "Log Log2 Log10 Log1P Sin Cos Sinh Cosh Asin Acos Atan Asinh Acosh Atanh Abs Erf Erfc Lgamma Digamma Silu Mish Hardswish Sinc".split())},
    "GeluBackward0": {**_INPUT, "approximate": _number("approximate")},
    "SoftmaxBackward0": {**_RESULT, "dim": _one_dim}, "LogSoftmaxBackward0": {**_RESULT, "dim": _one_dim},
    "SumBackward0": _SIZES, "SumBackward1": _REDUCED, "MeanBackward0": {**_SIZES, "self_sym_numel": _count}, "MeanBackward1": {
        **_REDUCED, "self_sym_numel": _count},
    "AmaxBackward0": {**_INPUT, **_RESULT, "dim": _dims, "keepdim": _number("keepdim")},
    "AminBackward0": {**_INPUT, **_RESULT, "dim": _dims, "keepdim": _number("keepdim")},
    "LogsumexpBackward0": {**_INPUT, **_RESULT, "dim": _dims, "keepdim": _number("keepdim")},
    "ProdBackward0": {**_INPUT, **_RESULT}, "CumsumBackward0": {"dim": _one_dim},
    "MmBackward0": _MATRICES, "BmmBackward0": _MATRICES, "Atan2Backward0": {"self": _given("input"), "other": _given("other")},
    "ViewBackward0": _SIZES, "ExpandBackward0": _SIZES, "SelectBackward0": _SIZES, "StackBackward0": {"dim": _one_dim}, "CatBackward0": {"dim": _one_dim},
    "WhereBackward0": {"condition": _given("condition")}, "MaskedFillBackward0": {"mask": _given("mask")},
    "GatherBackward0": {"self": _given("input"), "index": _given("index"), "dim": _one_dim}, "EmbeddingBackward0": {"indices": _given("input")},
    "MseLossBackward0": {"self": _given("input"), "target": _given("target")}, "SmoothL1LossBackward0": {
        "self": _given("input"), "target": _given("target"), "beta": _number("beta")},
    "NativeLayerNormBackward0": {"input": _given("input"), "weight": _given("weight"), "bias": _given("bias")},
    "NativeBatchNormBackward0": {"input": _given("input"), "weight": _given("weight")},
    "ConvolutionBackward0": {"input": _given("input"), "weight": _given("weight"), "groups": _number("groups")},
}  # fmt: skip


def rules_of(node: Any) -> dict[str, Rule]:
    """What there is to know of a node; nothing of parts of a call, whose arguments are others."""
    part = node._part
    if part is None or node._whole is not part or node._slot is None or node._owner is None or node._owner.call(node._slot) is None:
        return {}
    return RULES.get(node._name, {})


def saved(node: Any, name: str) -> Any:
    """`node._saved_NAME`. AttributeError if nothing of this name is known of the node."""
    rule = rules_of(node).get(name)
    if rule is None:
        raise AttributeError(f"'{type(node).__name__}' object has no attribute '_saved_{name}'")
    owner, slot = node._owner, node._slot
    key, first, _ = owner.call(slot)
    source = _source(owner)
    if first in getattr(source, "freed", ()):
        raise RuntimeError(
            "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). Saved intermediate "
            "values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph "
            "a second time or if you need to access saved tensors after calling backward."
        )
    call = Call(key, slot, owner.values)
    if "mat2" not in call.arguments and "other" in call.arguments:
        call.arguments["mat2"] = call.arguments["other"]
    try:
        return rule(Source(call, owner, slot))
    except NotKept:
        raise AttributeError(
            f"'{type(node).__name__}' object has no attribute '_saved_{name}' any more: a number that is given at run time, or a tensor that no gradient "
            "needs, is not kept when what it was given to has run"
        ) from None


def _source(owner: Any) -> Any:
    """The trace or segment of a node; a trace that has ended is a segment by now."""
    source = owner.source
    return BY_NUMBER.get(owner.gen, source) if type(source) is Trace and source.gen != owner.gen else source


def value_at(owner: Any, slot: int) -> Any:
    """The value of a slot as a tensor, with its history. NotKept if it cannot be had any more."""
    boundary = owner.boundaries.get(slot)
    if boundary is not None:
        return boundary.tensor
    source, v = _source(owner), owner.values[slot]
    needs = owner.needs(slot)
    tr = local.main
    if source is tr:
        for t in (*tr.tensors, *tr.resolved):
            if t._gen == tr.gen and t._slot == slot:
                return t
        t = bare(_TENSOR[0])
        if v.base is not None:
            t._storage = Storage(None, tr.gen, v.base)
        t._meta = meta(v.shape, v.strides, v.dtype, v.offset, needs, not needs, device=v.device)
        t._gen, t._slot = tr.gen, slot
        return t.clone().detach() if v.dynamic else t
    if not hasattr(source, "saved") or not source.tape.nodes:
        raise NotKept
    try:
        found = _again(source, slot)
    except KeyError:  # what it would be computed from
        raise NotKept from None
    made = found.detach()
    if needs:
        made._meta = made._meta.variant(requires_grad=True, leaf=False)
        made._history = (source, slot)
    return made


def _again(segment: Any, slot: int) -> Any:
    """The value of a slot of a segment, computed again from what it keeps."""
    tr, tape = local.main, segment.tape
    kept = [*segment.values(), *[b.tensor for b in segment.boundaries.values()]]
    order = [*segment.saved, *segment.boundaries]
    names = tuple([tr.slot_of(t) for t in kept])
    key = (AGAIN, tape, slot, names, tuple(order), bool(segment.packed))
    state = tr.state.children.get(key)
    if state is None:
        fragment = Fragment(tr, False)
        known: dict[int, Any] = {}
        placeholders = []
        for i, (name, t) in enumerate(zip(names, kept, strict=True)):
            v = tr.value(name)
            fragment.roots.setdefault(name if v.base is None else v.base, i)
            fragment.entered.setdefault(name, i)
            placeholders.append(fragment.argument(name, t._meta.with_bits(0)))
        numbers = [fragment.parameter(type(p)) for p in segment.params]
        known.update(zip(order, placeholders, strict=True))
        known.update(zip(tape.entered, numbers, strict=True))
        gone = set(tape.preserved) | set(segment.packed)
        known = {s: t for s, t in known.items() if s in tape.entered or tape.values[s].base not in gone}
        forward = SegmentForward(segment, tape, fragment, known)
        result = run_in(fragment, lambda: (forward(slot),), ())
        state = tr.add_edge(key, fragment, tuple(result), kept)
    tr.params.extend(segment.params)
    return tr.follow(state, kept)[0]
