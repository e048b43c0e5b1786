"""Operators of one's own and autograd: the torch.autograd.Function that has the gradient and the batching rule that torch.library has registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flambeau.autograd.function import Function
from flambeau.tensor import Tensor
from flambeau.trace.recorder import Trace, local

if TYPE_CHECKING:
    from flambeau.library import CustomOpDef


class Call:
    """How the arguments of a call lie in a row of single ones: `counts[i]` is None for an argument, else how many a list has. `keywords`: those by name."""

    def __init__(self, args: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self.counts = [len(a) if isinstance(a, (list, tuple)) and any(isinstance(t, Tensor) for t in a) else None for a in args]
        self.keywords = keywords

    def flat(self, args: tuple[Any, ...]) -> list[Any]:
        """The arguments in a row."""
        return [one for a, n in zip(args, self.counts, strict=True) for one in ((a,) if n is None else a)]

    def whole(self, row: Any) -> list[Any]:
        """The row as arguments again."""
        rest = iter(row)
        return [next(rest) if n is None else [next(rest) for _ in range(n)] for n in self.counts]

    def gradients(self, given: Any) -> list[Any]:
        """What backward has returned, in a row: None for a list is None for each."""
        listed = given if isinstance(given, tuple) else (given,)
        return [one for g, n in zip(listed, self.counts, strict=True) for one in ((g,) if n is None else [None] * n if g is None else g)]


def inputs(definition: CustomOpDef, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(arguments by position with their defaults, those that are by name only), as a function of `setup_context` is given them."""
    try:
        bound = inspect.signature(definition._fn).bind(*args, **kwargs)
    except ValueError:  # a function whose signature nobody knows
        return args, kwargs
    bound.apply_defaults()
    return bound.args, bound.kwargs


def set_up(definition: CustomOpDef, ctx: Any, args: Any, keywords: dict[str, Any], output: Any) -> None:
    """Call the function of `setup_context`, if there is one."""
    if definition._setup_context is None:
        return
    if keywords:
        definition._setup_context(ctx=ctx, inputs=tuple(args), keyword_only_inputs=keywords, output=output)
    else:
        definition._setup_context(ctx, tuple(args), output)


def _owner(t: Tensor) -> int:
    """The tensor whose memory this one is a view of."""
    under: Any = t
    while (base := under._base) is not None:
        under = base
    return id(under)


def separate(definition: CustomOpDef, given: list[Any], result: Any) -> None:
    """RuntimeError where a result of an operator is one of its arguments, or a view of one or of another result, and its schema does not say so."""
    results = [t for r in (result if isinstance(result, (tuple, list)) else (result,)) for t in (r if isinstance(r, (tuple, list)) else (r,))]
    if any(r.alias_info is not None for r in definition._opoverload._schema.returns):
        return
    seen = {_owner(t) for t in given if isinstance(t, Tensor)}
    for t in results:
        if not isinstance(t, Tensor):
            continue
        if _owner(t) in seen:
            raise RuntimeError(
                f"{definition._name}: The output of this custom operator (1) must not also be an input to this custom operator and (2) may not alias any "
                "inputs to this custom operator or other returns. The most common way to trigger this error is if we have y = custom_op(x) and y and x are "
                "the same Tensor. Please instead return a clone of the offending output tensor(s) (e.g. return x.clone()) or refactor the custom operator "
                "to not return y."
            )
        seen.add(_owner(t))


def differentiable(definition: CustomOpDef) -> Callable[..., Any]:
    """The operator's function with its gradient: one without `register_autograd` raises (RuntimeError) when a gradient is asked of it."""
    plain_kernel = definition._fn

    def kernel(*args: Any, **keywords: Any) -> Any:
        result = plain_kernel(*args, **keywords)
        if definition._opaque:
            separate(definition, Call(args, keywords).flat(args), result)
        return result

    class Made(Function):
        @staticmethod
        def forward(call: Call, *row: Any) -> Any:
            return kernel(*call.whole(row), **call.keywords)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            call: Call = inputs[0]
            ctx._call, needed = call, ctx.needs_input_grad
            ctx.needs_input_grad = tuple(call.whole(needed[1:]))
            set_up(definition, ctx, call.whole(inputs[1:]), call.keywords, output)
            ctx._whole_needs, ctx.needs_input_grad = ctx.needs_input_grad, needed

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if definition._backward is None:
                raise RuntimeError(
                    f"Trying to backward through {definition!r} but no autograd formula was registered. Please use register_autograd to add one."
                )
            needed, ctx.needs_input_grad = ctx.needs_input_grad, ctx._whole_needs
            try:
                return (None, *ctx._call.gradients(definition._backward(ctx, *grads)))
            finally:
                ctx.needs_input_grad = needed

    if definition._vmap is not None:
        rule = definition._vmap

        def batched(info: Any, in_dims: Any, call: Call, *row: Any) -> Any:
            return rule(info, tuple(call.whole(in_dims[1:])), *call.whole(row), **call.keywords)

        Made.vmap = staticmethod(batched)  # type: ignore[method-assign]
    Made.__name__ = definition.__name__

    def call(*args: Any, **kwargs: Any) -> Any:
        args, keywords = inputs(definition, args, kwargs)
        arranged = Call(args, keywords)
        row = arranged.flat(args)
        if definition._backward is None and definition._vmap is None:  # under a transform of torch.func its function is looked into
            plain = type(local.trace) is not Trace
            if plain or not any(isinstance(a, Tensor) and a.requires_grad for a in row):
                return kernel(*args, **keywords)
        return Made.apply(arranged, *row)

    return call
