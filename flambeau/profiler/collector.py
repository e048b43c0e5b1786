"""What happens while a profile is on: plans, their kernels, compilation, and the user's ranges, as events.

Work is recorded in one place of a program and run in another, so a kernel belongs to the range that recorded most of its
operations, wherever it ran: ranges remember which slots of the trace were made inside them. Nothing here runs when no
profile is on: the recorder's hook is one test for each run of a plan (trace/evaluate.py, PROFILER).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

from flambeau.profiler.events import FunctionEvent
from flambeau.profiler.instrumented import Stage, TimedPlan
from flambeau.profiler.stacks import stack
from flambeau.trace import evaluate
from flambeau.trace.recorder import local
from flambeau.trace.state import State
from flambeau.trace.traces import TRACE_SLOTS

Section = tuple[int, int, FunctionEvent]  # slots from, to (not included), and the range that they were made in


class _Labels:
    """Of one plan: what was recorded to make it, and what its stages are called."""

    def __init__(self, trace_plan: Any, state: State) -> None:
        self.timed = TimedPlan(trace_plan.plan)
        self.plan = trace_plan  # kept, so that its id stays its own
        starts, names = [], []
        for s in state.path():
            if s.nodes and s.edge is not None:
                starts.append(s.first_value)
                head = s.edge[0]
                names.append(head if isinstance(head, str) else head.name.removeprefix("nn.functional."))
        self.recorded = Counter(names)
        self.slots: list[list[int]] = []  # of each stage: the slots of the values that its nodes make
        self.sources: list[tuple[str, ...]] = []
        graph = trace_plan.plan.graph
        for stage in self.timed.stages:
            made = [o for step in stage.steps for i in step.nodes for o in graph.nodes[i].outputs if o < state.value_count]
            self.slots.append(made)
            found = [names[at - 1] for at in (bisect_right(starts, slot) for slot in made) if at]
            self.sources.append(tuple(dict.fromkeys(found)))


class _OpenRange:
    """A range that has not ended, and where in the trace it began."""

    __slots__ = ("event", "first", "gen")

    def __init__(self, event: FunctionEvent, gen: int, first: int) -> None:
        self.event = event
        self.gen = gen
        self.first = first


class Collector:
    """The events of one profile. `shapes`, `memory` and `stacks` say what is noted besides the times."""

    def __init__(self, shapes: bool = False, memory: bool = False, stacks: bool = False) -> None:
        self.shapes = shapes
        self.memory = memory
        self.stacks = stacks
        self.events: list[FunctionEvent] = []
        self.begin = self.end = 0
        self._before: Any = None
        self._labels: dict[int, _Labels] = {}
        self._threads: dict[int, list[_OpenRange]] = defaultdict(list)
        self._sections: dict[int, list[Section]] = defaultdict(list)
        self._runs: list[tuple[_Labels, list[tuple[int, int]], list[Section], FunctionEvent]] = []
        self._lock = threading.Lock()

    # -- on and off -------------------------------------------------------------------------------------------------
    def start(self) -> None:
        """Collect from now on. RuntimeError if a profile is on."""
        if isinstance(evaluate.PROFILER, Collector):
            raise RuntimeError("Can't enable the profiler: it is already enabled; end the other profile first")
        evaluate.synchronize("profiler")
        self.begin = perf_counter_ns()
        self._before = evaluate.PROFILER  # `flambeau explain --html` stands there, too
        evaluate.set_profiler(self)

    def abandon(self) -> None:
        """Collect no more: it may have been interrupted while it began."""
        if evaluate.PROFILER is self:
            evaluate.set_profiler(self._before)

    def restart(self) -> None:
        """Throw away what was collected, but keep the plans that were made ready for being timed."""
        evaluate.synchronize("profiler")
        self.events = []
        self._runs = []
        self._threads.clear()
        self._sections.clear()
        self.begin = perf_counter_ns()

    def stop(self) -> None:
        """Run what is pending in this thread, and collect no more; ranges that are open end here."""
        evaluate.synchronize("profiler")
        evaluate.set_profiler(self._before)
        self.end = perf_counter_ns()
        for ranges in self._threads.values():
            for r in ranges:
                r.event.end(self.end)
        for labels, times, sections, event in self._runs:  # not while it ran: that would be in the ranges' times
            for number, (begin, end) in enumerate(times):
                self._stage(labels, number, begin, end, sections, event)
        self._runs.clear()
        self._threads.clear()
        self._labels.clear()
        self._sections.clear()

    def _event(self, name: str, kind: str, begin: int, end: int = 0) -> FunctionEvent:
        event = FunctionEvent(name, kind, begin, end, threading.get_native_id())
        with self._lock:
            event.id = len(self.events)
            self.events.append(event)
        return event

    # -- ranges -----------------------------------------------------------------------------------------------------
    def enter(self, name: str) -> FunctionEvent:
        """Begin a range in this thread."""
        tr = local.main
        event = self._event(name, "range", perf_counter_ns())
        if self.stacks:
            event.stack = stack()
        self._threads[threading.get_ident()].append(_OpenRange(event, tr.gen, tr.state.value_count))
        return event

    def leave(self, event: FunctionEvent) -> None:
        """End it. Ranges that were begun inside it and left open end, too."""
        ranges = self._threads[threading.get_ident()]
        if not any(r.event is event for r in ranges):
            return  # of an earlier profile
        tr = local.main
        while True:
            r = ranges.pop()
            first = r.first if r.gen == tr.gen else 0
            if tr.state.value_count > first:
                self._sections[tr.gen].append((first, tr.state.value_count, r.event))
            r.event.end(perf_counter_ns())
            if r.event is event:
                return

    # -- what the recorder tells ------------------------------------------------------------------------------------
    def compiled(self, plan: Any, begin: int, end: int) -> None:
        """A plan has been made."""
        self._event("compile", "compile", begin, end).note = repr(plan.plan)

    def communicated(self, name: str, begin: int, end: int, shapes: list[list[int]]) -> None:
        """Ranks have done something together, in whatever thread."""
        event = self._event(name, "communication", begin, end)
        event.is_async = True
        if self.shapes:
            event.input_shapes = shapes

    def run(self, trace_plan: Any, state: State, inputs: Sequence[Any], parameters: Sequence[Any], reason: str) -> Any:
        """Run a plan in the place of its own `run`."""
        labels = self._labels.get(id(trace_plan))
        if labels is None:
            begin = perf_counter_ns()
            labels = self._labels[id(trace_plan)] = _Labels(trace_plan, state)
            self._event("profiler set-up", "compile", begin, perf_counter_ns())
        gen = local.main.gen - TRACE_SLOTS  # the trace has just begun anew
        sections = self._sections.pop(gen, [])
        for r in self._threads.get(threading.get_ident(), ()):
            sections.append((r.first if r.gen == gen else 0, state.value_count, r.event))
        event = self._event("plan", "plan", perf_counter_ns())
        event.note = reason
        event.recorded = labels.recorded
        if self.stacks:
            event.stack = stack()
        try:
            buffers, times = labels.timed.run(inputs, parameters)
        finally:
            event.end(perf_counter_ns())
        event.name = event.trace_name = f"plan of {len(times)} kernels"
        if self.memory:
            event.memory = labels.timed.fresh_bytes + trace_plan.plan.arena_bytes
        self._runs.append((labels, times, sections, event))
        return buffers

    def _stage(self, labels: _Labels, number: int, begin: int, end: int, sections: list[Section], plan_event: FunctionEvent) -> None:
        stage: Stage = labels.timed.stages[number]
        graph = labels.timed.plan.graph
        event = self._event(("host " if stage.host else "") + stage.steps[0].name, "kernel", begin, end)
        event.thread = plan_event.thread
        event.bytes = sum([s.bytes for s in stage.steps])
        event.flops = sum([s.operations for s in stage.steps])
        event.tasks = len(stage.steps)
        event.phase = stage.phase
        event.key_text = stage.steps[0].key
        event.sources = labels.sources[number]
        event.plan = plan_event
        event.work = graph, stage.steps[0]
        if self.shapes:
            parameters = set(graph.parameters)
            reads = dict.fromkeys(r for s in stage.steps for r in s.reads if r not in parameters)
            event.input_shapes = [_shape(graph, r) for r in reads]
            event.input_dtypes = [graph.values[r].dtype.name for r in reads]
        if self.memory:
            homes, inside = labels.timed.plan.placement.places, labels.timed.plan.schedule.inside
            made = {r for s in stage.steps for r in s.writes if homes[r][0] == "output" and r not in inside}
            event.memory = sum([graph.values[r].numel * graph.values[r].dtype.itemsize for r in made])
        votes: Counter[int] = Counter()
        owners = {}
        for slot in labels.slots[number]:
            around = [r for first, last, r in sections if first <= slot < last]
            owner = max(around, key=_began, default=None)  # the innermost began last
            if owner is not None:
                votes[owner.id] += 1
                owners[owner.id] = owner
        if votes:
            event.owner = owners[votes.most_common(1)[0][0]]


def _began(event: FunctionEvent) -> int:
    return event.id


def _shape(graph: Any, root: int) -> list[int]:
    """The shape in which a storage is read: an input's storage is flat, and has a shape through its first view."""
    value = graph.values[root]
    if root in graph.inputs:
        for node in graph.nodes:
            if node.inputs and node.inputs[0] == root and node.op in ("alias", "as_strided", "bitcast"):
                return list(graph.values[node.outputs[0]].shape)
    return list(value.shape)
