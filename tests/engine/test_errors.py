"""Bad input: PyTorch's exception type, a message that says what and where, and never a crash or a wild read."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau as ft
from flambeau import nn
from flambeau.compiler.kernel import IndexRangeError
from flambeau.nn import functional as F

pytestmark = pytest.mark.usefixtures("whole")

Case = tuple[Callable[[Any], Any], type[Exception], tuple[str, ...]]


def _cross_entropy(m: Any, target: Any) -> Any:
    return m.nn.functional.cross_entropy(m.ones(2, 5), m.tensor(target)).item()


# what is called, PyTorch's exception type, and what the message must name (dims, shapes, dtypes, what to do)
CASES: dict[str, Case] = {
    "broadcast": (lambda m: m.ones(2, 3) + m.ones(2, 4), RuntimeError, ("add", "(2, 3)", "(2, 4)", "must match")),
    "broadcast where": (lambda m: m.where(m.ones(2) > 0, m.ones(3), m.ones(2)), RuntimeError, ("where", "must match")),
    "broadcast in place": (lambda m: m.ones(3).add_(m.ones(2, 3)), RuntimeError, ("add_", "[3]", "[2, 3]")),
    "expand": (lambda m: m.ones(2, 3).expand(2, 4), RuntimeError, ("[2, 4]", "[2, 3]", "must match")),
    "matmul": (lambda m: m.ones(2, 3) @ m.ones(4, 5), RuntimeError, ("mat", "2x3", "4x5")),
    "mm of 3-d": (lambda m: m.mm(m.ones(1, 2, 3), m.ones(3, 2)), RuntimeError, ("2",)),
    "bmm": (lambda m: m.bmm(m.ones(2, 3, 4), m.ones(3, 4, 5)), RuntimeError, ("bmm", "2", "3")),
    "dot": (lambda m: m.dot(m.ones(2), m.ones(3)), RuntimeError, ("2", "3")),
    "matmul dtypes": (lambda m: m.ones(2, 2) @ m.ones(2, 2, dtype=m.int64), RuntimeError, ("float", "int64")),
    "cat": (lambda m: m.cat([m.ones(2, 3), m.ones(2, 4)]), RuntimeError, ("Sizes of tensors must match", "3", "4")),
    "stack": (lambda m: m.stack([m.ones(2), m.ones(3)]), RuntimeError, ("stack", "[2]", "[3]")),
    "reshape": (lambda m: m.ones(2, 3).reshape(4, 2), RuntimeError, ("[4, 2]", "6")),
    "view": (lambda m: m.ones(2, 3).t().view(6), RuntimeError, ("view", "reshape", "(3, 2)", "(1, 3)")),
    "dim": (lambda m: m.ones(2, 3).sum(2), IndexError, ("Dimension out of range", "[-2, 1]", "2")),
    "getitem": (lambda m: m.ones(2, 3)[2], IndexError, ("out of", "2")),
    "getitem too many": (lambda m: m.ones(2)[0, 0], IndexError, ("too many indices", "1")),
    "getitem tensor": (lambda m: m.ones(2, 3)[m.tensor([0, 5])].sum().item(), IndexError, ("5", "out of", "2")),
    "getitem negative": (lambda m: m.ones(2, 3)[m.tensor([-3])].sum().item(), IndexError, ("-3", "out of", "2")),
    "getitem mask": (lambda m: m.ones(2, 3)[m.ones(3) > 0], IndexError, ("mask", "3", "2")),
    "getitem float": (lambda m: m.ones(2)[m.tensor([0.5])], IndexError, ("tensors used as indices", "long")),
    "select": (lambda m: m.ones(2, 3).select(1, 3), IndexError, ("select", "3", "[2, 3]")),
    "setitem": (lambda m: m.ones(2, 3).__setitem__(0, m.ones(4)), RuntimeError, ("must match", "3", "4")),
    "gather": (lambda m: m.ones(2, 3).gather(1, m.tensor([[3]])).sum().item(), RuntimeError, ("index 3", "size 3")),
    "gather negative": (lambda m: m.ones(2, 3).gather(1, m.tensor([[-1]])).sum().item(), RuntimeError, ("index -1", "size 3")),
    "scatter": (lambda m: m.zeros(2, 3).scatter(1, m.tensor([[7]]), 1.0).sum().item(), RuntimeError, ("index 7", "size 3")),
    "scatter negative": (lambda m: m.zeros(2, 3).scatter(1, m.tensor([[-2]]), 1.0).sum().item(), RuntimeError, ("index -2", "size 3")),
    "scatter_add negative": (lambda m: m.zeros(3).scatter_add(0, m.tensor([-2]), m.ones(1)).sum().item(), RuntimeError, ("index -2", "size 3")),
    "index_select": (lambda m: m.ones(2, 3).index_select(0, m.tensor([2])).sum().item(), IndexError, ("2",)),
    "index_select negative": (lambda m: m.ones(2, 3).index_select(0, m.tensor([-1])).sum().item(), IndexError, ("-1",)),
    "index_add": (lambda m: m.ones(2, 3).index_add(0, m.tensor([-1]), m.ones(1, 3)).sum().item(), RuntimeError, ("index -1", "size 2")),
    "index_copy": (lambda m: m.ones(2, 3).index_copy(0, m.tensor([-1]), m.ones(1, 3)).sum().item(), IndexError, ("index -1", "size 2")),
    "getitem two tensors": (lambda m: m.ones(2, 3)[m.tensor([0, 1]), m.tensor([2, -9])].sum().item(), IndexError, ("-9", "out of")),
    "getitem two ellipses": (lambda m: m.ones(2, 3, 4)[..., 0, ..., 0], IndexError, ("imension",)),
    "take": (lambda m: m.ones(4).take(m.tensor([4])).sum().item(), IndexError, ("4",)),
    "embedding": (lambda m: m.nn.functional.embedding(m.tensor([3, 10]), m.ones(10, 4)).sum().item(), IndexError, ("10",)),
    "embedding negative": (lambda m: m.nn.functional.embedding(m.tensor([-3]), m.ones(10, 4)).sum().item(), IndexError, ("-3", "10")),
    "cross_entropy target": (lambda m: _cross_entropy(m, [0, 5]), IndexError, ("5",)),
    "cross_entropy negative": (lambda m: _cross_entropy(m, [0, -2]), IndexError, ("-2", "out of bounds", "5")),
    "cross_entropy shape": (lambda m: _cross_entropy(m, [0, 1, 2]), ValueError, ("2", "3")),
    "linear": (lambda m: m.nn.functional.linear(m.ones(2, 3), m.ones(5, 4)), RuntimeError, ("2x3", "4x5")),
    "conv2d": (lambda m: m.nn.functional.conv2d(m.ones(1, 3, 8, 8), m.ones(4, 2, 3, 3)), RuntimeError, ("[4, 2, 3, 3]", "[1, 3, 8, 8]", "2", "3")),
    "conv2d kernel": (lambda m: m.nn.functional.conv2d(m.ones(1, 2, 2, 2), m.ones(4, 2, 3, 3)), RuntimeError, ("2 x 2", "3 x 3")),
    "item": (lambda m: m.ones(2).item(), RuntimeError, ("2 elements", "Scalar")),
    "bool": (lambda m: bool(m.ones(2)), RuntimeError, ("ambiguous",)),
    "cast": (lambda m: m.ones(2, dtype=m.int64).add_(0.5), RuntimeError, ("can't be cast", "add_")),
    "integer mean": (lambda m: m.ones(2, dtype=m.int64).mean(), RuntimeError, ("mean", "floating")),
    "type": (lambda m: m.add(m.ones(2), "x"), TypeError, ("add", "other", "str")),
    "type of cat": (lambda m: m.cat([m.ones(2), 3]), TypeError, ("cat", "Tensor", "int")),
    "grad of integer": (lambda m: m.ones(2, dtype=m.int64).requires_grad_(), RuntimeError, ("floating point",)),
    "backward of many": (lambda m: (m.ones(2).requires_grad_() * 2).backward(), RuntimeError, ("scalar",)),
    "backward twice": (lambda m: _twice(m), RuntimeError, ("second time", "retain_graph")),
    "in place on a leaf": (lambda m: m.ones(2).requires_grad_().add_(1), RuntimeError, ("leaf",)),
    "memory": (lambda m: m.ones(10**12), RuntimeError, ("memory",)),
    "memory of empty": (lambda m: m.empty(10**6, 10**6), RuntimeError, ("memory",)),
    "negative size": (lambda m: m.ones(-1), RuntimeError, ("-1",)),
    "as_strided": (lambda m: m.ones(4).as_strided((3, 3), (2, 1)), RuntimeError, ("out of bounds",)),
    "permute": (lambda m: m.ones(2, 3).permute(0, 0), RuntimeError, ("permute",)),
    "narrow": (lambda m: m.ones(3).narrow(0, 2, 2), RuntimeError, ("exceeds", "3")),
    "split": (lambda m: m.ones(3).split([1, 1]), RuntimeError, ("sum exactly to 3", "[1, 1]")),
    "max of empty": (lambda m: m.ones(0).max(), RuntimeError, ("max",)),
    "topk": (lambda m: m.ones(3).topk(4), RuntimeError, ("k", "3")),
    "one_hot": (lambda m: m.nn.functional.one_hot(m.tensor([3]), 3), RuntimeError, ("num_classes",)),
    "multinomial": (lambda m: m.multinomial(m.tensor([-1.0, 2.0]), 1), RuntimeError, ("probability",)),
    "einsum": (lambda m: m.einsum("ij,jk->ik", m.ones(2, 3), m.ones(4, 5)), RuntimeError, ("einsum", "3", "4")),
    "layer_norm": (lambda m: m.nn.functional.layer_norm(m.ones(2, 3), (4,)), RuntimeError, ("normalized_shape", "[4]", "[2, 3]")),
    "tensor": (lambda m: m.tensor([[1, 2], [3]]), ValueError, ("length",)),
    "a size that is a string": (lambda m: m.zeros(2, "a"), TypeError, ("'a'", "str")),
    "a size that is no whole number": (lambda m: m.ones(2.5), TypeError, ("2.5", "float")),
    "not a number as an integer": (lambda m: m.tensor(float("nan"), dtype=m.int64), RuntimeError, ("int64", "overflow")),
}  # fmt: skip


def _twice(m: Any) -> None:
    y = (m.ones(2).requires_grad_() ** 2).sum()
    y.backward()
    y.backward()


@pytest.mark.parametrize("name", CASES)
def test_message(name: str) -> None:
    call, kind, words = CASES[name]
    with pytest.raises(kind) as caught:
        call(ft)
    assert type(caught.value) in (kind if isinstance(kind, tuple) else (kind,)) or isinstance(caught.value, IndexRangeError)
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))
    assert (ft.ones(2) + 1).tolist() == [2.0, 2.0]  # what comes after works


@pytest.mark.parametrize("name", CASES)
def test_type_is_that_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    call, kind, _ = CASES[name]
    with pytest.raises(kind):
        call(torch)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
        self.head = nn.Linear(4, 2)
        self.table = nn.Embedding(10, 4)

    def forward(self, x: Any, which: str) -> Any:
        return getattr(self, which)(x)


@pytest.mark.parametrize(
    ("which", "shape", "words"),
    [
        ("blocks", (1, 2, 8, 8), ("'blocks.0' (Conv2d)", "[1, 2, 8, 8]", "[4, 3, 3, 3]")),
        ("head", (5, 3), ("'head' (Linear)", "5x3", "4x2")),
    ],
)
def test_path_of_the_module(which: str, shape: tuple[int, ...], words: tuple[str, ...]) -> None:
    with pytest.raises(RuntimeError) as caught:
        Net()(ft.ones(shape), which)
    for word in words:
        assert word in str(caught.value), str(caught.value)


def test_parameters_after_a_failed_step() -> None:
    """An index out of range in the loss is found before any parameter has changed, and training can go on."""
    ft.manual_seed(0)
    table, head = nn.Embedding(10, 4), nn.Linear(4, 3)
    parameters = [*table.parameters(), *head.parameters()]
    optimizer = ft.optim.Adam(parameters, lr=0.1)
    tokens, target = ft.tensor([1, 2]), ft.tensor([0, 2])

    def step(tokens: Any, target: Any) -> float:
        optimizer.zero_grad()
        loss = F.cross_entropy(head(table(tokens)), target)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    first = step(tokens, target)
    for bad in ((ft.tensor([1, 10]), target), (ft.tensor([-1, 0]), target), (tokens, ft.tensor([0, 3]))):
        before = [p.detach().clone().tolist() for p in parameters]
        with pytest.raises(IndexError):
            step(*bad)
        assert [p.tolist() for p in parameters] == before
    optimizer.zero_grad()
    assert step(tokens, target) < first


def test_other_values_after_a_failed_run() -> None:
    """Of what was pending together, only what needs the failing operation has no value."""
    x, lone, written, twice = ft.tensor([0.0, 1.0, 2.0, 3.0]), ft.tensor([1.0]), ft.tensor([3.0, 4.0]), ft.tensor([1.0, 2.0])
    before = x * 2
    twice.mul_(10)
    bad = before.gather(0, ft.tensor([8]) + 1)
    good = before.gather(0, ft.tensor([1, 3]))
    after, lost = good + 1, bad + good.sum()
    view = before[1:]
    for later in (written, twice):
        later.mul_(10)
    lone.add_(bad)
    with pytest.raises(IndexError, match="index 9"):
        bad.tolist()
    assert before.tolist() == [0.0, 2.0, 4.0, 6.0] and view.tolist() == [2.0, 4.0, 6.0]
    assert good.tolist() == [2.0, 6.0] and after.tolist() == [3.0, 7.0]
    assert twice.tolist() == [10.0, 20.0]  # written before the failing operation, and after it: an eager program would not have
    assert written.tolist() == [3.0, 4.0] and lone.tolist() == [1.0]
    for t in (bad, lost):
        with pytest.raises(RuntimeError, match="failed earlier"):
            t.tolist()
    assert (before + after.sum()).tolist() == [10.0, 12.0, 14.0, 16.0]


def test_unknown_keys_of_a_state_dict() -> None:
    net = nn.Sequential(nn.Linear(2, 2))
    state = net.state_dict()
    state["extra"] = ft.ones(1)
    del state["0.bias"]
    with pytest.raises(RuntimeError, match=r"Missing key.*0\.bias(.|\n)*Unexpected key.*extra"):
        net.load_state_dict(state)
    with pytest.raises(RuntimeError, match="size mismatch"):
        net.load_state_dict({"0.weight": ft.ones(3, 2), "0.bias": ft.ones(2)})


def test_truncated_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "c.pt"
    ft.save({"w": ft.arange(1000.0)}, path)
    whole = path.read_bytes()
    for length in (0, 1, 10, len(whole) // 2, len(whole) - 5):
        path.write_bytes(whole[:length])
        with pytest.raises((RuntimeError, EOFError, ValueError, OSError, pickle.UnpicklingError)):
            ft.load(path)


class _Hostile:
    def __reduce__(self) -> Any:
        return (eval, ("1/0",))


def test_hostile_checkpoint(tmp_path: Path) -> None:
    """A pickle that would call eval is refused: 1/0 is never computed."""
    path = tmp_path / "c.pt"
    ft.save({"w": _Hostile()}, path)
    with pytest.raises(pickle.UnpicklingError, match="eval"):
        ft.load(path)


FUZZ = settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
ACCEPTED = (RuntimeError, IndexError, TypeError, ValueError, OverflowError)
NUMBERS = st.integers(-6, 6) | st.sampled_from([2**31, -(2**31) - 1, 2**62, -(2**63)])
SHAPES = st.lists(st.integers(0, 4), max_size=3).map(tuple)
MAYBE = st.none() | NUMBERS
INDEX = MAYBE | st.just(...) | st.builds(slice, MAYBE, MAYBE, MAYBE) | st.lists(st.integers(-6, 6), max_size=3)


def _attempt(call: Callable[[], Any]) -> Any:
    """The values of a result, or None for an ordinary error."""
    try:
        result = call()
        many = result is not None and max(result.shape, default=0) >= 2**20  # a list of empty lists takes memory, too
        return None if result is None else list(result.shape) if many else result.tolist()
    except ACCEPTED:
        return None


@FUZZ
@given(SHAPES, st.lists(INDEX, max_size=3).map(tuple))
def test_fuzz_getitem_and_setitem(shape: tuple[int, ...], index: Any) -> None:
    x = ft.arange(math.prod(shape)).reshape(shape)
    found = _attempt(lambda: x[index])
    torch = pytest.importorskip("torch")
    theirs = _attempt(lambda: torch.arange(math.prod(shape)).reshape(shape)[index])
    assert theirs is None or found == theirs
    y = ft.arange(math.prod(shape)).reshape(shape)
    y.tolist()
    _attempt(lambda: y.__setitem__(index, 7))
    after = _attempt(lambda: y)  # an index out of range shows here
    assert after is None or set(_flat(after)) <= {*range(math.prod(shape)), 7}


def _flat(x: Any) -> list[Any]:
    return [z for y in x for z in _flat(y)] if isinstance(x, list) else [x]


@FUZZ
@given(SHAPES, st.lists(NUMBERS, max_size=3), st.lists(NUMBERS, max_size=3), NUMBERS)
def test_fuzz_strides(shape: tuple[int, ...], size: list[int], stride: list[int], offset: int) -> None:
    x = ft.arange(math.prod(shape)).reshape(shape)
    small = math.prod(size) < 2**20 and max(size, default=0) < 2**20
    found = _attempt(lambda: x.as_strided(size, stride, offset) if small else None)
    if found is not None:
        assert set(_flat(found)) <= set(range(math.prod(shape)))


@FUZZ
@given(SHAPES, st.lists(NUMBERS, max_size=3), NUMBERS, NUMBERS)
def test_fuzz_shapes(shape: tuple[int, ...], sizes: list[int], a: int, b: int) -> None:
    x = ft.arange(math.prod(shape)).reshape(shape)
    for call in (
        lambda: x.reshape(sizes), lambda: x.view(sizes), lambda: x.permute(sizes), lambda: x.flip(sizes), lambda: x.sum(a),
        lambda: x.transpose(a, b), lambda: x.narrow(a, b, 1), lambda: x.select(a, b), lambda: x.unfold(0, a, b), lambda: x.roll(a, b),
        lambda: x.diagonal(a), lambda: x.tril(a), lambda: x.flatten(a, b), lambda: x.unsqueeze(a),
        lambda: None if 2**24 < math.prod(sizes) < 2**48 else ft.zeros(sizes)[:0],  # what the machine may have just too little of
    ):  # fmt: skip
        _attempt(call)


@FUZZ
@given(st.lists(st.integers(-8, 8), min_size=1, max_size=4))
def test_fuzz_index_tensors(indices: list[int]) -> None:
    """gather, scatter, embedding, index_add and one_hot never read or write outside."""
    i, x = ft.tensor(indices), ft.arange(5.0)
    inside = all(0 <= k < 5 for k in indices)
    x.tolist()
    results = [
        _attempt(lambda: x.gather(0, i)), _attempt(lambda: x.scatter(0, i, 1.0)), _attempt(lambda: F.embedding(i, x.reshape(5, 1))),
        _attempt(lambda: x.index_add(0, i, ft.ones(len(indices)))), _attempt(lambda: x.index_select(0, i)),
        _attempt(lambda: F.nll_loss(ft.zeros(len(indices), 5), i)) if inside else None,
    ]  # fmt: skip
    if inside:
        assert results[0] == [float(k) for k in indices]
        assert all(r is not None for r in results)
    else:
        assert all(r is None for r in results)
