"""What fully_shard keeps of one module: its parameters as parts, gathered before forward and backward, their gradients scattered after.

Between calls a module's parameters are DTensors cut along one dim. A call gathers them (one collective), puts whole tensors in their place, and takes them
away again. What of them is kept for the backward pass is kept as a note of which one it was, so the memory is free until the pass comes to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import flambeau
from flambeau.autograd.function import Function
from flambeau.autograd.graph import saved_tensors_hooks
from flambeau.distributed import collectives as c
from flambeau.distributed.fsdp._cut import Cut, cut
from flambeau.distributed.fsdp.api import CPUOffloadPolicy, MixedPrecisionPolicy
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.tensor.api import inner
from flambeau.tensor import Tensor
from flambeau.trace.recorder import storage_of


class _Unshard(Function):
    """Parts -> whole parameters; their gradients -> the parts of the mean over all processes."""

    @staticmethod
    def forward(ctx: Any, state: State, *parts: Any) -> Any:
        ctx.state, ctx.needs = state, [p.requires_grad for p in parts]
        found = state.gather(parts)
        state.whole = list(found)
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        state: State = ctx.state
        state.free()
        return (None, *state.reduced([g if needs else None for g, needs in zip(gradients, ctx.needs, strict=True)]))


class _Kept:
    """A whole parameter that the backward pass needs: which one, and how it is seen."""

    __slots__ = ("index", "offset", "shape", "stride")

    def __init__(self, index: int, shape: Any, stride: Any, offset: int) -> None:
        self.index, self.shape, self.stride, self.offset = index, shape, stride, offset


class State:
    """The parameters of one call of fully_shard, over a mesh of one dim (shard) or of two (replicate, shard)."""

    def __init__(
        self, modules: Sequence[Any], mesh: Any, reshard: bool, policy: MixedPrecisionPolicy, offload: Any, ignored: set[Any], managed: set[int],
        placement: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        self.mesh, self.policy, self.offload = mesh, policy, offload
        self.reshard = reshard
        self.group = mesh.get_group(mesh.ndim - 1)
        self.replicas = mesh.get_group(0) if mesh.ndim == 2 else None
        self.synchronizes, self.divisor = True, float(mesh.size())
        self.depth = 0
        self.whole: list[Any] = []  # the whole parameters while they are there
        self.kept_open = False  # unshard() was called: they stay until reshard()
        self.waiting: list[Any] = []  # gradients of whole parameters that are not synchronized yet
        self.parameters: list[Any] = []
        self.cuts: list[Cut] = []
        self.places: list[list[tuple[Any, str]]] = []
        self._take(modules, ignored, managed, placement)

    def _take(self, modules: Sequence[Any], ignored: set[Any], managed: set[int], placement: Callable[[Any], Any] | None) -> None:
        known: dict[int, int] = {}
        for top in modules:
            for module in top.modules():
                for name, p in module._parameters.items():
                    if p is None or p in ignored or id(p) in managed:
                        continue
                    if id(p) not in known:
                        known[id(p)] = len(self.parameters)
                        wanted = placement(p) if placement is not None else None
                        sharded, how = cut(p, name, self.mesh, 0 if wanted is None else wanted.dim)
                        self.parameters.append(sharded)
                        self.cuts.append(how)
                        self.places.append([])
                    self.places[known[id(p)]].append((module, name))
        for sharded, places in zip(self.parameters, self.places, strict=True):
            for module, name in places:
                module._parameters[name] = sharded

    # -- collectives ------------------------------------------------------------------------------------------------
    def gather(self, parts: Sequence[Any]) -> list[Any]:
        """The whole parameters, in the policy's dtype."""
        kind = self.policy.param_dtype
        sends = [p.detach().to(kind) if kind is not None and p.is_floating_point() else p.detach() for p in parts]
        wholes, outputs = [], [[] for _ in range(self.group.size())]  # type: ignore[var-annotated]
        for how, t in zip(self.cuts, sends, strict=True):
            whole, pieces = how.empty(t.dtype)
            for found, piece in zip(outputs, pieces, strict=True):
                found.append(piece)
            wholes.append(whole)
        sends = [how.front(t) for how, t in zip(self.cuts, sends, strict=True)]
        if len({t.dtype for t in sends}) == 1:
            c.all_gather_coalesced(outputs, sends, self.group)
        else:
            for i, t in enumerate(sends):
                c.all_gather([each[i] for each in outputs], t, self.group)
        return [how.back(whole) for how, whole in zip(self.cuts, wholes, strict=True)]

    def reduced(self, gradients: Sequence[Any]) -> list[Any]:
        """The parts of the mean of the processes' gradients; None where there are none, or they wait."""
        if self.waiting:
            gradients = [w if g is None else g if w is None else w + g for w, g in zip(self.waiting, gradients, strict=True)]
            self.waiting = []
        if not self.synchronizes:
            self.waiting = [None if g is None else g.detach() for g in gradients]
            return [None] * len(gradients)
        return [None if g is None else self._scattered(g.detach(), p, how) for g, p, how in zip(gradients, self.parameters, self.cuts, strict=True)]

    def _scattered(self, gradient: Any, p: Any, how: Cut) -> Any:
        kind = self.policy.reduce_dtype or gradient.dtype
        gradient = how.front(gradient.to(kind))
        if self.divisor != 1.0:
            gradient = gradient / self.divisor
        parts = list(gradient.split(how.sizes, 0))
        part = flambeau.empty(parts[self.group.rank()].shape, dtype=kind)
        c.reduce_scatter(part, parts, ReduceOp.SUM, self.group)
        if self.replicas is not None:
            c.all_reduce(part, ReduceOp.SUM, self.replicas)
        return how.back(part).to(p.dtype)

    # -- around a call ------------------------------------------------------------------------------------------------
    def _put(self, tensors: Sequence[Any]) -> None:
        for places, t in zip(self.places, tensors, strict=True):
            for module, name in places:
                module._parameters[name] = t

    def _put_whole(self, tensors: Sequence[Any]) -> None:
        self._put([how.placed(t) for how, t in zip(self.cuts, tensors, strict=True)])

    def free(self) -> None:
        """Let go of the whole parameters."""
        if not self.kept_open:
            self.whole = []

    @contextmanager
    def unsharded(self) -> Iterator[None]:
        """A block in which the modules have whole parameters."""
        if self.depth or self.kept_open or not self.parameters:
            yield
            return
        self.depth += 1
        try:
            tensors = _Unshard.apply(self, *[inner(p) for p in self.parameters])
            tensors = tensors if isinstance(tensors, tuple) else (tensors,)
            if not self.reshard or not flambeau.is_grad_enabled():
                self._put_whole(tensors)
                yield
            else:
                storages = {id(storage_of(t)): i for i, t in enumerate(tensors)}
                with saved_tensors_hooks(self._packer(storages), self._unpack):
                    self._put_whole(tensors)
                    yield
        finally:
            self.depth -= 1
            self._put(self.parameters)
            self.free()

    def _packer(self, storages: dict[int, int]) -> Callable[[Tensor], Any]:
        def pack(t: Tensor) -> Any:
            index = storages.get(id(storage_of(t)))
            return t if index is None else _Kept(index, tuple(t.shape), tuple(t.stride()), t.storage_offset())

        return pack

    def _unpack(self, kept: Any) -> Any:
        if not isinstance(kept, _Kept):
            return kept
        if not self.whole:
            with flambeau.no_grad():
                self.whole = self.gather([inner(p).detach() for p in self.parameters])
        return self.whole[kept.index].as_strided(kept.shape, kept.stride, kept.offset)

    # -- by hand --------------------------------------------------------------------------------------------------------
    def open(self) -> None:
        """Gather the parameters until `close`."""
        if self.kept_open or not self.parameters:
            return
        tensors = _Unshard.apply(self, *[inner(p) for p in self.parameters])
        self._put_whole(tensors if isinstance(tensors, tuple) else (tensors,))
        self.kept_open = True

    def close(self) -> None:
        """Give the modules their parts again."""
        self.kept_open = False
        self._put(self.parameters)
        self.free()

    # -- inputs and outputs -----------------------------------------------------------------------------------------------
    def cast_inputs(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Floating tensors in the dtype of the parameters, if the policy says so."""
        kind = self.policy.param_dtype
        if kind is None or not self.policy.cast_forward_inputs:
            return args, kwargs
        return _cast(args, kind), _cast(kwargs, kind)

    def cast_outputs(self, outputs: Any) -> Any:
        """Floating tensors in the policy's dtype of outputs."""
        return outputs if self.policy.output_dtype is None else _cast(outputs, self.policy.output_dtype)

    def offloads(self) -> bool:
        """Whether parts stay in the CPU's memory, as they do anyway."""
        return isinstance(self.offload, CPUOffloadPolicy)


def _cast(x: Any, kind: Any) -> Any:
    if isinstance(x, Tensor):
        return x.to(kind) if x.is_floating_point() else x
    if isinstance(x, dict):
        return {k: _cast(v, kind) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        parts = [_cast(v, kind) for v in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return x
