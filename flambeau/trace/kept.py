"""Kept pieces: a piece of one call, which has come time and again, runs at the call, without a trace.

A path in pieces (tiers.py) is mostly pieces of one call each, and what a piece costs is its end and its beginning: its inputs become edges, the trace ends,
the plan is looked up, the results and a segment are made, the place is noted. After a few of them the root of pieces knows the call by its arguments'
metadata, as it knows immediate calls (immediate.py), and one generated function does all of that. The plan is the one that the piece would have run, so the
bits are the same. What keeps a gradient's way back is a segment that is made in full only if somebody asks for more than the usual backward pass does
(autograd/kept_segment.py).

Whatever is not as it was when the call was kept (a storage that has been written to under gradients, memory that the outside world sees, a hook, a pending
value) goes the usual way: `run` gives None then, before anything has been done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from flambeau.devices import CPU
from flambeau.python_code import compiled
from flambeau.statistics import counters
from flambeau.trace import tiers
from flambeau.trace.immediate import Immediate, named
from flambeau.trace.limits import conditions
from flambeau.trace.objects import _TENSOR
from flambeau.trace.recorder import ALIAS, IN, Trace
from flambeau.trace.saved_hooks import saved
from flambeau.trace.state import Out, State
from flambeau.trace.storage import ORDER, Storage
from flambeau.trace.traces import TRACES
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.autograd.kept_segment import KeptSegment
    from flambeau.autograd.segment import History, Tape
    from flambeau.tensor import Tensor
    from flambeau.trace.evaluate import TracePlan
    from flambeau.trace.recorder import Boundary

AGAIN: Final = 2  # visits after which a call is kept that is kept at other sizes
MOST_SIZES: Final = 128  # of the memory under tensors with the same metadata
MOST_TENSORS: Final = 8  # that a kept call is given


class KeptPiece(Immediate):
    """One kept call. `run(arguments...)` gives its result, or None where something is not as it was.

    `call`: its edge. `inputs`: the slots of its tensors, in the order in which `run` has them. `history`, `tape`: what its segments share; None: its
    results have no gradients. `holders`: for each saved value (root slot, index among the inputs, or -1 - index among the results that segments hold).
    `family`: those of the same metadata over memory of other sizes (parts of tensors), or with one tensor in several places, by `_sizes_of` what they are
    given. `root`: what has learned it.
    `boundaries`: (slot, index among the inputs) of those at which gradients leave. `stages`: its backward passes (autograd/kept_stages.py).
    """

    __slots__ = ("boundaries", "call", "family", "history", "holders", "inputs", "plan", "root", "stages", "tape")

    def __init__(self, root: State, key: tuple[Any, ...], call: State) -> None:
        super().__init__(root, key, call.outs[0].meta)
        self.known = None  # native code, which knows immediate calls only, leaves it alone
        self.call, self.root = call, root
        self.family: dict[tuple[int, ...], KeptPiece] = {}
        self.plan: Any = None
        self.history: History | None = None
        self.tape: Tape | None = None
        self.inputs: tuple[int, ...] = ()
        self.boundaries: tuple[tuple[int, int], ...] = ()
        self.holders: tuple[tuple[int, int], ...] = ()
        self.stages: dict[Any, Any] = {}

    def forgotten(self, states: set[State]) -> bool:
        """It holds plans and states: it goes with the state of its call."""
        family = {sizes: made for sizes, made in self.family.items() if made.call in states}
        gone = [made for made in self.family.values() if made.call not in states]
        for made in (self, *gone, *family.values()):
            made.family = family
        for made in gone:  # no cycle is left to the garbage collector, which may not look at what is old
            made.run = _gone
            made.stages.clear()
        if self.call in states:
            return False
        self.run = _gone
        self.stages.clear()
        op = self.call.edge[0]
        if op.recent is not None and getattr(op.recent, "call", None) not in states:
            op.recent = None
        return True


def _gone(*_: Any) -> None:
    """In place of a forgotten function: the call is recorded."""


def _sizes_of(tensors: list[Tensor]) -> tuple[int, ...] | None:
    """For each tensor the bytes of its memory; where it is there already, -1 - its first place."""
    sizes = []
    for k, t in enumerate(tensors):
        first = next(i for i in range(k + 1) if tensors[i] is t)
        if first < k:
            sizes.append(-1 - first)
        elif t._storage is None or t._storage.buffer is None:
            return None
        else:
            sizes.append(t._storage.buffer.nbytes)
    return tuple(sizes)


def relative(made: KeptPiece, *tensors: Tensor) -> KeptPiece | None:
    """The piece of the same metadata for such tensors; it is asked first from now on."""
    sizes = _sizes_of(list(tensors))
    found = None if sizes is None else made.family.get(sizes)
    if found is made:
        return None
    if found is not None and made.root.immediate is not None:
        made.root.immediate[made.key] = found
    return found


def meets(tr: Trace, state: State, tensors: list[Tensor]) -> None:
    """A piece of one call is about to end: keep its call, if it has come often enough. Not on paths that may come back: their places would be others then."""
    if not tiers.stays_in_pieces(tr):
        return
    call = state
    while call.parent is not None and call.parent.depth:
        call = call.parent
    if call.countdown:
        if call.model is not None and not call.model.countdown:  # it is kept at other sizes
            call.countdown = min(call.countdown, AGAIN)
        call.countdown -= 1
        if not call.countdown:
            _keep(tr, call, state, tensors)


@upward
def tape_of(plan: TracePlan, state: State, boundaries: dict[int, Boundary], custom: dict[int, Any] | None, hooked: dict[int, Tensor] | None) -> Tape:
    """The tape that all segments of a plan share (autograd/segment.py)."""
    raise NotImplementedError


@upward
def kept_segments() -> type[KeptSegment]:
    """The class of the segments of kept pieces (autograd/kept_segment.py)."""
    raise NotImplementedError


def _keep(tr: Trace, call: State, end: State, tensors: list[Tensor]) -> None:
    """Teach the root of a piece its only call, if it is one that can be kept."""
    *before, _ = call.path()
    root, *inputs = before
    after = end.path()[len(before) + 1 :]
    op = call.edge[0]
    if (
        not 0 < len(inputs) <= MOST_TENSORS
        or root is not tr.piece_root()
        or getattr(op, "kinds", None) is None
        or call.stepwise or call.external or call.info is not None or not call.outs or call.pack is list
        or any(s.edge[0] != IN or s.edge[3] for s in inputs)
        or any(s.edge[0] not in (IN, ALIAS) for s in after)
        or tr.custom or tr.hooked or tr.claims is not None or saved
        or any(t._meta.device is not CPU for t in tensors)
    ):  # fmt: skip
        return
    found = named(call, {s.slot: s.edge[1] for s in inputs}, lists=True)
    if found is None:
        return
    key, order, given = found
    if sorted(set(order)) != [s.slot for s in inputs] or len(call.parameters) != given.count("n"):
        return
    made = KeptPiece(root, key, call)
    if _teach(tr, made, inputs, order, given, tensors) and root.immediate is not None:
        before_ = root.immediate.get(key)
        if type(before_) is KeptPiece and len(before_.family) < MOST_SIZES:
            made.family = before_.family
        nbytes = {s.slot: s.edge[2] for s in inputs}
        made.family[tuple([nbytes[slot] if (first := order.index(slot)) == k else -1 - first for k, slot in enumerate(order)])] = made
        root.immediate[key] = made
        op.recent = made  # native code asks the wrapper from now on, at roots that have learned calls
        if call.model is not None:
            call.model.countdown = 0


def _plan(tr: Trace, call: State, tensors: list[Tensor], computed: int) -> Any:
    """The plan of the call alone, all of whose results are wanted; None where there is nothing to compute."""
    from flambeau.compiler.plan import SMALL_BYTES
    from flambeau.trace.evaluate import add_plan

    if call.views_only:
        return None
    *inputs, _ = call.path()[1:]
    given = sum([s.edge[1].numel * s.edge[1].dtype.itemsize for s in inputs])
    if given + sum([v.numel * v.dtype.itemsize for v in call.values if v.base is None]) > SMALL_BYTES:
        return False  # what a piece costs does not matter there, and as a part of a longer one it may be fused
    alive = b"\x01" * computed
    plan = call.plans.get(alive)
    try:
        return add_plan(tr, call, tensors[:computed], alive) if plan is None else plan
    except Exception:  # the usual way tells
        return False


def _teach(tr: Trace, made: KeptPiece, inputs: list[State], order: list[int], given: list[str], tensors: list[Tensor]) -> bool:
    """Write the function of a kept call."""
    call = made.call
    slots = [s.slot for s in inputs]
    own = [out for out in call.outs if out.alias is None or out.slot != order[out.alias]]  # the others are arguments, as they are
    plan = _plan(tr, call, tensors, len(own))
    if plan is False or (plan is not None and plan.made_from.calls_host()):
        return False
    history = None if plan is None else plan.history
    if history is not None:
        if any(is_input for is_input, _, _ in history.storages) or history.preserved or any(slot not in slots for slot in history.boundaries):
            return False
        made.history, made.tape = history, tape_of(plan, call, {}, None, None)
        made.boundaries = tuple([(slot, slots.index(slot)) for slot in slots if slot in history.boundaries])
        if made.tape.freed:
            return False
    elif any(out.meta.requires_grad for out in own):
        return False
    made.plan, made.inputs = plan, tuple(slots)
    writer = _Writer(made, inputs, order, given, own)
    text, scope = writer.written(tr)
    exec(compiled(text, "<flambeau kept piece>"), scope)
    made.run = scope.pop("run")  # whose globals it would be: see `forgotten`
    return True


class _Writer:
    """Writes the source of a kept call's function."""

    def __init__(self, made: KeptPiece, inputs: list[State], order: list[int], given: list[str], own: list[Out]) -> None:
        self.made, self.inputs, self.own = made, inputs, own
        self.scope: dict[str, Any] = {}
        self.place = {s.slot: i for i, s in enumerate(inputs)}  # of a slot among the inputs
        self.order = order
        self.names = [f"a{i}" for i in range(len(given))]
        self.given = given
        self.roots: dict[int, str] = {}  # storages of results, by root slot

    def written(self, tr: Trace) -> tuple[str, dict[str, Any]]:
        """The source, and its globals."""
        made, inputs = self.made, self.inputs
        call, plan = made.call, made.plan
        scope = self.scope
        scope |= {
            "made": made, "op": call.edge[0], "new": object.__new__, "Tensor": _TENSOR[0], "Storage": Storage, "trace": tr, "traces": TRACES, "saved": saved,
            "comes_to": tiers.comes_to, "counters": counters, "plan": plan, "compute": None if plan is None else plan.run, "Segment": kept_segments(),
            "relative": relative, "ref": ref, "order": ORDER.__next__, "tape": made.tape, "error": Exception,
        }  # fmt: skip
        names = self.names
        lines = [f"def run({', '.join(names)}):", "    if len(traces) > 1 or saved or trace.taken >= 0: return None"]
        tensors: list[str] = []
        for name, g in zip(names, self.given, strict=True):
            if g == "t":
                tensors.append(name)
            elif g.startswith("l"):
                parts = [f"{name}_{k}" for k in range(int(g[1:]))]
                lines.append(f"    {', '.join(parts)}, = {name}")
                tensors += parts
        sources = [""] * len(inputs)
        again = []  # tensors that stand in several places
        for name, slot in zip(tensors, self.order, strict=True):
            if sources[self.place[slot]]:
                again.append(f"{name} is not {sources[self.place[slot]]}")
            else:
                sources[self.place[slot]] = name
        otherwise = f"return None if (other := relative(made, {', '.join(tensors)})) is None else other.run({', '.join(names)})"
        if again:
            lines.append(f"    if {' or '.join(again)}: {otherwise}")
        numbers = [n for n, g in zip(names, self.given, strict=True) if g == "n"]
        lines += [f"    if not ({condition}): return None" for condition in conditions(call.limits, numbers)]
        parameters = []
        for i, (s, n) in enumerate(zip(inputs, sources, strict=True)):
            m = s.edge[1]
            scope[f"bytes{i}"] = s.edge[2]
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
                scope[f"offset{i}"] = m.offset
                parameters.append(f"{n}._offset - offset{i}")
        differs = " or ".join([f"b{i}.nbytes != bytes{i}" for i in range(len(inputs))])
        lines.append(f"    if {differs}: {otherwise}")
        if len(inputs) > 3:
            lines.append(f"    if len({{{', '.join([f's{i}' for i in range(len(inputs))])}}}) != {len(inputs)}: {otherwise}")
        elif len(inputs) > 1:
            pairs = [f"s{i} is s{j}" for j in range(len(inputs)) for i in range(j)]
            lines.append(f"    if {' or '.join(pairs)}: {otherwise}")
        lines += [
            "    way = comes_to(trace, made, op)",
            "    if way:",
            f"        return None if way == 1 else op.call(({', '.join(names)},))",
        ]
        parameters += numbers
        lines.append(f"    p = ({', '.join(parameters)}{',' if parameters else ''})")
        if plan is not None:
            buffers = ", ".join([f"b{i}" for i in range(len(inputs))])
            lines += [
                "    try:",
                f"        buffers = compute([{buffers}], p)",
                "    except error:",
                "        return None",  # recorded, it fails with its message
                "    plan.last = trace.gen",
            ]
        lines += self._results(sources)
        if made.history is not None:
            lines += self._segment(sources)
        lines.append("    counters.kept_pieces += 1")
        results = [f"t{k}" if out in self.own else sources[self.place[self.order[out.alias or 0]]] for k, out in enumerate(call.outs)]
        if call.pack is None:
            lines.append(f"    return {results[0]}")
        else:
            scope["pack"], scope["fill"] = call.pack, tuple.__new__
            lines.append(f"    return fill(pack, ({', '.join(results)},))")
        return "\n".join(lines), scope

    def _results(self, sources: list[str]) -> list[str]:
        """The lines that make the results."""
        made, scope = self.made, self.scope
        outputs = {} if made.plan is None else dict(made.plan.assign)
        lines = []
        position = 0
        for k, out in enumerate(made.call.outs):
            if out not in self.own:
                continue
            m = scope[f"m{k}"] = out.meta
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
                    lines.append(f"    {name} = Storage(buffers[{outputs[position]}])")
                lines.append(f"    t{k}._storage = {name}")
            if out.dynamic:
                scope[f"at{k}"] = m.offset
                lines.append(f"    t{k}._offset = at{k} + " + " + ".join([f"p[{i}] * {multiplier}" for i, multiplier in out.dynamic]))
            position += 1
        return lines

    def _segment(self, sources: list[str]) -> list[str]:
        """The lines that make the segment, and hang the results on it."""
        made = self.made
        history = made.history
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
                held.append(by_output.get(index) or f"Storage(buffers[{index}])")
        made.holders = tuple(holders)
        leaving = {i for _, i in made.boundaries}
        needs = [s.edge[1].requires_grad for s in self.inputs]
        count = range(len(slots))

        def listed(parts: list[str]) -> str:
            return f"({', '.join(parts)}{',' if parts else ''})"

        lines = [
            "    g = new(Segment)",
            "    g.kept, g.tape = made, tape",
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
