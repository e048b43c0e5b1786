"""Reverse-mode differentiation of a list of nodes: walk backwards those that gradients reach, apply each primitive's gradient rule.

There is no tape besides the nodes. The rules record ordinary operations into a Fragment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from flambeau import dtypes
from flambeau.autograd.accumulate import Gradients, zeros
from flambeau.compiler.graph import Node, Value
from flambeau.ops.primitive import PRIMITIVES
from flambeau.trace.blank import no_data
from flambeau.trace.mutation import Assignment
from flambeau.trace.recorder import Fragment
from flambeau.trace.saved_hooks import mutable
from flambeau.trace.state import State

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


Write = tuple[int, int, int]


class Index:
    """What passes look up among nodes, made when the first of them asks: one pass costs what it reaches, not what is there."""

    def __init__(self, nodes: Sequence[Node], calls: Sequence[int]) -> None:
        self.nodes = nodes
        self.calls = calls

    @cached_property
    def producer(self) -> dict[int, Node]:
        """Slot -> the node that makes it."""
        return {o: n for n in self.nodes for o in n.outputs}

    @cached_property
    def firsts(self) -> list[int]:
        """The first outputs of the nodes, in order."""
        return sorted(n.outputs[0] for n in self.nodes)

    def within(self, begin: int, end: int) -> list[int]:
        """Those of the first outputs from `begin` on that are before `end`."""
        return self.firsts[bisect_left(self.firsts, begin) : bisect_left(self.firsts, end)]

    @cached_property
    def products(self) -> Counter[tuple[int, int]]:
        """How many products a call (its number) has by a matrix (its slot)."""
        return Counter([(bisect_right(self.calls, n.outputs[0]), n.inputs[1]) for n in self.nodes if n.op == "matmul"])


class Region:
    """Nodes to differentiate, and how to get at their forward values inside a fragment.

    `boundaries`: slots where gradients leave; `freed`: outputs of nodes whose forward values were given up;
    `saving`: see given_up.py; `used` collects the nodes that a pass gives up, `slots_used` the values that rules have asked for. `writes`: see
    `overwritten`. `replaced`: see `replaced_values`. `indices`: run-time numbers. `calls`: the first slots of the calls.
    `index`: of the nodes, where passes share one.
    `same`: boundaries that are one value with an earlier one (see `Engine._same`).
    In a dry run, which only collects, a use of what has been written over is no error.
    """

    def __init__(
        self, fragment: Fragment, nodes: Sequence[Node], needs: Callable[[int], bool], value: Callable[[int], Value],
        forward: Callable[[int], Tensor], boundaries: set[int], freed: set[int], writes: dict[int, Write], replaced: dict[int, int],
        indices: Container[int], calls: Sequence[int] = (), dry: bool = False, index: Index | None = None,
        saving: Mapping[int, bool] | None = None, same: Mapping[int, int] | None = None,
    ) -> None:  # fmt: skip
        self.fragment = fragment
        self.nodes = nodes
        self.needs = needs
        self.value = value
        self.forward = forward
        self.boundaries = boundaries
        self.freed = freed
        self.writes = writes
        self.replaced = replaced
        self.indices = indices
        self.calls = calls
        self.index = index if index is not None else Index(nodes, calls)
        self.dry = dry
        self.saving = saving if saving is not None else {}
        self.same = same if same is not None else {}
        self.names: dict[int, int] = {}  # see `tell_apart`
        self.used: set[int] = set()
        self.slots_used: set[int] = set()
        self.slots_later: set[int] = set()  # which only gradients of the gradients will ask for

    def tell_apart(self, pairs: Sequence[tuple[int, int]], begin: int, end: int) -> None:
        """Let one call (the slots from `begin` to `end`) have each use of some inputs under a name of its own, so that their gradients are not added up.
        `pairs`: such a name, and the input's slot, in the order of the uses."""
        names = dict(pairs)
        left = {slot: [name for name in names if names[name] == slot] for slot in names.values()}
        nodes = [n for n in self.nodes if begin <= n.outputs[0] <= end]
        self.nodes = [Node(n.op, tuple([left[i].pop(0) if i in left else i for i in n.inputs]), n.outputs, n.attrs) for n in nodes]
        self.index = Index(self.nodes, self.calls)
        needs, value = self.needs, self.value
        self.names = names
        self.needs = lambda slot: needs(names.get(slot, slot))
        self.value = lambda slot: value(names.get(slot, slot))
        self.boundaries = {*self.boundaries, *names}

    def visit(self, node: Node) -> bool | None:
        """A gradient has come to a node. Whether its call saves something in PyTorch; None: where its rule asks for values. RuntimeError if given up."""
        first = node.outputs[0]
        if first in self.freed:
            raise RuntimeError(
                "Trying to backward through the graph a second time (or directly access saved tensors after they have "
                f"already been freed; operation {node.op}). Saved intermediate values of the graph are freed when you "
                "call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward through the graph "
                "a second time or if you need to access saved tensors after calling backward."
            )
        if not self.saving:
            return None
        place = bisect_right(self.calls, first)
        saves = self.saving.get(self.calls[place - 1]) if place else None
        if saves:
            end = self.calls[place] if place < len(self.calls) else self.index.firsts[-1] + 1
            self.used.update(self.index.within(self.calls[place - 1], end))
        return saves

    def made_of_nothing(self, slot: int, first: int) -> bool:
        """Whether a value was made by the call that `first` belongs to, from numbers alone."""
        place = bisect_right(self.calls, first)
        begin = self.calls[place - 1] if place else first
        waiting = [slot]
        while waiting:
            slot = waiting.pop()
            if slot < begin:
                return False
            node = self.index.producer.get(slot)
            if node is not None:  # else it is a run-time number of the call
                waiting.extend(node.inputs)
        return True


class Context:
    """What a gradient rule sees of its node (see ops/primitive.py)."""

    __slots__ = ("attrs", "count", "node", "region", "saves", "waits")

    def __init__(self, region: Region, node: Node, saves: bool | None = None) -> None:
        self.region = region
        self.node = node
        self.saves = saves  # see `Region.visit`
        self.attrs = dict(node.attrs)
        self.count = len(node.inputs)
        self.waits = -1  # the input whose gradient is put together elsewhere

    def _get(self, slot: int) -> Tensor:
        region = self.region
        slot = region.names.get(slot, slot)
        first = self.node.outputs[0]
        if slot in region.indices and region.value(slot).dtype is dtypes.int64:
            return region.forward(slot)  # where a view starts is not given up
        if region.writes and not mutable[0]:
            v = region.value(slot)
            own = region.writes.get(slot if v.base is None else v.base)
            # later uses of the old value are the operation's own, and gradients of these
            if own is not None and (first < own[0] or (first < own[1] and slot < own[0] and slot != own[2])):
                if region.dry:
                    return region.forward(slot)
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"[{v.dtype!r} {list(v.shape)}], which the gradient of {self.node.op} needs, was written after it had been "
                    "used. Run the backward pass before changing it, or clone() it first."
                )
        if self.saves is None and first not in region.used and not region.made_of_nothing(slot, first):
            region.used.add(first)
        region.slots_used.add(slot)
        return region.forward(slot)

    def at(self, slot: int) -> Tensor:
        """An earlier value, by its slot."""
        return self._get(slot)

    def input(self, i: int) -> Tensor:
        return self._get(self.node.inputs[i])

    def output(self, i: int) -> Tensor:
        return self._get(self.node.outputs[i])

    def later(self, i: int) -> None:
        """Only the gradient's own gradient will ask for input `i`, which is computed again then: what it is made of is kept."""
        if self.region.dry:
            self.region.slots_later.add(self.node.inputs[i])

    def value(self, i: int) -> Value:
        return self.region.value(self.node.inputs[i])

    def shape(self, i: int) -> tuple[int, ...]:
        return self.value(i).shape

    def dtype(self, i: int) -> Any:
        return self.value(i).dtype

    def needs(self, i: int) -> bool:
        return i != self.waits and self.region.needs(self.node.inputs[i])

    def has_layout_of_input(self, x: Tensor, i: int) -> bool:
        """Whether `x` is a materialised value laid out as input i."""
        v = self.region.fragment.value(x._slot)
        return v.base is None and v.strides == self.value(i).strides


_STATIC = frozenset(("constant", "cast", "expand", "reshape"))


def static_slots(nodes: Sequence[Node], parameters: Iterable[int]) -> set[int]:
    """The slots of Python numbers and of what follows from them alone: known as long as the program is, never freed."""
    static = set(parameters)
    for node in nodes:
        if node.op in _STATIC and static.issuperset(node.inputs):
            static.update(node.outputs)
    return static


def freed_outputs(path: Sequence[State]) -> set[int]:
    """First outputs of the nodes whose forward values earlier backward passes of the path gave up."""
    freed: set[int] = set()
    for s in path:
        more = getattr(s.info, "freed", None)
        if more:
            freed |= more
    return freed


def overwritten(path: Sequence[State]) -> dict[int, Write]:
    """Root slots that in-place operations of the path wrote over -> from which slot to which the results of that operation go, and
    the slot by which it knows what it wrote to: PyTorch keeps a copy of that one, and of no other argument that shares its memory.
    """
    return {s.info.root_before: (s.info.own, s.value_count, s.info.target) for s in path if type(s.info) is Assignment}


def replaced_values(path: Sequence[State]) -> dict[int, int]:
    """Root slots of contents that were written over as a whole, with gradients -> the slot of what was there before.

    The new content does not depend on the old one, whose gradient is zero then, and not None.
    """
    return {s.info.root_after: s.info.replaced for s in path if type(s.info) is Assignment and s.info.replaced >= 0}


class _Ahead:
    """The nodes that gradients have reached, the last first: each node is given out once."""

    def __init__(self, producer: Mapping[int, Node], stop: int) -> None:
        self.producer = producer
        self.stop = stop
        self.waiting: list[int] = []  # a heap of the negatives of first outputs
        self.seen: set[int] = set()

    def reach(self, slots: Iterable[int]) -> None:
        """Gradients have come to these slots."""
        for slot in slots:
            node = self.producer.get(slot)
            if node is not None and node.outputs[-1] > self.stop:
                first = node.outputs[0]
                if first not in self.seen:
                    self.seen.add(first)
                    heappush(self.waiting, -first)

    def __iter__(self) -> Iterator[Node]:
        while self.waiting:
            yield self.producer[-heappop(self.waiting)]


def differentiate(region: Region, grads: dict[int, Tensor], stop: int) -> None:
    """Propagate `grads` (slot -> gradient) down to the boundaries, or until only slots <= `stop` are left."""
    boundaries = region.boundaries
    replaced = region.replaced
    zero: set[int] = set()  # whose gradient is zero, if nothing else is added to it
    gradients = Gradients(grads, region.index, region.value, region.same)
    ahead = _Ahead(region.index.producer, stop)
    ahead.reach(grads)
    for node in ahead:
        outputs = node.outputs
        if outputs[-1] <= stop:
            break
        gradients.enter(node)
        found = any(o in gradients for o in outputs)
        if outputs[0] in boundaries or not (found or (zero and not zero.isdisjoint(outputs))):
            continue
        if replaced:
            for slot in [replaced[o] for o in outputs if o in replaced and region.needs(replaced[o])]:
                ahead.reach((slot,))
                if region.dry:  # a pass in stages hands zeros on as a gradient like any other, and hooks may change it: its rules ask for values
                    gradients.add(slot, zeros(region.value(slot)))
                else:
                    zero.add(slot)
        rule = PRIMITIVES[node.op].gradient
        if not found:
            if rule is not None:
                needed = [i for i in node.inputs if region.needs(i)]
                if needed:
                    region.visit(node)
                zero.update(needed)
                ahead.reach(needed)
            continue
        given = [gradients.pop(o) for o in outputs]
        if not any(region.needs(i) for i in node.inputs):
            continue
        saves = region.visit(node)
        if rule is None:
            continue
        context = Context(region, node, saves)
        region.fragment.device = region.value(outputs[0]).device
        ahead.reach(node.inputs)
        if given[0] is not None and gradients.add_slice(node, given[0]):
            continue
        if node.op == "matmul" and context.needs(1) and gradients.takes_product(node):
            gradients.add_product(node.inputs[1], context.input(0), given[0])  # type: ignore[arg-type]
            context.waits = 1
        results = rule(context, *given)
        if not isinstance(results, tuple):
            results = (results,)
        pointwise = PRIMITIVES[node.op].pointwise
        for slot, gradient in zip(node.inputs, results, strict=False):
            if gradient is None or not region.needs(slot):
                continue
            v = region.value(slot)
            if pointwise and tuple(gradient._meta.shape) != tuple(v.shape):
                gradient = gradient.sum_to_size(v.shape)
            if gradient._meta.device is not v.device:
                if region.dry:
                    continue
                raise no_data()  # from what was moved to `meta` no gradient comes back
            if gradient._meta.dtype is not v.dtype:
                gradient = _convert(gradient, v)
            gradients.add(slot, gradient)
    gradients.settle_all()
    for slot in zero:
        if slot not in grads and (slot <= stop or slot in boundaries):
            region.fragment.device = region.value(slot).device
            grads[slot] = zeros(region.value(slot))


def _convert(gradient: Tensor, v: Value) -> Tensor:
    """The gradient of a real value is real."""
    if gradient._meta.dtype.is_complex and not v.dtype.is_complex:
        from flambeau.ops import primitives as prim

        gradient = prim.real_part(gradient)
    return gradient if gradient._meta.dtype is v.dtype else gradient.to(v.dtype)
