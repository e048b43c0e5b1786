"""Packages put functions of their own in the place of the transforms' inner steps: vmap of collections, as tensordict does it; the kind of a tensor kept, as
pypose does it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

import flambeau as ft
from flambeau._C._functorch import _add_batch_dim
from flambeau._functorch import eager_transforms
from flambeau._functorch import vmap as steps
from flambeau.func.steps import REPLACED


class Pair:
    """Two tensors with the same first dim; what is made for a vmap is kept for the next one."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b
        self.kept: dict[int, Pair] = {}

    def entered(self, level: int) -> Pair:
        if level not in self.kept:
            self.kept[level] = Pair(*[_add_batch_dim(t, 0, level) for t in (self.a, self.b)])
        return self.kept[level]

    def left(self, level: int, size: int) -> Pair:
        return Pair(*[steps._remove_batch_dim(t, level, size, 0) for t in (self.a, self.b)])


@contextlib.contextmanager
def replaced(module: Any, **functions: Any) -> Iterator[None]:
    own = {name: getattr(module, name) for name in functions}
    try:
        for name, function in functions.items():
            setattr(module, name, function)
        yield
    finally:
        for name, function in own.items():
            setattr(module, name, function)
    assert not REPLACED  # and every call is again as it was


def process(in_dims: Any, args: Any, func: Any) -> Any:
    flat, spec = steps.tree_flatten(args)
    first = flat[0].a if isinstance(flat[0], Pair) else flat[0]
    return first.shape[0], [0] * len(flat), flat, spec


def create(dims: Any, args: Any, level: int, spec: Any) -> Any:
    return steps.tree_unflatten([a.entered(level) if isinstance(a, Pair) else _add_batch_dim(a, d, level) for a, d in zip(args, dims, strict=True)], spec)


def unwrap(outputs: Any, out_dims: Any, level: int, size: int, func: Any) -> Any:
    return outputs.left(level, size) if isinstance(outputs, Pair) else steps._maybe_remove_batch_dim("f", outputs, level, size, 0)


def test_vmap_of_a_collection() -> None:
    pair = Pair(ft.arange(6.0).reshape(3, 2), ft.tensor([1.0, 2.0, 3.0]))
    x = ft.tensor([10.0, 20.0, 30.0])
    with pytest.raises(ValueError, match="cannot vmap over non-Tensor"):
        ft.vmap(lambda p: p.a)(pair)
    with replaced(steps, _process_batched_inputs=process, _create_batched_inputs=create, _unwrap_batched=unwrap):
        for _ in range(2):  # the second pass finds what the first has kept, of a vmap that has ended
            assert ft.vmap(lambda p, v: p.a.sum() * p.b + v)(pair, x).tolist() == [11.0, 30.0, 57.0]
        made = ft.vmap(lambda p: Pair(p.a * 2, p.b))(pair)
        assert made.a.tolist() == [[0.0, 2.0], [4.0, 6.0], [8.0, 10.0]] and made.b is not pair.b
        assert ft.vmap(lambda p: ft.vmap(lambda v: v + p.b)(p.a))(pair).shape == (3, 2)
    with pytest.raises(ValueError, match="cannot vmap over non-Tensor"):
        ft.vmap(lambda p: p.a)(pair)


def test_steps_do_not_change_other_calls() -> None:
    with replaced(steps, _add_batch_dim=lambda *args: _add_batch_dim(*args)):
        found = ft.vmap(ft.vmap(lambda x, y: x * y), in_dims=(0, None), out_dims=1)(ft.arange(6.0).reshape(3, 2), ft.tensor([2.0, 3.0]))
        assert found.tolist() == [[0.0, 4.0, 8.0], [3.0, 9.0, 15.0]]


class Turn(ft.Tensor):
    """A kind of tensor."""


def test_the_kind_of_a_tensor_reaches_the_function() -> None:
    seen = []

    def f(x: Any) -> Any:
        seen.append(type(x))
        return (x * x).sum()

    own = eager_transforms._wrap_tensor_for_grad

    def wrap(tensor: Any, level: Any) -> Any:
        return own(tensor, level).as_subclass(type(tensor))

    x = ft.tensor([1.0, 2.0]).as_subclass(Turn)
    plain = ft.func.grad(f)(x)
    with replaced(eager_transforms, _wrap_tensor_for_grad=wrap):
        kept = ft.func.grad(f)(x)
        assert ft.func.jacrev(lambda x: x * x)(x).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    assert seen[1] is Turn and plain.tolist() == kept.tolist() == [2.0, 4.0]
