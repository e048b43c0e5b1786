"""Edges by class: a path is recorded once for all sizes at which it is the same.

When a program reaches a state of the trie with a third size (of an input, of a size among a call's arguments), the sizes that differ become symbols
(symbols.py). From there on bodies, shape rules and gradient rules run over symbols, and what they record is a *model*: a State whose nodes, values
and results are expressions of the path's sizes. A model holds where its guards hold. The next new size then runs nothing in Python: the guards
are checked, the results' metadata computed, and the exact State made from the model (`_exact`), whose nodes and values are computed only if somebody asks.

A State with `sizes` () has no symbols in its path and is its own model. One with `sizes` None is not followed: bodies have asked for too much.
Every model is compared once with what a run without symbols gives at other sizes, before it is used for them (`_agrees`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from flambeau.compiler.graph import Node, Value, contiguous_strides
from flambeau.python_code import compiled
from flambeau.runtime.untracked import untrack_all
from flambeau.statistics import counters
from flambeau.symbols import Code, Recording
from flambeau.trace.ahead import came_by, reached
from flambeau.trace.fragment import Moved, OffsetNeeded
from flambeau.trace.from_model import NEW, Ints, Symbol, Variant, compared, made_at, tried
from flambeau.trace.meta import Meta, is_dense, meta
from flambeau.trace.place import line_here
from flambeau.trace.state import IN, State
from flambeau.trace.tiers import in_pieces
from flambeau.trace.traces import TRACES, roots
from flambeau.trace.while_set import while_set

if TYPE_CHECKING:
    from flambeau.trace.recorder import Trace

SIZES_MET: Final = 2  # how many sizes a place is met with one by one: a last batch that is smaller makes no class
PIECES_MET: Final = 1  # and a piece, which is a call that all of the program shares
MOST_VARIANTS: Final = 8  # models of one call at one place, before it is given up
# Names of static parameters that are sizes.
SIZED: Final = frozenset(("shape", "size", "sizes", "length", "strides", "storage_offset", "normalized_shape", "output_size", "num_classes", "pad"))
ENABLED: Final = [os.environ.get("FLAMBEAU_CLASSES", "1") not in ("", "0")]  # off: every path is recorded at its own sizes; the bits are the same


class View:
    """The path of a trace as its models say it, over symbols: what recording with symbols looks at."""

    __slots__ = ("gen", "rec", "values")

    def __init__(self, gen: int, sizes: tuple[int, ...]) -> None:
        self.gen = gen
        self.rec = Recording(sizes)
        self.values: dict[State, list[Value]] = {}

    def of(self, model: State) -> list[Value]:
        """The values that a model adds to the path, at the sizes of this trace."""
        found = self.values.get(model)
        if found is None:
            if model.sizes == ():
                return model.values  # no symbols in its path
            again = self.rec.again
            found = self.values[model] = [v.mapped(again) for v in model.values]
        return found

    def nodes(self, model: State) -> list[Node]:
        """The nodes that a model adds."""
        if model.sizes == ():
            return list(model.nodes)
        again = self.rec.again
        return [n.mapped(again) for n in model.nodes]


def model_of(state: State) -> State | None:
    """The model of a state; None: it is not followed."""
    return state if state.sizes == () else state.model


# -- keys: what is a size in them ----------------------------------------------------------------------------------


def of_input(key: Any, anywhere: bool) -> tuple[Any, Ints]:
    """(all but the sizes, the sizes) of the key of an input's edge or an alias's. `anywhere`: what is known of it holds at all places of the program."""
    m: Meta = key[1] if key[0] == IN else key[2]
    shape, strides = tuple(m.shape), m.strides
    layout = _layout(shape, strides)
    ints: tuple[Any, ...] = shape if layout is not None else (*shape, *strides)
    nbytes = key[2] if key[0] == IN else 0
    whole = m.offset == 0 and (key[0] != IN or nbytes == m.numel * m.dtype.itemsize)
    if not whole:
        ints = (*ints, m.offset, nbytes)
    flags = m.dtype, m.requires_grad, m.leaf, m.wrapped, m.dynamic, m.device, m.bits, len(shape), layout, whole
    rest = key[3] if key[0] == IN else (key[1], key[3], key[4])
    return (key[0], flags, rest, None if anywhere else line_here()), ints


def _layout(shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """What the strides follow from, with the shape: "contiguous", the order of the dims in memory, or None: from nothing."""
    if strides == contiguous_strides(shape):
        return "contiguous"
    if not is_dense(shape, strides):
        return None
    order = tuple(sorted(range(len(shape)), key=lambda d: (strides[d], shape[d] != 1, -d)))
    return order if _ordered(shape, order) == strides else None


class Kind:
    """All of a tensor's metadata but its sizes: there is one object for each."""

    __slots__ = ()


_KINDS: Final[dict[Any, Kind]] = {}


def kind_of(m: Meta) -> Kind:
    """The kind of a tensor with this metadata."""
    found = m.kind
    if found is None:
        shape = tuple(m.shape)
        layout = _layout(shape, m.strides)
        key = m.dtype, m.requires_grad, m.leaf, m.wrapped, m.dynamic, m.device, m.bits, len(shape), layout, m.offset == 0
        found = m.kind = _KINDS.setdefault(key, Kind())
    return found  # type: ignore[no-any-return]


def _ordered(shape: Any, order: tuple[int, ...]) -> tuple[Any, ...]:
    """The strides of a dense layout whose dims go up in this order."""
    out: list[Any] = [0] * len(shape)
    step: Any = 1
    for d in order:
        out[d] = step
        step = step * shape[d]
    return tuple(out)


def input_key_of(skeleton: Any, ints: Ints) -> Any:
    """The key that `of_input` has taken apart, with other sizes."""
    kind, flags, rest, _ = skeleton
    d, requires_grad, leaf, wrapped, dynamic, device, bits, ndim, layout, whole = flags
    shape, left = ints[:ndim], ints[ndim:]
    if layout is None:
        strides, left = left[:ndim], left[ndim:]
    else:
        strides = contiguous_strides(shape) if layout == "contiguous" else _ordered(shape, layout)
    offset, nbytes = (0, None) if whole else left
    m = meta(shape, strides, d, offset, requires_grad, leaf, wrapped, dynamic, device, bits)
    if kind != IN:
        return (kind, rest[0], m, rest[1], rest[2])
    return (kind, m, m.numel * d.itemsize if nbytes is None else nbytes, rest)


def of_call(op: Any, key: Any, args: Any, sizes: tuple[int, ...], anywhere: bool) -> tuple[Any, Ints]:
    """(all but the sizes, the sizes) of the key of an operation's edge. Where a path has no symbols yet, the place in the program is a part of it: calls
    of other places have sizes of their own, but for pieces (`anywhere`)."""
    sized = op.sized
    if not sized:
        return key, ()
    skeleton = list(key)
    if not sizes and not anywhere:
        skeleton += line_here()
    ints: list[int] = []
    for i in sized:
        a = args[i]
        if a.__class__ is int:
            ints.append(a)
            skeleton[i + 1] = "size"
        elif isinstance(a, tuple) and all(x.__class__ is int for x in a):
            ints.extend(a)
            skeleton[i + 1] = ("sizes", len(a))
    return (tuple(skeleton), tuple(ints)) if ints else (key, ())


def call_key(key: Any, places: tuple[tuple[int, int], ...], ints: Ints) -> Any:
    """The key of an operation's edge with other sizes in these places: (position, how many; -1: a number, no tuple)."""
    parts = list(key)
    at = 0
    for position, count in places:
        if count < 0:
            parts[position] = ints[at]
            at += 1
        else:
            parts[position] = type(parts[position])(ints[at : at + count])
            at += count
    return tuple(parts)


def places_of(op: Any, args: Any) -> tuple[tuple[int, int], ...]:
    """Where the sizes are in the key of an operation's edge (see `call_key`)."""
    found = []
    for i in op.sized:
        a = args[i]
        if a.__class__ is int:
            found.append((i + 1, -1))
        elif isinstance(a, tuple) and all(x.__class__ is int for x in a):
            found.append((i + 1, len(a)))
    return tuple(found)


def with_sizes(op: Any, args: Any, ints: Ints) -> list[Any]:
    """The arguments with these numbers in the places of the sizes."""
    out = list(args)
    at = 0
    for i in op.sized:
        a = out[i]
        if a.__class__ is int:
            out[i] = ints[at]
            at += 1
        elif isinstance(a, tuple) and all(x.__class__ is int for x in a):
            out[i] = type(a)(ints[at : at + len(a)])
            at += len(a)
    return out


# -- following ---------------------------------------------------------------------------------------------------


def known_input(parent: State, exact: Any) -> State | None:
    """The state behind an input's edge that has no symbols of its own and is known where the path has some."""
    model, sizes = parent.model, parent.sizes
    if model is None or not sizes or model.patterns is None or not ENABLED[0]:
        return None
    for variant in model.patterns.get(exact, ()):
        if tried(variant, sizes) and variant.match is not None and variant.match(sizes, variant.met) is not None:
            counters.class_edges += 1
            return reached(variant, parent, exact[0], sizes)
    return None


def known_call(parent: State, op: Any, key: Any, args: Any) -> State | None:
    """The state behind an operation's edge that a model knows at these sizes."""
    model, sizes = parent.model, parent.sizes
    if model is None or not sizes or model.patterns is None or not ENABLED[0]:
        return None
    skeleton, ints = of_call(op, key, args, sizes, True)
    variants: list[Variant] | None = model.patterns.get(skeleton)
    if variants is None:
        return None
    for position, variant in enumerate(variants):
        found = variant.match(sizes, ints) if variant.match is not None else None
        if found is not None:
            if not tried(variant, found):
                return None
            if position:  # the next sizes are likely to be like these
                variants.insert(0, variants.pop(position))
            counters.class_edges += 1
            return reached(variant, parent, key, found)
    return None


def foreseen(parent: State, op: Any, key: Any, args: Any, anywhere: bool) -> bool:
    """Whether a model holds at these sizes for an operation's edge, though it may have to be compared first."""
    model, sizes = model_of(parent), parent.sizes
    if model is None or sizes is None or model.patterns is None or not ENABLED[0]:
        return False
    skeleton, ints = of_call(op, key, args, sizes, anywhere)
    return any(v.match is not None and v.match(sizes, ints) is not None for v in model.patterns.get(skeleton, ()))


def follow(
    tr: Trace, key: Any, skeleton: Any, ints: Ints, make: Callable[[Ints], State], make_exact: Callable[[], State], exact: Any = None,
    name: Callable[[Ints], Any] | None = None,
) -> State:  # fmt: skip
    """The exact state behind an edge that is not known at these sizes: from a model, from a new model, or recorded as it is.

    `make(ints)` records the edge over symbols, with the trace in its model's place, and gives the model; `make_exact()` without. `exact`: a second
    name of an edge without symbols of its own (`known_input`). `name(ints)`: the key with these sizes in it, or None.
    """
    parent = tr.state
    sizes = parent.sizes
    if sizes is None or not ENABLED[0] or tr.symbolic:
        return make_exact()
    model = model_of(parent)
    assert model is not None
    if not ints and not sizes:
        return make_exact()
    patterns = model.patterns
    if patterns is None:
        patterns = model.patterns = {}
    variants: list[Variant] = patterns.setdefault(skeleton, [])
    for position, variant in enumerate(variants):
        if variant.match is not None:
            found = variant.match(sizes, ints)
            if found is not None:
                if position:  # the next sizes are likely to be like these
                    variants.insert(0, variants.pop(position))
                if variant.dead:
                    return _not_followed(make_exact())
                return _taken(tr, variant, key, found, make_exact)
    changed = _changed(skeleton, ints) if sizes and ints else ()
    before = _before(parent, model, key, skeleton, name)
    template = _template(variants, sizes, ints, changed, before)
    new = [x for x, t in zip(ints, template, strict=True) if t is NEW]
    if not sizes and (not new or sum([v.model is None for v in variants]) < (PIECES_MET if in_pieces(tr) else SIZES_MET)):
        if not any(v.met == ints for v in variants):
            variants.append(Variant(ints, None))
        return make_exact()
    if len(variants) >= MOST_VARIANTS or not alone():
        return _not_followed(make_exact())
    made = _record(tr, model, template, (*sizes, *new), ints, make)
    if made is None:
        return _not_followed(make_exact())
    made.name = name
    variants.append(made)
    untrack_all((made, variants))
    if before is not None:
        _compare(made, before)
    if exact is not None and made.evaluate is None and all(t.__class__ is int for t in template):
        patterns.setdefault(exact, []).append(made)
    return reached(made, parent, key, made.made_at)


class Before(NamedTuple):
    """An edge that was recorded without symbols: the sizes of its path and of its key, and its state."""

    sizes: tuple[int, ...]
    ints: Ints
    state: State


def _before(parent: State, model: State, key: Any, skeleton: Any, name: Callable[[Ints], Any] | None) -> Before | None:
    """An edge like one that is about to be recorded over symbols, as it was recorded at sizes that came before there were any."""
    sizes: Ints = ()
    if parent.sizes == ():
        state = parent
    elif model.sample is not None:
        sizes, state = model.sample
    else:
        return None
    if name is None:
        found = state.children.get(key)
        return None if found is None or found.lazy else Before(sizes, (), found)
    for variant in (state.patterns or {}).get(skeleton, ()):
        if variant.model is None:
            found = state.children.get(name(variant.met))
            if found is not None and not found.lazy:
                return Before(sizes, variant.met, found)
    return None


def _compare(made: Variant, before: Before) -> None:
    """Compare a new model with what was recorded without symbols: if it is the same, it holds from now on, and plans can be compared there, too."""
    assert made.match is not None and made.model is not None
    sizes = made.match(before.sizes, before.ints)
    if sizes is not None and _agrees(made, before.state, sizes):
        compared(made, sizes)
        made.model.sample = sizes, before.state


def alone() -> bool:
    """Whether no other thread records: it may take a tensor in the middle of a recording over symbols, which cannot take it back."""
    return len(TRACES) == 1


def _not_followed(state: State) -> State:
    state.sizes, state.model = None, None
    counters.paths_not_followed += 1
    return state


_values_at: Final[dict[Any, tuple[set[Any], ...]]] = {}  # by a call and its place in the program: the first values of each of its sizes
MOST_PLACES: Final = 10_000  # that are remembered


def _changed(skeleton: Any, ints: Ints) -> tuple[bool, ...]:
    """Which sizes of a call have had more values than `SIZES_MET` at this place of the program, whatever led to it.

    A path that is new would take each for a constant first, and so would all that come after it be recorded twice.
    """
    name = (skeleton[0].__class__ is str and skeleton[:2]) or skeleton[0]
    known = _values_at.setdefault((name, len(ints), line_here()), tuple(set() for _ in ints))
    for values, x in zip(known, ints, strict=True):
        if len(values) <= SIZES_MET:
            values.add(x)
    if len(_values_at) > MOST_PLACES:
        _values_at.clear()
    return tuple(len(values) > SIZES_MET for values in known)


def _template(variants: list[Variant], sizes: tuple[int, ...], ints: Ints, changed: tuple[bool, ...], before: Before | None) -> Ints:
    """What each size of a key is from now on: a number, one of the path's symbols, or a new one."""
    template: list[Any] = []
    for i, x in enumerate(ints):
        met = [v.met[i] for v in variants]
        if before is not None and sizes:  # one that was the same as a symbol, by chance, is another
            met.append(before.ints[i])
        if x in (0, 1) or x < 0 or (met and all(m == x for m in met) and not (changed and changed[i])):
            template.append(x)
        elif (number := _symbol_of(x, sizes, before and (before.sizes, before.ints[i]))) >= 0:
            template.append(Symbol(number))
        elif met or (changed and changed[i]):
            template.append(NEW)
        else:
            template.append(x)
    return tuple(template)


def _symbol_of(x: int, sizes: tuple[int, ...], before: tuple[tuple[int, ...], int] | None) -> int:
    """The number of the path's symbol that a size is, -1: none. `before`: the symbols and the size as they were once before."""
    for number, size in enumerate(sizes):
        if size == x and (before is None or before[0][number] == before[1]):
            return number
    return -1


def view_of(tr: Trace, sizes: tuple[int, ...]) -> View:
    """What the trace is over symbols; `sizes`: of its path, and what the next edge brings."""
    view = tr.view
    if view is None or view.gen != tr.gen:
        view = tr.view = View(tr.gen, sizes)
    view.rec.sizes, view.rec.hints, view.rec.count = sizes, sizes, len(sizes)
    view.rec.guards = {}
    return view


def over_symbols(tr: Trace, model: State, sizes: tuple[int, ...], function: Callable[..., Any], *args: Any) -> Any:
    """`function(*args)` while the trace stands at `model` and its values are over symbols."""
    view_of(tr, sizes)
    before = tr._values, tr._values_of
    try:
        tr._values, tr._values_of = [], None
        result = while_set(tr, "exact", tr.state, while_set, tr, "symbolic", True, while_set, tr, "state", model, function, *args)
        tr._values, tr._values_of = before
        return result
    except BaseException:
        tr.symbolic = False
        tr._values, tr._values_of = before
        raise


def _record(tr: Trace, model: State, template: Ints, sizes: tuple[int, ...], ints: Ints, make: Callable[[Ints], State]) -> Variant | None:
    """Record an edge over symbols; None if that cannot be done."""
    rec = view_of(tr, sizes).rec
    first = len(sizes) - sum(1 for t in template if t is NEW)
    given: list[Any] = []
    code = Code()
    checks: list[str] = []
    fresh: list[str] = []
    for i, t in enumerate(template):
        if t is NEW:
            given.append(rec.size(first + len(fresh)))
            fresh.append(f"x[{i}]")
            checks.append(f"x[{i}] < 2")
        elif t.__class__ is Symbol:
            given.append(rec.size(t.number))
            checks.append(f"x[{i}] != s[{t.number}]")
        else:
            given.append(t)
            checks.append(f"x[{i}] != {t}")
    try:
        made = over_symbols(tr, model, sizes, make, tuple(given))
    except (Moved, OffsetNeeded):
        raise
    except Exception:
        return None  # without symbols it is done, or fails with its own message
    variant = Variant(ints, made)
    code.lines.append(f"if {' or '.join(checks)}: return None" if checks else "pass")
    if fresh:
        code.lines.append(f"s = (*s, {', '.join(fresh)})")
    code.check(rec.guards.values())
    code.lines.append("return s")
    scope: dict[str, Any] = {}
    exec(compiled("def match(s, x):\n" + "\n".join([f"    {line}" for line in code.lines]), "<flambeau guards>"), scope)
    variant.match = scope["match"]
    variant.guards = tuple(rec.guards.values())
    made_at(variant, sizes)
    variant.template = template
    variant.free = not rec.guards and not fresh
    variant.results()
    return variant


def _taken(tr: Trace, variant: Variant, key: Any, sizes: tuple[int, ...], make_exact: Callable[[], State]) -> State:
    """The exact state of a model that holds at these sizes."""
    if tried(variant, sizes):
        counters.class_edges += 1
        return reached(variant, tr.state, key, sizes)
    parent = tr.state
    state = make_exact()
    if state.parent is not parent:
        return state
    if _agrees(variant, state, sizes):
        compared(variant, sizes)
        state.sizes, state.model = sizes, variant.model
        came_by(variant, parent, key)
        return state
    variant.dead, variant.verified = True, False
    forget_calls()
    return _not_followed(state)


def forget_calls() -> None:
    """A model or a plan over symbols has turned out to be wrong at some sizes: no call may be done by it any more."""
    for root in roots():
        if root.immediate is not None:
            root.immediate.forget_classes()


def known_mode(before: State, key: Any) -> State | None:
    """The state behind a change of mode that a model knows; at exact sizes it has nothing of its own."""
    assert before.model is not None and before.model.patterns is not None and before.sizes is not None
    for variant in before.model.patterns.get(key, ()):
        return reached(variant, before, key, before.sizes)
    return None


def follow_mode(before: State, state: State, key: Any) -> None:
    """A change of mode at symbolic sizes: the model gets the same edge, and the state is made from it."""
    model = before.model
    if model is None:
        return
    made = State(model, key)
    made.sizes = None
    made.external, made.views_only, made.grad_enabled, made.stepwise = state.external, state.views_only, state.grad_enabled, state.stepwise
    variant = Variant((), made)
    variant.verified = True
    variant.match = _same
    variant.free = True
    if model.patterns is None:
        model.patterns = {}
    model.patterns.setdefault(key, []).append(variant)
    state.sizes, state.model = before.sizes, made


def _same(sizes: tuple[int, ...], ints: Ints) -> tuple[int, ...]:
    return sizes


def _agrees(variant: Variant, state: State, sizes: tuple[int, ...]) -> bool:
    """Whether a model gives what a run without symbols has given at these sizes."""
    model = variant.model
    assert model is not None
    if any(getattr(state, name) != getattr(model, name) for name in ("slot", "root_slot", "inputs", "parameters", "requires", "plain", "native", "leaf")):
        return False
    nodes, values = model.concrete(sizes)
    if nodes != state.nodes or values != state.values:
        return False
    metas = [o.meta for o in state.outs] + ([state.meta] if state.meta is not None else [])
    flags = [(o.slot, o.root, o.alias, o.meta.dtype, o.meta.requires_grad, o.meta.leaf, o.meta.bits) for o in state.outs]
    if flags != [(o.slot, o.root, o.alias, o.meta.dtype, o.meta.requires_grad, o.meta.leaf, o.meta.bits) for o in model.outs]:
        return False
    dynamic = [o.dynamic for o in state.outs]
    if variant.evaluate is None:
        modelled = [o.meta for o in model.outs] + ([model.meta] if model.meta is not None else [])
        return modelled == metas and [o.dynamic for o in model.outs] == dynamic
    layouts, moved, numbers, _ = variant.evaluate(sizes)
    found = [layouts[at] for at in variant.of_outs]
    wanted = [(tuple(m.shape), m.strides, m.offset) for m in metas]
    return found == wanted and moved == tuple(dynamic) and numbers == tuple([n for b in state.bounds for n in (b.low, b.size)])  # type: ignore[no-any-return]
