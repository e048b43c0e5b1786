"""What functions of torch make of DTensors.

A function has a rule (rules/): along a dim of the mesh the rule names alternatives, each a placement for every DTensor that it is given and for its
results. For each dim of the mesh that alternative is taken whose redistributions move least; then the function runs on the local tensors.
Functions made of others run as they are, and their parts come here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import flambeau
from flambeau.distributed import watchers
from flambeau.distributed.tensor.api import DTensor, inner, made
from flambeau.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard, _StridedShard
from flambeau.distributed.tensor.spec import Spec, text
from flambeau.distributed.tensor.transitions import redistribute, vary
from flambeau.ops import instrument
from flambeau.ops.dispatch import DisableTorchFunctionSubclass
from flambeau.ops.pointwise_names import plain_name, writes
from flambeau.tensor import Tensor
from flambeau.trace.once import warn_here

Ways = list[tuple[tuple[Placement, ...], Placement]]  # (the placements of what is given, that of all results)


@dataclass
class Rule:
    """What a rule found out about one call."""

    ways: Ways
    shapes: list[tuple[int, ...]] | None = None  # of the results as wholes; None: what the function gives for tensors on `meta`
    run: Callable[..., Any] | None = None  # instead of the function: run(local arguments, local keywords, how all lies)
    follows: bool = False  # whether dims that must be whole become so, as with one tensor, where they could also be cut along another
    strided: bool = False  # whether an alternative holds also where its cuts come after those of later dims of the mesh


@dataclass
class Chosen:
    """How what is given and the first result lie in one call."""

    given: list[Spec]
    result: Spec


class Call:
    """A call that was given DTensors; `tensors` are they, in order."""

    def __init__(self, name: str, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.name, self.func = name, func
        self.tensors: list[DTensor] = []
        self.args = [self._collect(a) for a in args]
        self.kwargs = {k: self._collect(a) for k, a in kwargs.items()}
        self.mesh = self.tensors[0]._layout.mesh
        if any(t._layout.mesh != self.mesh for t in self.tensors):
            meshes = ", ".join(str(t._layout.mesh) for t in self.tensors)
            raise NotImplementedError(f"{name}(): DTensor does not support cross-mesh operation yet: the arguments lie on the meshes {meshes}")

    def _collect(self, a: Any) -> Any:
        if isinstance(a, DTensor):
            self.tensors.append(a)
        elif isinstance(a, Tensor):
            if a.ndim == 1 and a.numel() == 1 and not state.implicit:
                warn_here("Found a non-scalar tensor with numel=1 and ndim!=0, we are implicitly creating a replicated DTensor for it.")
            if a.ndim == 0 or (a.ndim == 1 and a.numel() == 1) or state.implicit:
                return self._collect(made(a, Spec(self.tensors[0]._layout.mesh, (Replicate(),) * self.tensors[0]._layout.mesh.ndim, tuple(a.shape)))) \
                    if a.ndim and self.tensors else _Whole(a) if a.ndim else a  # fmt: skip
            raise RuntimeError(
                f"{self.name}: got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed operators! "
                f"The plain one has shape {tuple(a.shape)}: use distribute_tensor or DTensor.from_local, or "
                "torch.distributed.tensor.experimental.implicit_replication()"
            )
        elif isinstance(a, (list, tuple)):
            parts = [self._collect(b) for b in a]
            return type(a)(*parts) if hasattr(a, "_fields") else type(a)(parts) if type(a) in (list, tuple) else parts
        return a

    def settle(self) -> None:
        """Plain tensors that came before the first DTensor are Replicate on its mesh, too."""
        if any(isinstance(a, _Whole) for a in (*self.args, *self.kwargs.values())):
            spec = (Replicate(),) * self.mesh.ndim
            self.tensors = []
            with_specs = [made(a.tensor, Spec(self.mesh, spec, tuple(a.tensor.shape))) if isinstance(a, _Whole) else a for a in self.args]
            self.args = [self._collect(a) for a in with_specs]
            self.kwargs = {k: self._collect(a) for k, a in self.kwargs.items()}

    def even(self, size: int) -> bool:
        """Whether a size can be cut into equal parts along any dims of the mesh."""
        return size % self.mesh.size() == 0

    def filled(self, size: int) -> bool:
        """Whether every process gets something of a size."""
        n = self.mesh.size()
        return (n - 1) * -(-size // n) < size

    def placed(self) -> str:
        """Shapes and placements of all DTensors, for messages."""
        return "; ".join(f"{tuple(t._layout.shape)} as {text(t._layout.placements)}" for t in self.tensors)


class _Whole:
    """A plain tensor before the mesh is known."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor


class _State(threading.local):
    implicit = 0  # how many blocks say that plain tensors are Replicate


state = _State()


# -- which way ------------------------------------------------------------------------------------------------------------
_COST = {("R", "S"): 0.01, ("R", "P"): 0.02, ("S", "R"): 1.0, ("S", "S"): 0.6, ("P", "R"): 2.0, ("P", "S"): 1.0}


def _kind(p: Placement) -> str:
    return "S" if isinstance(p, Shard) else "P" if isinstance(p, Partial) else "R"


def _cost(have: Placement, want: Placement, t: DTensor, follows: bool) -> float:
    if have == want:
        return 0.0
    if follows and isinstance(have, Shard) and isinstance(want, Shard) and have.dim != want.dim:
        return inf
    return _COST.get((_kind(have), _kind(want)), inf) * (1 + prod(t._layout.shape))


def _strided(way: tuple[tuple[Placement, ...], Placement], factor: int) -> tuple[tuple[Placement, ...], Placement]:
    """An alternative with cuts that come after those of later dims of the mesh."""
    given, out = ([_StridedShard(p.dim, factor) if isinstance(p, Shard) else p for p in part] for part in (way[0], way[1:]))
    return tuple(given), out[0]


def choose(c: Call, rule: Rule, first: Placement | None, mesh_dim: int) -> tuple[tuple[Placement, ...], Placement]:
    """The alternative that moves least. `first`: what an in-place function's first argument and its result must keep."""
    best, least = None, inf
    follows = rule.follows or len(c.tensors) == 1  # as PyTorch's: programs go on with what they have locally
    factor = next((p.split_factor for t in c.tensors if isinstance(p := t._layout.placements[mesh_dim], _StridedShard)), 0)
    for way in [*rule.ways, *(_strided(way, factor) for way in rule.ways)] if factor and rule.strided else rule.ways:
        if first is not None and (way[0][0] != first or way[1] != first):
            continue
        cost = 0.0
        for t, want in zip(c.tensors, way[0], strict=True):
            cost += _cost(t._layout.placements[mesh_dim], want, t, follows)
        if cost < least:
            best, least = way, cost
    if best is None:
        if first is not None:
            raise RuntimeError(
                f"{c.name}_(): in-place operations that require placement changes are not supported: {c.placed()}; use the function that is not in place"
            )
        raise NotImplementedError(f"{c.name}(): no way from these placements: {c.placed()}; redistribute them, for example to Replicate()")
    return best


def run(c: Call, rule: Rule, inplace: bool = False) -> Any:
    """Do a call by its rule."""
    mesh = c.mesh
    if mesh.get_coordinate() is None:
        return c.tensors[0] if inplace else _outside(c)
    chosen = [choose(c, rule, c.tensors[0]._layout.placements[d] if inplace else None, d) for d in range(mesh.ndim)]
    mixed = [d for d, (wants, out) in enumerate(chosen) if not (isinstance(out, Replicate) and all(isinstance(w, Replicate) for w in wants))]
    locals_: list[Any] = []
    given: list[Spec] = []
    for i, t in enumerate(c.tensors):
        wants = [chosen[d][0][i] for d in range(mesh.ndim)]
        given.append(t._layout.placed(wants))
        part = redistribute(inner(t), t._layout, wants)
        whole = [d for d in mixed if isinstance(wants[d], Replicate)]
        locals_.append(vary(part, given[-1], whole) if whole and not (inplace and i == 0) else part)
    parts = iter(locals_)

    def local(a: Any) -> Any:
        if isinstance(a, DTensor):
            return next(parts)
        if type(a) in (list, tuple):
            return type(a)([local(b) for b in a])
        return a

    args = [local(a) for a in c.args]
    kwargs = {k: local(a) for k, a in c.kwargs.items()}
    outs = tuple([out for _, out in chosen])
    if inplace:
        c.func(*args, **kwargs)
        return c.tensors[0]
    shapes = rule.shapes
    if shapes is None and any(isinstance(p, Shard) for p in outs):
        shapes = whole_shapes(c)
    result = c.func(*args, **kwargs) if rule.run is None else rule.run(args, kwargs, Chosen(given, Spec(mesh, outs, shapes[0] if shapes else ())))
    return _wrapped(result, mesh, outs, iter(shapes) if shapes is not None else None)


def _wrapped(result: Any, mesh: Any, outs: tuple[Placement, ...], shapes: Any) -> Any:
    if isinstance(result, Tensor):
        return made(result, Spec(mesh, outs, tuple(result.shape) if shapes is None else next(shapes)))
    if isinstance(result, (list, tuple)):
        parts = [_wrapped(r, mesh, outs, shapes) for r in result]
        return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)
    return result


def _outside(c: Call) -> Any:
    """What a process that is not in the mesh gets: the same kinds of results, of which it has nothing; of a number 0."""

    def nothing(a: Any) -> Any:
        if isinstance(a, Tensor):
            whole = Spec(c.mesh, (Replicate(),) * c.mesh.ndim, tuple(a.shape))
            return made(flambeau.zeros((0,) if a.ndim else (), dtype=a.dtype), whole)
        if isinstance(a, (list, tuple)):
            parts = [nothing(b) for b in a]
            return type(a)(*parts) if hasattr(a, "_fields") else type(a)(parts)
        return a

    return nothing(_of_wholes(c))


def _of_wholes(c: Call) -> Any:
    """What the function gives for tensors without elements of the wholes' shapes."""

    def blank(a: Any) -> Any:
        if isinstance(a, Tensor):
            return flambeau.empty(tuple(a.shape) if not isinstance(a, DTensor) else a._layout.shape, dtype=a.dtype, device="meta")
        return type(a)([blank(b) for b in a]) if type(a) in (list, tuple) else a

    with flambeau.no_grad():
        return c.func(*[blank(a) for a in c.args], **{k: blank(a) for k, a in c.kwargs.items()})


_SHAPES: dict[Any, list[tuple[int, ...]]] = {}


def whole_shapes(c: Call) -> list[tuple[int, ...]]:
    """The shapes of the results as wholes: what the function gives for tensors without elements."""

    def shown(a: Any) -> Any:
        if isinstance(a, Tensor):
            return ("tensor", tuple(a._layout.shape if isinstance(a, DTensor) else a.shape), a.dtype)
        return tuple([shown(b) for b in a]) if isinstance(a, (list, tuple)) else repr(a)

    key = (c.func, tuple([shown(a) for a in c.args]), tuple([(k, shown(a)) for k, a in c.kwargs.items()]))
    found = _SHAPES.get(key)
    if found is None:
        result = _of_wholes(c)
        found = [tuple(r.shape) for r in ([result] if isinstance(result, Tensor) else result) if isinstance(r, Tensor)]
        if len(_SHAPES) > 10_000:
            _SHAPES.clear()
        _SHAPES[key] = found
    return found


# -- calls ----------------------------------------------------------------------------------------------------------------
def call(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A public function that was given DTensors."""
    from flambeau.distributed.tensor.rules import DIRECT, PLAIN, RULES

    name = getattr(func, "__name__", "")
    if name in PLAIN:
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    direct = DIRECT.get(name)
    if direct is not None:
        if watchers.WATCHERS:
            _tell(name, (*args, *kwargs.values()))
        return direct(func, *args, **kwargs)
    plain = plain_name(name)
    rule = RULES.get(plain)
    if rule is None:
        if not hasattr(func, "operation") and isinstance(func, instrument.FunctionType):
            return _composed(func, args, kwargs)
        c = Call(plain, func, args, kwargs)
        raise NotImplementedError(
            f"Operator {plain} does not have a sharding strategy registered: {c.placed()}. Give it local tensors (to_local()) or whole ones (full_tensor())"
        )
    inplace = writes(name)
    c = Call(plain, func, args, kwargs)
    c.settle()
    if watchers.WATCHERS:
        _tell(name, c.tensors)
    found = rule(c, *c.args, **c.kwargs)
    return run(c, found, inplace) if isinstance(found, Rule) else found


def _tell(name: str, given: Sequence[Any]) -> None:
    tensors = [t for a in given for t in (a if isinstance(a, (list, tuple)) else [a]) if isinstance(t, DTensor)]
    for watcher in watchers.WATCHERS:
        watcher.operation(name, tensors)


def _composed(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """A function made of others: tensors that it makes by itself are the same everywhere."""
    entry = instrument.original(func)
    state.implicit += 1
    try:
        return entry(*args, **kwargs)
    finally:
        state.implicit -= 1
