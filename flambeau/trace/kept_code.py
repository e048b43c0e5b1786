"""The source of a kept call's function (kept.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from flambeau.statistics import counters
from flambeau.trace import tiers
from flambeau.trace.limits import conditions
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import Trace
from flambeau.trace.saved_hooks import saved
from flambeau.trace.state import Out, State
from flambeau.trace.storage import ORDER, Storage
from flambeau.trace.traces import TRACES
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.autograd.kept_segment import KeptSegment
    from flambeau.autograd.segment import History
    from flambeau.trace.kept_piece import KeptPiece


@upward
def kept_segments() -> type[KeptSegment]:
    """The class of the segments of kept pieces (autograd/kept_segment.py)."""
    raise NotImplementedError


class Writer:
    """Writes the function of a call whose tensors have the metadata that it has, or none. `own`: the results that are no arguments."""

    otherwise = "return None if (other := relative(made, {tensors})) is None else other.run({arguments})"  # where the memory is another
    fail = "return None"  # where the call is another

    def __init__(self, made: KeptPiece, inputs: list[State], order: list[int], given: list[str], own: list[Out]) -> None:
        self.made, self.inputs, self.own = made, inputs, own
        self.place = {s.slot: i for i, s in enumerate(inputs)}  # of a slot among the inputs
        self.order = order
        self.names = [f"a{i}" for i in range(len(given))]
        self.given = given
        self.roots: dict[int, str] = {}  # storages of results, by root slot
        self.scope: dict[str, Any] = {}
        self.tensors: list[str] = []  # the names of the tensors, in the call's order
        self.sources = [""] * len(inputs)  # and of the inputs

    def written(self, tr: Trace) -> tuple[str, dict[str, Any]]:
        """The source, and its globals."""
        made, inputs, names = self.made, self.inputs, self.names
        call = made.call
        scope = self.scope
        scope |= {
            "made": made, "op": call.edge[0], "new": object.__new__, "Tensor": _TENSOR[0], "Storage": Storage, "trace": tr, "traces": TRACES, "saved": saved,
            "comes_to": tiers.comes_to, "counters": counters, "Segment": kept_segments(), "ref": ref, "order": ORDER.__next__, "error": Exception,
        }  # fmt: skip
        lines = [f"def run({', '.join(names)}):", "    if len(traces) > 1 or saved or trace.taken >= 0: return None"]
        for name, g in zip(names, self.given, strict=True):
            if g == "t":
                self.tensors.append(name)
            elif g.startswith("l"):
                parts = [f"{name}_{k}" for k in range(int(g[1:]))]
                lines.append(f"    {', '.join(parts)}, = {name}")
                self.tensors += parts
        sources = self.sources
        again = []  # tensors that stand in several places
        for name, slot in zip(self.tensors, self.order, strict=True):
            if sources[self.place[slot]]:
                again.append(f"{name} is not {sources[self.place[slot]]}")
            else:
                sources[self.place[slot]] = name
        otherwise = self.otherwise.format(tensors=", ".join(self.tensors), arguments=", ".join(names))
        self.fail = self.fail.format(arguments=", ".join(names))
        if again:
            lines.append(f"    if {' or '.join(again)}: {otherwise}")
        numbers = [n for n, g in zip(names, self.given, strict=True) if g == "n"]
        lines += [f"    if not ({condition}): return None" for condition in conditions(call.limits, numbers)]
        parameters = []
        for i, (s, n) in enumerate(zip(inputs, sources, strict=True)):
            m = s.edge[1]
            lines += [
                f"    s{i} = {n}._storage",
                f"    if s{i} is None or s{i}.gen >= 0 or s{i}.external is not None or s{i}.cut >= 0 or s{i}.others is not None: return None",
                f"    b{i} = s{i}.buffer",
                f"    if b{i} is None or {n}._immediate is not None: return None",
            ]
            if m.requires_grad:
                lines.append(f"    h{i} = {n}._history")
                lines.append(f"    if h{i} is {'not ' if m.leaf else ''}None or {n}._hooks: return None")
            if m.dynamic:
                parameters.append(f"{n}._offset - {self.static_offset(i)}")
        lines += [f"    {line}" for line in self.looks(otherwise)]
        if len(inputs) > 3:
            lines.append(f"    if len({{{', '.join([f's{i}' for i in range(len(inputs))])}}}) != {len(inputs)}: {otherwise}")
        elif len(inputs) > 1:
            pairs = [f"s{i} is s{j}" for j in range(len(inputs)) for i in range(j)]
            lines.append(f"    if {' or '.join(pairs)}: {otherwise}")
        lines += [f"    {line}" for line in self.before()]
        lines += [
            f"    way = comes_to(trace, {self.mark()}, op)",
            "    if way:",
            f"        return None if way == 1 else op.call(({', '.join(names)},))",
        ]
        parameters += numbers
        lines.append(f"    p = ({', '.join(parameters)}{',' if parameters else ''})")
        if made.plan is not None:
            lines += [f"    {line}" for line in self.runs([f"b{i}" for i in range(len(inputs))])]
        lines += self._results(sources)
        if made.history is not None:
            lines += self._segment(sources)
        lines += [f"    {line}" for line in self.counted()]
        results = [f"t{k}" if out in self.own else sources[self.place[self.order[out.alias or 0]]] for k, out in enumerate(call.outs)]
        if call.pack is None:
            lines.append(f"    return {results[0]}")
        else:
            scope["pack"], scope["fill"] = call.pack, tuple.__new__
            lines.append(f"    return fill(pack, ({', '.join(results)},))")
        return "\n".join(lines), scope

    # -- what depends on whether it is by class (kept_classes.py) -----------------------------------------------------
    def static_offset(self, i: int) -> str:
        """The text of an input's offset without its run-time part."""
        self.scope[f"offset{i}"] = self.inputs[i].edge[1].offset
        return f"offset{i}"

    def looks(self, otherwise: str) -> list[str]:
        """Lines that look at the memory of the inputs."""
        self.scope |= {f"bytes{i}": s.edge[2] for i, s in enumerate(self.inputs)}
        differs = " or ".join([f"b{i}.nbytes != bytes{i}" for i in range(len(self.inputs))])
        return [f"if {differs}: {otherwise}"]

    def before(self) -> list[str]:
        """Lines before the place of the call is noted: from then on it is done."""
        return []

    def mark(self) -> str:
        """The text of the call's name among places."""
        self.scope["mark"] = self.made.mark
        return "mark"

    def runs(self, inputs: list[str]) -> list[str]:
        """Lines that run the plan over the buffers of the inputs."""
        self.scope |= {"plan": self.made.plan, "compute": self.made.plan.run}
        return [
            "try:",
            f"    buffers = compute([{', '.join(inputs)}], p)",
            "except error:",
            "    return None",  # recorded, it fails with its message
            "plan.last = trace.gen",
        ]

    def buffer(self, output: int) -> str:
        """The text of the buffer of one of the plan's outputs."""
        return f"buffers[{output}]"

    def metadata(self, k: int, out: Out) -> None:
        """Let the metadata of a result have the name `m{k}`, and its offset `at{k}`."""
        self.scope[f"m{k}"] = out.meta
        if out.dynamic:
            self.scope[f"at{k}"] = out.meta.offset

    def multipliers(self, k: int, out: Out) -> list[tuple[int, str]]:
        """(index among the numbers, the text of its multiplier) of the run-time part of a result's offset."""
        return [(i, str(multiplier)) for i, multiplier in out.dynamic]

    def shared(self) -> list[str]:
        """Lines that give the segment what all segments of the piece share."""
        self.scope["tape"] = self.made.tape
        return ["g.kept, g.tape, g.sizes = made, tape, ()"]

    def counted(self) -> list[str]:
        """Lines that count the call."""
        return ["counters.kept_pieces += 1"]

    # -- results ----------------------------------------------------------------------------------------------------
    def _results(self, sources: list[str]) -> list[str]:
        """The lines that make the results."""
        made = self.made
        outputs = {} if made.plan is None else dict(made.plan.assign)
        lines = []
        position = 0
        for k, out in enumerate(made.call.outs):
            if out not in self.own:
                continue
            m = out.meta
            self.metadata(k, out)
            lines += [f"    t{k} = new(Tensor)", f"    t{k}._gen = t{k}._slot = -1", f"    t{k}._immediate = None", f"    t{k}._meta = m{k}"]
            if out.alias is not None:
                base = self.place[self.order[out.alias]]
                of_base = self.inputs[base].edge[1]
                lines += [f"    t{k}._storage = s{base}", f"    t{k}._view = True"]
                if of_base.requires_grad and not m.requires_grad:
                    lines.append(f"    t{k}._detached = {sources[base]}._detached or 1")
                else:
                    lines.append(f"    if {sources[base]}._detached: t{k}._detached = {sources[base]}._detached")
            else:
                name = self.roots.get(out.root)
                if name is None:
                    name = self.roots[out.root] = f"q{k}"
                    lines.append(f"    {name} = Storage({self.buffer(outputs[position])})")
                lines.append(f"    t{k}._storage = {name}")
            if out.dynamic:
                lines.append(f"    t{k}._offset = at{k} + " + " + ".join([f"p[{i}] * {text}" for i, text in self.multipliers(k, out)]))
            position += 1
        return lines

    def _segment(self, sources: list[str]) -> list[str]:
        """The lines that make the segment, and hang the results on it."""
        made = self.made
        history: History | None = made.history
        assert history is not None
        slots = made.inputs
        by_output: dict[int, str] = {}
        for position, out in enumerate(self.own):
            by_output |= {output: self.roots[out.root] for at, output in made.plan.assign if at == position}
        of_input = {root: i for i, root in enumerate([s.root_slot for s in self.inputs])}
        wanted = {i for _, i in made.boundaries}
        held: list[str] = []
        holders = []
        for slot, index in history.saved:
            if index < 0:
                holders.append((slot, of_input[slot]))
                wanted.add(of_input[slot])
            else:
                holders.append((slot, -1 - len(held)))
                held.append(by_output.get(index) or f"Storage({self.buffer(index)})")
        made.holders = tuple(holders)
        leaving = {i for _, i in made.boundaries}
        needs = [s.edge[1].requires_grad for s in self.inputs]
        count = range(len(slots))

        def listed(parts: list[str]) -> str:
            return f"({', '.join(parts)}{',' if parts else ''})"

        lines = [
            "    g = new(Segment)",
            *[f"    {line}" for line in self.shared()],
            "    g.done = g.shell = None",
            f"    g.given = {listed([sources[i] if i in leaving else 'None' for i in count])}",
            f"    g.origins = {listed([f'h{i}' if i in leaving and needs[i] else 'None' for i in count])}",
            f"    g.storages = {listed([f's{i}' if i in wanted else 'None' for i in count])}",
            f"    g.at = {listed([f's{i}.version' if i in wanted else '0' for i in count])}",
            f"    g.held = {listed(held)}",
            "    g.numbers = p",
            "    g.order = order()",
        ]
        own = [k for k, out in enumerate(made.call.outs) if out in self.own]
        lines += [f"    t{own[position]}._history = g, {slot}" for position, slot in history.tensors]
        lines += [f"    t{own[position]}._storage.history = g, {slot}" for _, position, slot in history.storages]
        lines += [f"    t{own[position]}._storage.result = ref(g), {slot}" for position, slot in history.results]
        return lines
