"""Training steps in native code (trace/edge_code.py, trace/write_code.py): inputs, views, lists of tensors, several results and the writes of
an optimizer's step. The builtins answer as the Python code does, are taken when a pass is known, and keep no reference."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import flambeau as fb
from flambeau import nn
from flambeau.ops import indexing, shape, sorting
from flambeau.optim.adam import adam_update
from flambeau.runtime import buffers, native_calls
from flambeau.statistics import counters
from flambeau.trace import immediate, mutation, recorder
from flambeau.trace.recorder import local
from tests.engine.python_only import python_only
from tests.threads import Thread, join

pytestmark = [
    pytest.mark.usefixtures("whole", "short_collections"),
    pytest.mark.skipif(not native_calls.available(), reason="no CPython whose objects are known"),
]


@pytest.fixture(autouse=True)
def started() -> Iterator[None]:
    (fb.ones(3) + 1).tolist()
    assert recorder.take is not None and mutation.native_writes is not None
    yield


@contextmanager
def answers(function: Any) -> Iterator[list[bool]]:
    """Whether the builtin of an operation answered, call by call."""
    scope = function.__globals__
    step, found = scope["step_"], []
    assert step is not None

    def counted(*args: Any) -> Any:
        result = step(*args)
        found.append(result is not None)
        return result

    scope["step_"] = counted
    try:
        yield found
    finally:
        scope["step_"] = step


def calls_of(t: Any, w: Any, index: Any) -> dict[str, tuple[Any, Callable[[], Any]]]:
    """By name: the operation whose builtin is asked, and a call of it. `t` is pending, `w` may have to be entered."""
    return {
        "input": (fb.add, lambda: fb.add(t, w)),
        "transpose": (shape.transpose, lambda: t.transpose(0, 1)),
        "view": (shape.view, lambda: t.view(2, 8)),
        "slice": (indexing.getitem, lambda: t[1:3]),
        "select": (indexing.getitem, lambda: t[2]),
        "list": (fb.cat, lambda: fb.cat([t, w])),
        "tuple": (fb.stack, lambda: fb.stack((t, w, t))),
        "named": (sorting._sort, lambda: fb.sort(t)),
        "parts": (shape._split_method, lambda: t.split(2)),
        "index": (indexing.getitem, lambda: t[index]),
        "number": (fb.add, lambda: fb.add(t, w, alpha=2.5)),
    }


def values_of(result: Any) -> Any:
    return [values_of(r) for r in result] if isinstance(result, (tuple, list)) else (result.tolist(), tuple(result.stride()), result.dtype)


@pytest.mark.parametrize("name", list(calls_of(None, None, None)))
def test_a_known_call_is_native_and_as_in_python(name: str) -> None:
    x, w = fb.arange(16.0).reshape(4, 4).clone(), fb.full((4, 4), 2.0)
    index = fb.tensor([0, 2])

    def run() -> Any:
        t = x * 3.0 - 1.0
        _, call = calls_of(t, w, index)[name]
        result = call()
        kind = type(result)
        return kind, values_of(result), values_of(t + 1)

    with python_only():
        expected = run()
    for _ in range(6):  # two calls before it: a trace of one that is looked at at once is learned
        assert run() == expected
    operation, _ = calls_of(None, None, None)[name]
    with answers(operation) as found:
        assert run() == expected
    assert found[0] is True


def test_a_number_that_is_the_default_is_not_data() -> None:
    x, w = fb.arange(4.0), fb.ones(4)

    def run(alpha: float) -> Any:
        t = x * 2.0
        return fb.add(t, w, alpha=alpha).tolist()

    for alpha in (3, 1, 3, 1, 2.5, 1, 1.0, 3):
        assert run(alpha) == [2.0 * i + alpha for i in range(4)]


def test_static_tuples_of_equal_numbers_are_alike_and_others_are_not() -> None:
    x = fb.arange(12.0)
    for sizes in ([3, 4], (3, 4), [4, 3], (3, 4), (2, 6), [2, 6], (12,), (1, 12)):
        t = x * 1.0
        assert tuple(t.view(*sizes).shape) == tuple(sizes)
        assert tuple(t.reshape(sizes).shape) == tuple(sizes)


def model_of(optimizer: str) -> tuple[Any, Callable[[], float]]:
    fb.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.ReLU(), nn.Linear(7, 3))
    made = getattr(fb.optim, optimizer)(model.parameters(), lr=0.02)
    x, y = fb.randn(4, 5), fb.tensor([0, 2, 1, 1])

    def step() -> float:
        made.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        made.step()
        return float(loss)

    return model, step


@pytest.mark.parametrize("optimizer", ["Adam", "AdamW", "SGD", "RMSprop"])
def test_a_training_loop_has_the_bits_of_the_python_code(optimizer: str) -> None:
    with python_only():
        model, step = model_of(optimizer)
        expected = [step() for _ in range(8)]
        parameters = [p.tolist() for p in model.parameters()]
        versions = [p._version for p in model.parameters()]
    model, step = model_of(optimizer)
    assert [step() for _ in range(8)] == expected
    assert [p.tolist() for p in model.parameters()] == parameters
    assert [p._version for p in model.parameters()] == versions


def test_a_known_step_is_native_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    immediate.forget()  # what other tests have taught the roots: there the first call goes the Python way
    _, step = model_of("Adam")
    for _ in range(6):
        step()
    written: list[bool] = []
    native = mutation.native_writes
    monkeypatch.setattr(mutation, "native_writes", lambda *a: written.append(bool(native(*a))) or written[-1])
    (edge,) = [cell.cell_contents for cell in adam_update.__closure__ if hasattr(cell.cell_contents, "operation")]  # type: ignore[attr-defined]
    with answers(edge) as updated, answers(nn.functional.linear) as linear:
        for _ in range(3):
            step()
    assert written == updated == [True] * 3
    assert linear[-4:] == [True] * 4


def test_what_is_on_a_written_storage_is_read_again() -> None:
    """Views that were made before the step's writes have the new values, those of gradients that do not see it their history."""
    p, q = fb.ones(4, requires_grad=True), fb.ones(4)
    for number in range(5):
        with fb.no_grad():
            before = p[1:3]
            early = (p * 1.0).sum()
            mutation.assign_all([p, q], [p * 2.0, q + 1.0])
            late = before.sum()
        assert float(early) == 4.0 * 2.0**number
        assert float(late) == 2.0 * 2.0 ** (number + 1)
        assert q.tolist() == [2.0 + number] * 4


def test_two_targets_on_one_storage_are_written_in_order() -> None:
    base = fb.zeros(4)
    for number in range(4):
        with fb.no_grad():
            mutation.assign_all([base[:3], base[1:]], [fb.full((3,), 1.0) * (number + 1), fb.full((3,), 2.0) * (number + 1)])
        assert base.tolist() == [1.0 * (number + 1), *[2.0 * (number + 1)] * 3]


def test_a_write_that_gradients_do_not_see_leaves_them_as_they_were() -> None:
    for _ in range(4):
        w = fb.full((3,), 2.0, requires_grad=True)
        y = w * w
        with fb.no_grad():
            mutation.assign_all([y], [y * 10.0])
        y.sum().backward()
        assert w.grad is not None and w.grad.tolist() == [4.0] * 3
        assert y.tolist() == [40.0] * 3


def test_hooks_and_histories_of_inputs_are_seen() -> None:
    w, seen = fb.ones(3, requires_grad=True), []
    for number in range(6):
        if number == 4:
            w.register_hook(lambda g: seen.append(g.tolist()))
        w.grad = None
        (w * 3.0).sum().backward()
        assert w.grad.tolist() == [3.0] * 3
    assert seen == [[3.0] * 3] * 2


def test_detached_bases_have_detached_views() -> None:
    for _ in range(4):
        w = fb.ones(4, requires_grad=True) * 1.0
        view, cut = w[:2], w.detach()[:2]
        assert view.requires_grad and not cut.requires_grad
        with fb.no_grad():
            inner = w[:2]
        with pytest.raises(RuntimeError, match="no_grad"):
            inner.add_(1.0)
        cut.add_(1.0)
        assert w.tolist() == [2.0, 2.0, 1.0, 1.0]


def test_no_reference_is_kept_or_lost_by_a_step() -> None:
    """The counts of all objects that every step uses stay where they are."""
    model, step = model_of("Adam")
    for _ in range(20):
        step()
    watched = [None, True, False, recorder._TENSOR[0], recorder.Boundary, recorder.Storage, local.main, *model.parameters()]
    watched += [p._storage for p in model.parameters()] + [p._meta for p in model.parameters()]
    state: Any = local.main.root
    gc.collect()
    before, objects = [sys.getrefcount(o) for o in watched], len(gc.get_objects())
    for _ in range(200):
        step()
    gc.collect()
    after = [sys.getrefcount(o) for o in watched]
    assert state is local.main.root
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) < 50
    assert len(gc.get_objects()) - objects < 50


def test_no_reference_is_kept_or_lost_by_views_and_several_results() -> None:
    x, w, index = fb.arange(16.0).reshape(4, 4).clone(), fb.full((4, 4), 2.0), fb.tensor([0, 2])

    def run() -> None:
        t = x * 3.0 - 1.0
        results = [call() for _, call in calls_of(t, w, index).values()]
        t.sum().item()
        del results

    for _ in range(20):
        run()
    watched = [None, x, w, x._storage, w._storage, x._meta, recorder._TENSOR[0], recorder.Storage, local.main]
    gc.collect()
    before, objects = [sys.getrefcount(o) for o in watched], len(gc.get_objects())
    for _ in range(200):
        run()
    gc.collect()
    assert max(abs(sys.getrefcount(o) - b) for o, b in zip(watched, before, strict=True)) < 50
    assert len(gc.get_objects()) - objects < 50


def test_buffers_of_native_code_come_from_the_pool_and_go_back() -> None:
    make = buffers.allocator(3000)
    assert make is buffers.allocator(3000) and type(make).__name__ == "builtin_function_or_method"
    home = buffers._small[((3000 - 1) | 63).bit_length()]
    held = [make() for _ in range(len(home) + 2)]  # the last two from the system
    assert not home and len({b.address for b in held}) == len(held) and all(b.nbytes == 3000 and b.owner is None for b in held)
    assert buffers.addresses(held) == [b.address for b in held]
    places = {b.address for b in held}
    gc.collect()  # garbage of other tests holds the class
    counted = home, buffers._Class, buffers.Buffer  # not None, which other threads use, too
    del held  # each has its class, of which there may be many after other tests
    before, references = counters.bytes_from_pool, [sys.getrefcount(o) for o in counted]
    assert len(home) == len(places)
    for _ in range(500):
        b = make()
        assert b.address in places
        del b
    assert counters.bytes_from_pool == before + 500 * 3000
    assert max(abs(sys.getrefcount(o) - r) for o, r in zip(counted, references, strict=True)) < 10
    assert all(sys.getrefcount(block) <= 3 for block in home)


def test_a_full_class_gives_blocks_back_to_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    make = buffers.allocator(5000)
    home = buffers._small[((5000 - 1) | 63).bit_length()]
    held = [make() for _ in range(6)]
    monkeypatch.setattr(home, "limit", len(home) + 3)
    most = home.limit
    del held
    assert len(home) == most


def test_buffers_are_given_back_by_other_threads() -> None:
    make = buffers.allocator(7000)
    home = buffers._small[((7000 - 1) | 63).bit_length()]
    held = [make() for _ in range(50)]
    free = len(home)

    def drop() -> None:
        while held:
            held.pop()
            make()

    threads = [Thread(target=drop) for _ in range(3)]
    for t in threads:
        t.start()
    join(*threads)
    assert len(home) >= free + 50 and len({block[0] for block in home}) == len(home)


@pytest.mark.parametrize("gradients", [False, True])
def test_writes_in_place_are_as_in_python(gradients: bool) -> None:
    def run() -> Any:
        x, w = fb.arange(12.0).reshape(3, 4).clone(), fb.full((4,), 0.5, requires_grad=gradients)
        view, found = x[1], []
        for number in range(5):
            if gradients:
                with fb.no_grad():
                    w.mul_(1.5).sub_(0.25)
                    w[1:3] = w[:2] * 2.0
                found.append(((x * w).sum().detach(), w._version))
            x.add_(1.0).mul_(w.detach())
            x[0] = float(number)
            x[:, 1:3] = x[:, :2]
            view.neg_()
            x.copy_(x.flip(0))
            x.t().add_(view.sum())
            found.append((x.tolist(), view.tolist(), w.tolist(), x._version))
        return found

    with python_only():
        expected = run()
    for _ in range(3):
        assert str(run()) == str(expected)
