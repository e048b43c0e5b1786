"""Reverse mode under levels: gradients of tensors that belong to a vmap or a jvp, and several backward passes in one.

The backward pass itself is that of the Trace (autograd/engine.py), over the tensors under all levels. Each level, from the inner
to the outer, says what it makes of the gradients that are asked for:

    vmap, outputs with the batch    the samples do not depend on each other, so the gradient of all is that of each
    vmap, only the gradients do     one pass for each sample, all at once: one `extra` dim in front of the gradients
    jvp                             gradients of the primal outputs, and, as their tangents, those of outputs and tangents together:
                                    if g = c^T J, then dg = dc^T J + c^T dJ, the gradient of <dc, y> + <c, dy> where y is the
                                    output and dy its tangent

At the bottom all extra dims are one, and the rules of the pass run inside a BatchExpansion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from flambeau.autograd import fitting
from flambeau.autograd.differentiate import Region, differentiate
from flambeau.compiler.graph import contiguous_strides
from flambeau.func.batch import BatchExpansion, VmapLevel
from flambeau.func.levels import Level, leaves_no_level
from flambeau.trace.recorder import Fragment, local, run_in
from flambeau.trace.while_set import while_set

if TYPE_CHECKING:
    from flambeau.func.forward import JvpLevel


def differentiate_batched(region: Region, fragment: Fragment, grads: dict[int, Any], stop: int) -> list[Any]:
    """`differentiate` for gradients with one more dim in front; `grads` gets the results' slots."""
    from flambeau.ops import primitives as prim

    expansion = BatchExpansion(fragment, 0, False)
    forward = region.forward
    known: dict[int, Any] = {}

    def entered(slot: int) -> Any:
        found = known.get(slot)
        if found is None:
            found = known[slot] = expansion.plain(forward(slot))
        return found

    region.fragment, region.forward = expansion, entered
    inner = {slot: expansion.take(g, True) for slot, g in grads.items()}
    run_in(expansion, differentiate, (region, inner, stop))
    grads.clear()
    results = []
    seen: set[int] = set()
    for slot, g in inner.items():
        t, flag = expansion.items[g._slot]
        shape = (expansion.size, *t._meta.shape[flag:])
        if not flag:
            t = prim.expand(t, shape=shape)
        if fragment.value(t._slot).base is not None or t._slot < fragment.first or t._slot in seen:
            t = prim.copy(t, strides=contiguous_strides(shape))
        seen.add(t._slot)
        grads[slot] = t
        results.append(t)
    return results


@leaves_no_level
def over_batch(function: Callable[..., Sequence[Any]], gradients: Sequence[Any]) -> list[Any]:
    """What Python code (a hook, the backward of a custom function) makes of gradients with a batch in front."""
    size = next(g.shape[0] for g in gradients if g is not None)
    with VmapLevel(size, "error") as level:
        results = function(*[None if g is None else level.enter(g, 0) for g in gradients])
        return [None if r is None else level.leave(r, 0) for r in results]


def grad_under_levels(
    outputs: Sequence[Any], inputs: Sequence[Any], gradients: Sequence[Any], retain: bool, create: bool, allow_unused: bool, batched: bool
) -> tuple[Any, ...]:
    """autograd.grad where transforms are active."""
    from flambeau.ops.creation import ones_like

    level = local.trace
    if isinstance(level, Fragment):
        raise RuntimeError("an operation's body must not ask for gradients")
    for i, t in enumerate(inputs):
        if not t.requires_grad:
            raise RuntimeError(f"autograd.grad: one of the differentiated Tensors does not require grad (inputs[{i}])")
    given = []
    for i, (t, g) in enumerate(zip(outputs, gradients, strict=True)):
        if not t.requires_grad:
            raise RuntimeError(f"element {i} of tensors does not require grad and does not have a grad_fn")
        if g is None:
            if t.numel() != 1 or batched:
                raise RuntimeError(f"grad can be implicitly created only for scalar outputs, got shape {tuple(t.shape)}")
            fitting.check_real(t)
            g = ones_like(t.detach())
        elif tuple(g.shape[batched:]) != tuple(t.shape):
            raise RuntimeError(f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a shape of {t.shape}.")
        given.append(g)
    found = pull(level, list(outputs), list(inputs), given, int(batched), retain, create)
    for i, g in enumerate(found):
        if g is None and not allow_unused:
            raise RuntimeError(
                f"One of the differentiated Tensors appears to not have been used in the graph (inputs[{i}]). Set allow_unused=True if this "
                "is the desired behavior."
            )
    return tuple(found)


def pull(level: Any, outputs: list[Any], inputs: list[Any], gradients: list[Any], extra: int, retain: bool, create: bool) -> list[Any]:
    """The gradients (None where there are none) as `level` sees them; `gradients` have `extra` more dims in front than the outputs."""
    function = level.pull if isinstance(level, Level) else _pull_trace
    found: list[Any] = while_set(local, "trace", level, function, outputs, inputs, gradients, extra, retain, create)
    return found


def _pull_trace(outputs: list[Any], inputs: list[Any], gradients: list[Any], extra: int, retain: bool, create: bool) -> list[Any]:
    from flambeau.autograd.engine import grad

    if not outputs:
        return [None] * len(inputs)
    lead = tuple(gradients[0].shape[:extra])
    if extra > 1:
        gradients = [g.reshape(prod(lead), *g.shape[extra:]) for g in gradients]
    found = list(grad(outputs, inputs, gradients, retain, create, True, extra > 0))
    if extra > 1:
        found = [None if g is None else g.reshape((*lead, *g.shape[1:])) for g in found]
    return found


def pull_batched(level: VmapLevel, outputs: list[Any], inputs: list[Any], gradients: list[Any], extra: int, retain: bool, create: bool) -> list[Any]:
    """See the module's docstring: vmap."""
    batched = [level.mine(t) for t in outputs]
    if any(batched):
        for t in inputs:
            if not level.mine(t):
                raise RuntimeError(
                    f"vmap: a gradient inside of vmap with respect to a tensor (of shape {tuple(t.shape)}) from outside of it would be one sum "
                    "over all samples. Use torch.func.grad or torch.func.vjp inside of vmap: they give one gradient for each sample."
                )
        outs = [level.call_below(level.batched, t) for t in outputs]
        given = [level.call_below(_batch_after, level, g, extra) for g in gradients]
        found = pull(level.below, outs, [t._inner for t in inputs], given, extra, retain, create)
        return [None if g is None else level.enter(g, extra) for g in found]
    if not any(level.mine(g) for g in gradients):
        return pull(level.below, outputs, [t._inner if level.mine(t) else t for t in inputs], gradients, extra, retain, create)
    given = [level.call_below(level.batched, g) for g in gradients]
    if any(level.mine(t) for t in inputs):
        kept = [i for i, t in enumerate(inputs) if not level.mine(t)]  # what has the batch did not make outputs that have none
    else:
        kept = list(range(len(inputs)))
    found = pull(level.below, outputs, [inputs[i] for i in kept], given, extra + 1, retain, create)
    results: list[Any] = [None] * len(inputs)
    for i, g in zip(kept, found, strict=True):
        results[i] = None if g is None else level.enter(g, 0)
    return results


def _batch_after(level: VmapLevel, g: Any, extra: int) -> Any:
    """A gradient with the batch behind its extra dims."""
    inner = level.batched(g)
    return inner if extra == 0 else inner.movedim(0, extra)


def pull_dual(level: JvpLevel, outputs: list[Any], inputs: list[Any], gradients: list[Any], extra: int, retain: bool, create: bool) -> list[Any]:
    """See the module's docstring: jvp."""
    primals, tangents = zip(*[level.parts(t) for t in outputs], strict=True)
    c, dc = zip(*[level.parts(g) for g in gradients], strict=True)
    wanted = [level.parts(t)[0] for t in inputs]
    pairs = [(p, d) for p, d in zip(primals, dc, strict=True) if d is not None]
    pairs += [(t, g) for t, g in zip(tangents, c, strict=True) if t is not None and t.requires_grad]
    found = pull(level.below, list(primals), wanted, list(c), extra, retain or bool(pairs), create)
    if not pairs:
        return found
    moved = pull(level.below, [t for t, _ in pairs], wanted, [g for _, g in pairs], extra, retain, create)
    results: list[Any] = []
    for g, d in zip(found, moved, strict=True):
        if g is None and d is None:
            results.append(None)
        else:
            results.append(level.dual(level.call_below(_zeros_like, d) if g is None else g, d))
    return results


def _zeros_like(x: Any) -> Any:
    from flambeau.ops.creation import zeros_like

    return zeros_like(x.detach())
