"""Kept pieces (trace/kept.py): a call of a path in pieces runs at once, with the values, gradients and errors of a recorded one, whatever has changed since."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flambeau as torch
from flambeau.statistics import counters
from flambeau.trace import forgetting, stand_ins, tiers
from flambeau.trace.evaluate import flush
from flambeau.trace.kept_piece import KeptPiece
from flambeau.trace.recorder import local
from flambeau.trace.traces import TRACES, roots
from tests.engine.nothing_known import forget_edges


@pytest.fixture(autouse=True)
def in_pieces() -> Iterator[None]:
    before = tiers.MODE[0]
    forget_edges()
    tiers.MODE[0] = tiers.PIECES
    try:
        yield
    finally:
        tiers.MODE[0] = before


def _network() -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    return torch.randn(4, 3, requires_grad=True), torch.randn(5, 3, requires_grad=True), torch.randn(5, requires_grad=True)


def _hidden(x: Any, w: Any, b: Any, rounds: int = 3) -> Any:
    h = x
    for _ in range(rounds):
        h = torch.tanh(torch.nn.functional.linear(h, w, b))
        h = torch.cat((h[:, :3], h[:, 2:]), 1)[:, :3]
    return h


def _gradients(tensors: tuple[Any, ...]) -> list[Any]:
    found = [None if t.grad is None else np.array(t.grad.tolist(), dtype=np.float32) for t in tensors]
    for t in tensors:
        t.grad = None
    return found


def _as_a_whole(function: Callable[[], Any]) -> Any:
    before, tiers.MODE[0] = tiers.MODE[0], tiers.WHOLE
    try:
        return function()
    finally:
        tiers.MODE[0] = before


def _equal(a: list[Any], b: list[Any]) -> None:
    for x, y in zip(a, b, strict=True):
        assert (x is None) == (y is None)
        assert x is None or x.tobytes() == y.tobytes()


def _learned(step: Callable[[], Any]) -> Any:
    """`step()` until its calls are kept, then once more."""
    for _ in range(12):
        step()
    before = counters.kept_pieces
    result = step()
    assert counters.kept_pieces > before
    return result


@pytest.fixture
def as_in_a_process_of_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept stages are for those: what other tests' threads have shared does not count here."""
    gc.collect()
    if len(TRACES) != 1:
        pytest.skip("a thread of another test is still there")
    monkeypatch.setattr(stand_ins, "MADE", [False])


@pytest.mark.usefixtures("as_in_a_process_of_one_thread")
def test_values_and_gradients_are_those_of_the_whole() -> None:
    leaves = _network()

    def step() -> list[Any]:
        loss = _hidden(*leaves).square().sum()
        loss.backward()
        return [np.array(loss.tolist(), dtype=np.float32), *_gradients(leaves)]

    kept = _learned(step)
    before = counters.kept_stages
    _equal(step(), kept)
    assert counters.kept_stages > before
    _equal(_as_a_whole(step), kept)


@pytest.mark.parametrize("way", ["grad", "twice", "create_graph", "hook", "retains", "leaf hook", "several results"])
def test_whoever_asks_for_more_gets_it(way: str) -> None:
    """What a kept segment does not know by itself is made in full."""
    x, w, b = leaves = _network()

    def step() -> list[Any]:
        seen: list[Any] = []
        h = torch.tanh(torch.nn.functional.linear(_hidden(x, w, b, 1), w, b))
        if way == "hook":
            h.register_hook(lambda g: seen.append(g.tolist()))
        if way == "retains":
            h.retain_grad()
        handle = w.register_hook(lambda g: seen.append(g.tolist())) if way == "leaf hook" else None
        y = torch.sigmoid(h) if way != "several results" else h.max(1).values
        loss = y.sum()
        if way in ("grad", "create_graph"):
            found = torch.autograd.grad(loss, leaves, create_graph=way == "create_graph")
            if way == "create_graph":
                found = torch.autograd.grad(sum(g.square().sum() for g in found), leaves)
            return [np.array(g.tolist(), dtype=np.float32) for g in found]
        loss.backward(retain_graph=way == "twice")
        if way == "twice":
            loss.backward()
        if way == "retains":
            seen.append(h.grad.tolist())
        if handle is not None:
            handle.remove()
        return [*_gradients(leaves), np.array(seen, dtype=np.float32)]

    kept = _learned(step)
    if way == "create_graph":  # the last bits of second gradients depend on the tier, with kept pieces and without
        assert all(np.allclose(a, b, rtol=1e-5, atol=1e-6) for a, b in zip(_as_a_whole(step), kept, strict=True))
    else:
        _equal(_as_a_whole(step), kept)


def test_a_second_pass_through_what_was_freed_is_refused() -> None:
    x, w, b = leaves = _network()

    def step() -> Any:
        loss = torch.tanh(torch.nn.functional.linear(x, w, b)).sum()
        loss.backward()
        _gradients(leaves)
        return loss

    loss = _learned(step)
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_a_saved_value_that_was_written_to_is_refused() -> None:
    x, w, b = leaves = _network()

    def step(write: bool = False) -> None:
        h = torch.nn.functional.linear(x, w, b)
        y = torch.tanh(h)
        loss = (y * h).sum()
        if write:
            with torch.no_grad():
                y.mul_(2)
        loss.backward()
        _gradients(leaves)

    _learned(step)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        step(True)


def test_what_is_not_as_it_was_goes_the_usual_way() -> None:
    """Each guard of a kept call, violated after it was learned."""
    x, w = torch.randn(4, 3), torch.randn(3, 3, requires_grad=True)

    def product(a: Any) -> Any:
        return torch.tanh(torch.tanh(a @ w) @ w)

    _learned(lambda: product(x))
    copy, written = torch.zeros(4, 3), torch.zeros(4, 3)
    copy.copy_(x)  # a pending write
    written[:, :] = x @ w  # a write with gradients
    assert written.requires_grad
    outside = torch.from_numpy(np.ones((4, 3), dtype=np.float32))  # memory that is seen outside
    others = [x[:, :].clone(), torch.cat((x, x))[2:6], x.t().contiguous().t(), outside, x.detach(), copy, written]
    found = [np.array(product(a).tolist(), dtype=np.float32) for a in others]
    _equal(_as_a_whole(lambda: [np.array(product(a).tolist(), dtype=np.float32) for a in others]), found)


def test_one_tensor_in_two_places_and_views_of_one_memory() -> None:
    a, b = torch.randn(3, 3), torch.randn(3, 3)

    def step(p: Any, q: Any) -> Any:
        return np.array(torch.tanh(torch.sin(p) @ torch.tanh(p @ q)).tolist(), dtype=np.float32)

    _learned(lambda: step(a, b))
    found = [step(a, a), step(a, a.t()), step(a[:], a)]
    _equal(_as_a_whole(lambda: [step(a, a), step(a, a.t()), step(a[:], a)]), found)


def test_one_tensor_twice_has_both_gradients() -> None:
    a, b = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)

    def step(p: Any, q: Any) -> list[Any]:
        torch.tanh(torch.sin(p) * 1.0 @ torch.sin(q)).sum().backward()
        torch.tanh(p @ q).sum().backward()
        return _gradients((a, b))

    _learned(lambda: step(a, b))
    found = step(a, a)
    _equal(_as_a_whole(lambda: step(a, a)), found)


def test_indices_out_of_range_are_told_at_the_call() -> None:
    table = torch.randn(5, 2, requires_grad=True)

    def step(i: int) -> Any:
        return torch.tanh(torch.nn.functional.embedding(torch.tensor([i]), table)).tolist()

    _learned(lambda: step(2))
    with pytest.raises(IndexError):
        step(5)
    assert step(2) == step(2)


def test_numbers_beyond_their_limits() -> None:
    x = torch.arange(6, dtype=torch.uint8)
    _learned(lambda: ((x + 3) * 2).tolist())
    assert ((x + 200) * 2).tolist() == [(((i + 200) % 256) * 2) % 256 for i in range(6)]


def test_saved_tensor_hooks_see_what_is_saved() -> None:
    x, w, b = leaves = _network()

    def step() -> None:
        torch.tanh(torch.nn.functional.linear(x, w, b)).sum().backward()
        _gradients(leaves)

    _learned(step)
    packed: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        step()
    assert packed


def test_a_path_that_comes_back_is_recorded_as_a_whole_all_the_same() -> None:
    tiers.MODE[0] = tiers.MIXED
    leaves = _network()

    def step(signs: int) -> None:
        h = leaves[0]
        for k in range(6):
            h = torch.tanh(h) if signs >> k & 1 else torch.sigmoid(h)
        h.sum().backward()
        _gradients(leaves)

    for signs in range(64):
        step(signs)
    assert counters.kept_pieces
    for _ in range(60):  # the places of the path become whole one after the other, from its end on
        step(21)
    before = counters.kept_pieces, counters.pieces
    step(21)
    assert (counters.kept_pieces, counters.pieces) == before


def test_kept_pieces_are_forgotten_with_their_plans_and_learned_again() -> None:
    x, w, b = _network()

    def step() -> list[Any]:
        _hidden(x, w, b).sum().backward()
        return _gradients((x, w, b))

    expected = _learned(step)
    flush(local.main, "test")
    kept = [made for root in roots() for made in (root.immediate or {}).values() if isinstance(made, KeptPiece)]
    plans = [weakref.ref(made.plan.plan) for made in kept if made.plan is not None]
    assert plans
    del kept
    local.main.reset()
    forgetting.keep(0)
    gc.collect()
    assert not any(ref() is not None for ref in plans)
    before = counters.kept_pieces
    _equal(_learned(step), expected)
    assert counters.kept_pieces > before


@pytest.mark.usefixtures("as_in_a_process_of_one_thread")
def test_a_loss_that_is_held_leaves_the_pieces_as_they_are() -> None:
    """What a pass gives up is known to a loss that outlives it by shells. They are made without making all segments of the history in full."""
    leaves = _network()
    labels = torch.tensor([0, 1, 2, 0])

    def step() -> list[Any]:
        loss = torch.nn.functional.cross_entropy(_hidden(*leaves), labels)
        loss.backward()
        found = [np.array(loss.item(), dtype=np.float32), *_gradients(leaves)]
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        assert loss.grad_fn.next_functions
        return found

    kept = _learned(step)
    before, pieces = counters.kept_stages, counters.kept_pieces
    _equal(step(), kept)
    assert counters.kept_pieces > pieces
    assert counters.kept_stages - before >= 0.9 * (counters.kept_pieces - pieces)
    _equal(_as_a_whole(step), kept)


def _metropolis(times: int) -> list[Any]:
    """Gradients by autograd.grad of leaves that are new each time, through a product of a matrix and a vector and one of a tensor with itself."""
    torch.manual_seed(0)
    x, y, w = torch.randn(6, 4), torch.randn(6), torch.zeros(4)
    found = []
    for k in range(times):
        w = w.detach().requires_grad_()
        loss = ((x @ w - y).abs() + 0.1 * (x @ w - y) ** 2).sum() + (w * w).sum()
        both = torch.autograd.grad(loss, w, retain_graph=k % 3 == 1)
        if k % 3 == 1:
            again = torch.autograd.grad(loss, w)
            assert again[0].tolist() == both[0].tolist()
        w = w - 0.05 * both[0]
        found.append(w.detach().tolist())
    return found


@pytest.mark.usefixtures("as_in_a_process_of_one_thread")
def test_passes_to_given_leaves_run_by_kept_stages() -> None:
    before = counters.kept_stages
    pieces = _metropolis(40)
    after = counters.kept_stages
    assert after - before > 100
    assert pieces == _as_a_whole(lambda: _metropolis(40))
    runs = counters.traces_run
    assert _metropolis(40) == pieces
    assert counters.traces_run - runs < 40 * 3  # most pieces and stages need no trace


def test_a_pass_to_a_tensor_in_the_middle_and_one_to_some_leaves_are_as_without_kept_pieces() -> None:
    def program() -> list[Any]:
        torch.manual_seed(1)
        x, w, b = torch.randn(3, 4), torch.randn(4, requires_grad=True), torch.randn(3, requires_grad=True)
        found = []
        for k in range(24):
            h = torch.tanh(x @ w)
            loss = (h * b + h).sum()
            if k % 2:
                (slope,) = torch.autograd.grad(loss, b, retain_graph=True)
                found.append(slope.tolist())
                with pytest.raises(RuntimeError, match="appears to not have been used"):
                    torch.autograd.grad(loss, (w, torch.ones(2, requires_grad=True)))
            else:
                found.append([g.tolist() for g in torch.autograd.grad(loss, (h, w))])
        return found

    assert program() == _as_a_whole(program)


def test_one_tensor_in_several_places_of_a_kept_call() -> None:
    def program() -> list[Any]:
        torch.manual_seed(2)
        a, b = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
        found = []
        for k in range(30):
            given = [(a, a), (a, b), (b, b), (b, a), (a, a)][k % 5]
            h = given[0] * given[1]
            h = torch.addcmul(h, given[1], given[0])
            h = torch.addcmul(given[0], given[0], h)
            h.sum().backward()
            found.append((h.tolist(), *[None if t.grad is None else t.grad.tolist() for t in (a, b)]))
            a.grad = b.grad = None
        return found

    before = counters.kept_pieces
    assert program() == _as_a_whole(program)
    assert counters.kept_pieces > before + 20
