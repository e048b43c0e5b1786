"""After a failure, of a run or of the making of a plan: what does not need what has failed is computed, and the error says its line."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flambeau.compiler.graph import Graph
from flambeau.compiler.kernel import IndexRangeError
from flambeau.runtime.buffers import Buffer, allocate
from flambeau.trace.state import State
from flambeau.trace.stepwise import locate, run_all
from flambeau.trace.storage import Storage
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.autograd.segment import History
    from flambeau.compiler.plan import Plan
    from flambeau.tensor import Tensor
    from flambeau.trace.evaluate import TracePlan
    from flambeau.trace.recorder import Boundary

# Primitives that follow indices.
_INDEXED = frozenset(("gather", "scatter", "take", "take_rows", "put_rows", "put"))


class Salvage:
    """What is known of the histories of a trace that fails.

    `graph`: as it was planned, its outputs the values that the plan should have kept.
    """

    __slots__ = ("boundaries", "custom", "graph", "history", "hooked", "params")

    def __init__(
        self, history: History | None, graph: Graph, boundaries: dict[int, Boundary], custom: dict[int, Any], hooked: dict[int, Tensor], params: list[Any]
    ) -> None:  # fmt: skip
        self.history = history
        self.graph = graph
        self.boundaries = boundaries
        self.custom = custom
        self.hooked = hooked
        self.params = params

    def wanted(self) -> set[int]:
        """The roots that gradients need and the trace computes."""
        return set() if self.history is None else {slot for slot, _ in self.history.saved if slot not in self.graph.inputs}

    def written_over(self) -> list[int]:
        """The inputs that gradients need as they were before the trace wrote to them: their indices."""
        graph = self.graph
        return [] if self.history is None else [graph.inputs.index(slot) for slot, index in self.history.saved if index >= 0 and slot in graph.inputs]


@upward
def keep_salvaged(
    made: Salvage, state: State, tensors: Sequence[Tensor], inputs: Sequence[Storage], contents: Mapping[int, Buffer], before: Mapping[int, Buffer],
    reached: Mapping[int, int | None],
) -> None:  # fmt: skip
    """Hang what a failed run has left on a segment (autograd/salvaged.py)."""
    raise NotImplementedError


def salvage(
    error: Exception, plan: TracePlan | None, state: State, tensors: list[Tensor], results: Sequence[tuple[int, int]], inputs: list[Any],
    storages: Sequence[Storage], histories: Salvage,
) -> None:  # fmt: skip
    """Compute what can be of the `results` (position among the tensors, root slot) that a plan should have made, call by call; then do the writes
    to memory that exists (`inputs`) that the program made before the call that fails: what it wrote after it, an eager program would not have
    reached. `plan`: what was running; None if nothing has run. `storages`: of the `inputs`. `histories`: what is known of the gradients' side."""
    from flambeau.trace.evaluate import contents_of, graph_of

    graph = graph_of(state)
    path = state.path()
    writes = contents_of(state)
    written = {} if plan is None else _written(plan.made_from, error, inputs)
    computed = {} if plan is None else plan.made_from.outputs_of_failed(plan.run, error)
    wanted = {root for _, root in results} | {root for slot in graph.inputs for root in writes.get(slot, ())} | histories.wanted()
    contents, failure = run_all(path, graph.values, inputs, histories.params, wanted, written, computed)
    for position, root in results:
        t = tensors[position]
        buffer = contents.get(root)
        if buffer is not None:
            if t._storage is None:
                t._storage = Storage()
            t._storage.gen = -1
            t._storage.buffer = buffer
    failing = None if plan is None else _failing(plan.made_from, error, path)
    if failing is None and failure is not None:
        failing = failure.state
    if failing is not None:
        locate(error, failing)
    end = len(path) if failing is None else path.index(failing)
    state_of = {slot: index for index, s in enumerate(path) for node in s.nodes for slot in node.outputs}
    whole = [i for i in histories.written_over() if writes[graph.inputs[i]][-1] not in written]  # a run has not begun to write to these
    before = {graph.inputs[i]: _copy(inputs[i]) for i in whole}
    reached: dict[int, int | None] = {}
    for i, slot in enumerate(graph.inputs):
        if slot not in writes:
            continue
        last = None
        for root in writes[slot]:
            if state_of.get(root, end) < end and root in contents:
                last = root
        reached[i] = last
        if last is not None and contents[last] is not inputs[i]:
            ctypes.memmove(inputs[i].address, contents[last].address, inputs[i].nbytes)
    keep_salvaged(histories, state, tensors, storages, contents, before, reached)


def _copy(buffer: Buffer) -> Buffer:
    copy = allocate(buffer.nbytes)
    ctypes.memmove(copy.address, buffer.address, buffer.nbytes)
    return copy


def locate_run(error: Exception, plan: Plan, state: State) -> None:
    """Let the error of a run name the place of the call that fails."""
    found = _failing(plan, error, state.path())
    if found is not None:
        locate(error, found)


def _failing(plan: Plan, error: Exception, path: Sequence[State]) -> State | None:
    """The state whose call the failing step of a run belongs to."""
    index = getattr(error, "step", None)
    if index is None:
        return None
    graph: Graph = plan.graph
    nodes = [graph.nodes[i] for i in plan.steps[index].nodes]
    indexed = [node for node in nodes if node.op in _INDEXED]
    made = {slot for node in indexed or nodes for slot in node.outputs}
    found = next((state for state in path if any(state.first_value <= slot < state.value_count for slot in made)), None)
    if found is None:
        return None
    # A gradient follows the indices of the call that it belongs to.
    indices = {node.inputs[1] for node in found.nodes if node.op in _INDEXED and not made.isdisjoint(node.outputs)}
    return next((state for state in path if any(node.op in _INDEXED and node.inputs[1] in indices for node in state.nodes)), found)


def _written(plan: Plan, error: Exception, inputs: Sequence[Buffer]) -> dict[int, Buffer | None]:
    """What a run that has failed has written over, by the root of the new content: (its buffer, or None if it is not known what is there)."""
    index = getattr(error, "step", None)
    if index is None and not isinstance(error, IndexRangeError):
        return {}  # memory was asked for before anything ran
    now = plan.phases[index] if index is not None else -1
    roots = dict(plan.interface.updates)
    phases: dict[int, list[int]] = {}  # of the steps that write to an input
    for step, phase in zip(plan.steps, plan.phases, strict=True):
        for root in step.writes:
            kind, at = plan.placement.places[root]
            if kind == "input":
                phases.setdefault(at, []).append(phase)
    found: dict[int, Buffer | None] = {}
    for at, when in phases.items():
        if min(when) <= now or index is None:
            found[roots[at]] = inputs[at] if max(when) < now else None
    return found
