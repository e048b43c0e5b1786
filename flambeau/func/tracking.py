"""What reverse mode differentiates: fresh names of tensors, and whether a result depends on anything that was differentiable before.

The transforms grad and vjp use the gradients of the Trace. An argument gets a new name (a leaf, or an alias of what already requires
gradients), the function is called with it, and gradients are asked for with respect to that name. The results keep their history only
where it leads on to something else: a tensor of an outer transform, or a parameter that the user differentiates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flambeau.func.batch import BatchedTensor, VmapLevel, wrap
from flambeau.func.forward import DualTensor, JvpLevel
from flambeau.func.levels import LevelTensor, bottom
from flambeau.trace.programs import program_around
from flambeau.trace.recorder import local
from flambeau.trace.state import State
from flambeau.trace.while_set import while_set

_REACHED: dict[tuple[State, int], frozenset[int]] = {}  # (state, slot) -> the boundaries of the trace on which the slot depends
_MOST = 4096


def _wrap_tensor_for_grad(maybe_tensor: Any, level: Scope) -> Any:
    """A tensor as a grad or vjp differentiates it: the step that packages replace."""
    return level.track(maybe_tensor)


class Scope:
    """One grad or vjp: the leaves that it made."""

    def __init__(self, follows: bool) -> None:
        self.follows = follows  # whether grad mode was on outside: else nothing outside is differentiable
        self.leaves: dict[int, Any] = {}

    def track(self, t: Any) -> Any:
        """A new name for `t`; under a vmap one for each sample, so that each gets its own gradient."""
        return self._track(t, local.trace)

    def _track(self, t: Any, level: Any) -> Any:
        if isinstance(level, VmapLevel):
            inner = while_set(local, "trace", level.below, level.batched, t)
            return wrap(level, self._track(inner, level.below))
        if isinstance(level, JvpLevel):
            primal, tangent = level.parts(t)
            tracked = self._track(primal, level.below)
            return tracked if tangent is None else level.dual(tracked, tangent)
        return while_set(local, "trace", level, self._rename, t)

    def _rename(self, t: Any) -> Any:
        program = program_around("torch.func.grad and its like", (t,))
        if program is not None:
            return program.variable(t)
        if self.follows and t.requires_grad:
            from flambeau.ops.indexing import _alias

            return _alias(t)
        leaf = t.detach().requires_grad_()
        self.leaves[id(leaf)] = leaf
        return leaf

    def escapes(self, tensors: Iterable[Any]) -> bool:
        """Whether a tensor depends on something differentiable besides the leaves of this scope."""
        if not self.follows:
            return False
        return any(_depends(b, self.leaves) for t in tensors for b in _bottoms(t))

    def release(self, t: Any) -> Any:
        """A result without the history that only this scope knows."""
        if isinstance(t, BatchedTensor):
            inner = self.release(t._inner)
            return t if inner is t._inner else wrap(t._level, inner)
        if isinstance(t, DualTensor):
            level: Any = t._level
            primal, tangent = self.release(t._inner), self.release(t._tangent)
            return t if primal is t._inner and tangent is t._tangent else level.dual(primal, tangent)
        if getattr(type(t), "stands_in_a_program", False) or not t.requires_grad or (self.follows and _depends(t, self.leaves)):
            return t
        return while_set(local, "trace", local.main, _free, t)


def _free(t: Any) -> Any:
    free = t.detach()
    if free._storage is not None and free._storage.cut >= 0:
        return free.clone()  # written in place: every tensor over that memory can be traced back
    free._detached = False
    return free


def _bottoms(t: Any) -> list[Any]:
    """The tensors of the Trace that a tensor is made of."""
    if isinstance(t, DualTensor):
        return _bottoms(t._inner) + _bottoms(t._tangent)
    return _bottoms(t._inner) if isinstance(t, LevelTensor) else [bottom(t)]


def _depends(t: Any, leaves: dict[int, Any]) -> bool:
    """Whether a tensor of the Trace depends on something differentiable besides `leaves`."""
    m = t._fresh_meta()
    if not m.requires_grad or getattr(type(t), "stands_in_a_program", False):
        return False
    if t.is_leaf:
        return id(t) not in leaves
    tr = local.main
    segments: dict[Any, set[int]] = {}
    if t._history is not None and t._gen != tr.gen:
        segments[t._history[0]] = {t._history[1]}
    else:
        slot = tr.slot_of(t)
        if not _leave(_reached(tr, slot), tr.boundaries, leaves, segments):
            return True
    while segments:
        segment = max(segments, key=lambda s: s.order)
        found = _walk(reversed(segment.tape.nodes), segment.tape.requires, segment.boundaries, segment.custom, segments.pop(segment))
        if not _leave(found, segment.boundaries, leaves, segments):
            return True
    return False


def _leave(slots: Iterable[int], boundaries: dict[int, Any], leaves: dict[int, Any], segments: dict[Any, set[int]]) -> bool:
    """Go on to earlier segments; False if a leaf is met that is none of `leaves`."""
    for slot in slots:
        b = boundaries[slot]
        if b.history is not None:
            segments.setdefault(b.history[0], set()).add(b.history[1])
        elif id(b.tensor) not in leaves:
            return False
    return True


def _reached(tr: Any, slot: int) -> frozenset[int]:
    key = (tr.state, slot)
    found = None if tr.custom else _REACHED.get(key)
    if found is None:
        path = tr.state.path()
        nodes = [n for s in path for n in s.nodes]
        requires: set[int] = set().union(*[s.requires for s in path])
        found = frozenset(_walk(reversed(nodes), requires, tr.boundaries, tr.custom, {slot}))
        if not tr.custom:
            if len(_REACHED) >= _MOST:
                _REACHED.clear()
            _REACHED[key] = found
    return found


def _walk(nodes: Iterable[Any], requires: Any, boundaries: Any, custom: dict[int, Any], wanted: set[int]) -> set[int]:
    """The boundaries on which the wanted slots depend; `nodes`: last first."""
    found: set[int] = set()
    wanted = set(wanted)
    for node in nodes:
        hit = wanted.intersection(node.outputs)
        if not hit:
            continue
        wanted -= hit
        if node.outputs[0] in boundaries:
            found.update(o for o in hit if o in boundaries)
            continue
        context = custom.get(node.outputs[0])
        sources = node.inputs if context is None else [s for s in context.input_slots if s is not None]
        wanted.update(i for i in sources if i in requires)
    found.update(w for w in wanted if w in boundaries)
    return found
