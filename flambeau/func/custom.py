"""torch.autograd.Function under vmap and jvp: its `vmap` and `jvp` static methods, and the rule that `generate_vmap_rule` asks for.

The generated rule is a Function below the level, over tensors with the batch: its forward, setup_context and backward run the
user's under the same level again, so what the user's context saved is still of that level.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flambeau.autograd.function import Function, FunctionCtx
from flambeau.func.batch import VmapLevel, wrap
from flambeau.func.forward import JvpLevel
from flambeau.ops.creation import zeros_like
from flambeau.tensor import Tensor
from flambeau.trace.recorder import Trace, local
from flambeau.trace.while_set import while_set
from flambeau.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_map, tree_unflatten


class VmapInfo(NamedTuple):
    """What the `vmap` static method is told of the vmap."""

    batch_size: int
    randomness: str


def _overrides(function: type[Function], name: str) -> bool:
    return getattr(function, name, None) is not getattr(Function, name, None)


def _require_setup_context(function: type[Function]) -> None:
    if not _overrides(function, "setup_context"):
        raise RuntimeError(
            "In order to use an autograd.Function with functorch transforms (vmap, grad, jvp, jacrev, ...), it must override the setup_context "
            "staticmethod. For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
        )


# -- vmap ---------------------------------------------------------------------------------------------------------------
def apply_batched(level: VmapLevel, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function.apply` where a vmap is the innermost transform."""
    flat, spec = tree_flatten(args)
    if not any(level.mine(a) for a in flat):
        return level.call_below(function.apply, *args, **kwargs)
    _require_setup_context(function)
    if function.generate_vmap_rule:
        if _overrides(function, "vmap"):
            raise RuntimeError(
                f"You tried to vmap over {function.__name__}, but it has both generate_vmap_rule=True and an overridden vmap staticmethod. "
                "Please set generate_vmap_rule=False or delete the overridden vmap staticmethod to avoid ambiguity."
            )
        return _generated(level, function, args)
    if not _overrides(function, "vmap"):
        raise RuntimeError(
            f"You tried to vmap over {function.__name__}, but it does not have vmap support. Please override and implement the vmap "
            "staticmethod or set generate_vmap_rule=True. For more details, please see https://pytorch.org/docs/main/notes/extending.func.html"
        )
    inner = tree_unflatten([a._inner if level.mine(a) else a for a in flat], spec)
    in_dims = tree_unflatten([0 if level.mine(a) else None for a in flat], spec)
    result = level.call_below(function.vmap, VmapInfo(level.size, level.randomness), in_dims, *inner, **kwargs)
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError("Expected the vmap staticmethod to have two returns, an output and out_dims with pytree structure compatible with the output.")
    output, out_dims = result
    parts, out_spec = tree_flatten(output)
    dims = _broadcast_to_and_flatten(out_dims, out_spec)
    if dims is None:
        raise RuntimeError(f"the out_dims {out_dims} of the vmap staticmethod of {function.__name__} do not fit its output")
    return tree_unflatten([t if d is None else level.enter(t, d) for t, d in zip(parts, dims, strict=True)], out_spec)


def _again(level: Any, body: Callable[[], Any]) -> Any:
    """`body()` under a level that was left, over what is active now."""
    return while_set(level, "below", local.trace, while_set, local, "trace", level, body)


def _generated(level: VmapLevel, function: Any, args: tuple[Any, ...]) -> Any:
    flags = [level.mine(a) for a in args]
    inner_ctx = FunctionCtx()
    inner_ctx._function = function
    inner = VmapLevel.__new__(VmapLevel)
    inner.__dict__.update(level.__dict__)

    def entered(tensors: Any) -> list[Any]:
        return [wrap(inner, t) if f else t for t, f in zip(tensors, flags, strict=True)]

    class Batched(Function):
        """The user's function over all samples."""

        @staticmethod
        def forward(*given: Any) -> Any:
            output = _again(inner, lambda: function.forward(*entered(given)))
            return tree_map(lambda t: inner.call_below(inner.batched, t) if isinstance(t, Tensor) else t, output)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            inner_ctx.needs_input_grad = ctx.needs_input_grad
            wrapped = tree_map(lambda t: wrap(inner, t) if isinstance(t, Tensor) else t, output)
            _again(inner, lambda: function.setup_context(inner_ctx, tuple(entered(inputs)), wrapped))
            for w, t in zip(tree_flatten(wrapped)[0], tree_flatten(output)[0], strict=True):
                if id(w) in inner_ctx._non_differentiable:
                    ctx._non_differentiable.add(id(t))
            ctx._materialize = inner_ctx._materialize

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            def run() -> list[Any]:
                given = [None if g is None else wrap(inner, g) for g in grads]
                found = function.backward(inner_ctx, *given)
                found = found if isinstance(found, tuple) else (found,)
                results: list[Any] = []
                for g, f in zip(found, flags, strict=True):
                    if g is None:
                        results.append(None)
                    elif f:
                        results.append(inner.leave(g, 0))
                    else:  # every sample had the same input: its gradient is their sum
                        results.append(inner.call_below(lambda x: x.sum(0), g._inner) if inner.mine(g) else g * inner.size)
                return results

            return tuple(_again(inner, run))

    Batched.__name__ = Batched.__qualname__ = f"Vmapped{function.__name__}"
    inner_args = [a._inner if f else a for a, f in zip(args, flags, strict=True)]
    output = level.call_below(Batched.apply, *inner_args)
    return tree_map(lambda t: wrap(level, t) if isinstance(t, Tensor) else t, output)


# -- jvp ----------------------------------------------------------------------------------------------------------------
def apply_dual(level: JvpLevel, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function.apply` where a jvp is the innermost transform."""
    pairs = [level.parts(a) for a in args]
    primals = [p for p, _ in pairs]
    tangents = [t for _, t in pairs]
    if all(t is None for t in tangents):
        return level.call_below(function.apply, *primals, **kwargs)
    if not _overrides(function, "jvp"):
        raise NotImplementedError("You must implement the jvp function for custom autograd.Function to use it with forward mode AD.")
    output, ctx = level.call_below(_with_context, function, tuple(primals), kwargs)
    single = not isinstance(output, (tuple, list))
    outputs = [output] if single else list(output)

    def push() -> Any:
        given = [_zero(p) if t is None and ctx._materialize else t for p, t in zip(primals, tangents, strict=True)]
        return while_set(ctx, "_in_jvp", True, function.jvp, ctx, *given)

    moved = level.call_below(push)
    found = list(moved) if isinstance(moved, (tuple, list)) else [moved]
    if len(found) != len(outputs):
        raise RuntimeError(f"The jvp of {function.__name__} returned {len(found)} tangents for {len(outputs)} results: it must return one (or None) for each")
    results: list[Any] = []
    for i, (o, t) in enumerate(zip(outputs, found, strict=True)):
        if t is not None and (not isinstance(o, Tensor) or id(o) in ctx._non_differentiable):
            raise RuntimeError(
                f"The jvp of {function.__name__} returned a tangent for result {i}, which is not differentiable. "
                "You should return None at that position instead."
            )
        place = next((p for p, x in enumerate(primals) if x is o and any(x is d for d in ctx._dirty)), None)
        if t is None or place is None or tangents[place] is None:
            results.append(o if t is None else level.enter(o, t))
        elif t is tangents[place]:
            results.append(args[place])
        else:
            raise RuntimeError(
                f"An inplace custom Function is not modifying the forward mode gradients inplace: as forward of {function.__name__} wrote to argument {place}, "
                "the jvp function must modify the corresponding gradient inplace, and return it."
            )
    return results[0] if single else type(output)(results) if isinstance(output, list) else tuple(results)


def _zero(primal: Any) -> Any:
    """The tangent of what has none."""
    if not isinstance(primal, Tensor) or not (primal.dtype.is_floating_point or primal.dtype.is_complex):
        return None
    return zeros_like(primal)


def _with_context(function: Any, primals: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, FunctionCtx]:
    """(the results, a context that forward or setup_context has filled)."""
    if type(local.trace) is Trace:
        return function._apply(primals, kwargs)  # type: ignore[no-any-return]
    _require_setup_context(function)
    output = function.apply(*primals, **kwargs)
    ctx = FunctionCtx()
    ctx._function = function
    function.setup_context(ctx, primals, output)
    return output, ctx
