"""Shapes at their edges, beside PyTorch: sources of writes by index, sequences to pad, vectors, convolutions without elements."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flambeau

torch = pytest.importorskip("torch")

SHAPES = [
    ((), ()), ((), (1,)), ((), (2,)), ((3,), ()), ((3,), (2,)), ((3,), (2, 1)), ((2, 3), ()), ((2, 3), (3,)), ((2, 3), (1, 3)), ((2, 3), (2, 2)),
    ((2, 3), (2, 3, 1)),
]  # fmt: skip
INDICES: list[Any] = [[], [0], 0, [0, 1], [[0]]]


def _answer(m: Any, call: Callable[..., Any], *tensors: Any) -> Any:
    """The values, and the gradients where there are any; or the type of the exception (PyTorch's is enough)."""
    try:
        result = call(m, *tensors)
        leaves = [t for t in tensors if t.requires_grad]
        slopes = []
        if result.requires_grad:
            result.sum().backward()
            slopes = [None if t.grad is None else t.grad.tolist() for t in leaves]
        return str(result.dtype).rpartition(".")[2], tuple(result.shape), np.asarray(result.detach().tolist()).tolist(), slopes
    except (IndexError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        return next(t for t in (IndexError, NotImplementedError, RuntimeError, TypeError, ValueError) if isinstance(error, t))


def _compare(call: Callable[..., Any], make: Callable[[Any], tuple[Any, ...]], said: Any) -> None:
    assert _answer(flambeau, call, *make(flambeau)) == _answer(torch, call, *make(torch)), said


@pytest.mark.parametrize("name", ["index_copy", "index_add", "index_reduce"])
def test_sources_of_writes_by_index(name: str) -> None:
    more = ("prod",) if name == "index_reduce" else ()
    for (shape, source), index in itertools.product(SHAPES, INDICES):
        if name == "index_reduce" and (index == [[0]] or not isinstance(index, list)):
            continue  # PyTorch reads past the end of some
        _compare(
            lambda m, x, s, index=index: getattr(m, name)(x, 0, m.tensor(index, dtype=m.int64), s, *more),
            lambda m, shape=shape, source=source: (m.zeros(shape).requires_grad_(not more), m.ones(source).requires_grad_(not more)),
            (name, shape, index, source),
        )


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", "complex64"])
def test_dtypes_of_reductions_by_index(dtype: str) -> None:
    for name, reduce, included in itertools.product(("index_reduce", "scatter_reduce"), ("prod", "mean", "amax", "amin"), (True, False)):
        _compare(
            lambda m, x, s, name=name, reduce=reduce, included=included: getattr(m, name)(x, 0, m.tensor([0, 0, 2]), s, reduce, include_self=included),
            lambda m: (m.tensor([1, 0, 1, 1]).to(getattr(m, dtype)), m.tensor([1, 0, 0]).to(getattr(m, dtype))),
            (name, dtype, reduce, included),
        )


@pytest.mark.parametrize("side", ["left", "right"])
def test_sequences_to_pad(side: str) -> None:
    shapes = [(2, 3), (4, 1), (2,), (3,), (), (0, 3), (1, 3), (2, 3, 1), (2, 4)]
    for first, second, batch_first in itertools.product(shapes, shapes, (True, False)):
        _compare(
            lambda m, a, b, batch_first=batch_first: m.nn.utils.rnn.pad_sequence([a, b], batch_first=batch_first, padding_value=7.0, padding_side=side),
            lambda m, first=first, second=second: (m.ones(first, dtype=m.int32), m.full(second, 2.5)),
            (first, second, batch_first),
        )


def test_vectors_and_samples_without_elements() -> None:
    for a, b, dim in itertools.product([(), (3,), (1,), (0,), (2, 3)], [(), (3,), (1,), (0,), (2, 1)], (-1, 0)):
        _compare(
            lambda m, x, y, dim=dim: m.linalg.vecdot(x, y, dim=dim),
            lambda m, a=a, b=b: (m.ones(a).requires_grad_(), m.ones(b).requires_grad_()),
            (a, b, dim),
        )
    for shape, dtype in itertools.product([(0,), (2, 0), (0, 3)], ["int64", "uint8", "float32"]):
        _compare(lambda m, y: m.trapezoid(y), lambda m, s=shape, d=dtype: (m.zeros(s, dtype=getattr(m, d)).requires_grad_(d == "float32"),), (shape, dtype))


def test_convolutions_without_elements() -> None:
    shapes = [((0, 2, 5), (3, 2, 2)), ((1, 2, 0), (3, 2, 2)), ((1, 2, 5), (0, 2, 2)), ((1, 2, 5), (3, 2, 0)), ((2, 5), (3, 2, 0)), ((0, 0, 5), (0, 0, 2))]
    for (x, w), padding, transposed in itertools.product(shapes, (0, 1), (False, True)):
        function = "conv_transpose1d" if transposed else "conv1d"
        _compare(
            lambda m, a, b, f=function, p=padding: getattr(m.nn.functional, f)(a, b, padding=p),
            lambda m, x=x, w=(w[1], w[0], w[2]) if transposed else w: (m.ones(x).requires_grad_(), m.ones(w).requires_grad_()),
            (function, x, w, padding),
        )


def test_what_is_written_is_not_read_by_index_even_without_elements() -> None:
    calls: list[Callable[..., Any]] = [
        lambda m, i, e: m.take(e + 1, i, out=i), lambda m, i, e: m.take(i, e, out=i), lambda m, i, e: m.gather(e, 0, i, out=i),
        lambda m, i, e: m.index_select(e, 0, i, out=i), lambda m, i, e: i.put_(i, i), lambda m, i, e: i.index_add_(0, i, e),
        lambda m, i, e: i.index_copy_(0, e, i),
        lambda m, i, e: i.scatter_(0, i, e), lambda m, i, e: i.scatter_add_(0, i, e), lambda m, i, e: m.cat([i, e], out=i), lambda m, i, e: m.add(i, i, out=i),
    ]  # fmt: skip
    for number, call in enumerate(calls):
        _compare(call, lambda m: (m.zeros(0, dtype=m.int64), m.zeros(0, dtype=m.int64)), number)


def test_losses_and_norms_without_dims() -> None:
    calls: list[Callable[..., Any]] = [
        lambda m, x, y: m.nn.functional.nll_loss(x, m.tensor(1)), lambda m, x, y: m.nn.functional.cross_entropy(x, m.tensor(1)),
        lambda m, x, y: m.nn.functional.rms_norm(x, [5]), lambda m, x, y: m.nn.functional.rms_norm(x, []), lambda m, x, y: m.nn.functional.layer_norm(x, [5]),
        lambda m, x, y: m.nn.functional.gaussian_nll_loss(y, y, 1), lambda m, x, y: m.nn.functional.gaussian_nll_loss(y, y, 2.0),
        lambda m, x, y: m.nn.functional.gaussian_nll_loss(y, y, 2**70), lambda m, x, y: m.nn.functional.hardtanh(m.arange(4, dtype=m.uint8), -0.5, 2.7),
        lambda m, x, y: m.nn.functional.hinge_embedding_loss(m.tensor([2, 9]), m.tensor([-1, 1]), margin=8.4, reduction="none"),
    ]  # fmt: skip
    for number, call in enumerate(calls):
        _compare(call, lambda m: (m.tensor(1.0), m.ones(3)), number)
