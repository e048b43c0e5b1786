"""The source of a kept stage's function (kept_stages.py)."""

from __future__ import annotations

from ctypes import memmove
from typing import TYPE_CHECKING, Any, NamedTuple

from flambeau.statistics import counters
from flambeau.trace.existing import maker
from flambeau.trace.meta import Meta, is_dense
from flambeau.trace.objects import _TENSOR
from flambeau.trace.storage import Storage

if TYPE_CHECKING:
    from flambeau.autograd.engine import Engine
    from flambeau.autograd.kept_segment import KeptSegment
    from flambeau.tensor import Tensor
    from flambeau.trace.kept_piece import KeptPiece
    from flambeau.trace.state import State


class Stage(NamedTuple):
    """A stage that went the usual way: what it was given, what the segment had, and what its trace was."""

    engine: Engine
    segment: KeptSegment
    gradients: list[Tensor]
    before: list[Any]  # the sums at the boundaries, or None
    given: tuple[Tensor | None, ...]
    origins: tuple[tuple[Any, int] | None, ...]
    storages: tuple[Storage | None, ...]
    held: tuple[Storage, ...]
    plan: Any
    path: list[State]  # of the inputs
    last: State
    tensors: list[Tensor]
    inputs: list[Storage]
    resolved: list[Tensor]


class StageWriter:
    """Writes `run(engine, segment, gradients, before)`: True if it has gone through the segment, False if the usual way has to be gone."""

    def __init__(self, piece: KeptPiece, stage: Stage) -> None:
        self.piece, self.stage = piece, stage
        self.scope: dict[str, Any] = {
            "new": object.__new__, "Tensor": _TENSOR[0], "Storage": Storage, "used": stage.last.info.used, "counters": counters, "error": Exception,
            "move": _move,
        }  # fmt: skip
        self.named: dict[int, str] = {}  # what the plan's inputs are, by id of their storages
        self.buffers: list[str] = []  # the names of their storages, in order

    def written(self) -> tuple[str, dict[str, Any]] | None:
        """The source, and its globals; None if it cannot be kept."""
        stage, piece, scope, named = self.stage, self.piece, self.scope, self.named
        engine, segment, gradients, given, origins = stage.engine, stage.segment, stage.gradients, stage.given, stage.origins
        for i, s in enumerate(stage.storages):
            if s is not None:
                named[id(s)] = f"s{i}"
        for i, s in enumerate(stage.held):
            named[id(s)] = f"r{i}"
        for letter, tensors in (("g", gradients), ("u", stage.before)):
            for i, t in enumerate(tensors):
                if t is not None:
                    if id(t._storage) in named:
                        return None
                    named[id(t._storage)] = f"{letter}{i}"
        if any(id(s) not in named for s in stage.inputs):
            return None
        self.buffers = [named[id(s)] for s in stage.inputs]
        sizes = self.sizes()
        parameters = []
        for state, t in zip(stage.path, stage.resolved, strict=True):
            if state.parameters:
                which = next((i for i, x in enumerate(given) if x is t), None)
                if which is None:
                    return None
                parameters.append(f"t{which}._offset - {self.static_offset(which)}")
        numbers = [segment.tape.parameters[slot] for slot in segment.tape.entered]
        parameters += [f"n[{i}]" for i in numbers]
        outputs = dict(stage.plan.assign)
        position = {id(t): k for k, t in enumerate(stage.tensors)}
        made: list[str] = []
        leaves: list[str] = []
        looks: list[str] = []
        whole: dict[int, str] = {}  # storages of fresh outputs
        leaving = dict(piece.boundaries)
        for number, slot in enumerate(stage.last.info.slots):
            if slot not in leaving:
                return None
            i = leaving[slot]
            t, origin = given[i], origins[i]
            assert t is not None
            r = engine.sums.get(id(t)) if origin is None else engine.queue.get(origin[0], {}).get(origin[1])
            if r is None or r._meta.dynamic:
                return None
            name = f"o{i}_"
            same = next((k for k, g in enumerate(gradients) if g is r), None)
            if same is not None:
                made.append(f"    {name} = gradients[{same}]")
            else:
                at = position.get(id(r))
                if at is None:
                    return None
                m = r._meta
                looks += self.metadata(i, m, number)
                taken = False
                if at in outputs:
                    storage = whole.get(outputs[at])
                    if storage is None:
                        storage = whole[outputs[at]] = f"q{i}"
                        made.append(f"    {storage} = Storage({self.buffer(outputs[at])})")
                else:
                    storage = named.get(id(r._storage), "")
                    if not storage.startswith("g"):
                        return None
                    dense = is_dense(m.shape, m.strides)
                    looks += self.density(i, dense)
                    taken = origin is not None and dense and not m.bits and not m.requires_grad
                    if taken:  # as the engine does before the next stage (taken_out)
                        made += [
                            f"    {name}, to = {self.maker(i, m)}()",
                            f"    move(to, {storage}.buffer.address + m{i}.offset * {m.dtype.itemsize}, m{i}.numel * {m.dtype.itemsize})",
                        ]
                if not taken:
                    made += [
                        f"    {name} = new(Tensor)", f"    {name}._gen = {name}._slot = -1", f"    {name}._immediate = None", f"    {name}._meta = m{i}",
                        f"    {name}._storage = {storage}",
                    ]  # fmt: skip
                    if at not in outputs:
                        made.append(f"    {name}._view = True")
            if origin is None:
                leaves += [f"    engine.leaves[id(t{i})] = t{i}", f"    engine.sums[id(t{i})] = {name}"]
            else:
                leaves += [
                    f"    found = queue.get(h{i}[0])", f"    if found is None: queue[h{i}[0]] = {{h{i}[1]: {name}}}", f"    else: found[h{i}[1]] = {name}",
                ]  # fmt: skip
        checked = []
        places = dict(piece.holders)
        for slot in stage.last.info.boundaries_used:
            used = places.get(slot, leaving.get(slot))
            if used is None:
                return None
            checked.append(f"s{used}.version != segment.at[{used}]" if used >= 0 else f"r{-1 - used}.version")
        lines = ["def run(engine, segment, gradients, before):"]
        lines.append(f"    {''.join([f's{i}, ' for i in range(len(given))])} = segment.storages")
        lines.append(f"    {''.join([f't{i}, ' for i in range(len(given))])} = segment.given")
        if stage.held:
            lines.append(f"    {''.join([f'r{i}, ' for i in range(len(stage.held))])} = segment.held")
        lines += [f"    g{i} = gradients[{i}]._storage" for i in range(len(gradients))]
        lines += [f"    u{i} = before[{i}]._storage" for i, t in enumerate(stage.before) if t is not None]
        for _, i in piece.boundaries:
            lines.append(f"    if t{i}._storage is not s{i} or t{i}._meta is not {self.meta_of(i)}: return False")
            if origins[i] is not None:
                lines.append(f"    h{i} = segment.origins[{i}]")
        for name in self.buffers:
            if name[0] in "sr":
                lines.append(f"    if {name}.gen >= 0 or {name}.external is not None: return False")
        if checked:
            lines.append(f"    if {' or '.join(checked)}: return False")
        if numbers:
            lines.append("    n = segment.numbers")
        lines += [f"    {line}" for line in [*sizes, *looks]]
        lines.append(f"    p = ({''.join([f'{p}, ' for p in parameters])})")
        lines += [
            *[f"    {line}" for line in self.runs([f"{name}.buffer" for name in self.buffers])], *made, "    queue = engine.queue", "    del queue[segment]",
            *leaves,
        ]  # fmt: skip
        if not engine.retain:
            lines.append("    segment.done = used")
        lines += [*[f"    {line}" for line in self.counted()], "    return True"]
        return "\n".join(lines), scope

    # -- what depends on whether it is by class (kept_class_stages.py) --------------------------------------------------
    def static_offset(self, i: int) -> str:
        """The text of the offset of a tensor without its run-time part."""
        t = self.stage.given[i]
        assert t is not None
        return str(t._meta.offset)

    def meta_of(self, i: int) -> str:
        """The text of the metadata that a tensor had when the call was made."""
        t = self.stage.given[i]
        assert t is not None
        self.scope[f"w{i}"] = t._meta
        return f"w{i}"

    def metadata(self, i: int, m: Meta, number: int) -> list[str]:
        """Lines that give the name `m{i}` to the metadata of the stage's result of this number."""
        self.scope[f"m{i}"] = m
        return []

    def density(self, i: int, dense: bool) -> list[str]:
        """Lines that look whether a result that is a view has no gaps, as it had none, or had some."""
        return []

    def maker(self, i: int, m: Meta) -> str:
        """The text of what makes a tensor of a result's metadata."""
        self.scope[f"make{i}"] = maker(m.shape, m.dtype, m.strides)
        return f"make{i}"

    def sizes(self) -> list[str]:
        """Lines that look at sizes."""
        return []

    def runs(self, inputs: list[str]) -> list[str]:
        """Lines that run the plan over these buffers and the numbers `p`."""
        plan = self.stage.plan
        self.scope |= {"plan": plan, "compute": plan.run}
        return [
            "try:",
            f"    buffers = compute([{', '.join(inputs)}], p)",
            "except error:",
            "    return False",
            "plan.last = engine.tr.gen",
        ]

    def buffer(self, output: int) -> str:
        """The text of the buffer of one of the plan's outputs."""
        return f"buffers[{output}]"

    def counted(self) -> list[str]:
        """Lines that count the stage."""
        return ["counters.kept_stages += 1"]


def _move(to: int, source: int, nbytes: int) -> None:
    memmove(to, source, nbytes)
