"""Immediate calls: a call whose result is looked at right away, time and again, runs at once the next time.

A trace of one operation that is observed pays for being recorded and gains nothing by it. After a few of them (state.py, `OBSERVATIONS`) the root
of the trie learns the call by its arguments' metadata, and the public function (ops/wrapper.py) makes its result without a trace:
the plan is the one that the trace would have run, so the bits are the same. Views of memory that is there are learned likewise.
Only calls without gradients, on memory that nobody else sees and nothing pending writes to; any other goes the usual way.

Whether a call is recorded decides what it is fused with, and so the last bits of sums. Results must not depend on what has been
learned: a result that a later call takes before anything was looked at is recorded after all (`replay`), as if it had been pending.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from sys import getrefcount
from typing import TYPE_CHECKING, Any, Final

from flambeau.devices import CPU
from flambeau.python_code import compiled
from flambeau.runtime.native_calls import UNPACKABLE
from flambeau.statistics import counters
from flambeau.trace import recorder
from flambeau.trace.classes import kind_of
from flambeau.trace.limits import conditions
from flambeau.trace.liveness import HELD
from flambeau.trace.meta import Meta
from flambeau.trace.recorder import IN, Trace
from flambeau.trace.state import State
from flambeau.trace.storage import Storage
from flambeau.trace.traces import roots
from flambeau.trace.while_set import while_set

if TYPE_CHECKING:
    from flambeau.tensor import Tensor

# A result that a recorded call takes would have been fused into it. So many of these end it, unless between two of them
# there are so many immediate calls.
MISSES: Final = 8
FORGIVEN: Final = 64
SETTLED: Final = -1  # in place of a trace's generation: a view of memory that was there before

_numbers: Final = (int, float)
_TENSOR_KINDS: Final = ("tensor", "tensor?", "operand", "operand?", "exponent")


class Learned(dict[Any, Any]):
    """The calls that a root has learned, by their names (`named`); what none is may be one of those that it knows by class (kept_classes.py).

    `classes`: lists of these, by names without sizes. `models`: the same by their models and plans.
    """

    __slots__ = ("classes", "models")

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[Any, list[Any]] = {}
        self.models: dict[State | None, dict[Any, Any]] = {}

    def __missing__(self, name: tuple[Any, ...]) -> Any:
        if not self.classes:
            return None
        found = self.classes.get(without_sizes(name))
        return None if found is None else found[0]

    def forget_classes(self) -> None:
        """Unlearn what is known by class."""
        for made in [made for alike in self.classes.values() for made in alike]:
            made.forgotten(set())
        self.models.clear()
        self.classes.clear()


def without_sizes(name: tuple[Any, ...]) -> tuple[Any, ...]:
    """The name of a learned call, or one that might be learned, with kinds in the place of metadata, and without the sizes among its arguments."""
    op = name[0]
    parts: list[Any] = []
    for x in name:
        cls = x.__class__
        if cls is Meta:
            parts.append(x.kind or kind_of(x))
        elif cls is tuple and x and (x[0].__class__ is Meta or x[-1].__class__ is Meta):
            parts.append(tuple([m and (m.kind or kind_of(m)) for m in x]))
        else:
            parts.append(x)
    for i in op.sized:
        x = parts[i + 1]
        if x.__class__ is int:
            parts[i + 1] = "size"
        elif isinstance(x, tuple) and all(n.__class__ is int for n in x):
            parts[i + 1] = "sizes", len(x)
    return tuple(parts)


class Immediate:
    """One learned call: `run(arguments...)` gives its result, or None where the arguments are not as they were.

    `known`: the dictionary of learned calls that it is in. `kept`: memory for the next result, `allocate` makes more. Native code
    (known_edge.py) does what `run` does, from `block`: words [is a view, program, which argument the view is of, constant part of its
    offset, whether that moves], and for each argument the bytes of its storage, or by how much the offset moves with it.
    """

    __slots__ = ("allocate", "at", "block", "kept", "key", "known", "meta", "misses", "room", "run")

    def __init__(self, root: State, key: tuple[Any, ...], meta: Meta) -> None:
        if root.immediate is None:
            root.immediate = Learned()
        self.known: Learned | None = root.immediate
        self.key = key
        self.meta = meta
        self.kept: Any = None
        self.allocate: Any = None
        self.block = b""
        self.room = b""  # what its numbers must fit into (limits.py)
        self.misses = self.at = 0
        self.run: Callable[..., Any]

    def forgotten(self, states: set[State]) -> bool:
        """Whether it goes where only these states stay: a kept piece does (kept.py); this one has its program alone."""
        return False

    def missed(self) -> None:
        """A result was an argument of a recorded call: it would have been fused."""
        now = counters.immediate_calls
        self.misses = self.misses + 1 if now - self.at < FORGIVEN else 1
        self.at = now
        if self.misses > MISSES:
            self.known, self.run = None, _never


def _as_it_is(function: Any, args: Any) -> Any:
    return function(args)


plainly = [_as_it_is]  # how a call is done again whose arguments were taken as plain tensors; set where subclasses answer for themselves (ops/dispatch.py)


def replay(tr: Trace, t: Tensor) -> bool:
    """A recorded call takes `t`: record the call that made it, too, and let `t` be that pending result. False if it is settled:
    something was looked at since, or an argument has been written to."""
    assert t._immediate is not None
    made, gen, *args = t._immediate
    t._immediate = None
    if gen == SETTLED:
        made.missed()
    if gen != tr.gen or t._storage is None:
        return False
    for a in args:
        storage = getattr(a, "_storage", None)
        if storage is not None and storage.gen >= 0 and not (storage.gen == gen and storage.slot == storage.origin):
            return False
    made.missed()
    result = while_set(tr, "held", True, plainly[0], made.key[0].call, args)  # not without a trace this time
    if tr.gen != gen or tr.tensors[-1] is not result:
        return False
    storage = t._storage
    if result._storage is None:  # a value of its own; views of it know its storage
        storage.gen, storage.slot, storage.origin, storage.buffer = gen, result._slot, result._slot, None
    t._gen, t._slot, t._meta = gen, result._slot, result._meta
    tr.tensors[-1] = t
    return True


def _never(*args: Any) -> None:
    """What stands for a call that turned out to be used in later calls."""


def shape_of_path(state: State) -> tuple[list[State], State, list[State]] | None:
    """(inputs, call, views) of a path that is some plain inputs, one call with one result, and views one of the other; else None."""
    path = state.path()[1:]
    inputs = []
    while path and path[0].edge[0] == IN:
        inputs.append(path.pop(0))
    if not path:
        return None
    call, *views = path
    if not (call.plain or call.single_view) or getattr(call.edge[0], "kinds", None) is None:
        return None
    if any(s.requires or s.external or s.parameters or s.edge[1].dynamic for s in inputs) or call.requires:
        return None
    return (inputs, call, views) if all(s.single_view and hasattr(s.edge[0], "kinds") for s in views) else None


def learn(tr: Trace, state: State, tensors: list[Tensor]) -> None:
    """The trace that is about to run has been observed often enough: teach its root the calls, if they are ours."""
    from flambeau.compiler.plan import SMALL_BYTES

    found = shape_of_path(state)
    if found is None or tr.boundaries or tr.custom or any(t._meta.device is not CPU for t in tensors):
        return
    inputs, call, views = found
    root = tr.root
    if not inputs or inputs[0].parent is not root:
        return
    if call.plain and sum([v.numel * v.dtype.itemsize for s in (*inputs, call) for v in s.values if v.base is None]) > SMALL_BYTES:
        return  # what a trace costs does not matter there
    direct = _direct(tr, call, tensors) if call.plain else {}
    if direct is None:
        return
    known = {s.slot: s.edge[1] for s in inputs}  # metadata by slot
    if not _teach(tr, call, known, {s.slot: s.edge[2] for s in inputs}, direct):
        return
    before = call
    for view in views:
        known = {before.outs[0].slot: before.outs[0].meta}
        if before.outs[0].meta.dynamic or not _teach(tr, view, known, {}, {}):
            return
        before = view


def named(call: State, known: dict[int, Meta], lists: bool = False) -> tuple[tuple[Any, ...], list[int], list[str]] | None:
    """What a call is learned by; the slots of its tensors, as it takes them; of each argument "t": a tensor, "n": a run-time number, "l3": a list of three
    tensors (where `lists`), "": in the key.

    `known`: metadata by slot. None: a call that is not learned.
    """
    op, *keys = call.edge
    key: list[Any] = [op]
    order: list[int] = []
    given: list[str] = []
    for kind, k in zip(op.kinds, keys, strict=True):
        if kind in _TENSOR_KINDS and type(k) is int:
            if k not in known:
                return None
            order.append(k)
            key.append(known[k])
            given.append("t")
        elif kind == "tensors":
            if not lists or any(slot not in known for slot in k):
                return None
            order.extend(k)
            key.append(tuple([known[slot] for slot in k]))
            given.append(f"l{len(k)}")
        else:
            key.append(k)
            given.append("n" if kind in ("operand", "operand?", "number", "changing") and k in _numbers else "")
    return tuple(key), order, given


def is_learned(root: State, call: State, inputs: list[State]) -> bool:
    """Whether a root has learned a call that has been recorded behind these inputs all the same."""
    if root.immediate is None or getattr(call.edge[0], "kinds", None) is None:
        return False
    found = named(call, {s.slot: s.edge[1] for s in inputs if s.edge[0] == IN})
    return found is not None and found[0] in root.immediate


def _teach(tr: Trace, call: State, known: dict[int, Meta], sizes: dict[int, int], direct: dict[str, Any]) -> bool:
    """Teach the root one call whose tensors are `known`, by slot and in the call's order; `sizes`: bytes of their storages.

    `direct`: the native call that makes the result (plan.py); empty for a view."""
    found = named(call, known)
    if found is None:
        return False
    op, root = call.edge[0], tr.root
    key, order, given = found
    if order != list(known):
        return False
    assert direct or call.outs[0].meta is not None
    meta = call.meta if direct else call.outs[0].meta
    assert meta is not None
    made = Immediate(root, key, meta)
    positions = [i for i, g in enumerate(given) if g == "t"]
    words = [0] * (5 + len(given))
    scope: dict[str, Any] = {"made": made, "new": object.__new__, "Tensor": recorder._TENSOR[0], "Storage": Storage, "trace": tr, "counters": counters}
    names = [f"a{i}" for i in range(len(given))]
    sources = [n for n, g in zip(names, given, strict=True) if g == "t"]
    numbers = [n for n, g in zip(names, given, strict=True) if g == "n"]
    made.room = call.room
    lines = [f"def run({', '.join(names)}):", *[f"    if not ({condition}): return None" for condition in conditions(call.limits, numbers)]]
    for i, n in enumerate(sources):
        lines += [
            f"    s{i} = {n}._storage",
            f"    if s{i} is None: return None",
            f"    b{i} = s{i}.buffer",
            f"    if b{i} is None or s{i}.gen >= 0 or s{i}.external is not None or s{i}.cut >= 0: return None",
        ]
    generation = "trace.gen"
    if direct:
        for i, slot in enumerate(order):
            words[5 + positions[i]] = scope[f"bytes{i}"] = sizes[slot]
            lines.append(f"    if b{i}.nbytes != bytes{i}: return None")
        # What an immediate call made a moment ago, and nobody has looked at, belongs into one kernel with this call.
        lines += [f"    if {n}._immediate is not None: return None" for n in sources]
        made.allocate = direct["allocate"]
        made.kept = made.allocate()
        words[1] = direct["program"].address
        scope |= direct | {"references": getrefcount, "HELD": HELD, "error": UNPACKABLE}
        io = ", ".join([*[f"b{i}.address" for i in range(len(sources))], "o.address", *numbers])
        lines += [
            "    o = made.kept",
            "    if references(o) > HELD: o = made.kept = allocate()",  # somebody still has the last result
            "    try:",
            f"        if call({io}): return None",  # recorded, it fails with its message
            "    except error:",
            "        return None",
            "    t = new(Tensor)",
            "    t._storage = Storage(o)",
        ]
    else:
        (out,) = call.outs
        if out.alias is None or out.slot == order[out.alias] or out.meta.requires_grad:
            return False
        words[0], words[2], words[3] = 1, positions[out.alias], out.meta.offset
        lines += [f"    if {sources[out.alias]}._detached: return None", "    t = new(Tensor)", f"    t._storage = s{out.alias}", "    t._view = True"]
        generation = f"trace.gen if {sources[out.alias]}._immediate is not None else {SETTLED}"
        if out.dynamic:
            assert call.parent is not None
            first = call.parent.parameter_count
            words[4] = 1
            for i, multiplier in out.dynamic:
                words[5 + [j for j, g in enumerate(given) if g == "n"][i - first]] = multiplier
            moved = " + ".join([f"{numbers[i - first]} * {multiplier}" for i, multiplier in out.dynamic])
            lines.append(f"    t._offset = {out.meta.offset} + {moved}")
    scope["meta"] = meta
    lines += ["    t._gen = t._slot = -1", "    t._meta = meta"]
    lines += [f"    t._immediate = made, {generation}, {', '.join(names)}", "    counters.immediate_calls += 1", "    return t"]
    exec(compiled("\n".join(lines), "<flambeau immediate call>"), scope)
    made.run = scope["run"]
    made.block = pack(f"={len(words)}q", *words)
    assert made.known is not None
    made.known.setdefault(made.key, made)
    op.recent = made
    return True


def _direct(tr: Trace, call: State, tensors: list[Tensor]) -> dict[str, Any] | None:
    """The native call of a plan for the result of `call` alone; None if it is more than one small program."""
    from flambeau.trace.evaluate import add_plan

    alive = b"\x01"
    plan = call.plans.get(alive)
    if plan is None:
        plan = add_plan(tr, call, tensors[:1], alive)
    return None if plan.keep is not None else plan.direct


def forget() -> None:
    """Unlearn all calls of all threads: plans have changed, or every run must be seen."""
    for root in roots():
        root.immediate = None
