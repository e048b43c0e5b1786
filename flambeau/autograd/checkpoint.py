"""Trade computation for memory: run a function without keeping its intermediate values, and again in the backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any, Final

from flambeau.autograd.checkpoint_results import again_as_before, detached, results_of, with_results
from flambeau.autograd.function import Function
from flambeau.trace.once import warn_here
from flambeau.trace.recorder import local
from flambeau.trace.while_set import while_set, while_switched


class _Checkpoint(Function):
    """Forward without history; backward recomputes with history, from the same random state and under the same autocast."""

    @staticmethod
    def forward(ctx: Any, function: Callable[..., Any], captured: Sequence[Any], preserve: bool, contexts: Any, layout: Any, check: Any, anchor: Any,
                *inputs: Any) -> Any:  # fmt: skip
        from flambeau.ops.random import default_generator

        ctx.function = function
        ctx.captured = captured  # the last of the inputs, as the function holds them
        args = inputs[: len(inputs) - len(captured)]
        ctx.layout, ctx.check = layout, check
        ctx.autocast = local.main.autocast
        ctx.state = default_generator.state.clone() if preserve else None
        ctx.is_tensor = [hasattr(a, "_meta") for a in args]
        ctx.others = [None if hasattr(a, "_meta") else a for a in args]
        ctx.save_for_backward(*[a for a in args if hasattr(a, "_meta")])
        first, ctx.again = contexts
        with first:
            result = _run(ctx.state, function, layout, args)
        if anchor is None:
            return result
        tensors: list[Any] = []
        shape = results_of(result, tensors)
        ctx.metas = [(tuple(t.shape), t.dtype, t.device) for t in tensors]
        return (*tensors, shape)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        from flambeau.autograd.engine import inner_pass
        from flambeau.grad_modes import enable_grad, is_grad_enabled
        from flambeau.ops.random import default_generator as g

        again = is_grad_enabled()  # create_graph: the gradients are differentiated in their turn
        tensors = iter(ctx.saved_tensors)
        args: list[Any] = []
        for is_tensor, other in zip(ctx.is_tensor, ctx.others, strict=True):
            if not is_tensor:
                args.append(other)
                continue
            t = next(tensors)
            args.append(t if again else t.detach().requires_grad_(t.requires_grad))

        def compute() -> Any:
            with enable_grad(), ctx.again:
                return _call(ctx.function, ctx.layout, args)

        again_under = (local.main.set_autocast, local.main.autocast, ctx.autocast, compute)
        if ctx.state is None:
            outputs = while_switched(*again_under)
        else:  # as long as nothing is freed, the backward pass may come again
            outputs = while_set(g, "state", ctx.state.clone(), while_switched, *again_under)
        if hasattr(ctx, "metas"):
            outputs = again_as_before(ctx.metas, outputs, ctx.check)
            grads = grads[:-1]  # that of what says how they were put together
        pairs = [
            (o, d)
            for o, d in zip(outputs if isinstance(outputs, (tuple, list)) else (outputs,), grads, strict=True)
            if hasattr(o, "_meta") and o.requires_grad and d is not None
        ]
        wanted = [a for a in (*args, *ctx.captured) if hasattr(a, "_meta") and a.requires_grad]
        found = inner_pass([o for o, _ in pairs], [d for _, d in pairs], wanted, again) if pairs else {}
        return (None, None, None, None, None, None, None, *[found.get(id(a)) if hasattr(a, "_meta") else None for a in (*args, *ctx.captured)])


DEBUG: Final[list[bool | None]] = [None]  # what `set_checkpoint_debug_enabled` has said, for all checkpoints in its block
_WITH_HISTORY: Final[weakref.WeakSet[Any]] = weakref.WeakSet()  # the code of functions that differentiate inside of themselves


def _run(state: Any, function: Callable[..., Any], layout: Any, args: Sequence[Any]) -> Any:
    """The first run, whose intermediate values have no history unless the function asks for gradients itself."""
    from flambeau.grad_modes import enable_grad
    from flambeau.ops.random import default_generator

    code = _code_of(function)
    if code is None or code not in _WITH_HISTORY:
        try:
            return _call(function, layout, args)
        except RuntimeError as error:
            if code is None or "does not require grad and does not have a grad_fn" not in str(error):
                raise
            _WITH_HISTORY.add(code)
            if state is not None:
                default_generator.state = state.clone()
    with enable_grad():
        return detached(_call(function, layout, args))


def _code_of(function: Any) -> Any:
    """What functions that are made anew for each call have in common: their code, that of a module's forward."""
    while isinstance(function, (partial, MethodType)):
        function = function.func if isinstance(function, partial) else function.__func__
    function = function if hasattr(function, "__code__") else getattr(type(function), "forward", None)
    return getattr(function, "__code__", None)


def _call(function: Callable[..., Any], layout: Any, leaves: Sequence[Any]) -> Any:
    args, kwargs = _rebuilt(layout, iter(leaves))
    return function(*args, **kwargs)


def _flattened(x: Any, leaves: list[Any], depth: int = -1) -> Any:
    """The layout of nested arguments, for `_rebuilt`; what stands in them, `depth` levels down or wherever it is, is added to `leaves`."""
    named = isinstance(x, tuple) and hasattr(x, "_fields")
    if depth and (named or type(x) in (list, tuple, dict)):
        parts = x.values() if type(x) is dict else x
        make: Any = partial(_keyed, tuple(x)) if type(x) is dict else type(x)._make if named else type(x)  # type: ignore[attr-defined]
        return make, [_flattened(part, leaves, depth - 1) for part in parts]
    leaves.append(x)
    return None


def _keyed(keys: tuple[Any, ...], values: list[Any]) -> dict[Any, Any]:
    return dict(zip(keys, values, strict=True))


def _rebuilt(layout: Any, leaves: Iterator[Any]) -> Any:
    """Arguments as they were, of other leaves."""
    if layout is None:
        return next(leaves)
    make, parts = layout
    return make([_rebuilt(part, leaves) for part in parts])


def captured_by(function: Any) -> list[Any]:
    """The tensors with gradients that a function holds: those of the modules, containers and functions that it closes over or is bound to."""
    found: dict[int, Any] = {}
    seen: set[int] = set()
    pending = [function]
    while pending:
        x = pending.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, type):
            continue  # a class holds no tensors; Tensor and Module have the attributes that their instances are known by
        if hasattr(x, "_meta"):
            if x.requires_grad:
                found[id(x)] = x
        elif hasattr(x, "named_parameters"):
            found.update({id(p): p for p in x.parameters() if p.requires_grad})
        elif isinstance(x, (list, tuple, dict)):
            pending.extend(x.values() if isinstance(x, dict) else x)
        elif isinstance(x, partial):
            pending.extend((x.func, x.args, x.keywords))
        elif isinstance(x, MethodType):
            pending.extend((x.__self__, x.__func__))
        elif isinstance(x, FunctionType):
            pending.extend((x.__defaults__ or (), x.__kwdefaults__ or {}))
            pending.extend([c.cell_contents for c in x.__closure__ or () if _is_filled(c)])
            named = [x.__globals__[n] for n in x.__code__.co_names if n in x.__globals__]
            pending.extend([v for v in named if hasattr(v, "_meta") or hasattr(v, "named_parameters")])
    return list(found.values())


def _is_filled(cell: CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # a name that the enclosing function has not assigned yet
        return False


def checkpoint(
    function: Callable[..., Any], *args: Any, use_reentrant: bool | None = None, preserve_rng_state: bool = True,
    context_fn: Any = None, determinism_check: str = "default", debug: bool = False, early_stop: bool = True, **kwargs: Any,
) -> Any:  # fmt: skip
    """function(*args) whose intermediate values are computed again in the backward pass instead of being kept.

    Without `use_reentrant`, the gradients of what the function holds can be asked for by autograd.grad, and be differentiated again.
    `context_fn()` gives two blocks: the first run is inside the one, the run in the backward pass inside the other. With it, gradients
    reach parameters only if an argument requires gradients, too; there are no keyword arguments (ValueError) and no `context_fn`.
    """
    from flambeau.grad_modes import is_grad_enabled
    from flambeau.ops.creation import empty

    if use_reentrant is None:
        warn_here(
            "torch.utils.checkpoint: the use_reentrant parameter should be passed explicitly. Starting in PyTorch 2.9, calling checkpoint without "
            "use_reentrant will raise an exception. use_reentrant=False is recommended, but if you need to preserve the current default behavior, "
            "you can pass use_reentrant=True. Refer to docs for more details on the differences between the two variants.",
        )  # fmt: skip
        use_reentrant = True
    if use_reentrant and kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    if use_reentrant and (context_fn is not None or debug):
        raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
    if use_reentrant and not any(getattr(a, "requires_grad", False) for a in args):
        warn_here("None of the inputs have requires_grad=True. Gradients will be None")
    if not is_grad_enabled():
        return function(*args, **kwargs)
    leaves: list[Any] = []
    if use_reentrant:
        layout = (tuple, [_flattened(args, leaves, 1), _flattened({}, leaves)])
        return _Checkpoint.apply(function, [], preserve_rng_state, (nullcontext(), nullcontext()), layout, None, None, *leaves)
    contexts = context_fn() if context_fn is not None else (nullcontext(), nullcontext())
    layout = (tuple, [_flattened(args, leaves), _flattened(kwargs, leaves)])
    given = {id(a) for a in leaves}
    held = captured_by([function, args, kwargs])
    if not held:  # what no gradient can be asked of is computed as it stands
        with contexts[0]:
            return function(*args, **kwargs)
    # a graph needs a differentiable input even where only parameters inside want gradients
    anchor = empty(0, requires_grad=True)
    captured = [t for t in held if id(t) not in given]
    check = (determinism_check, debug if DEBUG[0] is None else DEBUG[0])
    *tensors, shape = _Checkpoint.apply(function, captured, preserve_rng_state, contexts, layout, check, anchor, *leaves, *captured)
    return with_results(shape, iter(tensors))


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """Checkpoint a Sequential in `segments` parts; the last one is kept."""
    layers = list(functions)
    size = len(layers) // segments

    def part(start: int, end: int) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            for layer in layers[start:end]:
                x = layer(x)
            return x

        return run

    end = 0
    for start in range(0, size * (segments - 1), size):
        end = start + size
        input = checkpoint(part(start, end), input, use_reentrant=use_reentrant, **kwargs)
    return part(end, len(layers))(input)
