"""Fragment: the expansion of one public call into primitives, over placeholders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.compiler.graph import Node, Value
from flambeau.devices import CPU
from flambeau.trace.limits import Limit, needed
from flambeau.trace.looks import NO_TENSORS, answer, behind, refuse_numbers
from flambeau.trace.meta import CONJ, NEG, Meta, meta
from flambeau.trace.objects import _TENSOR
from flambeau.trace.state import State
from flambeau.trace.storage import Storage
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.ops import primitives as primitives
    from flambeau.ops.primitive import Primitive
    from flambeau.tensor import Tensor
    from flambeau.trace.recorder import Trace

if not TYPE_CHECKING:
    primitives = None  # the namespace of ops/primitives; wiring.py gives it
# Primitives that have no meaning for a dtype, and what PyTorch calls it in its errors.
_REAL_ONLY = frozenset("div_floor div_trunc remainder fmod fmax fmin atan2 hypot copysign nextafter erf erfc erfinv lgamma digamma lt le gt ge".split())
_FLOATING_ONLY = frozenset(("hypot", "nextafter"))
_WITHOUT = {d: _REAL_ONLY if d.is_complex else _FLOATING_ONLY for d in dtypes.HELD if d.category != 2}
_WITHOUT[dtypes.bool_] = _FLOATING_ONLY | {"div_floor", "div_trunc", "remainder", "fmod"}
PARAMETER_DTYPE = {float: dtypes.float64, int: dtypes.int64, bool: dtypes.bool_}

_new: Callable[[type], Any] = object.__new__


class OffsetNeeded(Exception):
    """Raised by the body of an operation that must know where a view starts, of one that starts where run-time numbers say."""


class Moved(Exception):
    """The trace stands elsewhere than when a call's key was made."""


def _in_elements_of(new: dtypes.dtype, dynamic: tuple[tuple[int, int], ...], old: dtypes.dtype) -> tuple[tuple[int, int], ...]:
    """The run-time part of an offset, in elements of another dtype."""
    if any(multiplier * old.itemsize % new.itemsize for _, multiplier in dynamic):
        raise OffsetNeeded
    return tuple([(slot, multiplier * old.itemsize // new.itemsize) for slot, multiplier in dynamic])


class Fragment:
    """The expansion of one call. Looks like a Trace to the generated wrappers, but every call runs its body at once."""

    class _NoChildren:
        """A state without children: every look-up misses."""

        children: dict[Any, State] = {}
        immediate = None

    held = False
    nested = False  # whether the operation that is being expanded was called by another one's body
    numbers = False  # whether that call is of Python numbers alone

    def __init__(self, trace: Trace, grad_enabled: bool) -> None:
        self.gen = trace.next_generation()
        self.state = Fragment._NoChildren
        self.trace = trace
        self.first = trace.state.value_count
        self.grad_enabled = grad_enabled
        self.autocast: dtypes.dtype | None = None  # set where a composition's own calls are under autocast
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.parameters: list[int] = []
        self.requires: set[int] = set()
        self.given = 0  # how many tensors have been entered
        self.roots: dict[int, int] = {}  # root slot of an entered argument -> position among the tensors
        self.entered: dict[int, int] = {}  # slot of an entered argument -> position among the tensors
        self.cache: dict[int, Tensor] = {}
        self.notes: list[tuple[int, int, int, int, int | str | None, str]] = []  # what index values must be (bounds.py)
        self.device = CPU  # of what is made of no tensors
        self.limits: list[Limit] = []  # what numbers must fit into (limits.py)
        self.changing: dict[int, tuple[int, float]] = {}  # parameters whose value may be compared: (which argument, the number) (looks.py)
        self.within: dict[int, tuple[float, float]] = {}  # between what they may be
        self.apart: dict[int, set[float]] = {}  # and what they may not be

    def add_value(self, value: Value) -> int:
        self.values.append(value)
        return self.first + len(self.values) - 1

    def value(self, slot: int) -> Value:
        return self.values[slot - self.first] if slot >= self.first else self.trace.value(slot)

    def placeholder(self, slot: int, meta_: Meta) -> Tensor:
        """A tensor that stands for the value `slot` inside this fragment."""
        t = _new(_TENSOR[0])
        t._storage = t._immediate = None
        t._gen = self.gen
        t._slot = slot
        t._meta = meta_
        return t  # type: ignore[no-any-return]

    def argument(self, slot: int, m: Meta) -> Tensor:
        """A placeholder for a tensor of the path; where the path is over symbols, with its layout there."""
        return self.placeholder(slot, self.trace.layout(slot, m))

    def at(self, slot: int) -> Tensor:
        """The tensor of an earlier value of the path (used by gradient rules)."""
        found = self.cache.get(slot)
        if found is None:
            v = self.value(slot)
            found = self.cache[slot] = self.placeholder(
                slot, meta(v.shape, v.strides, v.dtype, v.offset, self.needs(slot), False, False, bool(v.dynamic), v.device)
            )
        return found

    def needs(self, slot: int) -> bool:
        return slot in self.requires if slot >= self.first else self.trace.needs(slot)

    def given_by(self, slot: int) -> int | None:
        """Which of the tensors that were entered a value is a view of, or None."""
        base = self.value(slot).base
        return self.entered.get(slot, self.roots.get(slot if base is None else base))

    def note(self, t: Tensor, low: int, size: int, dim: int, skip: int | str | None, what: str) -> None:
        """The values of an index tensor must be from `low` to `size` - 1, or `skip` (see Bound)."""
        if t._gen == self.gen and t._meta.device is CPU:
            self.notes.append((t._slot, low, size, dim, skip, what))

    def limit(self, t: Tensor, d: dtypes.dtype, name: str, single: bool) -> None:
        """A run-time number of the call must fit into a dtype."""
        if t._gen == self.gen and t._slot in self.parameters:
            is_float = t._meta.dtype is dtypes.float64
            if needed(float if is_float else int, d, single):
                self.limits.append(Limit(self.parameters.index(t._slot), is_float, d, name))

    def look(self, t: Tensor) -> Storage:
        """A body asks for a value."""
        return answer(self, t)

    def changes(self, x: Any) -> bool:
        """Whether a number of the body is one that was a constant before it changed, or computed from such: what bodies do with special values holds."""
        return bool(self.changing) and hasattr(x, "_slot") and x._meta.wrapped and bool(behind(self, x._slot))

    def parameter(self, kind: type) -> Tensor:
        """A new run-time scalar for a Python number of this type."""
        d = PARAMETER_DTYPE[kind]
        slot = self.add_value(Value((), d, ()))
        self.parameters.append(slot)
        return self.placeholder(slot, meta((), (), d, wrapped=True))

    def resolved(self, t: Tensor) -> Tensor:
        """The values of a tensor whose memory has their conjugates or negatives."""
        m = t._meta
        made = self.placeholder(t._slot if t._gen == self.gen else self.resolve(t), m.with_bits(0))
        if m.bits & CONJ:
            made = self.record(primitives.conj_physical, (made,), {})
        return self.record(primitives.neg, (made,), {}) if m.bits & NEG else made  # type: ignore[no-any-return]

    def resolve(self, t: Tensor) -> int:
        raise RuntimeError(
            f"an operation's body used a tensor that was not given to it as an argument (shape {tuple(t._meta.shape)}); pass every tensor as an argument"
        )

    def slow(self, op: Any, key: Any, args: Sequence[Any]) -> Any:
        before = self.nested, self.numbers
        self.nested, self.numbers = True, of_numbers(op, args)
        try:
            result = (op.apply if self.autocast is None else casting_body(op, self.autocast))(*args)
            if self.numbers and isinstance(result, _TENSOR[0]) and not result._meta.wrapped:
                m = result._meta
                result = self.placeholder(result._slot, meta(m.shape, m.strides, m.dtype, m.offset, m.requires_grad, m.leaf, True, m.dynamic, m.device))
            return result
        finally:
            self.nested, self.numbers = before

    def follow(self, state: State, tensors: Sequence[Tensor]) -> Any:
        raise AssertionError("a fragment has no known edges")

    def record(self, primitive: Primitive, inputs: Sequence[Tensor], attrs: dict[str, Any]) -> Any:
        """Append one primitive; returns its result (a tuple if the primitive has several)."""
        gen = self.gen
        if self.changing:
            refuse_numbers(self, attrs)
        slots = tuple([t._slot if t._gen == gen else self.resolve(t) for t in inputs])
        metas = [t._meta for t in inputs]
        if metas and metas[-1].dtype in _WITHOUT and primitive.name in _WITHOUT[metas[-1].dtype]:
            raise NotImplementedError(f"\"{primitive.name}_cpu\" not implemented for '{dtypes.C_NAMES[metas[-1].dtype.name]}'")
        bits = attrs.get("bits", 0)  # of an alias: what it exchanges
        values = primitive.infer(metas, attrs)
        if any(m.bits for m in metas):
            if values[0].base is None or (metas[0].bits & CONJ and not values[0].dtype.is_complex):  # it reads the elements
                return self.record(primitive, [self.resolved(t) if t._meta.bits else t for t in inputs], attrs)
            bits ^= metas[0].bits
        # What is computed from numbers alone is a number, but for random tensors, whose seed and offset are.
        wrapped = bool(metas) and all(m.wrapped for m in metas) and primitive.name != "random_uniform"
        grad = self.grad_enabled and primitive.differentiable and any(m.requires_grad for m in metas)
        device = self.device
        for m in metas:
            if m.device is not CPU:
                device = m.device
        outs: list[Tensor] = []
        ids = []
        for v in values:
            v.device = device
            if v.base is not None:  # the rule says which input it aliases; make that absolute
                source = slots[v.base]
                base_value = self.value(source)
                v.base = source if base_value.base is None else base_value.base
                inherited = () if primitive.name == "as_strided" else base_value.dynamic
                if inherited and v.dtype.itemsize != base_value.dtype.itemsize:
                    inherited = _in_elements_of(v.dtype, inherited, base_value.dtype)
                v.dynamic = inherited + tuple([(slots[i], m) for i, m in v.dynamic])
            slot = self.add_value(v)
            ids.append(slot)
            needs = grad and (v.dtype.is_floating_point or v.dtype.is_complex)
            if needs:
                self.requires.add(slot)
            outs.append(self.placeholder(slot, meta(v.shape, v.strides, v.dtype, v.offset, needs, not needs, wrapped, bool(v.dynamic), device, bits)))
        self.nodes.append(Node(primitive.name, slots, tuple(ids), tuple(sorted([item for item in attrs.items() if item[0] != "bits"]))))
        return outs[0] if len(outs) == 1 else tuple(outs)


@upward
def casting(op: Any, lower: dtypes.dtype) -> Callable[..., Any]:
    """The body of an operation under autocast (ops/autocast_lists.py)."""
    raise NotImplementedError


def casting_body(op: Any, lower: dtypes.dtype) -> Callable[..., Any]:
    """The body of an operation under autocast; loaded when it is first needed."""
    return casting(op, lower)


def of_numbers(op: Any, args: Sequence[Any]) -> bool:
    """Whether all operands of a call inside a body are Python numbers: then it is arithmetic in their own precision, and its result is a number."""
    found = False
    for kind, a in zip(op.kinds, args, strict=True):
        if kind == "tensors":
            return False
        if kind not in NO_TENSORS and a is not None:
            found = True
            if not (isinstance(a, (int, float, complex)) or a._meta.wrapped):
                return False
    return found
