"""Calls that are kept by class (trace/kept_classes.py): at any sizes the bits, strides, sharing and errors of recorded calls, whatever has changed since."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau as torch
from flambeau.statistics import counters
from flambeau.trace import classes, forgetting, kept_classes, stand_ins, tiers
from flambeau.trace.evaluate import flush
from flambeau.trace.recorder import local
from flambeau.trace.traces import TRACES
from tests.engine.nothing_known import forget_edges
from tests.threads import Thread, join

F = torch.nn.functional
SIZES = [(n, m) for n in (3, 5, 8, 2, 13, 21) for m in (4, 6)] + [(1, 4), (0, 4), (5, 1), (33, 70), (3, 4)]
LAST = 5  # of these, which are also done without classes, where each size has kernels of its own


@pytest.fixture(autouse=True)
def in_pieces(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.collect()
    if len(TRACES) != 1:
        pytest.skip("a thread of another test is still there")
    monkeypatch.setattr(stand_ins, "MADE", [False])
    monkeypatch.setattr(kept_classes, "FROM", 2)
    monkeypatch.setattr(kept_classes, "EVERY", 1)
    before = tiers.MODE[0]
    forget_edges()
    tiers.MODE[0] = tiers.PIECES
    yield
    tiers.MODE[0] = before
    classes.ENABLED[0] = True


def bits(t: Any) -> Any:
    if t is None or not isinstance(t, torch.Tensor):
        return t
    m = t.detach()
    return t.dtype, tuple(t.shape), t.stride(), t.storage_offset(), t.requires_grad, t._version, np.array(m.tolist()).tobytes()


def otherwise(function: Callable[[], Any], tier: str = tiers.PIECES, by_class: bool = False) -> Any:
    """The same from the beginning, as a whole or without classes."""
    before, tiers.MODE[0], classes.ENABLED[0] = tiers.MODE[0], tier, by_class
    try:
        forget_edges()
        return function()
    finally:
        tiers.MODE[0], classes.ENABLED[0] = before, True
        forget_edges()


def values(n: int, m: int, seed: int = 0, **how: Any) -> Any:
    return torch.tensor(np.random.default_rng([n, m, seed]).standard_normal((n, m)).astype(np.float32), **how)


PROGRAMS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "add": lambda x, y, w, b: x + y,
    "linear": lambda x, y, w, b: F.linear(x, w[:, : x.shape[1]].contiguous(), b),
    "product": lambda x, y, w, b: x @ y.t(),
    "activations": lambda x, y, w, b: torch.relu(x) + torch.sigmoid(y) * torch.tanh(x) - F.gelu(y),
    "softmax": lambda x, y, w, b: x.softmax(-1) * y.log_softmax(0),
    "lists": lambda x, y, w, b: torch.cat((x, y, x), 1),
    "sums": lambda x, y, w, b: x.sum(1) + y.mean(1) + (x * y).amax(1),
    "broadcast": lambda x, y, w, b: x * y[:1] + y[:, :1],
    "views": lambda x, y, w, b: x.t()[1:].reshape(-1)[: y.numel()] * 2,
    "rows": lambda x, y, w, b: x[-1] * y[x.shape[0] // 2] + x[0, 1:].sum(),
    "numbers": lambda x, y, w, b: x * (x.shape[0] / 3) + y.clamp(min=-0.1 * x.shape[1]),
    "norms": lambda x, y, w, b: F.layer_norm(x, (x.shape[1],)) + y.var(1, keepdim=True),
    "index": lambda x, y, w, b: x[torch.arange(x.shape[0]) // 2] + y.index_select(0, torch.arange(x.shape[0])),
    "writes": lambda x, y, w, b: (x * 2).mul_(y).add_(1),
    "expanded": lambda x, y, w, b: x.sum().expand(3, 4) + y.sum(0, keepdim=True).expand(2, -1)[:, :1],
    "several results": lambda x, y, w, b: torch.sort(x, 1)[0] * y + x.max(1, keepdim=True).values,
    "no grad": lambda x, y, w, b: _no_grad(lambda: x * y + 1) + x,
    "twice": lambda x, y, w, b: x * x + torch.addcmul(y, x, y),
    "custom": lambda x, y, w, b: Doubled.apply(x) * y,
    "loss": lambda x, y, w, b: F.mse_loss(x, y) + F.smooth_l1_loss(x * 2, y),
}


def _no_grad(function: Callable[[], Any]) -> Any:
    with torch.no_grad():
        return function()


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return g * 2 + x * 0


def step(program: Callable[..., Any], n: int, m: int, train: bool) -> Any:
    x, y = values(n, m, requires_grad=train), values(n, m, 1, requires_grad=train)
    w, b = values(9, 6, 2, requires_grad=train), values(1, 9, 3, requires_grad=train)[0].detach().requires_grad_(train)
    try:
        result = program(x, y, w, b)
        if train and result.requires_grad:
            (result * 0.5).sum().backward()
    except (RuntimeError, IndexError) as error:
        return type(error).__name__, str(error)
    return [bits(t) for t in (result, x.grad, y.grad, w.grad, b.grad)]


@pytest.mark.parametrize("train", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_bits_at_all_sizes_are_those_without_classes_and_of_the_whole(name: str, train: bool) -> None:
    program = PROGRAMS[name]
    before = counters.kept_by_class

    def run(count: int = 0) -> Any:
        return [step(program, n, m, train) for n, m in SIZES[-count:]]

    found = run()
    assert counters.kept_by_class - before > 4
    assert found == otherwise(run, tiers.WHOLE, by_class=True)
    assert found[-LAST:] == otherwise(lambda: run(LAST))


OPERATIONS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a + b, lambda a, b: a * b, lambda a, b: a.tanh(), lambda a, b: a.relu(), lambda a, b: a - a.mean(0), lambda a, b: a.t() @ b @ a.t(),
    lambda a, b: a.softmax(1), lambda a, b: torch.cat((a, b), 1)[:, : a.shape[1]], lambda a, b: a[1:].sum(0) + b, lambda a, b: (a * 2).mul_(b),
    lambda a, b: a.clone().clamp_(-1, 1), lambda a, b: a.detach() * b, lambda a, b: a.reshape(-1).view(a.shape), lambda a, b: a[:, 1:2] * b,
    lambda a, b: _no_grad(lambda: a + 1) * b, lambda a, b: a.sum() * 0.1 + b, lambda a, b: F.layer_norm(a, (a.shape[1],)), lambda a, b: a.t().t(),
]  # fmt: skip


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(OPERATIONS) - 1), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=7),
    st.lists(st.tuples(st.integers(1, 30), st.integers(2, 9)), min_size=6, max_size=9), st.integers(0, 3),
)  # fmt: skip
def test_random_programs_at_random_sizes(steps: list[tuple[int, int, int]], sizes: list[tuple[int, int]], how: int) -> None:
    def run(count: int = 0) -> Any:
        found: list[Any] = []
        for n, m in sizes[-count:]:
            x, y = values(n, m, requires_grad=True), values(n, m, 1, requires_grad=how != 2)
            made = [x, y]
            for number, i, k in steps:
                a, b = made[i % len(made)], made[k % len(made)]
                made.append(OPERATIONS[number](a, b if b.shape == a.shape else a))
            seen: list[Any] = []
            last = made[-1]
            if how == 1 and last.requires_grad:
                last.register_hook(lambda g: seen.append(bits(g)))  # noqa: B023
            if last.requires_grad:
                last.sum().backward(retain_graph=how == 3)
                if how == 3:
                    last.sum().backward()
            found.append([*[bits(t) for t in made], bits(x.grad), bits(y.grad), seen])
        return found

    forget_edges()
    found = run()
    assert found == otherwise(run, tiers.WHOLE, by_class=True)
    assert found[-2:] == otherwise(lambda: run(2))


def learned(function: Callable[[Any], Any], width: int = 3) -> None:
    """`function(x)` of enough sizes to be kept by class."""
    for n in range(11, 23):
        function(values(n, width))
    before = counters.kept_by_class
    function(values(40, width))
    assert counters.kept_by_class > before


def test_each_guard_violated_after_it_was_learned() -> None:
    w = values(3, 3, 9, requires_grad=True)

    def product(a: Any) -> Any:
        return torch.tanh(torch.tanh(a @ w) @ w)

    learned(product)
    copy, written = torch.zeros(31, 3), torch.zeros(31, 3)
    copy.copy_(values(31, 3))  # a pending write
    written[:, :] = values(31, 3) @ w  # a write with gradients
    outside = torch.from_numpy(np.ones((31, 3), dtype=np.float32))
    hooked = values(31, 3, requires_grad=True)
    hooked.register_hook(lambda g: g * 2)
    x = values(31, 3)
    others = [
        x[:, :].clone(), values(62, 3)[7:38], values(3, 31).t(), values(31, 6)[:, ::2], outside, x.detach(), copy, written, hooked, x.requires_grad_(),
        values(1, 3), values(0, 3), values(1, 3).expand(31, 3), values(31, 3).double().float(), -values(31, 3)._neg_view(),
    ]  # fmt: skip
    found = [bits(product(a)) for a in others]
    assert found == otherwise(lambda: [bits(product(a)) for a in others])


def test_the_same_memory_and_the_same_tensor_in_two_places() -> None:
    def run() -> Any:
        found = []
        for n in range(4, 40):
            a, b = values(n, 3), values(n, 3, 1)
            pairs = [(a, b), (a, a), (a, a[:]), (b[:], b), (a, b)]
            found.append([bits(torch.tanh(torch.sin(p) * torch.sin(q)) + p * q) for p, q in pairs])
        return found

    before = counters.kept_by_class
    found = run()
    assert counters.kept_by_class > before + 100
    assert found == otherwise(run, tiers.WHOLE, by_class=True)


def test_modes_after_learning() -> None:
    w = values(3, 3, 9, requires_grad=True)

    def run() -> Any:
        found = []
        for n in range(4, 30):
            x = values(n, 3)
            y = torch.sigmoid(x @ w)
            with torch.no_grad():
                z = torch.sigmoid(x @ w)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                lower = torch.sigmoid(x @ w)
            with torch.inference_mode():
                inferred = torch.sigmoid(x @ w)
            found.append([bits(t) for t in (y, z, lower)] + [inferred.tolist(), inferred.requires_grad, z.grad_fn is None, y.grad_fn.name()])
        return found

    assert run() == otherwise(run, tiers.WHOLE, by_class=True)


def test_names_of_nodes_and_their_neighbours() -> None:
    w = values(3, 3, 9, requires_grad=True)

    def run() -> Any:
        found = []
        for n in range(4, 30):
            y = torch.sigmoid(torch.tanh(values(n, 3) @ w))
            names = []
            node = y.grad_fn
            while node is not None:
                names.append(node.name())
                node = node.next_functions[0][0] if node.next_functions else None
            saved = tuple(y.grad_fn._saved_result.shape)
            y.sum().backward()
            found.append((names, y.grad_fn.name(), saved))
        return found

    assert run() == otherwise(run, tiers.WHOLE, by_class=True)


def test_second_passes_and_writes_to_what_was_saved_are_refused() -> None:
    w = values(3, 3, 9, requires_grad=True)

    def forward(x: Any) -> Any:
        h = x @ w
        y = torch.tanh(h)
        return y, (y * h).sum()

    def train(x: Any) -> None:
        _, loss = forward(x)
        loss.backward()

    learned(train)
    y, loss = forward(values(51, 3))
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()
    y, loss = forward(values(52, 3))
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    y, loss = forward(values(53, 3))
    loss.backward(retain_graph=True)
    first = w.grad.tolist()
    loss.backward()
    assert w.grad.tolist() != first


def test_metadata_that_changes_between_the_passes() -> None:
    """The leaf is another view of its memory, or needs no gradient any more, when the pass comes."""

    def run() -> Any:
        found = []
        for n in range(4, 30):
            x = values(n, 3, requires_grad=True)
            y = torch.sigmoid(x * 2)
            if n % 7 == 0:
                x.requires_grad_(False)
            y.sum().backward()
            found.append(bits(x.grad))
        return found

    assert run() == otherwise(run, tiers.WHOLE, by_class=True)


@pytest.mark.parametrize("way", ["grad", "create_graph", "hook", "retains", "leaf hook", "middle", "inputs"])
def test_whoever_asks_for_more_gets_it_at_new_sizes(way: str) -> None:
    w = values(3, 3, 9, requires_grad=True)

    def run() -> Any:
        found = []
        for n in range(4, 28):
            x = values(n, 3, requires_grad=True)
            seen: list[Any] = []
            h = torch.tanh(x @ w)
            if way == "hook":
                h.register_hook(lambda g: seen.append(bits(g)))  # noqa: B023
            if way == "retains":
                h.retain_grad()
            handle = w.register_hook(lambda g: seen.append(bits(g))) if way == "leaf hook" else None  # noqa: B023
            loss = torch.sigmoid(h).sum()
            if way in ("grad", "create_graph", "middle"):
                grads = torch.autograd.grad(loss, (h, w) if way == "middle" else (x, w), create_graph=way == "create_graph")
                seen += [bits(g.detach()) for g in grads]
                if way == "create_graph" and n % 3 == 0:
                    seen += [tuple(g.shape) for g in torch.autograd.grad(sum(g.square().sum() for g in grads), (x, w))]
            else:
                loss.backward(inputs=[w] if way == "inputs" else None)
            if handle is not None:
                handle.remove()
            found.append([seen, bits(x.grad), bits(w.grad), bits(h.grad) if way == "retains" else None])
            w.grad = None
        return found

    assert run() == otherwise(run, tiers.WHOLE, by_class=True)


def test_errors_are_those_of_a_recorded_call() -> None:
    table, w = values(5, 2, 3, requires_grad=True), values(3, 4, 9)
    learned(lambda x: F.embedding(torch.arange(x.shape[0]) % 5, table).tanh())
    learned(lambda x: (x @ w).relu())
    with pytest.raises(IndexError):
        F.embedding(torch.arange(33), table).tanh()
    with pytest.raises(RuntimeError, match=r"shape|size|matmul|multipl"):
        values(33, 4) @ w
    assert (values(33, 3) @ w).shape == (33, 4)


def test_sizes_that_come_back_get_a_function_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_classes, "OWN_AFTER", 6)
    learned(lambda x: torch.sigmoid(x).tanh())
    x = values(50, 3)
    expected = bits(torch.sigmoid(x).tanh())
    before = counters.kept_by_class
    for _ in range(40):
        assert bits(torch.sigmoid(x).tanh()) == expected
    assert counters.kept_by_class - before < 20
    before, pieces = counters.kept_by_class, counters.kept_pieces
    assert bits(torch.sigmoid(x).tanh()) == expected
    assert counters.kept_by_class == before
    assert counters.kept_pieces - pieces >= 2


def test_no_state_is_made_for_a_size() -> None:
    w, b = values(4, 3, 9, requires_grad=True), values(1, 4, 8)[0].detach().requires_grad_()

    def train(x: Any) -> None:
        F.linear(x.relu(), w, b).tanh().sum().backward()
        w.grad = b.grad = None

    learned(train)
    for n in range(60, 90):
        train(values(n, 3))
    before, runs = len(forgetting.states()), counters.traces_run
    for n in range(90, 190):
        train(values(n, 3))
    assert len(forgetting.states()) - before < 20
    assert counters.traces_run - runs < 20


def test_another_number_of_threads() -> None:
    count = torch.get_num_threads()

    def run() -> Any:
        found = []
        for n in range(4, 60):
            torch.set_num_threads(1 + (n // 8) % 3)
            x = values(n, 64)
            found.append(bits((x.softmax(0) @ x.t()).cumsum(1).tanh()))
        return found

    try:
        assert run() == otherwise(run, tiers.WHOLE, by_class=True)
    finally:
        torch.set_num_threads(count)


def test_forgetting_and_learning_again() -> None:
    w = values(3, 3, 9, requires_grad=True)

    def train(x: Any) -> Any:
        torch.tanh(x @ w).sum().backward()
        found, w.grad = bits(w.grad), None
        return found

    learned(train)
    held = torch.tanh(values(70, 3) @ w)
    expected = train(values(60, 3))
    flush(local.main, "test")
    local.main.reset()
    forgetting.keep(0)
    held.sum().backward()
    w.grad = None
    assert train(values(60, 3)) == expected
    learned(train)
    assert train(values(60, 3)) == expected


def test_a_profile_and_anomaly_mode_see_all_calls() -> None:
    w = values(3, 3, 9, requires_grad=True)

    def train(x: Any) -> None:
        torch.tanh(x @ w).sum().backward()

    learned(train)
    before = counters.kept_by_class
    with torch.profiler.profile() as profile:
        train(values(63, 3))
    assert profile.events()
    assert counters.kept_by_class == before
    learned(train)
    with torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan"):
        (torch.sqrt(values(64, 3) * 0 - 1 + 0 * w.sum()) * w.sum()).sum().backward()


def test_saved_tensor_hooks_at_new_sizes() -> None:
    w = values(3, 3, 9, requires_grad=True)
    learned(lambda x: torch.tanh(x @ w).sum().backward())
    packed: list[Any] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t.shape) or t, lambda t: t):
        torch.tanh(values(65, 3) @ w).sum().backward()
    assert packed


def test_a_thread_beside() -> None:
    w = values(3, 3, 9)
    learned(lambda x: torch.tanh(x @ w))
    found: list[Any] = []

    def other() -> None:
        found.extend([bits(torch.tanh(values(n, 3) @ w)) for n in range(30, 40)])

    thread = Thread(target=other)
    thread.start()
    mine = [bits(torch.tanh(values(n, 3) @ w)) for n in range(30, 40)]
    join(thread)
    assert found == mine == otherwise(lambda: [bits(torch.tanh(values(n, 3) @ w)) for n in range(30, 40)])


def test_a_path_that_comes_back_is_recorded_as_a_whole_all_the_same() -> None:
    tiers.MODE[0] = tiers.MIXED
    w = values(3, 3, 9, requires_grad=True)
    chance = random.Random(0)

    def train(signs: int, n: int) -> Any:
        h = values(n, 3)
        for k in range(6):
            h = torch.tanh(h @ w) if signs >> k & 1 else torch.sigmoid(h + 1)
        h.sum().backward()
        found, w.grad = bits(w.grad), None
        return found

    before = counters.kept_by_class
    for signs in range(120):
        train(1 + signs % 63, chance.randint(2, 30))
    assert counters.kept_by_class > before
    for _ in range(80):
        found = train(21, 9)
    pieces = counters.kept_pieces, counters.pieces
    assert train(21, 9) == found
    assert (counters.kept_pieces, counters.pieces) == pieces
    assert otherwise(lambda: train(21, 9)) == found
