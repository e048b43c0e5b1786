"""Kept calls by class: one function for a call at all sizes (kept.py has those of one size).

A kept call's function is of exact metadata, and a path whose sizes are new never has one. But its edges and its plan are known by class (classes.py,
class_plans.py): so the function may be, too. It reads the sizes from its arguments, looks at the guards of all edges and of the plan, runs the program that
all sizes share, and makes the results. No state, no plan and no segment in full is made for a size. Where a guard does not hold, it gives None, before
anything has been done, and the call goes the usual way.

Sizes that come back time and again get a function of their own, which has less to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flambeau.compiler.plan import SMALL_BYTES
from flambeau.runtime import threads
from flambeau.trace.class_code import Chain, named
from flambeau.trace.from_model import NEW, Symbol, exact_state
from flambeau.trace.immediate import Learned, without_sizes
from flambeau.trace.kept_code import Writer
from flambeau.trace.kept_piece import KeptPiece, gone
from flambeau.trace.meta import Size
from flambeau.trace.state import Out, State
from flambeau.upward import upward

if TYPE_CHECKING:
    from flambeau.autograd.segment import Tape
    from flambeau.trace.class_plans import PlanVariant

FROM: Final = 3  # visits of a call by class, before it is tried to keep it
EVERY: Final = 4  # and between the next tries: its plan may have to be compared first
MOST_TRIES: Final = 64  # visits, after which it is not tried again
OWN_AFTER: Final = 256  # visits at the same sizes, before these get a function of their own
NEVER: Final = -(1 << 60)
MOST_COUNTED: Final = 512  # sizes whose visits are counted
MOST_ALIKE: Final = 16  # classes of one name: over other parts of memory, with other plans


@upward
def tape_at(variant: Any, sizes: tuple[int, ...], model: State, preserved: set[int], kept: tuple[Any, ...]) -> Tape:
    """The one tape of a plan by class at given sizes (autograd/segment.py)."""
    raise NotImplementedError


class KeptClass(KeptPiece):
    """A call that is kept at all sizes at which its guards hold. `chain`: the path behind it. `alike`: all of its name. `visits`: of sizes."""

    __slots__ = ("alike", "by_kind", "chain", "tapes", "variant", "views", "visits")

    def __init__(self, root: State, key: tuple[Any, ...], call: State, chain: Chain) -> None:
        super().__init__(root, key, call)
        self.chain = chain
        self.alike: list[KeptClass] = []
        self.visits: dict[tuple[int, ...], int] = {}
        self.variant: PlanVariant | None = None
        self.tapes: tuple[Any, ...] = ()  # what else tells its segments' tapes apart
        self.views: set[int] = set()
        self.by_kind: dict[Any, Any] = {}  # its backward passes, by kinds of gradients and sums (autograd/kept_class_stages.py)

    def state_at(self, sizes: tuple[int, ...]) -> State:
        state = self.root
        count = 0
        for step, variant in zip(self.chain.path, self.chain.variants, strict=True):
            if variant is None:
                state = step
                continue
            ints = []
            for t in variant.template:
                if t is NEW:
                    ints.append(sizes[count])
                    count += 1
                else:
                    ints.append(sizes[t.number] if t.__class__ is Symbol else t)
            key = step.edge if variant.name is None else variant.name(tuple(ints))
            found = state.children.get(key)
            state = exact_state(variant, state, key, sizes[:count]) if found is None else found
        return state

    def tape_for(self, sizes: tuple[int, ...]) -> Tape:
        assert self.history is not None and self.call.model is not None
        tape = tape_at(self.variant, sizes, self.call.model, self.history.preserved, self.tapes)
        if not self.views <= tape.views:
            tape.views |= self.views
        return tape

    def forgotten(self, states: set[State]) -> bool:
        self.by_kind.clear()
        self.alike = []
        super().forgotten(set())
        return True


class ClassWriter(Writer):
    """Writes the function of a call whose tensors are of the kinds that it has."""

    otherwise = "return other(made, ({arguments}, ))"
    fail = otherwise

    def __init__(self, made: KeptClass, inputs: list[State], order: list[int], given: list[str], own: list[Out]) -> None:
        super().__init__(made, inputs, order, given, own)
        self.chain = made.chain
        self.piece = made

    def static_offset(self, i: int) -> str:
        return f"{self.sources[i]}._meta.offset"

    def looks(self, otherwise: str) -> list[str]:
        chain, made = self.chain, self.piece
        op = made.call.edge[0]
        lines = [f"e{i} = {n}._meta" for i, n in enumerate(self.sources)]
        inputs = [named(f"e{i}", f"b{i}.nbytes", s.edge[1].ndim) for i, s in enumerate(self.inputs)]
        call: list[str] = []
        for i in op.sized:
            name, x = self.names[i], made.call.edge[i + 1]
            if x.__class__ is int:
                lines.append(f"if {name}.__class__ is not int: {self.fail}")
                call.append(name)
            elif isinstance(x, tuple) and all(n.__class__ is int for n in x):
                parts = [f"{name}_{k}" for k in range(len(x))]
                self.scope["Size"] = Size
                lines.append(f"if ({name}.__class__ is not tuple and {name}.__class__ is not Size) or len({name}) != {len(x)}: {self.fail}")
                if parts:
                    lines.append(f"{', '.join(parts)}, = {name}")
                    lines.append(f"if {' or '.join([f'{part}.__class__ is not int' for part in parts])}: {self.fail}")
                call += parts
        lines += chain.sizes(inputs, call, self.fail)
        if made.plan is not None:
            lines += chain.row(self.fail)
        if chain.computes:
            given = " + ".join([f"e{i}.numel * {s.edge[1].dtype.itemsize}" for i, s in enumerate(self.inputs)])
            lines.append(f"if {given} + sum(fresh) > {SMALL_BYTES}: {self.fail}")
        return lines

    def before(self) -> list[str]:
        made, chain = self.piece, self.chain
        model = made.call.model
        assert model is not None
        lines = ["n = visits.get(s, 0)", f"if n >= {OWN_AFTER}: return None"]
        self.numbers: dict[tuple[int, int], str] = {}
        for k, (out, over_symbols) in enumerate(zip(made.call.outs, model.outs, strict=True)):
            if out in self.own:
                lines += chain.metadata(f"m{k}", over_symbols.meta)
                if out.dynamic:
                    self.numbers |= {(k, i): chain.number(x) for i, x in over_symbols.dynamic}
                    lines += [*chain.taken(), f"at{k} = m{k}.offset"]
        self.scope |= chain.scope | {"visits": made.visits, "other": _other, "ident": id(model)}
        return lines

    def mark(self) -> str:
        return "hash((ident, s))"

    def runs(self, inputs: list[str]) -> list[str]:
        self.buffers = inputs
        return self.chain.run(inputs, "return None")  # recorded, it fails with its message

    def buffer(self, output: int) -> str:
        return self.chain.output(output, self.buffers)

    def metadata(self, k: int, out: Out) -> None:
        pass  # it has been found before the call's place was noted

    def multipliers(self, k: int, out: Out) -> list[tuple[int, str]]:
        return [(i, self.numbers[k, i]) for i, _ in out.dynamic]

    def shared(self) -> list[str]:
        leaving = {i for _, i in self.made.boundaries}
        metas = ", ".join([f"e{i}" if i in leaving else "None" for i in range(len(self.inputs))])
        return ["g.kept, g.sizes = made, s", f"g.metas = ({metas}, )"]

    def counted(self) -> list[str]:
        return [
            f"if len(visits) > {MOST_COUNTED}: visits.clear()", "visits[s] = n + 1", "counters.kept_pieces += 1", "counters.kept_by_class += 1",
        ]  # fmt: skip


def _other(made: KeptClass, args: tuple[Any, ...]) -> Any:
    """A call that is not one of this class: of the next one of the same name."""
    alike = made.alike
    at = next((i for i, one in enumerate(alike) if one is made), len(alike))
    if at + 1 >= len(alike):
        return None
    following = alike[at + 1]
    result = following.run(*args)
    if result is not None and at == 0 and alike[at + 1] is following:
        alike.insert(0, alike.pop(at + 1))  # the next call is likely to be like this one
    return result


def class_of(learned: Learned, name: tuple[Any, ...]) -> KeptClass | None:
    """What is to be asked first of those of this name that are known by class."""
    found = learned.classes.get(without_sizes(name)) if learned.classes else None
    return None if found is None else found[0]


def has_own(made: KeptClass, sizes: tuple[int, ...]) -> bool:
    """Whether a call that was recorded although it is known by class is to get a function of its own, as its sizes have come back so often. Asked once."""
    if made.visits.get(sizes, 0) < OWN_AFTER:
        return False
    made.visits[sizes] = NEVER
    return True


def may_be_tried(model: State) -> bool:
    """Note that the call behind a model was recorded; whether it is to be tried now to keep it by class."""
    model.kept += 1
    return FROM <= model.kept <= MOST_TRIES and not (model.kept - FROM) % EVERY


def known_of(root: State, call: State) -> KeptClass | None:
    """What serves the sizes of a call that was recorded, of what its root knows by class."""
    known = None if root.immediate is None else root.immediate.models.get(call.model)
    if known is None:
        return None
    for variant in (None,) if call.views_only else [plan.variant for plan in list(call.plans.values())]:
        made = known.get(variant)
        if made is None or made.chain.compared_since():
            continue
        # The program that all sizes share has memory for so many threads, and serves sizes at which there is work for one.
        if variant is None or (variant.workers >= threads.count() and (variant.row is None or variant.row(call.sizes) is not None)):
            return made
    return None


def enter(learned: Learned, made: KeptClass) -> None:
    """Let a root know a call by class."""
    model = made.call.model
    assert model is not None
    alike = learned.classes.setdefault(without_sizes(made.key), [])
    before = learned.models.get(model, {}).get(made.variant)
    for one in [one for one in alike if one is before or one in alike[MOST_ALIKE - 1 :]]:
        assert one.call.model is not None
        learned.models[one.call.model].pop(one.variant, None)
        alike.remove(one)
        one.run = gone
    alike.insert(0, made)
    made.alike = alike
    learned.models.setdefault(model, {})[made.variant] = made
    model.kept = 0
