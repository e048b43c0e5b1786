"""Tiers: in pieces, as a whole and mixed a program gives the same bits; what comes back is recorded as a whole, what does not is not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.cli.fresh_programs import PROGRAMS as FRESH
from flambeau.statistics import counters
from flambeau.trace import tiers
from flambeau.trace.recorder import local
from tests import processes
from tests.engine.nothing_known import forget_edges, forget_places
from tests.engine.test_classes import PROGRAMS, bits

F = torch.nn.functional
TIERS = (tiers.PIECES, tiers.WHOLE, tiers.MIXED)


@pytest.fixture(autouse=True)
def mode(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is known of which paths come back."""
    before = tiers.MODE[0]
    forget_places(monkeypatch)
    yield
    tiers.MODE[0] = before


def in_every_tier(program: Callable[[], Any]) -> list[Any]:
    """What a program gives in pieces, as a whole and mixed."""
    results = []
    for tier in TIERS:
        tiers.MODE[0] = tier
        torch.manual_seed(0)
        results.append(program())
    return results


def same(program: Callable[[], Any]) -> Any:
    """The bits that a program gives in every tier."""
    pieces, whole, mixed = in_every_tier(lambda: bits(program()))
    assert pieces == whole
    assert mixed == whole
    return whole


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__.strip("_"))
def test_bits_do_not_depend_on_the_tier(program: Callable[[int, int], Any]) -> None:
    for n, m in ((5, 7), (6, 7), (9, 8), (4, 11), (12, 3), (5, 7), (5, 7), (40, 33)):
        same(lambda n=n, m=m: program(n, m))


@pytest.mark.parametrize("name", ["GRU cell in a loop, new lengths", "recursive trees", "neural ODE, adaptive steps", "boxes of a detector"])
def test_programs_in_which_everything_is_new(name: str) -> None:
    def run() -> list[Any]:
        step = FRESH[name](torch, 0)
        return [step(i) for i in range(3)]

    same(run)


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).requires_grad_()


def _shared_weight() -> Any:
    w, h = leaf(6, 6), torch.randn(3, 6)
    for _ in range(7):
        h = torch.tanh(h @ w)  # from four products by one matrix on, their factors could be put together
    h.sum().backward()
    return w.grad


def _slices() -> Any:
    x = leaf(9, 4)
    rows = [x[i].relu() * -1 for i in range(9)]  # gradients of -0.0
    y = sum(rows) + x[2:5].exp().sum(0) + x[3:8, 1:3].sum() + (x * x).mean(0) + x[4]
    y.sum().backward()
    return x.grad


def _twice_in_a_call() -> Any:
    x = leaf(5, 5)
    y = x @ x + torch.where(x > 0, x, x.exp()) * x + x.t() @ x
    (y * x).sum().backward()
    return x.grad


def _many_uses() -> Any:
    x, w = leaf(4, 3), leaf(3)
    parts = x.chunk(2) + x.split([1, 3]) + x.unbind(1)
    y = [(p.sum() * w).exp() for p in parts] + [w * 2, w / 3, w.pow(2) * x.var()]
    torch.stack(y).sum().backward()
    return x.grad, w.grad


def _added_to_before() -> Any:
    x = leaf(6)
    for k in range(3):  # a later pass adds its sum, not one gradient after the other
        (x * 0.1 * k + x.sin() + x[1:4].sum() + x.exp()).sum().backward()
    return x.grad


def _expanded() -> Any:
    a, b = leaf(2, 4, 5), torch.randn(2, 5, 3)
    (a @ b).sum().backward()  # the product's gradient has strides of 0
    return a.grad


def _second_order() -> Any:
    x = leaf(5)
    y = (x.exp() * x + x.sin()).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (g * g + g.exp()).sum().backward()
    return g, x.grad


def _views_written() -> Any:
    x = leaf(4, 4)
    y = x * 2
    y[1:].mul_(3)
    y[:, 0] = y[:, 1].detach() + x[0]
    z = y.t()
    z.add_(x.sum(1))
    (z * y).sum().backward()
    return y, x.grad


def _hooks() -> Any:
    seen: list[Any] = []
    x = leaf(4)
    x.register_hook(lambda g: seen.append(g.clone()))
    y = x * 2
    y.register_hook(lambda g: g * 3)
    y.retain_grad()
    z = y.exp() + x + y[1:].sum()
    z.sum().backward()
    return x.grad, y.grad, *seen


def _inner_gradients() -> Any:
    w = leaf(3, 3)
    x = torch.randn(2, 3)
    for _ in range(3):
        y = (x @ w).tanh()
        (g,) = torch.autograd.grad(y.sum(), w)
        x = x - (g.sum() * 0.01)
    return x


def _sparse() -> Any:
    table = leaf(6, 3)
    y = F.embedding(torch.tensor([1, 4, 1]), table, sparse=True).sum() + F.embedding(torch.tensor([2]), table, sparse=True).exp().sum()
    y.backward()
    return table.grad.to_dense()


def _custom() -> Any:
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return 3 * x * x * g

    x = leaf(5)
    (Cube.apply(x) + x.sin() + Cube.apply(x * 2)).sum().backward()
    return x.grad


def _half() -> Any:
    x = torch.randn(7, 5).half().requires_grad_()
    y = (x * 3 + 0.1).relu().sum(1) * x[:, 0]
    y.sum().backward()
    return y, x.grad


SUMS = [
    _shared_weight, _slices, _twice_in_a_call, _many_uses, _added_to_before, _expanded, _second_order, _views_written, _hooks, _inner_gradients, _sparse,
    _custom, _half,
]  # fmt: skip


@pytest.mark.parametrize("program", SUMS, ids=lambda p: p.__name__.strip("_"))
def test_sums_of_gradients_do_not_depend_on_where_traces_end(program: Callable[[], Any]) -> None:
    for _ in range(3):
        same(program)


OPERATIONS: list[Callable[[Any, Any, int], Any]] = [
    lambda x, w, k: x @ w, lambda x, w, k: x * w[k], lambda x, w, k: x + x[k % x.shape[0]], lambda x, w, k: x.tanh(), lambda x, w, k: x.softmax(k % 2),
    lambda x, w, k: torch.cat((x[k % x.shape[0] :], x[: k % x.shape[0]])), lambda x, w, k: x - x.mean(k % 2, keepdim=True),
    lambda x, w, k: (x + 1).mul_(0.5), lambda x, w, k: x.t() @ x if x.shape[0] == x.shape[1] else x, lambda x, w, k: x.clone(),
    lambda x, w, k: x.index_select(0, torch.tensor([k % x.shape[0]] * x.shape[0])), lambda x, w, k: F.layer_norm(x, (x.shape[1],), w[k]),
    lambda x, w, k: x + x.sum().item() * 0.001, lambda x, w, k: x.relu() * -1, lambda x, w, k: x[:, k % x.shape[1]].unsqueeze(1) * w[k],
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 3)), min_size=2, max_size=12), st.integers(2, 5))
def test_random_programs_in_every_tier(steps: list[tuple[int, int]], rows: int) -> None:
    def program() -> Any:
        w, x = leaf(4, 4), leaf(rows, 4)
        y = x * 1.5
        for number, k in steps:
            y = OPERATIONS[number](y, w, k)
        y.sum().backward()
        return y, x.grad, w.grad

    for _ in range(2):
        same(program)


SECOND: list[Callable[[Any, Any, Any], Any]] = [
    lambda a, b, w: a.exp(), lambda a, b, w: a.tanh(), lambda a, b, w: a.sigmoid() * 0.5, lambda a, b, w: a * b, lambda a, b, w: a + b, lambda a, b, w: w @ a,
    lambda a, b, w: torch.cat([a[1:], b[:1]]), lambda a, b, w: a / (b * b + 1), lambda a, b, w: a.view(-1, 1).mul(w).sum(0), lambda a, b, w: a.softmax(0),
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(SECOND) - 1), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7),
    st.lists(st.integers(0, 9), max_size=2), st.integers(2, 9),
)  # fmt: skip
def test_second_gradients_in_every_tier(steps: list[tuple[int, int, int]], again: list[int], n: int) -> None:
    """A value comes into a trace of gradients as the tensor itself and as what its segment keeps: each term of its gradient is added alone, in one order.

    Of calls that are not known; see docs/design.md, *Gradients*, for pieces of several known calls.
    """

    def program() -> Any:
        forget_edges()
        x, w = leaf(n), (torch.randn(n, n) * 0.3).requires_grad_()
        made = [x]
        for number, i, k in steps:
            made.append(SECOND[number](made[i % len(made)], made[k % len(made)], w))
        y = sum(t.sum() for t in made[1:])
        gradients = [g for g in torch.autograd.grad(y, [x, w], create_graph=True, allow_unused=True) if g is not None]
        z = y * 0.5 + sum((g * g).sum() + g.sin().sum() for g in gradients)
        for i in again:
            z = z + (made[i % len(made)] * gradients[0].sum()).sum()
        z.backward()
        return z, x.grad, torch.zeros(1) if w.grad is None else w.grad

    for _ in range(2):
        same(program)


def test_a_path_that_comes_back_is_recorded_as_a_whole() -> None:
    tiers.MODE[0] = tiers.MIXED
    net = torch.nn.Sequential(torch.nn.Linear(11, 13), torch.nn.Tanh(), torch.nn.Linear(13, 3))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    x, y = torch.randn(5, 11), torch.tensor([0, 1, 2, 0, 1])

    def step() -> tuple[int, int]:
        before = counters.pieces, counters.plans_made
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        return counters.pieces - before[0], counters.plans_made - before[1]

    seen = [step() for _ in range(7)]
    assert seen[0][0] > 3  # new: in pieces
    assert seen[-1] == (0, 0)  # settled: known, without pieces


def test_paths_that_never_come_back_make_no_plans_of_their_own() -> None:
    tiers.MODE[0] = tiers.MIXED
    operations = [torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.exp]

    def program(number: int) -> float:
        x = torch.ones(3, 4)
        for _ in range(10):
            x = operations[number % 5](x)
            number //= 5
        return x.sum().item()

    for i in range(60):
        program(i * 7919)
    before = counters.plans_made
    for i in range(60, 120):
        program(i * 7919)
    assert counters.plans_made - before <= 2


def test_a_path_that_is_never_looked_at_is_not_kept_for_ever() -> None:
    tiers.MODE[0] = tiers.MIXED
    operations = [torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.neg]
    x, number = torch.ones(3, 5), 1
    for _ in range(3 * tiers.MOST_CUTS):
        number = number * 16807 % 2147483647
        x = operations[number % 5](x)
        assert len(local.main.walk.cuts) <= tiers.MOST_CUTS
    assert x.isfinite().all()


def test_a_loop_is_known_at_some_point_whatever_came_before() -> None:
    """Many paths begin as its rounds do and end otherwise. They had made pieces of it without end, as most paths from there had not come back."""
    tiers.MODE[0] = tiers.MIXED
    operations = [torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.neg]
    start = torch.ones(3, 6)
    start.tolist()
    number = 1
    for _ in range(100):
        x = torch.tanh(start)
        for _ in range(6):
            number = number * 16807 % 2147483647
            x = operations[number % 5](x)
        x.sum().item()
    for body in ((torch.tanh,), (torch.tanh, torch.sin)):
        x, before = start, counters.pieces
        for _ in range(2 * tiers.PAID):
            for operation in body:
                x = operation(x)
        assert counters.pieces - before <= tiers.PAID + 100
        before = counters.pieces
        for _ in range(300):
            for operation in body:
                x = operation(x)
        assert counters.pieces == before


def test_numbers_of_rounds_that_do_not_come_back_make_no_plans_of_their_own() -> None:
    """What is left of a loop after its last cut had been another path, with a plan of 20 to 150 ms, for each number of rounds."""
    tiers.MODE[0] = tiers.MIXED
    weight = torch.randn(5, 5, requires_grad=True)

    def step(rounds: int, function: Any = torch.tanh) -> float:
        h = torch.ones(2, 5)
        for _ in range(rounds):
            h = function(h @ weight)
        loss = h.sum()
        weight.grad = None
        loss.backward()
        return loss.item()  # type: ignore[no-any-return]

    for rounds in (40, 33, 51, 38, 35, 53, 37, 52, 34, 39, 36, 54):  # after eight of them calls are kept
        step(rounds)
    before = counters.plans_made
    for rounds in range(41, 51):
        step(rounds)
    assert counters.plans_made - before <= 2
    for _ in range(32):  # a number that does come back, after the seventeenth time: as a whole
        step(60, torch.sin)
    pieces = counters.pieces
    for _ in range(4):
        step(60, torch.sin)
    assert counters.pieces - pieces < 4 * 60, "rounds forward and back were pieces of their own: 120 a step"


def test_a_wrong_guess_is_given_up() -> None:
    """A path that has come back is recorded as a whole; if it goes on otherwise each time, it runs in pieces again."""
    tiers.MODE[0] = tiers.MIXED

    def program(number: int) -> None:
        x = torch.ones(6, 2) * 3 + 1
        for bit in range(8):
            x = x.abs() if number >> bit & 1 else x.neg()
        x.tolist()

    for number in (1, 1, 1, *range(2, 30)):
        program(number)
    before = counters.plans_made
    for number in range(30, 60):
        program(number)
    assert counters.plans_made - before <= 6


def test_the_switch() -> None:
    code = "import flambeau as t; x = t.ones(3) * 2 + 1; x.exp().tolist(); from flambeau.statistics import counters; print(counters.pieces)"
    found = []
    for tier in (tiers.PIECES, tiers.WHOLE):
        done = processes.python("-c", code, env={**os.environ, "FLAMBEAU_TIER": tier}, check=True)
        found.append(int(done.stdout))
    assert found[0] >= 3
    assert found[1] == 0


def test_what_a_piece_cannot_compute_is_told_at_the_next_call_and_spoils_nothing_else() -> None:
    tiers.MODE[0] = tiers.PIECES
    table, other = torch.arange(4.0), torch.ones(3) * 5
    index = torch.ones(2, dtype=torch.int64) * 9  # pending: nobody can look at it yet
    bad = None
    with pytest.raises(IndexError, match="index 9 is out of bounds"):
        bad = table.gather(0, index)
        (other + 1).tolist()
    assert other.tolist() == [5.0] * 3
    with pytest.raises(RuntimeError, match="no value"):
        assert bad is None or bad.tolist()
        raise RuntimeError("no value")  # where the call itself has raised


def test_custom_functions_side_by_side(each_tier: str) -> None:
    """Several wait for their gradients at once, while others of the same trace are called."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2

    def program(double: Callable[[Any], Any]) -> Any:
        torch.manual_seed(1)
        x, w = leaf(3), leaf(3)
        for _ in range(3):
            a, b = double(x * w), double((x + w).exp())
            (double(a) / b + double(b).log()).sum().backward()
        return x.grad.tolist(), w.grad.tolist()

    for ours, plain in zip(program(Double.apply), program(lambda x: x * 2), strict=True):
        assert ours == pytest.approx(plain, rel=1e-5)


def test_a_path_ends_where_a_value_is_read_that_a_piece_has_computed() -> None:
    """What is read is ready before the path ends; the rest of it is not looked at. It comes back all the same, and is recorded as a whole."""
    tiers.MODE[0] = tiers.MIXED
    kept = torch.ones(3, 4)
    weight = torch.randn(4, 4)

    def step(n: int) -> Any:
        nonlocal kept
        words = (torch.ones(n, 4) @ weight).relu().argmax(-1)
        kept = torch.cat((kept[1:3], torch.tanh(kept[:1]) * 1.5))
        return words.tolist()

    local.trace.walk.end()
    for n in range(3, 14):
        step(n)
    pieces = counters.pieces
    for n in range(14, 22):
        step(n)
    assert counters.pieces - pieces < 24, "most calls are not in pieces any more (72 where no such path ends)"


def test_a_path_ends_where_a_number_is_read_that_a_piece_has_computed() -> None:
    """`item()` of what is ready does not ask the recorder for anything, but the path of a training step ends there: after the writes to its parameters."""
    tiers.MODE[0] = tiers.MIXED
    weight = torch.randn(4, 4, requires_grad=True)

    def step() -> float:
        loss = (torch.ones(3, 4) @ weight).sin().sum()
        (slope,) = torch.autograd.grad(loss, weight)
        with torch.no_grad():
            weight.sub_(slope.clamp(-1, 1), alpha=0.01)
        return loss.item()  # type: ignore[no-any-return]

    torch.ones(1).sum().item()  # whatever path there was has ended
    for _ in range(6):
        step()
    pieces = counters.pieces
    for _ in range(4):
        step()
    assert counters.pieces == pieces, "the step is recorded as a whole"
    assert local.trace.walk not in tiers.OPEN


LOOKS: list[Any] = [torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.exp]


def _look(number: int, x: Any) -> float:
    """One of 125 short programs."""
    for _ in range(3):
        x = LOOKS[number % 5](x)
        number //= 5
    return x.sum().item()  # type: ignore[no-any-return]


def test_short_paths_that_have_come_back_a_few_times_make_no_plans() -> None:
    """A notebook's cells: each of many short looks is worth a plan of its own only after some twenty visits. Each had one after its second."""
    tiers.MODE[0] = tiers.MIXED
    x = torch.ones(3, 7)
    expected = [_look(number, x) for number in range(0, 125, 3)]
    for _ in range(2):  # all pieces that there are, and those that are kept
        [_look(number, x) for number in range(125)]
    before = counters.plans_made, counters.slow_path_entries
    for _ in range(5):
        assert [_look(number, x) for number in range(0, 125, 3)] == expected
    assert counters.plans_made - before[0] <= 10
    assert counters.slow_path_entries - before[1] <= 20


def test_a_short_path_that_goes_on_coming_back_is_one_trace() -> None:
    """Alone, in turn with others, and among others that come now and then."""
    tiers.MODE[0] = tiers.MIXED
    x = torch.ones(2, 7)
    for number in range(60, 100):
        _look(number, x)
    for _ in range(24):
        _look(0, x)
    for _ in range(80):
        for number in (1, 2, 3):
            _look(number, x)
    before = counters.pieces, counters.plans_made
    for number in (0, 1, 2, 3, 0, 1, 2, 3):
        _look(number, x)
    assert counters.pieces - before[0] <= 8  # where it begins as others do; 24 in pieces
    assert counters.plans_made == before[1]


def test_a_short_path_of_much_memory_is_one_trace_soon() -> None:
    tiers.MODE[0] = tiers.MIXED
    x = torch.ones(300, 2_000)
    for _ in range(4):
        _look(7, x)
    before = counters.pieces
    _look(7, x)
    assert counters.pieces == before


def test_trees_that_have_come_back_a_few_times_make_no_plans() -> None:
    """Small training steps over many different trees: one had a plan of 40 ms as a whole at its third visit, which saved a millisecond."""
    tiers.MODE[0] = tiers.MIXED
    forget_edges()
    seen = []
    for _ in range(4):
        torch.manual_seed(0)
        step = FRESH["recursive trees"](torch, 0)
        before = counters.plans_made, counters.slow_path_entries
        for i in range(30):
            step(i)
        seen.append((counters.plans_made - before[0], counters.slow_path_entries - before[1]))
    assert sum(plans for plans, _ in seen[2:]) <= 4, seen  # 15
    assert sum(edges for _, edges in seen[2:]) <= 120, seen  # 333
