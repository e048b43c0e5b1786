"""x[...] and x[...] = v of memory that is there (ops/at_once.py): random programs beside PyTorch, in which tensors are in memory, pending, views, expanded,
with gradients, looked at and written to in any order. What is compared: values, strides, offsets, sharing, versions, gradients, types of errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import flambeau as ft
from flambeau.ops import at_once
from flambeau.statistics import counters
from tests.engine.nothing_known import forget_edges

torch = pytest.importorskip("torch")

Pair = tuple[Any, Any]  # flambeau's tensor and PyTorch's
DTYPES = ("float32", "float32", "float64", "int64", "bool", "complex64", "bfloat16", "uint8")


def both(make: Callable[[Any], Any]) -> Pair:
    return make(ft), make(torch)


def base(draw: random.Random) -> Pair:
    """A tensor of one of many kinds, in memory or pending."""
    shape = draw.choice([(), (1,), (5,), (3, 4), (4, 1), (2, 3, 4), (0, 3), (3, 0), (6, 2, 1)])
    dtype, seed = draw.choice(DTYPES), draw.randrange(1 << 20)
    numbers = np.random.default_rng(seed).integers(0, 9, shape)
    kind = draw.randrange(7)

    def make(m: Any) -> Any:
        t = m.tensor(numbers.tolist()).reshape(shape).to(getattr(m, dtype))
        if kind == 1 and len(shape) > 1:
            t = t.transpose(0, -1)
        elif kind == 2:
            t = t.expand(2, *shape)
        elif kind == 3 and len(shape):
            t = t.flip(0)[::2]
        elif kind == 4:
            t = t.clone()  # pending
            return t
        elif kind == 5 and dtype in ("float32", "float64") and m.is_grad_enabled():
            t = t.detach().clone().requires_grad_()
        elif kind == 6:
            t = t.detach()
        t.detach().tolist()
        return t

    return both(make)


def index_of(draw: random.Random, m: Any, shape: tuple[int, ...]) -> Callable[[Any], Any]:
    """An index that mostly fits, as a function of the namespace."""
    parts: list[Callable[[Any], Any]] = []
    used, masks = 0, draw.random() < 0.15
    if masks and shape:
        leading = draw.randint(1, len(shape))
        chosen = np.random.default_rng(draw.randrange(1 << 20)).random(shape[:leading]) < 0.5
        return lambda m: m.tensor(chosen.tolist(), dtype=m.bool).reshape(shape[:leading])
    for _ in range(draw.randint(1, 3)):
        size = shape[used] if used < len(shape) else 3
        kind = draw.random()
        if kind < 0.25:
            number = draw.randint(-size - (draw.random() < 0.05), max(size - 1, 0))
            parts.append(lambda m, i=number: i)
        elif kind < 0.35:
            number = draw.randint(-size, max(size - 1, 0))
            parts.append(lambda m, i=number: m.tensor(i))
        elif kind < 0.65:
            a, b = (draw.choice([None, *range(-size - 1, size + 2)]) for _ in range(2))
            part = slice(a, b, draw.choice([None, 1, 2, 3]))
            parts.append(lambda m, i=part: i)
        elif kind < 0.8:
            shape_ = draw.choice([(2,), (4,), (1,), (0,), (2, 2), (1, 3)])
            numbers = np.random.default_rng(draw.randrange(1 << 20)).integers(-size, max(size, 1) + (draw.random() < 0.03), shape_)
            parts.append(lambda m, i=numbers: m.tensor(i.tolist(), dtype=m.int64).reshape(i.shape))
        else:
            other = draw.choice([None, Ellipsis, None])
            parts.append(lambda m, i=other: i)
            continue
        used += 1
    if draw.random() < 0.4 and len(parts) == 1:
        return parts[0]
    return lambda m: tuple([p(m) for p in parts])


def seen(t: Any, context: str) -> Any:
    """All that can be seen of a tensor. In inference mode PyTorch counts no versions and knows no views."""
    d = t.detach()
    strides = tuple([s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1]) if t.numel() else ()
    values = d.to(d.dtype if str(d.dtype).rpartition(".")[2] != "bfloat16" else (ft if isinstance(t, ft.Tensor) else torch).float32).tolist()
    offset = t.storage_offset() if t.numel() else 0
    return (
        str(t.dtype),
        tuple(t.shape),
        strides,
        offset,
        (0, 0) if context == "inference_mode" else (t._is_view(), t._version),
        t.requires_grad,
        t.is_leaf,
        values,
    )


def attempt(call: Callable[[Any], Any]) -> tuple[Any, Any, bool]:
    """A call on both sides: results, and whether it failed, which both must do with one kind of error."""
    outcomes: list[Any] = []
    errors = []
    for k, m in enumerate((ft, torch)):
        try:
            outcomes.append(call((m, k)))
            errors.append(None)
        except (IndexError, RuntimeError, ValueError, TypeError, NotImplementedError) as error:
            outcomes.append(None)
            errors.append(error)
    assert (errors[0] is None) == (errors[1] is None), errors
    assert errors[0] is None or isinstance(errors[0], type(errors[1])) or isinstance(errors[0], IndexError) == isinstance(errors[1], IndexError), errors
    return *outcomes, errors[0] is not None


def memory_name(t: Any) -> int:
    return t.untyped_storage().data_ptr() if t.numel() else 0  # type: ignore[no-any-return]


def run(seed: int, context: str) -> int:
    """A random program; how many calls were done at once."""
    draw = random.Random(seed)
    counters.indexed_at_once, before = 0, counters.indexed_at_once
    with getattr(ft, context)() if context else nullcontext(), getattr(torch, context)() if context else nullcontext():
        pairs: list[Pair] = [base(draw)]
        for _ in range(14):
            pair = draw.choice(pairs)
            kind = draw.random()
            if kind < 0.15:
                pairs.append(base(draw))
            elif kind < 0.55:
                index = index_of(draw, ft, tuple(pair[1].shape))
                mine, theirs, failed = attempt(lambda side, p=pair, i=index: p[side[1]][i(side[0])])
                if not failed:
                    pairs.append((mine, theirs))
                    assert tuple(mine.shape) == tuple(theirs.shape)
            elif kind < 0.75:
                index = index_of(draw, ft, tuple(pair[1].shape))
                other = draw.choice(pairs)
                if other is pair or draw.random() < 0.6:  # of the shape that is wanted
                    try:
                        wanted = pair[1].detach()[index(torch)].clone()
                    except (IndexError, RuntimeError, ValueError, TypeError):
                        continue
                    numbers = np.random.default_rng(draw.randrange(1 << 20)).integers(0, 9, tuple(wanted.shape)).tolist()
                    name, shape = str(wanted.dtype).rpartition(".")[2], tuple(wanted.shape)
                    other = both(lambda m, v=numbers, n=name, s=shape: m.tensor(v).reshape(s).to(getattr(m, n)))
                    if draw.random() < 0.7:
                        other[0].tolist()

                def write(side: Any, p: Pair = pair, i: Any = index, o: Pair = other) -> Any:
                    given = i(side[0])
                    duplicates = [k for k in (given if isinstance(given, tuple) else (given,)) if hasattr(k, "unique") and k.ndim and k.dtype is side[0].int64]
                    if any(k.numel() != k.unique().numel() or (k < 0).any() for k in duplicates):
                        raise ValueError("of places that are written twice, which value stays is not said")
                    p[side[1]][given] = o[side[1]]

                attempt(write)
            elif kind < 0.85:
                pairs.append(both(lambda m, p=pair: (p[0] if m is ft else p[1]) + 1))
            elif kind < 0.9:
                attempt(lambda side, p=pair: p[side[1]].add_(1))
            else:
                assert seen(pair[0], context) == seen(pair[1], context), seed
        for k, (mine, theirs) in enumerate(pairs):
            assert seen(mine, context) == seen(theirs, context), (seed, k)
        names = [(memory_name(a), memory_name(b)) for a, b in pairs]
        for i, (a, b) in enumerate(names):
            for c, d in names[:i]:
                if b and d:
                    assert (a == c) == (b == d), seed
        wanted = [p for p in pairs if p[1].requires_grad and not p[1].is_leaf]
        if wanted:
            attempt(lambda side: sum([p[side[1]].sum().double() for p in wanted]).backward())
            for mine, theirs in pairs:
                if theirs.is_leaf and theirs.requires_grad:
                    assert (mine.grad is None) == (theirs.grad is None), seed
                    if theirs.grad is not None:
                        assert mine.grad.tolist() == theirs.grad.tolist(), seed
    count = counters.indexed_at_once
    counters.indexed_at_once += before
    return count


@pytest.fixture(autouse=True)
def changing_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts change at each place, so that calls are done at once wherever they can be."""
    forget_edges()
    monkeypatch.setattr(at_once, "LAYOUTS", 0)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("context", ["", "no_grad", "inference_mode"])
@pytest.mark.usefixtures("each_tier")
def test_random_programs_are_as_in_pytorch(context: str) -> None:
    assert sum([run(seed, context) for seed in range(150)]) > 150


def test_layouts_that_go_on_changing_are_taken_to_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_once, "LAYOUTS", 2)
    layouts = [ft.zeros(n)._meta for n in range(1, 5)]
    changing, staying = (test_layouts_that_go_on_changing_are_taken_to_for_good.__code__, 0), (run.__code__, 0)
    assert [at_once.changes(changing, m) for m in layouts] == [False, False, True, True]
    assert all(at_once.changes(changing, layouts[0]) for _ in range(1000))
    assert not any(at_once.changes(staying, layouts[i % 50 == 49]) for i in range(1000))


def test_what_is_pending_reads_what_was_there_before_a_write() -> None:
    x, v = ft.arange(6.0), ft.tensor([7.0, 8.0])
    x.tolist(), v.tolist()
    pending = x * 2
    x[1:3] = v
    assert pending.tolist() == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert x.tolist() == [0.0, 7.0, 8.0, 3.0, 4.0, 5.0]


def test_a_write_is_seen_by_saved_values() -> None:
    for m in (ft, torch):
        x, w = m.arange(6.0), m.ones(6, requires_grad=True)
        loss = (x * w).sum()
        loss.item(), x.tolist()
        v = m.tensor([7.0, 8.0])
        v.tolist()
        x[1:3] = v
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_a_result_that_was_not_recorded_is_what_it_was_before_a_write() -> None:
    """A call that runs without a trace may be recorded after all: not with what its arguments are later."""
    v = ft.tensor([7.0, 8.0])
    v.tolist()
    for _ in range(12):
        x = ft.arange(6.0)
        x.tolist()
        y = x + 1
        x[1:3] = v
        z = y * 2
        assert z.tolist() == [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
        (x + 1).tolist()


def over_samples(m: Any) -> list[Any]:
    x, rows = m.arange(12.0).reshape(3, 4), m.tensor([2, 0])
    x.tolist()
    return [
        m.func.vmap(lambda i: x[i])(rows).tolist(),
        m.func.grad(lambda y: (y * x[rows][0]).sum())(m.ones(4)).tolist(),
        m.func.grad(lambda y: y[1:][rows[1]].square())(m.arange(4.0)).tolist(),
    ]


def test_functions_over_samples_index_what_is_in_memory() -> None:
    assert over_samples(ft) == over_samples(torch)
