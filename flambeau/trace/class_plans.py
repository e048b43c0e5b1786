"""Plans by class: a path over symbols is planned once, and the plan's words are expressions of the path's sizes.

The passes of the compiler run over a model's graph (classes.py) as over any other; what they decide by sizes is guarded. Of the plan that comes out, the
argument words, units and buffers' sizes are compiled to one Python function of the sizes. For new sizes it gives the numbers, and a `run` is made
from them: no pass runs. Where blocks lie in the arena is found anew for each sizes (place.offsets_of): no order among them is asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from ctypes import addressof
from typing import TYPE_CHECKING, Any, Final

from flambeau.compiler.graph import Graph
from flambeau.compiler.place import offsets_of, turns_of
from flambeau.compiler.plan import Assembly, Hosted, Layout, Numbers
from flambeau.compiler.stored_class_plan import Entry, store
from flambeau.devices import CPU
from flambeau.runtime import threads
from flambeau.runtime.untracked import keep, record, untrack_all
from flambeau.statistics import counters
from flambeau.symbols import Code, KnownCode, Recording, at_sizes, reaches
from flambeau.trace import classes
from flambeau.trace.classes import over_symbols
from flambeau.trace.forgetting import account
from flambeau.trace.from_model import compared, made_at, tried
from flambeau.trace.state import State
from flambeau.trace.while_set import while_set

if TYPE_CHECKING:
    from flambeau.compiler.sized import Row, Sized
    from flambeau.runtime.runner import Program
    from flambeau.tensor import Tensor
    from flambeau.trace.evaluate import TracePlan
    from flambeau.trace.recorder import Trace

SHARED_AFTER: Final = 4  # sizes of a plan over symbols, before they share a program, whose function is compiled first
OWN_AFTER: Final = 8  # runs at the same sizes, before these get a program of their own
MOST_VARIANTS: Final = 12  # plans of one model for the same living results, before sizes are planned one by one


@record
class Met:
    """A plan of exact sizes: the next sizes are planned over symbols, and what comes out is compared with it."""

    __slots__ = ("plan", "sizes")

    def __init__(self, sizes: tuple[int, ...], plan: TracePlan) -> None:
        self.sizes = sizes
        self.plan = plan


def _met_before(model: State, alive: Any) -> Met | None:
    """What was planned at the sizes that the path had before there were symbols in it."""
    if model.sample is None:
        return None
    sizes, state = model.sample
    plan = state.plans.get(alive)
    return None if plan is None or plan.own_plan is None else Met(sizes, plan)


@record
class PlanVariant:
    """A plan over symbols. `numbers(sizes)`: what of it depends on sizes, or None where a guard does not hold.

    `row(sizes)`: the same of the program that all sizes share, where there is one (compiler/sized.py), once there have been `SHARED_AFTER` of them; `run_at`
    makes a `run` of it. `program(small)`: that program, for sizes at which it is small or for others. `source`: what both are made of.
    """

    __slots__ = (
        "assembly",
        "countdown",
        "dead",
        "entry",
        "hints",
        "made_at",
        "numbers",
        "plan",
        "program",
        "row",
        "run_at",
        "sized",
        "source",
        "tape",
        "untried",
        "verified",
        "workers",
    )

    def __init__(self, plan: TracePlan, rec: Recording, sizes: tuple[int, ...]) -> None:
        self.plan = plan
        self.hints = tuple(rec.hints)  # at which sizes it was decided what only costs time
        self.dead = False
        self.made_at: tuple[int, ...] = ()
        self.untried: tuple[tuple[int, int], ...] = ()
        made_at(self, sizes)  # see from_model.tried
        entry: Entry | None = rec.entry
        self.entry = None if entry is None or entry.key is None else entry  # where it is kept
        if self.entry is not None and self.entry.name:
            self.untried = self.entry.untried
        self.verified = not self.untried
        self.tape: Any = None  # of the path over symbols (autograd/segment.py)
        compiled = plan.plan
        self.workers = compiled.placement.workers
        self.assembly = Assembly(compiled, over_symbols=True)
        placement = compiled.placement
        found = self.assembly.numbers()
        guards = list(rec.guards.values())
        if self.entry is not None and not self.entry.name:
            self.entry.guards = tuple(guards)  # with what has been asked since it was compiled
        later: list[Any] = []  # guards about where blocks lie
        if placement.lives:
            later = [g for g in guards if reaches(g[1], len(sizes)) or reaches(g[2], len(sizes))]
            guards = [g for g in guards if g not in later]
        self.row: Callable[[tuple[int, ...]], Row | None] | None = None
        self.run_at: Callable[[Row], Any] | None = None
        self.sized: Sized | None = None
        self.program: Callable[[int], Program] | None = None
        self.source: tuple[Any, ...] | None = (guards, later, found)
        self.countdown = SHARED_AFTER
        known = None if self.entry is None else self.entry.code
        code = self._begin(Code() if known is None else KnownCode(known))
        layouts: list[Any] = [
            tuple(x) if isinstance(x, Hosted) else (*[code.array(a) for a in x[:3]], [[(code.given(t.address), *t[1:]) for t in p] for p in x.phases], *x[4:])
            for x in found.layouts
        ]
        result = code.structure((layouts, found.fresh, found.arena_bytes))
        self.numbers: Callable[[tuple[int, ...]], Any] = code.function(result, **self._given())

    def _begin(self, code: Code) -> Code:
        """Write the first lines of a function of the sizes: guards, and where blocks lie in the arena."""
        assert self.source is not None
        guards, later, _ = self.source
        code.check(guards)
        lives = self.plan.plan.placement.lives
        if lives:
            code.lines.append(f"offsets, top = place(turns, {code.structure([nbytes for _, _, nbytes in lives])})")
            code.lines.append("s = (*s, *offsets, top)")
        code.check(later)
        return code

    def _given(self) -> dict[str, Any]:
        return {"place": offsets_of, "turns": turns_of([life[:2] for life in self.plan.plan.placement.lives])}

    def share(self) -> None:
        """Sizes have come several times: from now on they share a program, if they can."""
        assert self.source is not None
        self.countdown = 0
        self.sized = self.assembly.sized(self.source[2])
        if self.sized is not None:
            self.program = self.assembly.sized_program(self.sized)
            self.run_at = self.assembly.make_sized(self.program)
            self.row = self.sized.function(self._begin(Code()), **self._given())
        self.source = None


def numbers_of(found: Any) -> Numbers:
    """A plan's numbers as the assembly takes them: tasks are plain tuples."""
    layouts, fresh, arena_bytes = found
    return Numbers([Layout(*x) if len(x) == _PARTS else Hosted(*x) for x in layouts], fresh, arena_bytes)


_PARTS: Final = len(Layout._fields)  # of a native program; a host call has fewer


def plan_for(tr: Trace, state: State, tensors: list[Tensor], alive: Any, make: Callable[..., TracePlan]) -> TracePlan:
    """The plan of a path for a set of living tensors: from one over symbols where there is one, or can be."""
    model, sizes = state.model, state.sizes
    if not sizes or model is None or not classes.ENABLED[0] or not classes.alone() or any(t._meta.device is not CPU for t in tensors):
        return make(tr, state, tensors, alive)
    variants: list[PlanVariant] | Met | None = model.plans.get(alive)
    if variants is None:
        variants = _met_before(model, alive)
    if variants is None:  # whether the path comes with further sizes is not known yet
        plan = make(tr, state, tensors, alive)
        model.plans[alive] = Met(sizes, plan)
        return plan
    if variants is NOT_BY_CLASS:
        return make(tr, state, tensors, alive)
    met: Met | None = None
    if isinstance(variants, Met):
        met, variants = variants, []
        model.plans[alive] = variants
    variants[:] = [v for v in variants if v.workers >= threads.count()]  # there is scratch memory for as many threads as there were
    for position, variant in enumerate(variants):
        row = None if variant.row is None else variant.row(sizes)
        numbers = variant.numbers(sizes) if row is None or CHECK[0] else None
        if row is None and numbers is None:
            continue
        if CHECK[0] or not tried(variant, sizes):
            again = _record(tr, model, sizes, tensors, alive, make, variant.hints, afresh=True)
            if again is None or not _agree(variant, again, sizes):
                counters.paths_not_followed += 1
                if CHECK[0]:
                    how = "there is none" if again is None else _first_difference(variant, again, sizes)
                    raise AssertionError(f"a plan by class is not that of the sizes {sizes}: it was made at {variant.made_at} ({how})")
                variant.dead = True
                classes.forget_calls()
                del variants[position]
                return make(tr, state, tensors, alive)
            _was_right(variant, sizes)
        if position:  # the next sizes are likely to be like these
            variants.insert(0, variants.pop(position))
        counters.class_plans += 1
        if row is not None:
            if CHECK[0]:
                _check_row(variant, row, numbers)
            return _sharing(variant, state, row)
        if variant.countdown:
            variant.countdown -= 1
            if not variant.countdown:
                variant.share()
        return _twin(variant, state, numbers)
    hints = sizes if met is None else met.sizes  # what only costs time is decided as there, so the two can be compared
    made = _record(tr, model, sizes, tensors, alive, make, hints) if len(variants) < MOST_VARIANTS else None
    if made is None:
        return make(tr, state, tensors, alive)  # with its own message, if it fails
    if made.entry is None or not made.entry.name:
        if met is not None and _agrees(made, met):
            compared(made, met.sizes)
        _keep(made, sizes)
    variants.append(made)
    untrack_all((made, variants, model.plans))
    keep(made.plan.graph, made.plan.assign, made.plan.plan.steps, made.plan.plan.kernels)
    account(made.plan.size)
    return _twin(made, state, made.numbers(sizes))


def _record(
    tr: Trace, model: State, sizes: tuple[int, ...], tensors: list[Tensor], alive: Any, make: Callable[..., TracePlan], hints: tuple[int, ...],
    afresh: bool = False,
) -> PlanVariant | None:  # fmt: skip
    """A plan over symbols; None if there can be none. `hints`: the sizes at which it is decided what only costs time. `afresh`: none from disk will do."""
    try:
        plan = over_symbols(tr, model, sizes, _plan, tr, model, tensors, alive, make, hints, afresh or CHECK[0])
        assert tr.view is not None
        return PlanVariant(plan, tr.view.rec, sizes)
    except Exception:
        if CHECK[0]:
            raise
    model.plans[alive] = NOT_BY_CLASS
    return None


def _was_right(variant: PlanVariant, sizes: tuple[int, ...]) -> None:
    """A plan was compared at these sizes, so later processes may take it from disk at others."""
    compared(variant, sizes)
    _keep(variant, sizes)


def _keep(variant: PlanVariant, sizes: tuple[int, ...]) -> None:
    if variant.entry is not None:
        store(variant.entry, variant.plan.plan, len(sizes), variant.untried, variant.numbers.__code__)


def _agree(a: PlanVariant, b: PlanVariant, sizes: tuple[int, ...]) -> bool:
    """Whether two plans have the same numbers at these sizes: what one of them, made at other sizes, has taken for the same at all sizes, is so."""
    return _plain(a.numbers(sizes), a.assembly, a.plan) == _plain(b.numbers(sizes), b.assembly, b.plan)


def _first_difference(a: PlanVariant, b: PlanVariant, sizes: tuple[int, ...]) -> str:
    """Where two plans differ, for the message of a failed check."""
    ours, theirs = ([k.key for k in v.plan.plan.kernels] for v in (a, b))
    if ours != theirs:
        return f"kernels {list((Counter(ours) - Counter(theirs)).elements())} and {list((Counter(theirs) - Counter(ours)).elements())}"
    pairs = [("plans", _plain(a.numbers(sizes), a.assembly, a.plan), _plain(b.numbers(sizes), b.assembly, b.plan))]
    while pairs:
        place, x, y = pairs.pop(0)
        if isinstance(x, (list, tuple)) and isinstance(y, (list, tuple)) and len(x) == len(y):
            pairs += [(f"{place}.{i}", u, v) for i, (u, v) in enumerate(zip(x, y, strict=True)) if u != v]
        elif x != y:
            return f"{place}: {x} and {y}"
    return "nothing"


def _agrees(variant: PlanVariant, met: Met) -> bool:
    """Whether a plan over symbols has the numbers of one that was made without them, at its sizes."""
    numbers = variant.numbers(met.sizes)
    if numbers is None or met.plan.own_plan is None:
        return False
    assembly = Assembly(met.plan.own_plan, over_symbols=True)
    return _plain(numbers, variant.assembly, variant.plan) == _plain(assembly.numbers(), assembly, met.plan)


def _plain(numbers: Any, assembly: Assembly, plan: TracePlan) -> tuple[Any, ...]:
    """A plan's numbers, to be compared with those of another."""
    layouts, fresh, arena_bytes = numbers
    own = addressof(assembly.record)
    parts = [
        ([w if w != own else "record" for w in x[0]], *map(list, x[1:3]), [[tuple(t) for t in phase] for phase in x[3]], *x[4:])
        if len(x) == _PARTS else tuple(x) for x in layouts
    ]  # fmt: skip
    return parts, fresh, arena_bytes, plan.assign


CHECK: Final = [False]  # compare the plan of each path by class with one that is made at its sizes, and let what goes wrong be seen (tests)
NOT_BY_CLASS: Final[list[PlanVariant]] = []  # of paths whose plans could not be recorded


def _plan(
    tr: Trace, model: State, tensors: list[Tensor], alive: Any, make: Callable[..., TracePlan], hints: tuple[int, ...], afresh: bool
) -> TracePlan:  # fmt: skip
    """`make`, while the texts of symbols count: kernels' keys are texts."""
    assert tr.view is not None
    rec = tr.view.rec
    rec.hints, rec.entry = hints, Entry(rec, afresh)
    return while_set(rec, "texts", True, make, tr, model, tensors, alive)  # type: ignore[no-any-return]


def _twin(variant: PlanVariant, state: State, numbers: Any) -> TracePlan:
    """The plan for a state's sizes."""
    return _plan_at(variant, state, *variant.assembly.make_run(numbers_of(numbers)))


def _sharing(variant: PlanVariant, state: State, row: Row) -> TracePlan:
    """The plan for a state's sizes, with the program that all sizes share."""
    assert variant.run_at is not None
    plan = _plan_at(variant, state, variant.run_at(row), None)
    plan.sharing = OWN_AFTER
    return plan


def _check_row(variant: PlanVariant, row: Row, numbers: Any) -> None:
    """AssertionError if the shared program would not run as one of these sizes."""
    from flambeau.compiler.sized import found_at

    assert variant.sized is not None
    ((layout,), fresh, arena_bytes) = numbers_of(numbers)
    assert isinstance(layout, Layout)
    assert (list(row[0]), row[1], bool(row[3])) == (list(fresh), arena_bytes, bool(layout.small)), "a row's bytes are not those of its sizes"
    assert variant.sized.at(row) == found_at(layout, variant.sized.usual), "a row's words are not those of its sizes"


def own_run(plan: TracePlan) -> None:
    """Sizes come back: their plan gets a program of its own, which is given fewer words, and can be called without a trace."""
    plan.sharing = 0
    numbers = plan.variant.numbers(plan.sizes)
    plan.run, plan.own_direct = plan.variant.assembly.make_run(numbers_of(numbers))


def _plan_at(variant: PlanVariant, state: State, run: Any, direct: Any) -> TracePlan:
    from flambeau.trace.evaluate import TracePlan

    whole = variant.plan
    sizes = state.sizes
    assert sizes is not None
    plan = TracePlan.__new__(TracePlan)
    plan.own_graph = plan.own_plan = None
    plan.variant, plan.sizes = variant, sizes
    plan.run, plan.own_direct, plan.sharing = run, direct, 0
    plan.assign, plan.history, plan.keep = whole.assign, whole.history, whole.keep
    plan.tape = None
    plan.size = 16 + state.depth  # the run and its words, and what leads to it
    plan.last = 0
    untrack_all((plan,))  # not its functions: CPython frees a function only if the collector sees it
    return plan


def graph_at(graph: Graph, sizes: tuple[int, ...]) -> Graph:
    """A graph over symbols at given sizes."""
    plain = at_sizes(sizes)
    values, nodes = [v.mapped(plain) for v in graph.values], [n.mapped(plain) for n in graph.nodes]
    return Graph(values, nodes, list(graph.inputs), list(graph.parameters), list(graph.outputs), list(graph.updates), target=graph.target)
