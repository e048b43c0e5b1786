"""The calls of a path one after another, each by a plan of its own, beside the trace: what is left after a failed run, and `set_sync`.

Under `set_sync(True)` every call is tried at once in this way, so that its error is raised where it stands. Values still come from the plans of
whole traces: they have the same bits as without.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flambeau.compiler.graph import Graph, Node, Value
from flambeau.compiler.kernel import IndexRangeError
from flambeau.trace.place import Place, here
from flambeau.trace.state import State

if TYPE_CHECKING:
    from flambeau.runtime.buffers import Buffer
    from flambeau.trace.recorder import Trace


class Stepwise:
    """Runs the states of a path. `contents`: the buffers of values, by root slot; the inputs are put there by who has them."""

    def __init__(self) -> None:
        self.contents: dict[int, Buffer] = {}
        self.flat: set[int] = set()  # roots that are inputs of the path
        self.views: dict[int, Node] = {}  # what makes each view, by slot
        self.parameters: dict[int, int] = {}  # position of each run-time number, by slot

    def know(self, state: State) -> None:
        """Take note of what a state adds to the path, without running it."""
        self.flat.update(state.inputs)
        for slot in state.parameters:
            self.parameters[slot] = len(self.parameters)

    def run(self, state: State, values: list[Value], params: Sequence[Any]) -> None:
        """Compute what the nodes of a state make; KeyError if something that they need is not there."""
        own = {slot for node in state.nodes for slot in node.outputs}
        made = [slot for slot in own if values[slot].base is None and values[slot].numel]
        earlier: dict[int, Node] = {}  # views that earlier states have made
        sources: set[int] = set()
        numbers: set[int] = set()
        waiting = [slot for node in state.nodes for slot in node.inputs]
        while waiting:
            slot = waiting.pop()
            if slot in self.parameters:
                numbers.add(slot)
            elif slot not in own and slot not in earlier:
                if values[slot].base is None:
                    sources.add(slot)
                else:
                    earlier[slot] = self.views[slot]
                    waiting.extend(earlier[slot].inputs)
        for node in state.nodes:
            for slot in node.outputs:
                if values[slot].base is not None:
                    self.views[slot] = node
        if not made:
            return
        inputs, parameters = sorted(sources), sorted(numbers)
        graph = Graph(list(values), [], [], parameters, sorted(made))
        for root in inputs:
            if root in self.flat or not values[root].numel:
                graph.inputs.append(root)
            else:
                self._flatten(graph, root, any(node.op == "scatter_view" and node.inputs[0] == root for node in state.nodes))
        graph.nodes += [*[earlier[slot] for slot in sorted(earlier)], *state.nodes]
        given = [self.contents[root] for root in inputs]
        buffers = _compiled(graph).run(given, [params[self.parameters[slot]] for slot in parameters])
        self.contents.update(zip(graph.outputs, buffers, strict=True))

    def _flatten(self, graph: Graph, root: int, whole: bool) -> None:
        """An earlier value as an input of a graph: inputs are flat storages, of which it is a view, or with `whole` a copy."""
        v = graph.values[root]
        base = graph.add_value(Value((v.numel,), v.dtype, (1,)))
        graph.inputs.append(base)
        if whole:
            view = graph.add_value(replace(v, base=base))
            graph.nodes += [Node("alias", (base,), (view,)), Node("copy", (view,), (root,), (("strides", v.strides),))]
            return
        for slot, other in enumerate(graph.values[:base]):
            if other.base == root:
                graph.values[slot] = replace(other, base=base)
        graph.values[root] = replace(v, base=base)
        graph.nodes.append(Node("alias", (base,), (root,)))


def _compiled(graph: Graph) -> Any:
    from flambeau.compiler.pipeline import compile_graph

    return compile_graph(graph)


class Failure:
    """A call that could not be done, its place in the path, and why."""

    __slots__ = ("error", "index", "state")

    def __init__(self, state: State, index: int, error: Exception) -> None:
        self.state = state
        self.index = index
        self.error = error


def run_all(
    path: Sequence[State], values: list[Value], inputs: Sequence[Buffer], params: Sequence[Any], wanted: Iterable[int], written: dict[int, Buffer | None],
    computed: dict[int, Buffer],
) -> tuple[dict[int, Buffer], Failure | None]:  # fmt: skip
    """Compute what can be computed of the values `wanted` (roots): (their buffers, the first call that failed).

    `written`: what a run has left of the inputs that it has written to, by root: the new content; None where it is not known what is there.
    What they held before is lost. `computed`: what else it has made, by root.
    """
    steps = Stepwise()
    kept = set(wanted) | written.keys()
    needed = set(wanted) - written.keys() - computed.keys()
    last: dict[int, int] = {}  # by root: the last state that needs it
    runs: set[int] = set()
    for index in range(len(path) - 1, -1, -1):
        state = path[index]
        if any(slot in needed for node in state.nodes for slot in node.outputs):
            runs.add(index)
            for node in state.nodes:
                for slot in node.inputs:
                    base = values[slot].base
                    for root in (slot, slot if base is None else base):
                        last.setdefault(root, index)
                        if root not in computed:
                            needed.add(root)
    given = iter(inputs)
    failure: Failure | None = None
    for state in path:
        steps.know(state)
        steps.contents.update({slot: next(given) for slot in state.inputs})
    for root, buffer in written.items():
        if buffer is not None:
            steps.contents[root] = buffer
    for slot in _overwritten(path, written):
        steps.contents.pop(slot, None)
    steps.contents.update(computed)
    for index, state in enumerate(path):
        if index not in runs:
            for node in state.nodes:
                for slot in node.outputs:
                    if values[slot].base is not None:
                        steps.views[slot] = node
            continue
        try:
            steps.run(state, values, params)
        except KeyError:  # it needs something that failed
            continue
        except Exception as error:
            failure = failure or Failure(state, index, error)
            continue
        for root in [root for root, at in last.items() if at == index and root not in kept]:
            steps.contents.pop(root, None)
    return {root: steps.contents[root] for root in kept if root in steps.contents}, failure


def _overwritten(path: Sequence[State], written: dict[int, Buffer | None]) -> list[int]:
    """The slots that storages had before the contents in `written`."""
    before: dict[int, int] = {}
    for state in path:
        if hasattr(state.info, "root_after"):
            before[state.info.root_after] = state.info.root_before
    lost = []
    for root in written:
        slot = before.get(root)
        while slot is not None:
            lost.append(slot)
            slot = before.get(slot)
    return lost


class Beside:
    """What `set_sync` has computed beside a trace."""

    __slots__ = ("gen", "state", "steps")

    def __init__(self, tr: Trace) -> None:
        self.gen = tr.gen
        self.state: State = tr.root
        self.steps = Stepwise()


def try_call(tr: Trace, state: State) -> None:
    """Before the trace takes the edge to `state`: do its call beside the trace. What it raises names its place, and leaves the trace as before."""
    beside: Beside | None = tr.beside
    if beside is None or beside.gen != tr.gen:
        beside = tr.beside = Beside(tr)
    steps = beside.steps
    pending = [state]
    while pending[-1].parent is not beside.state and pending[-1].parent is not None:
        pending.append(pending[-1].parent)
    values = [*tr.values(), *state.values]
    try:
        for s in reversed(pending):
            steps.know(s)
            position = len(steps.flat) - len(s.inputs)
            steps.contents.update({slot: tr.inputs[position + i].buffer for i, slot in enumerate(s.inputs)})  # type: ignore[misc]
            steps.run(s, values, tr.params)
            if s is not state:
                beside.state = s
    except BaseException as error:
        for slot in state.parameters:
            steps.parameters.pop(slot, None)
        tr.heal()
        if isinstance(error, Exception):
            locate(error, state, here())
        raise
    beside.state = state


def locate(error: Exception, state: State, under_way: Place | None = None) -> None:
    """Let the text of an error that a call's run has raised name the operation and the place of the call.

    An edge keeps the place where its call was made first: another line that makes the same calls takes the same edges. So an error that is
    found late says so. `under_way`: the place of the call, which has not returned yet.
    """
    from flambeau.trace.bounds import operation_name, text

    if len(error.args) != 1 or not isinstance(error.args[0], str) or state.place is None or getattr(error, "located", False):
        return
    said = error.args[0]
    if isinstance(error, IndexRangeError) and error.bound is not None:
        bound = next((b for b in state.bounds if b.size == error.bound and not b.low <= error.value < b.size), None)
        said = f"{operation_name(state)}(): {said}" if bound is None else text(state, bound, error.value)
    else:
        said = f"{operation_name(state)}(): {said}"
    place = (under_way or state.place).told(operation_name(state))
    if under_way is None:
        place += "; or at another line that makes the same calls: under flambeau.set_sync(True) it is the call that raises"
    error.args = (f"{said}\n[{place}]",)
    error.located = True  # type: ignore[attr-defined]
