"""Index values that are at hand are looked at by the call that uses them; those that are pending by the kernel, whose error names the place."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import flambeau as ft
from flambeau import nn
from flambeau.ops.registry import Operation
from flambeau.statistics import counters
from flambeau.trace import recorder
from flambeau.trace.bounds import resolve

pytestmark = pytest.mark.usefixtures("whole")

Call = Callable[[Any, Any], Any]


def _ready(t: Any) -> Any:
    t.tolist()
    return t


# By function: what is called with a module and an index tensor, an index that is right, one that is not, and the size that it must be below.
CASES: dict[str, tuple[Call, Any, Any, int]] = {
    "embedding": (lambda m, i: m.nn.functional.embedding(i, m.ones(5, 2)), [0, 4], [1, 5], 5),
    "embedding negative": (lambda m, i: m.nn.functional.embedding(i, m.ones(5, 2)), [0, 4], [-1, 2], 5),
    "embedding int32": (lambda m, i: m.nn.functional.embedding(_ready(i.to(m.int32)), m.ones(5, 2)), [0, 4], [1, 5], 5),
    "embedding padding": (lambda m, i: m.nn.functional.embedding(i, m.ones(5, 2), padding_idx=1), [0, 4], [1, 5], 5),
    "embedding_bag": (lambda m, i: m.nn.functional.embedding_bag(i, m.ones(5, 2)), [[0, 4]], [[1, 5]], 5),
    "gather": (lambda m, i: m.ones(2, 3).gather(1, i), [[0], [2]], [[0], [3]], 3),
    "gather negative": (lambda m, i: m.ones(2, 3).gather(1, i), [[0], [2]], [[0], [-1]], 3),
    "take_along_dim": (lambda m, i: m.take_along_dim(m.ones(3), i), [[0], [2]], [[0], [3]], 3),
    "scatter": (lambda m, i: m.zeros(2, 3).scatter(1, i, 1.0), [[0], [2]], [[0], [3]], 3),
    "scatter_": (lambda m, i: m.zeros(2, 3).scatter_(1, i, 1.0), [[0], [2]], [[0], [3]], 3),
    "scatter of a tensor": (lambda m, i: m.zeros(2, 3).scatter(1, i, m.ones(2, 1)), [[0], [2]], [[0], [-1]], 3),
    "scatter_add": (lambda m, i: m.zeros(2, 3).scatter_add(1, i, m.ones(2, 1)), [[0], [2]], [[0], [3]], 3),
    "scatter_reduce": (lambda m, i: m.zeros(2, 3).scatter_reduce(1, i, m.ones(2, 1), "amax"), [[0], [2]], [[0], [3]], 3),
    "index_select": (lambda m, i: m.ones(2, 3).index_select(1, i), [0, 2], [0, 3], 3),
    "index_add": (lambda m, i: m.ones(3, 2).index_add(0, i, m.ones(2, 2)), [0, 2], [0, 3], 3),
    "index_add_": (lambda m, i: m.ones(3, 2).index_add_(0, i, m.ones(2, 2)), [0, 2], [0, -1], 3),
    "index_copy": (lambda m, i: m.ones(3, 2).index_copy(0, i, m.ones(2, 2)), [0, 2], [0, 3], 3),
    "index_fill": (lambda m, i: m.ones(3, 2).index_fill(0, i, 2.0), [0, -3], [0, 3], 3),
    "index_reduce": (lambda m, i: m.ones(3, 2).index_reduce(0, i, m.ones(2, 2), "prod"), [0, 2], [0, 3], 3),
    "take": (lambda m, i: m.ones(2, 2).take(i), [0, -4], [0, 4], 4),
    "put": (lambda m, i: m.ones(2, 2).put(i, m.ones(2)), [0, -4], [0, 4], 4),
    "getitem": (lambda m, i: m.ones(3, 2)[i], [0, -3], [0, -4], 3),
    "getitem of the second dim": (lambda m, i: m.ones(3, 2)[:, i], [0, 1], [0, 2], 2),
    "getitem of two": (lambda m, i: m.ones(3, 2)[m.tensor([0, 1]), i], [0, 1], [0, 2], 2),
    "setitem": (lambda m, i: m.ones(3, 2).__setitem__(i, 2.0), [0, 2], [0, 3], 3),
    "index_put": (lambda m, i: m.ones(3, 2).index_put((i,), m.tensor(2.0)), [0, 2], [0, 3], 3),
    "index_put accumulating": (lambda m, i: m.ones(3, 2).index_put((i,), m.tensor(2.0), True), [0, 2], [0, 3], 3),
    "nll_loss": (lambda m, i: m.nn.functional.nll_loss(m.ones(2, 3), i), [0, -100], [-100, 3], 3),
    "nll_loss weight": (lambda m, i: m.nn.functional.nll_loss(m.ones(2, 3), i, m.ones(3)), [0, 1], [-1, 1], 3),
    "nll_loss 2d": (lambda m, i: m.nn.functional.nll_loss(m.ones(1, 3, 2, 1), i.reshape(1, 2, 1)), [0, 1], [3, 1], 3),
    "cross_entropy": (lambda m, i: m.nn.functional.cross_entropy(m.ones(2, 3), i), [0, -100], [0, 3], 3),
    "cross_entropy ignoring": (lambda m, i: m.nn.functional.cross_entropy(m.ones(2, 3), i, ignore_index=9), [0, 9], [-100, 2], 3),
    "multi_margin_loss": (lambda m, i: m.nn.functional.multi_margin_loss(m.ones(2, 3), i), [0, 2], [0, 3], 3),
    "one_hot": (lambda m, i: m.nn.functional.one_hot(i, 3), [0, 2], [0, 3], 3),
    "bincount": (lambda m, i: m.bincount(i), [0, 2], [0, -1], 3),
    "max_unpool1d": (lambda m, i: m.nn.functional.max_unpool1d(m.ones(1, 1, 2), i.reshape(1, 1, 2), 2), [0, 3], [0, 4], 4),
}  # fmt: skip
# These look at all values in any case, or are put together from several calls: their texts are not those of `bounds.py`.
OTHER_TEXTS = ("one_hot", "bincount", "max_unpool1d")


@pytest.mark.parametrize("name", CASES)
def test_the_call_raises(name: str) -> None:
    """At a new and at a known edge; what else is pending is as it was."""
    call, good, bad, size = CASES[name]
    table, ahead = ft.ones(3), ft.ones(2)
    table.tolist()
    for round_ in range(4):
        right, wrong = ft.tensor(good), ft.tensor(bad)
        table.mul_(2)
        later = ahead + round_
        if round_:
            call(ft, right)
        with pytest.raises((IndexError, RuntimeError)) as caught:
            call(ft, wrong)
        if name not in OTHER_TEXTS:
            value = next(v for v in _flat(bad) if v not in _flat(good) and not 0 <= v < size)
            for word in (f" {value} is out of bounds", f"size {size}", "argument '", "test_index_at_the_call.py:"):
                assert word in str(caught.value), (word, str(caught.value))
        assert later.tolist() == [1.0 + round_] * 2
        assert table.tolist() == [2.0 ** (round_ + 1)] * 3


@pytest.mark.parametrize("name", CASES)
def test_pytorch_raises(name: str) -> None:
    torch = pytest.importorskip("torch")
    call, good, bad, _ = CASES[name]
    call(torch, torch.tensor(good))
    with pytest.raises((IndexError, RuntimeError)):
        call(torch, torch.tensor(bad))


def _flat(x: Any) -> list[Any]:
    return [z for y in x for z in _flat(y)] if isinstance(x, list) else [x]


@pytest.mark.parametrize("name", ["embedding", "gather", "scatter_add", "index_select", "getitem", "cross_entropy", "take"])
def test_what_is_pending_stays_pending(name: str) -> None:
    """An index that the program has computed is not waited for; the error comes where it is looked at, and names the place of the call."""
    call, good, bad, size = CASES[name]
    for _ in range(3):
        ready = ft.tensor(good)
        ran = counters.traces_run
        result = call(ft, ready + 0)
        assert counters.traces_run == ran
        result.tolist()
        wrong = call(ft, ft.tensor(bad) + 0)
        with pytest.raises(IndexError, match=rf"(?s)out of bounds for dimension \d with size {size}.*argument '.*test_index_at_the_call.py:\d+") as caught:
            wrong.tolist()
        line = int(re.findall(r"test_index_at_the_call.py:(\d+)", str(caught.value))[0])
        assert line == CASES[name][0].__code__.co_firstlineno


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict({"embed": nn.Embedding(5, 2)})

    def forward(self, x: Any) -> Any:
        return self.transformer["embed"](x + 0)


def test_a_late_error_names_the_module_and_the_line() -> None:
    net = Net()
    optimizer = ft.optim.SGD(net.parameters(), lr=0.1)
    for tokens in ([1, 2], [1, 2], [1, 7]):
        optimizer.zero_grad()
        net(ft.tensor(tokens)).sum().backward()
        if 7 not in tokens:
            optimizer.step()
            continue
        with pytest.raises(IndexError) as caught:
            optimizer.step()
        line = Net.forward.__code__.co_firstlineno + 1
        for word in ("embedding()", "index 7", "less than 5", "'input'", f"test_index_at_the_call.py:{line}", "transformer.embed (Embedding)"):
            assert word in str(caught.value), (word, str(caught.value))


def test_the_error_at_the_call_names_the_module() -> None:
    net = nn.Sequential(nn.Embedding(5, 2))
    with pytest.raises(IndexError, match=r"(?s)index 9.*in module 0 \(Embedding\)"):
        net(ft.tensor([9]))


def test_written_indices_are_looked_at_again() -> None:
    x, i = ft.arange(4.0), ft.tensor([0, 3])
    for _ in range(3):
        assert x[i].tolist() == [0.0, 3.0]
    i.add_(1)  # pending: the kernel finds it
    late = x[i]
    with pytest.raises(IndexError, match="index 4"):
        late.tolist()
    i.tolist()
    with pytest.raises(IndexError, match="index 4"):
        x[i]
    i.sub_(1)
    i.tolist()
    assert x[i].tolist() == [0.0, 3.0]
    i.numpy()[0] = 4
    with pytest.raises(IndexError, match="index 4"):
        x[i]
    i.numpy()[0] = 1
    assert x[i].tolist() == [1.0, 3.0]
    i.data.copy_(ft.tensor([4, 4]))  # a write that is not counted
    i.tolist()
    with pytest.raises(IndexError, match="index 4"):
        x[i].tolist()
    i.data.copy_(ft.tensor([2, 2]))
    i.tolist()
    assert x[i].tolist() == [2.0, 2.0]


def test_parts_of_an_index_tensor_are_looked_at_by_themselves() -> None:
    x, data = ft.arange(4.0), ft.tensor([[0, 9, 1], [2, 3, 9]])
    for _ in range(3):
        assert x[data[:, 0]].tolist() == [0.0, 2.0]
        assert x[data[1, :2]].tolist() == [2.0, 3.0]
        with pytest.raises(IndexError, match="index 9"):
            x[data[:, 2]]
        with pytest.raises(IndexError, match="index 9"):
            x[data.t()]


def test_an_empty_index_needs_nothing() -> None:
    nothing = ft.zeros(0, dtype=ft.int64)
    assert ft.ones(0, 2)[nothing].shape == (0, 2)
    assert ft.ones(3)[nothing].tolist() == []


@pytest.mark.parametrize("transform", ["vmap", "jvp", "grad"])
def test_under_transforms(transform: str) -> None:
    x, i = ft.ones(3, 4), ft.tensor([[0, 1], [2, 3], [0, 4]])

    def pick(row: Any, which: Any) -> Any:
        return row.index_select(0, which)

    for _ in range(2):
        with pytest.raises(IndexError, match="index 4 is out of bounds"):
            if transform == "vmap":
                ft.vmap(pick)(x, i)
            elif transform == "jvp":
                ft.func.jvp(lambda row: pick(row, i[2]), (x[0],), (x[0],))
            else:
                ft.func.grad(lambda row: pick(row, i[2]).sum())(x[0])
    assert ft.vmap(pick)(x, i.clamp(max=3)).tolist() == [[1.0, 1.0]] * 3


def test_every_operation_says_what_its_indices_must_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where an integer argument is what a kernel follows as an index, with no computation in between, the edge has a bound for it."""
    followed: list[str] = []
    missing: list[str] = []
    plain = recorder.Trace.add_edge

    def add_edge(self: Any, key: Any, fragment: Any, result: Any, tensors: Any, **rest: Any) -> Any:
        state = plain(self, key, fragment, result, tensors, **rest)
        if isinstance(key[0], Operation):
            refused = _through_refusals(fragment.nodes)
            notes = [(refused.get(n.inputs[1], n.inputs[1]), 0, 0, 0, None, "") for n in fragment.nodes
                     if n.op in ("gather", "scatter", "take", "take_rows", "put_rows", "put")]  # fmt: skip
            wanted = {b.position for b in resolve(notes, fragment.entered, fragment.nodes)}
            if wanted:
                followed.append(key[0].name)
            if not wanted <= {b.position for b in state.bounds}:
                missing.append(key[0].name)
        return state

    monkeypatch.setattr(recorder.Trace, "add_edge", add_edge)
    for call, good, _, _ in CASES.values():
        call(ft, ft.tensor(good))
    from flambeau.ops.registry import OPERATIONS

    for op in OPERATIONS.values():
        for args in op.samples() if op.samples is not None else ():
            try:
                op.function(*args)
            except (RuntimeError, TypeError, ValueError, IndexError):
                continue
    assert {"gather", "index", "index_put_value", "index_select", "nn.functional.embedding", "scatter_values"} <= set(followed)
    assert not missing


def _through_refusals(nodes: Any) -> dict[int, int]:
    """By the slot of `where(i < 0, refused, i)`: the slot of i."""
    return {n.outputs[0]: n.inputs[2] for n in nodes if n.op == "where"}


@pytest.mark.parametrize("pending", [False, True])
def test_the_error_names_the_public_function(pending: bool) -> None:
    """Not only what it is made of: `max_unpool2d` of a scatter, `index_reduce_` of a reduction, `put_` of a write."""
    add = int(pending)  # a computed index is found out when it is read

    def bad(*shape: int) -> ft.Tensor:
        return ft.full(shape, 77 - add) + add if pending else ft.full(shape, 77).clone().detach()

    calls = {
        "max_unpool2d": lambda: ft.nn.functional.max_unpool2d(ft.ones(1, 1, 2, 2), bad(1, 1, 2, 2), 2), "put_": lambda: ft.ones(3).put_(bad(2), ft.ones(2)),
        "index_reduce_": lambda: ft.ones(3, 3).index_reduce_(0, bad(2), ft.ones(2, 3), "prod"), "gather": lambda: ft.ones(3).gather(0, bad(2)),
    }  # fmt: skip
    for name, call in calls.items():
        with pytest.raises(IndexError, match=name) as caught:
            call().tolist()
        assert "test_index_at_the_call.py:" in str(caught.value) and "index()" not in str(caught.value) and "forward()" not in str(caught.value)


def test_a_part_that_begins_elsewhere_is_looked_at_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of one memory, told apart by where they begin alone: each is looked at once, and none is taken for another."""
    from flambeau.trace import bounds

    looked = []
    look = bounds._look
    monkeypatch.setattr(bounds, "_look", lambda t, storage, skip: (looked.append(t), look(t, storage, skip))[1])
    x = ft.arange(6.0)
    indices = ft.tensor([0, 5, 1, 9, 2, 3])
    for _ in range(12):
        for start, right in ((0, True), (1, True), (2, False), (4, True), (3, False)):
            part = indices[start : start + 2]
            looked.clear()
            if right:
                assert x[part].tolist() == x[part].tolist() == [x[i].item() for i in part.tolist()]
                assert len(looked) <= 1
            else:
                with pytest.raises(IndexError):
                    x[part]
