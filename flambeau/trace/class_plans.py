"""Plans by class: a path over symbols is planned once, and the plan's words are expressions of the path's sizes.

The passes of the compiler run over a model's graph (classes.py) as over any other; what they decide by sizes is guarded. Of the plan that comes out, the
argument words, units and buffers' sizes are compiled to one Python function of the sizes. For new sizes it gives the numbers, and a `run` is made
from them: no pass runs. Where blocks lie in the arena is found anew for each sizes (place.assign_offsets): no order among them is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from flambeau.compiler.graph import Graph, Node, Value
from flambeau.compiler.place import assign_offsets
from flambeau.compiler.plan import Assembly, Layout, Numbers
from flambeau.runtime import threads
from flambeau.runtime.runner import Relocation, Task
from flambeau.runtime.untracked import keep, record, untrack_all
from flambeau.statistics import counters
from flambeau.symbols import Code, Recording, plain_at, reaches
from flambeau.trace import classes
from flambeau.trace.classes import over_symbols
from flambeau.trace.forgetting import account
from flambeau.trace.state import State
from flambeau.trace.while_set import while_set

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.evaluate import TracePlan
    from flambeau.trace.recorder import Trace

MOST_VARIANTS: Final = 12  # plans of one model for the same living results, before sizes are planned one by one


@record
class PlanVariant:
    """A plan over symbols. `numbers(sizes)`: what of it depends on sizes, or None where a guard does not hold."""

    __slots__ = ("assembly", "numbers", "plan", "tape", "workers")

    def __init__(self, plan: TracePlan, rec: Recording, sizes: tuple[int, ...]) -> None:
        self.plan = plan
        self.tape: Any = None  # of the path over symbols (autograd/segment.py)
        compiled = plan.plan
        self.workers = compiled.placement.workers
        self.assembly = Assembly(compiled, over_symbols=True)
        placement = compiled.placement
        found = self.assembly.numbers()
        code = Code()
        guards = list(rec.guards.values())
        later = [g for g in guards if reaches(g[1], len(sizes)) or reaches(g[2], len(sizes))]
        code.check([g for g in guards if g not in later] if later else guards)
        if placement.lives:
            code.lines.append(f"offsets, top = place({code.structure(list(placement.lives))})")
            code.lines.append("s = (*s, *offsets, top)")
        code.check(later)
        layouts: list[Any] = [
            None if x is None else (list(x.words), [tuple(r) for r in x.relocations], [[tuple(t) for t in p] for p in x.phases], x.from_io, x.small)
            for x in found.layouts
        ]
        result = code.structure((layouts, found.fresh, found.arena_bytes))
        self.numbers: Callable[[tuple[int, ...]], Any] = code.function(result, place=assign_offsets)

    def run_for(self, sizes: tuple[int, ...]) -> Any:
        """(`run`, what makes the only result) for these sizes; None where the plan is not theirs."""
        found = self.numbers(sizes)
        if found is None:
            return None
        return self.assembly.make_run(numbers_of(found))


def numbers_of(found: Any) -> Numbers:
    """A plan's numbers as the assembly takes them."""
    layouts, fresh, arena_bytes = found
    made: list[Layout | None] = []
    for x in layouts:
        if x is None:
            made.append(None)
            continue
        words, relocations, phases, from_io, small = x
        made.append(Layout(words, [Relocation(*r) for r in relocations], [[Task(*t) for t in p] for p in phases], from_io, small))
    return Numbers(made, fresh, arena_bytes)


def plan_for(tr: Trace, state: State, tensors: list[Tensor], alive: Any, make: Callable[..., TracePlan]) -> TracePlan:
    """The plan of a path for a set of living tensors: from one over symbols where there is one, or can be."""
    model, sizes = state.model, state.sizes
    if not sizes or model is None or not classes.ENABLED[0]:
        return make(tr, state, tensors, alive)
    variants: list[PlanVariant] | None = model.plans.get(alive)
    if variants is None:  # met once: whether the path comes with other sizes is not known yet
        model.plans[alive] = []
        return make(tr, state, tensors, alive)
    if variants and variants[0].workers < threads.count():  # there is scratch memory for as many threads as there were
        variants.clear()
    for position, variant in enumerate(variants):
        found = variant.run_for(sizes)
        if found is not None:
            if position:  # the next sizes are likely to be like these
                variants.insert(0, variants.pop(position))
            counters.class_plans += 1
            return _twin(variant, state, *found)
    if len(variants) >= MOST_VARIANTS:
        return make(tr, state, tensors, alive)
    try:
        plan = over_symbols(tr, model, sizes, _plan, tr, model, tensors, alive, make)
        variant = PlanVariant(plan, tr.view.rec, sizes)  # type: ignore[union-attr]
    except (KeyboardInterrupt, SystemExit):
        raise
    except Exception:
        if DEBUG[0]:
            raise
        return make(tr, state, tensors, alive)  # with its own message, if it fails
    if plan.plan.calls_host():
        return make(tr, state, tensors, alive)
    variants.append(variant)
    untrack_all((variant, variants, model.plans))
    keep(plan.graph, plan.assign, plan.plan.steps, plan.plan.kernels)
    account(plan.size)
    found = variant.run_for(sizes)
    assert found is not None
    return _twin(variant, state, *found)


def _plan(tr: Trace, model: State, tensors: list[Tensor], alive: Any, make: Callable[..., TracePlan]) -> TracePlan:
    """`make`, while the texts of symbols count: kernels' keys are texts."""
    assert tr.view is not None
    return while_set(tr.view.rec, "texts", True, make, tr, model, tensors, alive)  # type: ignore[no-any-return]


DEBUG: Final = [False]


def _twin(variant: PlanVariant, state: State, run: Any, direct: Any) -> TracePlan:
    """The plan for a state's sizes."""
    from flambeau.trace.evaluate import TracePlan

    whole = variant.plan
    sizes = state.sizes
    assert sizes is not None
    plan = TracePlan.__new__(TracePlan)
    plan.own_graph = plan.own_plan = None
    plan.variant, plan.sizes = variant, sizes
    plan.run, plan.direct = run, direct
    plan.assign, plan.history, plan.keep = whole.assign, whole.history, whole.keep
    plan.tape = None
    plan.size = 16 + state.depth  # the run and its words, and what leads to it
    plan.last = 0
    untrack_all((plan, run, run.__globals__, *run.__globals__.values()))
    return plan


def graph_at(graph: Graph, sizes: tuple[int, ...]) -> Graph:
    """A graph over symbols at given sizes."""
    plain = plain_at(sizes)
    values = [Value(plain(v.shape), v.dtype, plain(v.strides), plain(v.offset), v.base, plain(v.dynamic)) for v in graph.values]
    nodes = [Node(n.op, n.inputs, n.outputs, plain(n.attrs)) for n in graph.nodes]
    return Graph(values, nodes, list(graph.inputs), list(graph.parameters), list(graph.outputs), list(graph.updates))
