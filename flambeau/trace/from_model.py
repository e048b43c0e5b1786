"""States of exact sizes, made from models: what an edge by class (classes.py) gives at the sizes of a path, without running anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from flambeau.runtime.untracked import record, untrack_all
from flambeau.symbols import Code, symbolic
from flambeau.trace.meta import INTERNED, Meta, meta
from flambeau.trace.state import OBSERVATIONS, Bound, Out, State

Ints = tuple[Any, ...]


class New:
    """A symbol that an edge introduces."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "new"


class Symbol:
    """One of the path's symbols, by its number."""

    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number


NEW: Final = New()


@record
class Variant:
    """One model of an edge: `match(sizes, ints)` gives the sizes of the path with it, or None where it does not hold.

    `template`: what each size of its key is, a number, one of the path's symbols, or a new one. `name(ints)`: the exact key with these sizes, or None;
    `key`: where all sizes of the key are numbers, that key. `free`: it holds at all sizes. `reach`, `last`: see ahead.py.
    """

    __slots__ = (
        "dead", "evaluate", "free", "guards", "key", "last", "made_at", "match", "met", "metas", "model", "name", "of_outs", "pattern", "reach", "template",
        "twins", "untried", "verified",
    )  # fmt: skip

    def __init__(self, met: Ints, model: State | None) -> None:
        self.met = met  # the sizes in the key with which it was met first
        self.model = model  # None: only known to have been met, without symbols
        self.match: Callable[[tuple[int, ...], Ints], tuple[int, ...] | None] | None = None
        self.guards: tuple[Any, ...] = ()  # what `match` asks of the sizes, beside its template
        self.evaluate: Callable[[tuple[int, ...]], Any] | None = None
        self.made_at: tuple[int, ...] = ()
        self.metas: tuple[Meta, ...] = ()  # of its results, over symbols, each once
        self.of_outs: tuple[int, ...] = ()  # which of them each result has, and that of a plain result or an input
        self.untried: tuple[tuple[int, int], ...] = ()  # the symbols that were the same whenever it was compared, and what they were
        self.verified = False  # there are none
        self.dead = False
        self.template: Ints = ()
        self.key: Any = None
        self.name: Callable[[Ints], Any] | None = None
        self.free = False
        self.reach = 64
        self.last: State | None = None
        self.pattern: State | None = None  # see `_pattern`
        self.twins = False  # whether each state has an `info` of its own

    def results(self) -> None:
        """Look at what the model's results are: what of them depends on sizes becomes `evaluate`."""
        model = self.model
        assert model is not None and model.parent is not None
        of_results = [o.meta for o in model.outs] + ([model.meta] if model.meta is not None else [])
        distinct: dict[int, Meta] = {id(m): m for m in of_results}
        places = {name: i for i, name in enumerate(distinct)}
        self.metas = tuple(distinct.values())
        self.of_outs = tuple([places[id(m)] for m in of_results])
        layouts = [(tuple(m.shape), m.strides, m.offset) for m in self.metas]
        moved = [o.dynamic for o in model.outs]
        numbers = [n for b in model.bounds for n in (b.low, b.size)]
        pending = model.pending_bytes - model.parent.pending_bytes
        every = [*[(*shape, *strides, offset) for shape, strides, offset in layouts], *[tuple([x for _, x in pairs]) for pairs in moved]]
        if any(map(symbolic, every)) or symbolic((*numbers, pending)):
            code = Code()
            self.evaluate = code.function(code.structure((tuple(layouts), tuple(moved), tuple(numbers), pending)))
        model.pending_bytes = int.__int__(model.pending_bytes)

    def sizes_of_key(self, sizes: tuple[int, ...]) -> Ints | None:
        """The sizes in the key at given sizes of the path; None if the key brings new ones."""
        found = []
        for t in self.template:
            if t.__class__ is Symbol:
                found.append(sizes[t.number])
            elif t is NEW:
                return None
            else:
                found.append(t)
        return tuple(found)


def tried(variant: Any, sizes: tuple[int, ...]) -> bool:
    """Whether a variant was compared at other values of each symbol that is another one here than where it was made. What it may have taken for the same
    at all sizes, unseen, depends on one of them."""
    return variant.verified or (not variant.dead and _as_made(variant.untried, sizes))


def _as_made(untried: tuple[tuple[int, int], ...], sizes: tuple[int, ...]) -> bool:
    for i, n in untried:  # noqa: SIM110 - a generator costs as much as all the rest
        if sizes[i] != n:
            return False
    return True


_UNTRIED: Final[dict[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]] = {}


def made_at(variant: Any, sizes: tuple[int, ...]) -> None:
    """Note the sizes at which a variant was made. Variants with the same untried symbols have the same tuple of them."""
    variant.made_at = sizes
    untried = tuple(enumerate(sizes))
    variant.untried = _UNTRIED.setdefault(untried, untried)


def compared(variant: Any, sizes: tuple[int, ...]) -> None:
    """It was right at these sizes."""
    untried = tuple([(i, n) for i, n in variant.untried if sizes[i] == n])
    variant.untried = _UNTRIED.setdefault(untried, untried)
    variant.verified = not untried
    if len(_UNTRIED) > _MOST_UNTRIED:
        _UNTRIED.clear()


def exact_state(variant: Variant, parent: State, key: Any, sizes: tuple[int, ...]) -> State:
    """A state of the trie of exact sizes, made from a model."""
    model = variant.model
    assert model is not None and model.parent is not None
    pattern = variant.pattern
    if pattern is None or copied[0] is None:
        pattern = variant.pattern = _pattern(variant, model)
    state: State = _copy(pattern) if copied[0] is None else copied[0](pattern)
    state.parent, state.edge, state.children, state.plans, state.sizes = parent, key, {}, {}, sizes
    if variant.twins:
        state.info = model.info.twin()
    if variant.evaluate is None:
        state.pending_bytes = parent.pending_bytes + pattern.pending_bytes
    else:
        layouts, moved, numbers, pending = variant.evaluate(sizes)
        state.pending_bytes = parent.pending_bytes + pending
        _give_results(variant, model, state, layouts, moved, numbers)
    parent.children[key] = state
    MADE.append(state)
    return state


def _pattern(variant: Variant, model: State) -> State:
    """What all states of a variant have in common; `pending_bytes`: what the edge adds, where that does not depend on sizes."""
    assert model.parent is not None
    state: State = _new(State)
    state.parent, state.edge, state.children, state.plans = None, None, {}, {}
    state.sizes, state.model, state.lazy, state.kept = None, model, True, 0
    state.patterns = state.ahead = state.shortcuts = state.sample = None
    state.own_nodes, state.own_values = (), _NONE
    state.countdown, state.immediate, state.next, state.writes, state.call = OBSERVATIONS, None, None, None, None
    state.first_value, state.value_count = model.parent.value_count, model.value_count
    state.parameters, state.parameter_count = model.parameters, model.parameter_count
    state.inputs, state.input_count = model.inputs, model.input_count
    state.requires, state.depth, state.place = model.requires, model.depth, model.place
    state.native, state.pack, state.leaf, state.plain, state.single_view = model.native, model.pack, model.leaf, model.plain, model.single_view
    state.slot, state.root_slot, state.views_only, state.external = model.slot, model.root_slot, model.views_only, model.external
    state.limits, state.room, state.grad_enabled, state.stepwise = model.limits, model.room, model.grad_enabled, model.stepwise
    state.info = model.info
    variant.twins = hasattr(model.info, "twin")
    state.outs, state.meta, state.bounds = model.outs, model.meta, model.bounds
    state.pending_bytes = model.pending_bytes - model.parent.pending_bytes if variant.evaluate is None else 0
    untrack_all((state,))
    return state


def _copy(state: State) -> State:
    """Another one with the same in every field; native code (known_edge.py) does the same at a tenth of the time."""
    made: State = _new(State)
    for name in State.__slots__:
        setattr(made, name, getattr(state, name))
    return made


def _give_results(variant: Variant, model: State, state: State, layouts: Any, moved: Any, numbers: Any) -> None:
    """A variant's results with these layouts."""
    made = []
    for m, (shape, strides, offset) in zip(variant.metas, layouts, strict=True):
        found = INTERNED.get((shape, strides, m.dtype, offset, m.requires_grad, m.leaf, m.wrapped, m.dynamic, m.device.type, m.bits))
        if found is None:
            found = meta(shape, strides, m.dtype, offset, m.requires_grad, m.leaf, m.wrapped, m.dynamic, m.device, m.bits)
        made.append(found)
    of_outs = variant.of_outs
    if len(model.outs) == 1:  # most have one
        (out,) = model.outs
        state.outs = (Out(out.slot, made[of_outs[0]], out.root, out.alias, moved[0]),)
    else:
        state.outs = tuple([Out(out.slot, made[at], out.root, out.alias, dynamic) for out, at, dynamic in zip(model.outs, of_outs, moved, strict=False)])
    if model.meta is not None:
        state.meta = made[of_outs[-1]]
    if model.bounds:
        within = zip(numbers[::2], numbers[1::2], strict=True)
        state.bounds = tuple([Bound(b.position, low, n, b.dim, b.skip, b.what) for b, (low, n) in zip(model.bounds, within, strict=True)])


copied: Final[list[Any]] = [None]  # `_copy` in native code, once it is there (known_edge.py)
_MOST_UNTRIED: Final = 10_000
_new: Final = object.__new__
_NONE: Final[list[Any]] = []  # of states whose values are made when somebody asks
MADE: Final[list[State]] = []  # states made of models that the garbage collector still sees


def settle_made() -> None:
    """Take the states that were made lately out of the garbage collector's lists."""
    made = MADE[:]
    MADE.clear()
    untrack_all(made)
    untrack_all([x for s in made for x in (s.edge, s.children, s.outs, s.bounds, s.info, *s.outs)])
