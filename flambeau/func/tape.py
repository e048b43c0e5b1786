"""A tape: an expansion that passes everything on and remembers the nodes, so that what was recorded can be differentiated at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from flambeau.autograd.differentiate import Region, differentiate
from flambeau.compiler.graph import Node
from flambeau.func.levels import Expansion
from flambeau.trace.meta import meta
from flambeau.trace.recorder import local, run_in


class Tape(Expansion):
    """Items: tensors outside. `wanted`: slots whose gradients can be asked for."""

    def __init__(self, outer: Any) -> None:
        super().__init__(outer)
        self.wanted: set[int] = set()
        self.nodes: list[Node] = []
        self.known: dict[tuple[int, int], Any] = {}

    def take(self, t: Any) -> Any:
        key = (t._gen, t._slot)
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.enter(t, t._meta)
        return found

    plain = take

    def tensor_of(self, item: Any) -> Any:
        return item

    def needs(self, slot: int) -> bool:
        return slot in self.wanted

    def record(self, primitive: Any, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
        slots = tuple([t._slot for t in inputs])
        result = self.outer.record(primitive, [self.item(t) for t in inputs], attrs)
        outputs = [self.take(t) for t in (result if isinstance(result, tuple) else (result,))]
        if primitive.differentiable and not self.wanted.isdisjoint(slots):
            smooth = [o._slot for o in outputs if o._meta.dtype.is_floating_point or o._meta.dtype.is_complex]
            self.wanted.update(smooth)
            self.nodes.append(Node(primitive.name, slots, tuple([o._slot for o in outputs]), tuple(sorted(attrs.items()))))
        return tuple(outputs) if isinstance(result, tuple) else outputs[0]

    def tensor(self, slot: int) -> Any:
        """The tensor of this tape at a slot."""
        return self.placeholder(slot, self.items[slot]._meta)


def transposed(pull: Callable[..., Sequence[Any]], outputs: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """For a map `pull(take, *gradients)`, linear, from gradients like `outputs` to gradients like `tangents` (None: not wanted): its
    transpose at `tangents`. Recorded in the present recorder, to which all tensors belong; `take` makes them tensors of the tape."""
    from flambeau.ops import primitives as prim

    outer = local.trace
    tape = Tape(outer)
    seeds: list[Any] = []
    for o in outputs:
        d = o._meta.dtype
        if d.is_floating_point or d.is_complex:
            one = prim.full_of(tuple(o._meta.shape), prim.constant(1, d))  # any place will do: the map is linear
            seed = tape.enter(one, meta(one._meta.shape, one._meta.strides, d, device=one._meta.device))
            tape.wanted.add(seed._slot)
            seeds.append(seed)
        else:
            seeds.append(None)

    def body() -> list[Any]:
        results = pull(tape.take, *seeds)
        grads: dict[int, Any] = {}
        for r, t in zip(results, tangents, strict=False):
            if r is None or t is None or r._slot not in tape.wanted:
                continue
            if r._meta.dtype is not t._meta.dtype:  # the gradient of a real input is real
                r = prim.real_part(r) if r._meta.dtype.is_complex and not t._meta.dtype.is_complex else r
                r = r.to(t._meta.dtype)
            before = grads.get(r._slot)
            grads[r._slot] = tape.take(t) if before is None else before + tape.take(t)
        wanted = {s._slot for s in seeds if s is not None}
        region = Region(
            tape, list(tape.nodes), tape.needs, tape.value, tape.tensor, wanted, set(), {}, {}, (),
        )  # fmt: skip
        differentiate(region, grads, -1)
        return [None if s is None else grads.get(s._slot) for s in seeds]

    results = run_in(tape, body, ())
    return tuple([None if r is None else tape.items[r._slot] for r in results])
