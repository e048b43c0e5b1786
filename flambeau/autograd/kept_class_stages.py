"""Backward passes through calls that are kept by class (trace/kept_classes.py): one function for the gradients of all sizes.

Its sizes are those of the call, which the segment has, and those of the gradients and sums that come to it. What a segment holds is as large as the call's
sizes say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flambeau.autograd.kept_stage_code import Stage, StageWriter
from flambeau.python_code import compiled
from flambeau.symbols import Code
from flambeau.trace.class_code import Chain, Given, NotByClass, named
from flambeau.trace.existing import maker
from flambeau.trace.meta import Meta, is_dense

if TYPE_CHECKING:
    from flambeau.tensor import Tensor
    from flambeau.trace.class_plans import PlanVariant
    from flambeau.trace.kept_classes import KeptClass

FROM: Final = 3  # visits of stages of these kinds that went the usual way, before it is tried to keep them
EVERY: Final = 4  # and between the next tries
MOST_TRIES: Final = 64  # visits, after which it is not tried again
MOST_ALIKE: Final = 12  # functions for gradients of the same kinds: they have other plans


class Alike:
    """The stages of a call for gradients and sums of the same kinds. `plans`: those of `runs`, which give None where they do not serve the sizes."""

    __slots__ = ("chains", "plans", "runs", "visits")

    def __init__(self) -> None:
        self.runs: list[Any] = []
        self.plans: dict[PlanVariant, Any] = {}
        self.chains: dict[PlanVariant, Chain] = {}
        self.visits = 0

    def may_be_tried(self) -> bool:
        """Note that a stage goes the usual way; whether it is to be tried to keep it."""
        self.visits += 1
        return FROM <= self.visits <= MOST_TRIES and not (self.visits - FROM) % EVERY and len(self.runs) < MOST_ALIKE


def learn_by_class(piece: KeptClass, alike: Alike, stage: Stage) -> None:
    """Write the function of a stage that has just gone the usual way, if that can be done."""
    variant = stage.plan.variant
    known = alike.chains.get(variant)
    if variant is None or (known is not None and not known.compared_since()):
        return
    try:
        writer = ClassStageWriter(piece, stage)
        found = writer.written()
    except NotByClass:
        return
    if found is None:
        return
    text, scope = found
    exec(compiled(text, "<flambeau kept piece>"), scope)
    if known is not None:
        alike.runs.remove(alike.plans[variant])
    alike.chains[variant] = writer.chain
    made = alike.plans[variant] = scope.pop("run")
    alike.runs.insert(0, made)
    alike.visits = 0


class ClassStageWriter(StageWriter):
    """Writes the same for all sizes; None is what `run` gives where it does not serve those of the gradients."""

    def __init__(self, piece: KeptClass, stage: Stage) -> None:
        super().__init__(piece, stage)
        self.chain = Chain([*stage.path, stage.last])
        self.chain.planned(stage.plan.variant)
        self.forward = Code("f", "f_")  # the sizes of the call
        if stage.last.model is None:
            raise NotByClass
        self.outs = stage.last.model.outs

    def static_offset(self, i: int) -> str:
        return f"t{i}._meta.offset"

    def meta_of(self, i: int) -> str:
        return f"segment.metas[{i}]"

    def metadata(self, i: int, m: Meta, number: int) -> list[str]:
        if self.stage.last.outs[number].meta is not m:
            raise NotByClass
        return self.chain.metadata(f"m{i}", self.outs[number].meta)

    def density(self, i: int, dense: bool) -> list[str]:
        self.scope["is_dense"] = is_dense
        return [f"if is_dense(m{i}.shape, m{i}.strides) is not {dense}: return None"]

    def maker(self, i: int, m: Meta) -> str:
        self.scope["maker"] = maker
        return f"maker(m{i}.shape, m{i}.dtype, m{i}.strides)"

    def sizes(self) -> list[str]:
        stage, chain = self.stage, self.chain
        inputs = [self._given(t) for t in stage.resolved]
        lines = ["f = segment.sizes", *self.forward.lines]
        lines += [f"x{i} = gradients[{i}]._meta" for i in range(len(stage.gradients))]
        lines += [f"y{i} = before[{i}]._meta" for i, t in enumerate(stage.before) if t is not None]
        lines += [f"e{i} = segment.metas[{i}]" for _, i in self.piece.boundaries]
        lines += chain.sizes(inputs, [f"f[{i}]" for i in range(len(stage.segment.tape.sizes))], "return None")  # type: ignore[attr-defined]
        lines += chain.row("return None")
        self.scope |= chain.scope
        return lines

    def _given(self, t: Tensor) -> Given:
        """What is known of an input of the stage."""
        stage = self.stage
        name = self.named.get(id(t._storage))
        ndim = t._meta.ndim
        if name is None:
            raise NotByClass
        nbytes = f"{name}.buffer.nbytes"
        for letter, tensors in (("x", stage.gradients), ("y", stage.before), ("e", stage.given)):
            i = next((i for i, x in enumerate(tensors) if x is t), None)
            if i is not None:
                if letter == "e" and not any(at == i for _, at in self.piece.boundaries):
                    raise NotByClass
                return named(f"{letter}{i}", nbytes, ndim)
        slot = next((slot for slot, x in stage.segment.saved.items() if x is t), None)
        if slot is None:
            raise NotByClass
        v = stage.segment.tape.whole.values[slot]  # type: ignore[attr-defined]
        if tuple(stage.segment.tape.values[slot].shape) != tuple(t._meta.shape) or t._meta.offset:
            raise NotByClass
        shape, strides = [self.forward.structure(n) for n in v.shape], [self.forward.structure(n) for n in v.strides]
        return Given(shape, strides, "0", f"({' * '.join(shape) or '1'})", nbytes)

    def runs(self, inputs: list[str]) -> list[str]:
        return self.chain.run(inputs, "return False")

    def buffer(self, output: int) -> str:
        returned = self.chain.plan.plan.plan.schedule.returned  # type: ignore[union-attr]
        return f"{self.buffers[returned[output]]}.buffer" if output in returned else f"o{output}"

    def counted(self) -> list[str]:
        self.scope |= self.chain.scope
        return ["counters.kept_stages += 1", "counters.kept_by_class += 1"]
