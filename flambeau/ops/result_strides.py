"""The strides of an operation's results: decorators of bodies, one for each of PyTorch's rules (the rules are in trace/strides.py).

What a body computes has the strides that its primitives give. Where PyTorch's function is another composition, or one step over other
operands, its decorator says what the result has. This happens once, when an edge is new.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from flambeau import dtypes
from flambeau.compiler.graph import contiguous_strides
from flambeau.ops.primitive import laid_out
from flambeau.ops.promotion import result_type
from flambeau.trace.meta import Meta, contiguous, meta
from flambeau.trace.strides import channels_last_strides, column_major_strides, iterator_strides, like_strides, suggests_channels_last

Body = Callable[..., Any]
NUMBER = contiguous((), dtypes.float64)


def over_operands(body: Body) -> Body:
    """One pointwise step of PyTorch's over all positional arguments, numbers too."""
    return _over(body, True)


def over_reversed_operands(body: Body) -> Body:
    """The step over the operands from the last to the first: `rsub` is `other - input`."""
    return _over(body, True, turned=True)


def with_number(body: Body) -> Body:
    """The step over the first argument and a number that PyTorch multiplies by."""
    return _each(body, lambda x, m: iterator_strides([x, NUMBER], tuple(m.shape)))


def over_tensors(body: Body) -> Body:
    """The same where numbers are no operands of PyTorch's step but parameters of it."""
    return _over(body, False)


def _over(body: Body, numbers: bool, turned: bool = False) -> Body:
    @functools.wraps(body)
    def iterated(*args: Any, **kwargs: Any) -> Any:
        result = body(*args, **kwargs)
        tensors = [a for a in (args[::-1] if turned else args) if hasattr(a, "_meta") and (numbers or not a._meta.wrapped)]
        operands = [a._meta for a in tensors]
        if numbers and any(isinstance(a, (int, float, complex)) for a in args):
            operands.append(NUMBER)
        whole = result.dtype.category > 1 and all(m.dtype.category < 2 for m in operands if m.ndim)
        if whole or len({m.dtype for m in operands if m.ndim}) > 1:  # PyTorch converts first
            # Bools decide nothing beside others (and a condition has no common dtype with some).
            d = result.dtype if whole else result_type(*([t for t in tensors if t._meta.dtype.category] or tensors))
            operands = [m if m.dtype is d else meta(tuple(m.shape), like_strides(m.shape, m.strides), d) for m in operands]
        return laid_out(result, iterator_strides(operands, tuple(result._meta.shape)))

    return iterated


def row_major(body: Body) -> Body:
    """Results in row-major order, whatever the inputs' order."""
    return _each(body, lambda x, m: contiguous_strides(m.shape))


def like_input(body: Body) -> Body:
    """Results of the first argument's shape in the order of its dims."""
    return _each(body, lambda x, m: like_strides(m.shape, x.strides) if m.shape == x.shape else contiguous_strides(m.shape))


def over_parts(then_number: bool) -> Callable[[Body], Body]:
    """Of complex first arguments: what PyTorch computes from the views of their real or imaginary parts, compared with a number at once or (as a
    magnitude, in a tensor of its own) after a first step."""

    def rule(x: Meta, m: Meta) -> tuple[int, ...]:
        part = meta(tuple(x.shape), tuple([2 * s for s in x.strides]), dtypes.float32)
        if then_number:
            return iterator_strides([part, NUMBER], tuple(m.shape))
        magnitude = meta(tuple(x.shape), iterator_strides([part], tuple(x.shape)), dtypes.float32)
        return iterator_strides([magnitude, NUMBER], tuple(m.shape))

    return of_complex(lambda body: _each(body, rule))


def of_complex(decorator: Callable[[Body], Body]) -> Callable[[Body], Body]:
    """What a decorator says, of complex first arguments only: PyTorch has other steps for them."""

    def decorate(body: Body) -> Body:
        other = decorator(body)

        @functools.wraps(body)
        def call(input: Any, *args: Any, **kwargs: Any) -> Any:
            return (other if input.dtype.is_complex else body)(input, *args, **kwargs)

        return call

    return decorate


def as_suggested(*asked: int, dims: int = 0, batch: bool = False) -> Callable[[Body], Body]:
    """Results that are channels last where one of the arguments `asked` (by position; the first one) is, else row-major.

    `dims`: of space. With one, PyTorch computes with a height of 1. `batch`: it gives a batch dim to images without one first.
    """

    def image(m: Meta) -> Meta:
        if batch and m.ndim == dims + 1:
            m = _with_dim(m, 0)
        return _with_dim(m, 2) if dims == 1 and m.ndim == 3 else m

    def decorate(body: Body) -> Body:
        @functools.wraps(body)
        def call(*args: Any, **kwargs: Any) -> Any:
            inputs = [image(args[i]._meta) for i in asked or (0,)]
            ndim = args[0]._meta.ndim

            def rule(_: Any, m: Any) -> tuple[int, ...]:
                whole = image(m)
                if m.ndim != ndim or not any(x.ndim == whole.ndim and suggests_channels_last(x) for x in inputs):
                    return contiguous_strides(m.shape)
                strides = channels_last_strides(whole.shape)
                if dims == 1 and whole is not m:
                    strides = strides[:2] + strides[3:]
                return strides[1:] if len(strides) > m.ndim else strides

            return _changed(body(*args, **kwargs), rule, None)

        return call

    return decorate


def _with_dim(m: Meta, at: int) -> Meta:
    """The metadata of a tensor with one more dim of size 1."""
    return meta((*m.shape[:at], 1, *m.shape[at:]), (*m.strides[:at], m.shape[at] * m.strides[at], *m.strides[at:]), m.dtype)


def column_major(body: Body) -> Body:
    """Results that are (batches of) matrices with their columns one after the other, as LAPACK writes them."""
    return _each(body, lambda x, m: column_major_strides(tuple(m.shape)))


def _each(body: Body, rule: Callable[[Any, Any], tuple[int, ...]]) -> Body:
    """`rule(metadata of the first argument, of a result)` gives the strides of each result that is no view."""

    @functools.wraps(body)
    def call(input: Any, *args: Any, **kwargs: Any) -> Any:
        return _changed(body(input, *args, **kwargs), rule, input._meta if hasattr(input, "_meta") else None)

    return call


def _changed(made: Any, rule: Callable[[Any, Any], tuple[int, ...]], m: Any) -> Any:
    if hasattr(made, "_meta"):
        return laid_out(made, rule(m, made._meta))
    found = [laid_out(x, rule(m, x._meta)) for x in made]
    return made._make(found) if hasattr(made, "_make") else type(made)(found)
