"""The code of a trace by class, for functions that do without the trace: its sizes, whether they fit, what its results are like, and its run.

A piece at new sizes takes edges by class, ends, and runs a plan by class (classes.py, class_plans.py). All of that depends on the metadata of what goes in
alone. So it is written as one text over sizes: the sizes are read from the metadata, the guards of all edges and of the plan are asked, and the
program that all sizes share runs. No state is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.compiler.kernels.host_step import HostCall
from flambeau.runtime import buffers, threads
from flambeau.symbols import Code, symbolic
from flambeau.trace.classes import model_of, of_input
from flambeau.trace.from_model import NEW, Symbol, Variant, tried
from flambeau.trace.meta import INTERNED, Meta, meta
from flambeau.trace.state import ALIAS, IN, State

if TYPE_CHECKING:
    from flambeau.trace.class_plans import PlanVariant


class NotByClass(Exception):
    """A trace that cannot be written by class, or not yet."""


class Given(NamedTuple):
    """What goes into a trace, as texts: its sizes and strides, its offset, how many elements it has, the bytes of its memory; `meta`: its metadata, if it has
    a name."""

    shape: Sequence[str]
    strides: Sequence[str]
    offset: str
    numel: str
    nbytes: str
    meta: str = ""


def named(meta: str, nbytes: str, ndim: int) -> Given:
    """What goes in with the metadata of this name."""
    return Given(
        [f"{meta}.shape[{i}]" for i in range(ndim)], [f"{meta}.strides[{i}]" for i in range(ndim)], f"{meta}.offset", f"{meta}.numel", nbytes, meta
    )  # fmt: skip


def variant_of(state: State) -> Variant:
    """The model's edge that a state by class came by."""
    assert state.parent is not None
    before = model_of(state.parent)
    for variants in ((before.patterns or {}) if before is not None else {}).values():
        for variant in variants:
            if variant.__class__ is Variant and variant.model is not None and variant.model is state.model:
                return variant
    raise NotByClass


class Chain:
    """The path of a trace by class, and the text of what it does. `path`: the states behind the root."""

    def __init__(self, path: Sequence[State]) -> None:
        self.path = path
        self.variants: list[Variant | None] = []
        for state in path:
            if state.sizes is None:
                raise NotByClass
            variant = variant_of(state) if state.sizes else None
            if variant is not None and (variant.dead or not tried(variant, state.sizes)):
                raise NotByClass  # not compared yet
            self.variants.append(variant)
        if not path[-1].sizes:
            raise NotByClass
        self.scope: dict[str, Any] = {}
        self.code = Code("s", "s_")
        self.plan: PlanVariant | None = None
        self.computes = False  # whether the plan has something to run
        self.untried: tuple[Any, ...] = ()  # as it was when the text was written

    def compared_since(self) -> bool:
        """Whether what it consists of has been compared at more sizes since its text was written, so that it might serve more."""
        return bool(self.untried) and self.untried != self._untried()

    def _untried(self) -> tuple[tuple[int, int], ...]:
        """The symbols that must be what they were whenever an edge, or the plan, was compared (from_model.tried)."""
        every = [v.untried for v in (*self.variants, self.plan) if v is not None and not v.verified]
        return tuple(sorted({pair for pairs in every for pair in pairs}))

    def _constant(self, x: Any) -> str:
        name = f"K{len(self.scope)}"
        self.scope[name] = x
        return name

    def ints(self, position: int, given: Given) -> list[str]:
        """The texts of the sizes in the key of an input's edge."""
        (_, flags, _, _), _ = of_input(self.path[position].edge, True)
        layout, whole = flags[-2:]
        found = list(given.shape) if layout is not None else [*given.shape, *given.strides]
        return found if whole else [*found, given.offset, given.nbytes if self.path[position].edge[0] == IN else "0"]

    def sizes(self, inputs: Sequence[Given], call: Sequence[str], fail: str) -> list[str]:
        """Lines that find the sizes of the path and look at all guards. `call`: the sizes in the key of the last edge."""
        fresh: list[str] = []
        checks: list[str] = []
        guards: list[Any] = []
        for position, (state, variant) in enumerate(zip(self.path, self.variants, strict=True)):
            key = state.edge
            is_input = key[0] == IN or key[0] == ALIAS
            given = inputs[position] if is_input else None
            if given is not None and key[0] == IN:
                m: Meta = key[1]
                if m.offset == 0 and key[2] == m.numel * m.dtype.itemsize:
                    checks.append(f"{given.nbytes} != {given.numel} * {m.dtype.itemsize}")
            if variant is None:
                if given is None:
                    raise NotByClass
                self._the_same(key, given, checks)
                continue
            ints = call if given is None else self.ints(position, given)
            if len(ints) != len(variant.template):
                raise NotByClass
            for text, t in zip(ints, variant.template, strict=True):
                if t is NEW:
                    fresh.append(text)
                    checks.append(f"{text} < 2")
                elif t.__class__ is Symbol:
                    checks.append(f"{text} != s[{t.number}]")
                elif text != str(t):
                    checks.append(f"{text} != {t}")
            guards += variant.guards
        lines = [f"s = ({', '.join(fresh)},)"]
        self.untried = self._untried()
        checks += [f"s[{i}] != {n}" for i, n in self.untried]
        if checks:
            lines.append(f"if {' or '.join(checks)}: {fail}")
        self.code.check(guards, fail)
        return [*lines, *self.taken()]

    def _the_same(self, key: Any, given: Given, checks: list[str]) -> None:
        """An input before the path's first symbol is the one that it was."""
        m: Meta = key[1] if key[0] == IN else key[2]
        if given.meta:
            checks.append(f"{given.meta} is not {self._constant(m)}")
        else:
            wanted = [*m.shape, *m.strides, m.offset]
            checks += [f"{text} != {n}" for text, n in zip([*given.shape, *given.strides, given.offset], wanted, strict=True) if text != str(n)]
        if key[0] == IN:
            checks.append(f"{given.nbytes} != {key[2]}")

    def taken(self) -> list[str]:
        """The lines that have come to the code since this was asked last."""
        lines, self.code.lines = self.code.lines, []
        return lines

    def number(self, x: Any) -> str:
        """The text of a number over the path's sizes, whose lines are among the next that are `taken`."""
        return self.code.structure(x)

    def metadata(self, name: str, m: Meta) -> list[str]:
        """Lines that find the metadata which at the path's sizes is `m`, over symbols."""
        if not symbolic((*m.shape, *m.strides, m.offset)):
            self.scope[name] = m
            return []
        layout = self.code.structure((tuple(m.shape), m.strides)), self.code.structure(m.offset)
        self.scope |= {"INTERNED": INTERNED, "meta_of": meta}
        dtype, device = self._constant(m.dtype), self._constant(m.device)
        shape, offset = layout
        flags = f"{m.requires_grad}, {m.leaf}, {m.wrapped}, {m.dynamic}"
        return [
            *self.taken(),
            f"shape_, strides_ = {shape}",
            f"{name} = INTERNED.get((shape_, strides_, {dtype}, {offset}, {flags}, {m.device.type!r}, {m.bits}))",
            f"if {name} is None: {name} = meta_of(shape_, strides_, {dtype}, {offset}, {flags}, {device}, {m.bits})",
        ]

    # -- the plan ---------------------------------------------------------------------------------------------------
    def planned(self, plan: PlanVariant) -> None:
        """The path's plan over symbols: it is to be run. NotByClass if sizes share no program."""
        if plan.dead or not tried(plan, self.path[-1].sizes):  # type: ignore[arg-type]
            raise NotByClass
        self.computes = bool(plan.assembly.parts)
        if not self.computes and not plan.assembly.fresh:  # all results are views
            self.plan = plan
            self.scope |= {"row_of": plan.numbers, "threads": threads.count, "held_": plan}
            return
        if plan.row is None and plan.source is not None:
            plan.share()
        if plan.row is None or plan.plan.plan.interface.updates or any(isinstance(part, HostCall) for part in plan.assembly.parts):
            raise NotByClass
        self.plan = plan
        self.scope |= {
            "row_of": plan.row, "program_of": plan.program, "allocate": buffers.allocate, "arena_of": buffers.arena, "threads": threads.count,
            "error": Exception, "held_": plan,
        }  # fmt: skip

    def row(self, fail: str) -> list[str]:
        """Lines that ask the plan's guards, and find its words."""
        assert self.plan is not None
        return [
            f"if threads() > {self.plan.workers}: {fail}", "row = row_of(s)", f"if row is None: {fail}",
            *["fresh, arena_bytes, words, small = row"] * self.computes,
        ]  # fmt: skip

    def run(self, inputs: Sequence[str], fail: str) -> list[str]:
        """Lines that run the plan over the buffers of these names, and its numbers, `p`."""
        assert self.plan is not None
        if not self.computes:
            return []
        assembly = self.plan.assembly
        made = [f"o{j}" for j in assembly.fresh]
        lines = [f"{o} = allocate(fresh[{i}])" for i, o in enumerate(made)]
        if assembly.pooled:
            lines.append("arena = arena_of(arena_bytes)")
        numbers = "*p, " if assembly.plan.interface.parameters else ""
        values = "".join([f"{b}.address, " for b in [*["arena"] * assembly.pooled, *inputs, *made]]) + numbers + "*words"
        return [
            "try:",
            *[f"    {line}" for line in lines],
            "    program = program_of(small)",
            f"    code = program.call({values}) if program.keeps_gil else program.run(({values}, ))",
            "except error:",
            f"    {fail}",
            f"if code: {fail}",
        ]

    def output(self, index: int, inputs: Sequence[str]) -> str:
        """The name of the buffer of an output."""
        assert self.plan is not None
        returned = self.plan.plan.plan.schedule.returned
        return inputs[returned[index]] if index in returned else f"o{index}"


def plan_of(model: State, alive: bytes, sizes: tuple[int, ...]) -> PlanVariant:
    """The plan over symbols that serves these sizes."""
    variants = model.plans.get(alive)
    for variant in variants if variants.__class__ is list else ():
        if variant.numbers(sizes) is not None:
            return variant  # type: ignore[no-any-return]
    raise NotByClass
