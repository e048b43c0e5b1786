"""Observation: what is pending becomes a Graph, the graph a Plan, and the plan runs.

A plan belongs to a state of the trie and to which results are still alive; with both known, running is one look-up.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from sys import getrefcount
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from flambeau.compiler.graph import Graph
from flambeau.devices import CPU
from flambeau.runtime import twice
from flambeau.runtime.untracked import keep, untrack_all
from flambeau.statistics import counters
from flambeau.trace import finalizers as finalizers  # which the garbage collector calls from now on
from flambeau.trace import kept, liveness, quiet, recorder, tiers
from flambeau.trace.blank import refuse_read, split, with_blanks
from flambeau.trace.class_plans import own_run, plan_for
from flambeau.trace.forgetting import account
from flambeau.trace.immediate import forget, learn
from flambeau.trace.liveness import HELD
from flambeau.trace.loops import BLOCK, end_of_rounds, long_loop
from flambeau.trace.mutation import Assignment
from flambeau.trace.recorder import Fragment, Trace, local
from flambeau.trace.state import State
from flambeau.trace.storage import Storage
from flambeau.trace.traces import ENDING, TAKING, TRACE_SLOTS, TRACES, release, remove
from flambeau.trace.while_set import while_switched
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.autograd.segment import History
    from flambeau.runtime.buffers import Buffer
    from flambeau.tensor import Tensor
    from flambeau.trace.recorder import Boundary
    from flambeau.trace.salvage import Salvage

OBSERVERS: list[Callable[[Any, str], None]] = []  # called with each new plan and why its trace ended (`flambeau explain`)
PROFILER: Any = None  # while a profile is on: what runs plans and is told of new ones (profiler/collector.py)


@upward
def plan_history(tr: Trace, state: State, graph: Graph, tensors: list[Tensor], alive: bytes, output: Any) -> History | None:
    """Which living tensors keep a history beyond this trace, and which values their gradients need (autograd/segment.py)."""
    raise NotImplementedError


@upward
def start() -> None:
    """Let the wrappers of operations ask native code first, if it can be had (ops/known_edge.py)."""
    raise NotImplementedError


@upward
def keep_history(
    plan: TracePlan, state: State, tensors: list[Tensor], inputs: list[Storage], buffers: list[Buffer],
    boundaries: dict[int, Boundary], custom: dict[int, Any], hooked: dict[int, Tensor], params: list[Any],
) -> None:  # fmt: skip
    """Make the segment of a trace that has just run, and hang the surviving tensors on it (autograd/segment.py)."""
    raise NotImplementedError


def _collect(inputs: list[Storage], gen: int) -> list[Any]:
    """The buffers of a trace's inputs, which from now on are its own no longer."""
    given = []
    for storage in inputs:
        if storage.gen == gen:
            storage.gen = -1
        given.append(storage.buffer)
    return given


def _deliver(tensors: list[Tensor], assign: list[tuple[int, int]], buffers: list[Buffer]) -> None:
    """Give the results of a plan to its tensors."""
    for position, output in assign:
        t = tensors[position]
        shared = t._storage
        if shared is None:
            t._storage = shared = Storage()
        shared.gen = -1
        shared.buffer = buffers[output]


collect: Any = _collect  # known_edge.py has these three in native code
deliver: Any = _deliver
alive_among: Any = liveness.alive_among  # 1 for each that somebody but the trace holds
start_native: Callable[[], None] | None = start


class TracePlan:
    """A compiled plan and what to do with its buffers: (position among the trace's tensors, index of the output)."""

    __slots__ = ("assign", "history", "keep", "last", "own_direct", "own_graph", "own_plan", "run", "sharing", "size", "sizes", "tape", "variant")

    def __init__(self, graph: Graph, plan: Any, assign: list[tuple[int, int]]) -> None:
        self.own_graph: Graph | None = graph
        self.own_plan = plan
        self.variant: Any = None  # of a plan by class (class_plans.py): what it was made from, at these sizes
        self.sizes: tuple[int, ...] = ()
        self.run: Any = getattr(plan, "run", None)
        self.own_direct: dict[str, Any] | None = plan.direct
        self.sharing = 0  # runs until it gets a program of its own; 0: it has one
        self.assign = assign
        self.history: History | None = None  # what it keeps for gradients
        self.keep: Callable[..., None] | None = None  # what does it
        self.tape: Any = None
        self.size = len(graph.values) + len(graph.nodes)
        self.last = 0  # the generation of the trace that ran it last

    @property
    def direct(self) -> dict[str, Any] | None:
        """What makes its only result, if it is one small program (compiler/plan.py)."""
        if self.sharing:
            own_run(self)
        return self.own_direct

    @property
    def graph(self) -> Graph:
        """What was planned."""
        if self.own_graph is None:
            from flambeau.trace.class_plans import graph_at

            self.own_graph = graph_at(self.variant.plan.graph, self.sizes)
        return self.own_graph

    @property
    def plan(self) -> Any:
        """The compiler's plan; of a plan by class it is made when somebody asks (`explain`, a profile, after a failure)."""
        if self.own_plan is None:
            from flambeau.compiler.pipeline import compile_graph

            self.own_plan = compile_graph(self.graph)
        return self.own_plan

    def input_slots(self) -> list[int]:
        """The slots of its graph's inputs."""
        return (self.graph if self.variant is None else self.variant.plan.graph).inputs

    @property
    def made_from(self) -> Any:
        """The compiler's plan whose steps `run` takes; of a plan by class it is over symbols."""
        return self.own_plan if self.variant is None else self.variant.plan.plan

    def finish(self, interrupt: BaseException, inputs: Any, parameters: Any) -> list[Buffer] | None:
        """See compiler/plan.py."""
        return self.made_from.finish_run(self.run, interrupt, inputs, parameters)  # type: ignore[no-any-return]


def set_profiler(profiler: Any) -> None:
    """What is told of plans and runs them from now on; None: nothing. A learned call would run unseen, so none is."""
    global PROFILER
    PROFILER = profiler
    if profiler is not None:
        forget()


def graph_of(state: State, tr: Trace | None = None) -> Graph:
    """The graph of a path, without outputs; values are numbered by slot. `tr`: its trace, which may be looked at over symbols."""
    graph = Graph()
    over_symbols = tr is not None and tr.symbolic
    if over_symbols:
        assert tr is not None
        graph.values, graph.nodes = list(tr.values()), tr.nodes(state.path())
    for s in state.path():
        if not over_symbols:
            graph.values.extend(s.values)
            graph.nodes.extend(s.nodes)
        graph.inputs.extend(s.inputs)
        graph.parameters.extend(s.parameters)
    return graph


def contents_of(state: State) -> dict[int, list[int]]:
    """For each storage's slot at its first appearance: its slots after each in-place write of the path, in order."""
    origin: dict[int, int] = {}
    found: dict[int, list[int]] = {}
    for s in state.path():
        if type(s.info) is Assignment:
            first = origin[s.info.root_after] = origin.pop(s.info.root_before, s.info.root_before)
            found.setdefault(first, []).append(s.info.root_after)
    return found


def final_roots(state: State) -> dict[int, int]:
    """For each storage's slot at its first appearance: its slot after all in-place writes of the path."""
    return {first: slots[-1] for first, slots in contents_of(state).items()}


def flush(tr: Trace, reason: str) -> None:
    """Run everything that is pending in this trace and give the living tensors their buffers.

    No collection of garbage begins meanwhile: finalizers may look at tensors that are neither pending nor have their buffers.
    """
    if tr.taken >= 0:
        tr.after_taken()
    if not tr.tensors and not tr.inputs:
        tr.reset()
        return
    tracer = sys.gettrace()
    if tracer is not None:  # a debugger that looks at the middle of this would change it
        while_switched(sys.settrace, tracer, None, flush, tr, reason)
        return
    if len(TRACES) > 1:
        try:
            quiet.begin()
            _flush(tr, reason)
        finally:
            quiet.end()
        return
    collects = gc.isenabled()
    try:
        quiet.ALONE[0] = collects
        gc.disable()
        _flush(tr, reason)
    finally:
        if collects:
            gc.enable()
        quiet.ALONE[0] = False


def has_plan(tr: Trace) -> bool:
    """Whether there is a plan of what is pending."""
    return alive_among(tr.tensors) in tr.state.plans


def make_ready(tr: Trace, reason: str) -> bool:
    """Make the plan of what is pending; False if that fails: nothing is lost then."""
    if not has_plan(tr):
        try:
            _new_plan(tr, tr.state, tr.tensors, alive_among(tr.tensors), reason)
        except Exception:
            return False
    return True


def _new_plan(tr: Trace, state: State, tensors: list[Tensor], alive: Any, reason: str) -> TracePlan:
    """Make a plan, and tell who wants to know."""
    if len(TRACES) > 1:  # beside threads that record nothing goes by class (classes.alone), and those that have ended do not say so
        end_traces_of_dead_threads()
    started = perf_counter_ns()
    plan = add_plan(tr, state, tensors, alive)
    for observer in OBSERVERS:
        observer(plan, reason)
    if PROFILER is not None:
        PROFILER.compiled(plan, started, perf_counter_ns())
    return plan


def _flush(tr: Trace, reason: str) -> None:
    state = tr.state
    tensors = tr.tensors
    alive: Any
    if len(tensors) == 2 and HELD:  # a comprehension costs 0.2 us: as much as all the rest for the shortest traces
        first, second = tensors
        alive = getrefcount(first) > HELD, getrefcount(second) > HELD
        del first, second
    else:
        alive = alive_among(tensors)
    plan: TracePlan | None = state.plans.get(alive)
    inputs, params = tr.inputs, tr.params
    gen = tr.gen
    if plan is None:
        try:
            plan = _new_plan(tr, state, tensors, alive, reason)
        except Exception as error:
            wanted, histories = _unplanned(tr, state, tensors, alive)
            tr.reset()  # what cannot be compiled must not stand in the way of what comes next
            _fail(error, None, state, tensors, wanted, collect(inputs, gen), inputs, histories)
            raise
    if state.depth == 1 and tr.walk.generation == gen:
        if PROFILER is None:
            kept.meets(tr, state, tensors)
    elif state.countdown and reason == "observation" and PROFILER is None:
        state.countdown -= 1
        if not state.countdown:
            learn(tr, state, tensors)
    boundaries, custom, hooked = tr.boundaries, tr.custom, tr.hooked
    plan.last = gen
    if plan.sharing:
        plan.sharing -= 1
        if not plan.sharing:
            own_run(plan)
    given: list[Any] = []
    buffers: list[Buffer] | None = None
    alone = len(TRACES) == 1
    try:
        tr.running = gen
        if not alone:  # until it has run, what it reads is its own
            tr.reading, tr.shared = tr.shared, {}
        tr.reset()
        counters.operations_recorded += state.depth
        counters.traces_run += 1
        try:
            counters.trace_end_reasons[reason] += 1
        except KeyError:
            counters.trace_end_reasons[reason] = 1
        given = collect(inputs, gen) if alone else [s.buffer for s in inputs]
        buffers = plan.run(given, params) if PROFILER is None else PROFILER.run(plan, state, given, params, reason)
        deliver(tensors, plan.assign, buffers)
        if plan.keep is not None:
            plan.keep(plan, state, tensors, inputs, buffers, boundaries, custom, hooked, params)
        tr.running = -1
        if not alone:
            release(inputs, gen, tr.reading)
    except BaseException as error:
        tr.running = -1
        if tr.gen == gen:
            tr.reset()
        given = collect(inputs, gen)
        release(inputs, gen, tr.reading)
        if buffers is None and not isinstance(error, Exception) and PROFILER is None:
            buffers = plan.finish(error, given, params)
        if buffers is None:
            from flambeau.trace.salvage import Salvage

            outputs = plan.graph.outputs
            wanted = [(position, outputs[index]) for position, index in plan.assign]
            _fail(error, plan, state, tensors, wanted, given, inputs, Salvage(plan.history, plan.graph, boundaries, custom, hooked, params))
        else:  # an interrupt: what it has come into the middle of is done first
            deliver(tensors, plan.assign, buffers)
            if plan.keep is not None:
                plan.keep(plan, state, tensors, inputs, buffers, boundaries, custom, hooked, params)
        raise


def _fail(
    error: BaseException, plan: Any, state: State, tensors: list[Tensor], results: list[tuple[int, int]], given: list[Any], inputs: list[Storage],
    histories: Salvage,
) -> None:  # fmt: skip
    """A trace, which has ended, could not run: its results (position among the tensors, root slot) have no values, but those that can be saved."""
    for position, _ in results:
        t = tensors[position]
        t._gen = -1
        if t._storage is None:
            t._storage = Storage()
        t._storage.gen = -1
    if isinstance(error, Exception):
        from flambeau.trace.salvage import salvage

        try:
            salvage(error, plan, state, tensors, results, given, inputs, histories)
        except Exception as another:  # the first error is the one to tell
            error.add_note(f"What else was pending is lost, too: {another!r}")


def results_of(gen: int, values: list[Any], external: set[int], tensors: list[Tensor], alive: Any) -> list[tuple[int, int]]:
    """(position among the tensors, root slot) of each living tensor that the trace of this generation has to give a buffer."""
    found = []
    for position, (t, lives) in enumerate(zip(tensors, alive, strict=True)):
        if not lives:
            continue
        storage = t._storage
        root = t._slot if storage is None else storage.slot  # before the generation: see Trace.slot_of
        if storage is not None and storage.gen != gen:
            continue  # its storage has been replaced since, or another thread has it now
        assert values[root].base is None, "a storage's slot is a root"
        if root not in external:
            found.append((position, root))
    return found


def add_plan(tr: Trace, state: State, tensors: list[Tensor], alive: Any) -> TracePlan:
    """Compile the path for this set of living tensors, and keep the plan."""
    plan = state.plans[alive] = plan_for(tr, state, tensors, alive, make_plan)
    plan.last = tr.gen
    account(plan.size)
    untrack_all((state.plans,))
    if plan.variant is not None:
        return plan
    made = plan.plan
    keep(plan.graph, plan.assign, made.interface, made.steps, made.kernels, made.phases, made.places, made.schedule.steps, made.schedule.phases)
    return plan


def _asked_of(tr: Trace, state: State, graph: Graph, tensors: list[Tensor], alive: bytes) -> tuple[Graph, list[tuple[int, int]], History | None]:
    """The graph of a path with what this set of living tensors asks of it; (position, index of the output) of these; what it keeps for gradients."""
    final = final_roots(state)
    graph.updates = [(i, final[slot]) for i, slot in enumerate(graph.inputs) if slot in final]
    external = set(graph.inputs) | {slot for i, slot in graph.updates}
    index_of: dict[int, int] = {}

    def output(root: int) -> int:
        index = index_of.get(root)
        if index is None:
            index = index_of[root] = len(graph.outputs)
            graph.outputs.append(root)
        return index

    assign = [(position, output(root)) for position, root in results_of(tr.gen, graph.values, external, tensors, alive)]
    return graph, assign, plan_history(tr, state, graph, tensors, alive, output)


def _unplanned(tr: Trace, state: State, tensors: list[Tensor], alive: bytes) -> tuple[list[tuple[int, int]], Salvage]:
    """What a plan that could not be made should have given: (position among the tensors, root slot), and the histories."""
    from flambeau.trace.salvage import Salvage

    graph, history = graph_of(state), None
    try:
        graph, assign, history = _asked_of(tr, state, graph, tensors, alive)
        wanted = [(position, graph.outputs[index]) for position, index in assign]
    except Exception:  # it is this that fails: gradients are lost, values need not be
        final = final_roots(state)
        wanted = results_of(tr.gen, graph.values, {*graph.inputs, *[final[slot] for slot in graph.inputs if slot in final]}, tensors, alive)
    return wanted, Salvage(history, graph, tr.boundaries, tr.custom, tr.hooked, tr.params)


def make_plan(tr: Trace, state: State, tensors: list[Tensor], alive: bytes) -> TracePlan:
    """Compile the path for this set of living tensors."""
    from flambeau.compiler.pipeline import compile_graph

    counters.plans_made += 1
    if start_native is not None and not twice.ahead_left:
        start_native()
    graph, assign, history = _asked_of(tr, state, graph_of(state, tr), tensors, alive)
    computed, bare = split(graph)
    entry = tr.view.rec.entry if tr.symbolic and tr.view is not None else None
    compiled = compile_graph(computed, over_symbols=tr.symbolic, entry=entry)
    plan = TracePlan(graph, compiled, assign)
    if bare:
        plan.run, plan.own_direct = with_blanks(plan.run, bare), None
    plan.history = history
    plan.keep = None if history is None else keep_history
    return plan


def cut(tr: Trace, longest: int) -> None:
    """End a trace that has grown to its limit, if it is in a loop (and at a good place of it), or has `longest` calls; else say where to look again.

    The next trace has as many whole rounds, so that all of them are the same pieces.
    """
    state = tr.state
    depth = state.depth
    period, ahead = long_loop(state, tr.walk.rounds == tr.gen)
    if period and not ahead:
        end_of_rounds(tr)
        tr.limit = -(-BLOCK // period) * period
    elif depth >= longest:
        flush(tr, "length")
    else:
        tr.limit = depth + ahead if ahead else min(depth * 5 // 4, longest)


def settle(tr: Trace) -> None:
    """End a trace that has only views of memory that is there: nothing has to run."""
    state = tr.state
    if state.depth == 1 and tr.walk.generation == tr.gen:
        if PROFILER is None:
            kept.meets(tr, state, tr.tensors)
    elif state.countdown and PROFILER is None:
        state.countdown -= 1
        if not state.countdown:
            learn(tr, state, tr.tensors)
    _release(tr)
    tr.reset()


def _release(tr: Trace) -> None:
    """The inputs of a trace that ends are no longer its own, those that another thread has now left out."""
    names, tr.shared = tr.shared, {}
    release(tr.inputs, tr.gen, names)


def observed(t: Tensor) -> None:
    """`t`, which an immediate call made, is looked at: what would have run now, had the call been recorded, runs or is settled."""
    call, t._immediate = t._immediate, None
    tr = local.main
    if call is not None and call[1] == tr.gen and not tr.held:
        if tr.state is tr.root:
            tr.gen += TRACE_SLOTS  # nothing is pending: what else was made without a trace stays as it is, too
        else:
            flush(tr, "observation")


def observe(t: Tensor) -> Storage:
    """The storage of `t` with its bytes in place; runs what is pending."""
    tr = local.trace
    if type(tr) is not Trace:
        if not isinstance(tr, Fragment):  # a transform is active: what it passes on is the trace's
            return t._observed() if hasattr(t, "_level") else tr.call_on_trace(observe, t)  # type: ignore
        return tr.look(t)
    if t._meta.device is not CPU:
        refuse_read(t)
    tr.looks += 1  # also where nothing is pending: what is recorded next may have been decided by the value
    if t._immediate is not None:
        observed(t)
    gen = t._gen
    if gen == tr.gen:
        storage = t._storage
        if storage is not None and storage.has_value():
            if tr.state.views_only and not tr.held:
                settle(tr)
            tiers.ends_path(tr)
            return storage  # an input of the trace that nothing has written to
        if storage is None or storage.gen == gen:
            flush(tr, "observation")
            storage = t._storage
            if storage is None:
                raise RuntimeError(f"a tensor of shape {tuple(t._meta.shape)} was not computed")
        elif storage.gen >= 0:
            storage = elsewhere(t)  # a view of what stands here for another thread's tensor
    else:
        storage = t._storage
        if storage is None:
            storage = elsewhere(t)
        elif storage.gen < 0:
            tiers.ends_path(tr)  # a value that an earlier piece has computed: as a whole the path would end here
        elif storage.gen != tr.gen:
            storage = elsewhere(t)
        elif not storage.has_value():
            flush(tr, "observation")
    if storage.buffer is None:
        raise RuntimeError(f"a tensor of shape {tuple(t._meta.shape)} has no value: the computation that should have made it failed earlier")
    return storage


def settled(t: Tensor) -> Storage:
    """The storage of a tensor of `meta`, not pending any more."""
    tr = local.main
    storage = recorder.storage_of(t)
    if t._gen == tr.gen or storage.gen == tr.gen:
        flush(tr, "observation")
    elif storage.buffer is None or storage.gen >= 0:
        storage = elsewhere(t)
    return storage


def elsewhere(t: Tensor) -> Storage:
    """The storage of a tensor that is pending in another trace; loaded when it is first needed."""
    from flambeau.trace.elsewhere import evaluate_elsewhere

    return evaluate_elsewhere(t)


def end_traces_of_dead_threads() -> None:
    """Run what threads that have ended left pending (their writes must be seen), and forget their traces."""
    for index, tr in list(TRACES.items()):
        if tr.thread.is_alive() or ENDING.get(index) == threading.get_ident():
            continue
        with TAKING:  # whoever wants a value of it waits here, or sees that it is run
            if TRACES.get(index) is not tr or index in ENDING:
                continue
            ENDING[index] = threading.get_ident()
            try:
                flush(tr, "end of its thread")
            except Exception:  # nobody waits for it: whoever reads a value of it is told that there is none
                continue
            finally:
                remove(tr)
                ENDING.pop(index, None)


def synchronize(reason: str = "synchronize") -> None:
    """Run everything pending in this thread."""
    if not isinstance(local.trace, Fragment):
        flush(local.main, reason)


def leave_as_it_is(storage: Storage, reason: str) -> None:
    """Before memory is written to from outside of the engine: what is recorded and has yet to read it, in any thread, has it as it is now."""
    if storage.gen >= 0:
        synchronize(reason)
    if storage.gen >= 0 and len(TRACES) > 1:
        from flambeau.trace.sharing import leave_to_others

        leave_to_others(storage, local.main)


def step_boundary() -> None:
    """The end of an optimizer's step: a good place to end the trace."""
    synchronize("optimizer step")
