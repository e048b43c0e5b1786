"""Calls of functions of several edges that a state remembers (ops/remembered.py): as Python does them, whatever the arguments were before."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import flambeau as fb
from flambeau.nn import functional as F
from flambeau.runtime import native_calls
from flambeau.statistics import counters
from flambeau.trace import recorder
from flambeau.trace.recorder import local
from tests.engine.python_only import python_only
from tests.threads import Thread, join

pytestmark = [pytest.mark.usefixtures("whole"), pytest.mark.skipif(not native_calls.available(), reason="no CPython whose objects are known")]


@pytest.fixture(autouse=True)
def started() -> Iterator[None]:
    (fb.ones(3) + 1).tolist()
    assert recorder.take is not None
    yield


def values(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result).__name__, [values(r) for r in result]
    return None if result is None else (result.tolist(), tuple(result.shape), tuple(result.stride()), result.dtype, result.requires_grad)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "index": lambda t, w: t[:, 1:3],
    "index of three": lambda t, w: t[..., None, 1],
    "index tensors": lambda t, w: t[fb.arange(2), fb.arange(2)],
    "chunk": lambda t, w: t.chunk(2, dim=1),
    "axis": lambda t, w: t.chunk(2, axis=1),
    "split": lambda t, w: fb.split(t, [1, 3], dim=1),
    "unbind": lambda t, w: t.unbind(1),
    "narrow": lambda t, w: t.narrow(1, 1, 2),
    "nothing": lambda t, w: t.to(fb.float32),
    "constant": lambda t, w: fb.full((2, 3), 1.5) + 1,
    "like": lambda t, w: fb.zeros_like(w),
    "range": lambda t, w: fb.arange(1, 6, 2, dtype=fb.float32),
    "named tuple": lambda t, w: t.max(dim=1),
    "list of tensors": lambda t, w: fb.hstack([t, w]),
    "grid": lambda t, w: fb.meshgrid(t[0], w[1], indexing="ij"),
    "statistics": lambda t, w: fb.var_mean(t, dim=1),
    "interpolate": lambda t, w: F.interpolate(t[None], scale_factor=2),
    "normalize": lambda t, w: F.normalize(t, dim=-1),
    "norm": lambda t, w: fb.linalg.norm(t, dim=1),
}


@pytest.mark.parametrize("name", list(CALLS))
def test_remembered_as_in_python(name: str) -> None:
    x, w = fb.arange(20.0).reshape(5, 4).clone(), fb.full((5, 4), 2.0)  # sizes that no other test's states have

    def run() -> Any:
        t = x * 3.0 - 1.0
        result = CALLS[name](t, w)
        return values(result), values(t + 1), values(CALLS[name](t, w))

    with python_only():
        expected = run()
    for _ in range(7):
        assert run() == expected


def writes_of(x: Any, y: Any) -> None:
    x[0] = 1.0
    x[1:3] = y[1:3]
    x[:, 1] = 3.0
    x[0, 1] = -2.0
    x[y > 2] = 0.5
    x[fb.tensor([0, 2])] = y[:2]
    x[2].add_(1)
    x[:, 2:].mul_(2.0)
    x[3] += y[0]
    x.t().sub_(y)
    y[0].zero_()
    y[1].fill_(7.0)
    x.view(-1)[3:6].copy_(y[2, :3])


def test_writes_through_views_as_in_python() -> None:
    def run(seed: int) -> Any:
        x, y = fb.arange(16.0).reshape(4, 4) + seed, fb.arange(16.0).reshape(4, 4) / 4 - seed
        tail = x[1:]
        for _ in range(3):
            writes_of(x, y)
            assert x._version > 10
        return x.tolist(), y.tolist(), tail.tolist()

    with python_only():
        expected = [run(seed) for seed in range(3)]
    for _ in range(4):
        assert [run(seed) for seed in range(3)] == expected


def test_changing_arguments_are_not_those_of_the_last_pass() -> None:
    x = fb.arange(24.0).reshape(4, 6)
    for turn in range(25):
        t = x + 1.0
        i = turn % 3
        assert t[i : i + 2, 0].tolist() == [1.0 + 6 * i, 7.0 + 6 * i]
        assert len(t.split(1 + i)[0]) == 1 + i
        assert fb.full((2,), 0.5 * turn).tolist() == [0.5 * turn] * 2
        assert fb.full((1,), -0.0 if turn % 2 else 0.0).reciprocal().item() == (float("-inf") if turn % 2 else float("inf"))
        y = t * 1.0
        y[i] = float(turn)
        assert y[i].tolist() == [float(turn)] * 6
        assert t.to(fb.float64 if turn % 2 else fb.float32).dtype is (fb.float64 if turn % 2 else fb.float32)


def test_numbers_of_other_types_are_others() -> None:
    x = fb.arange(6.0)
    for value, kind in ((1, fb.int64), (1.0, fb.float32), (True, fb.bool), (1, fb.int64), (1.0, fb.float32)) * 3:
        t = x + 1.0
        made = fb.full((2,), value)
        assert made.dtype is kind and t.tolist()[0] == 1.0 and made.tolist() == [value] * 2


def test_the_value_of_a_tensor_that_is_looked_at_is_not_remembered() -> None:
    x = fb.arange(8.0)
    for start in (0, 1, 2, 3) * 4:
        at = fb.tensor(start)
        at.item()
        t = x * 2.0
        assert t.narrow(0, at, 2).tolist() == [2.0 * start, 2.0 * start + 2]
        sizes = fb.tensor([start + 1])
        assert len(t.tensor_split(sizes.clone() if start % 2 else sizes)[0]) == start + 1


def test_modes_and_gradients() -> None:
    w = fb.arange(6.0).reshape(2, 3).requires_grad_()
    for turn in range(12):
        with fb.set_grad_enabled(turn % 2 == 0):
            a, b = (w * 2).split([1, 2], dim=1)
            y = a.sum() + (b * b).sum() + F.normalize(w, dim=1).sum()
        assert y.requires_grad is (turn % 2 == 0) and a.requires_grad is (turn % 2 == 0)
        if turn % 2 == 0:
            w.grad = None
            ((a * 1.5).sum() + (b * b).sum()).backward()
            assert w.grad.tolist() == [[3.0, 8.0, 16.0], [3.0, 32.0, 40.0]]


def test_a_leaf_is_not_written_to_after_its_like_was() -> None:
    plain, leaf = fb.zeros(4), fb.zeros(4, requires_grad=True)
    for _ in range(6):
        plain[1:3] = 1.0
        plain[0].add_(2.0)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            leaf[1:3] = 1.0
        with pytest.raises(RuntimeError, match="leaf Variable"):
            leaf[0].add_(1.0)
        with fb.no_grad():
            leaf[1:3] = 2.0
    assert leaf.tolist() == [0.0, 2.0, 2.0, 0.0] and plain.tolist()[1:] == [1.0, 1.0, 0.0]


def test_batch_norm_moves_its_statistics_in_every_pass() -> None:
    def run() -> Any:
        fb.manual_seed(1)
        layer, x = fb.nn.BatchNorm2d(3), fb.arange(96.0).reshape(2, 3, 4, 4)
        found = []
        for turn in range(9):
            layer.train(turn != 4)
            y = layer(x * (turn + 1))
            found.append((y.sum().item(), layer.running_mean.tolist(), layer.running_var.tolist(), int(layer.num_batches_tracked)))
        return found

    with python_only():
        expected = run()
    assert run() == expected and run() == expected


def test_subclasses_and_modes_see_the_calls() -> None:
    class Logged(fb.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    seen: list[str] = []
    plain = fb.arange(6.0).reshape(2, 3)
    for _ in range(4):
        (plain * 1.0).chunk(2)[0].tolist()
    logged = plain.as_subclass(Logged)
    for _ in range(3):
        seen.clear()
        first = logged.chunk(2)[0]
        assert type(first) is Logged and seen[0] == "chunk"


def test_other_threads_are_not_mixed_up() -> None:
    x = fb.arange(12.0).reshape(3, 4)
    failed: list[Any] = []

    def work(k: int) -> None:
        for _ in range(40):
            t = x * float(k)
            if t[:, 1:3].sum(1).tolist() != [3.0 * k, 11.0 * k, 19.0 * k] or t.chunk(2, 1)[0].tolist()[0] != [0.0, float(k)]:
                failed.append(k)

    threads = [Thread(target=work, args=(k,)) for k in (1, 2, 3)]
    for thread in threads:
        thread.start()
    work(4)
    join(*threads)
    assert not failed


def test_a_state_gives_up_where_calls_always_differ() -> None:
    x = fb.arange(67.0)
    (x + 1.0).tolist()
    learned = []
    for turn in range(40):
        t = x + 1.0
        before = local.trace.state
        t[turn : turn + 3]
        learned.append(before.call)
        t.tolist()
    assert all(call is learned[20] for call in learned[20:])
    before_slow = counters.slow_path_entries
    for turn in range(10):
        t = x + 1.0
        assert t[turn : turn + 3].tolist()[0] == turn + 1.0
    assert counters.slow_path_entries - before_slow <= 2


def test_errors_stay_where_they_were() -> None:
    x = fb.arange(6.0).reshape(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            t = x * 1.0
            t[0, 1], t.chunk(3, 1)
            with pytest.raises(IndexError, match="out of bounds"):
                t[2, 1]
            with pytest.raises(RuntimeError, match="greater than 0"):
                t.chunk(0, 1)
            with pytest.raises(TypeError, match="must be Tensor"):
                fb.reshape([1], (1,))
            t.tolist()


def test_a_call_at_a_root_with_learned_calls_is_taken_from_behind_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that go on changing and come back: what their calls have recorded is remembered for each, though native code leaves the root to Python."""
    from flambeau.ops import remembered

    x, column, numbers = fb.arange(24.0).reshape(12, 2).clone(), fb.arange(12.0), fb.arange(12)
    masks = [column < n for n in (3, 5, 6, 8, 11)]
    ran: list[str] = []
    run = remembered._run_and_remember
    monkeypatch.setattr(remembered, "_run_and_remember", lambda form, args, kinds: (ran.append(form.name), run(form, args, kinds))[1])

    def once(mask: Any) -> Any:
        answer = fb.zeros(12)
        answer.tolist()
        rows = numbers[mask]
        answer[rows] = column[mask]
        return answer.tolist(), x[rows, :1].tolist(), (rows + 1).sum().item()

    with python_only():
        expected = [once(mask) for mask in masks]
    for _ in range(12):  # by class a call is remembered at its fifth visit
        assert [once(mask) for mask in masks] == expected
    assert local.trace.root.immediate is not None
    ran.clear()
    assert [once(mask) for mask in masks] == expected
    assert not ran


def test_a_write_in_the_middle_of_a_path_is_taken_from_behind_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indices and values that were made at once are new inputs of the path: native code looks at the state before them."""
    from flambeau.ops import remembered

    values_of, numbers = fb.arange(12.0), fb.arange(12)
    mask = values_of > 4
    mask.tolist()

    def once() -> Any:
        answer = fb.zeros(12) + 1
        for step in range(4):
            answer[numbers[mask]] = values_of[mask]
            answer[2 * step : 2 * step + 2] += 1
        return answer.tolist()

    with python_only():
        expected = once()
    for _ in range(12):
        assert once() == expected
    remember, ran = remembered._remember, []
    monkeypatch.setattr(remembered, "_remember", lambda *given: (ran.append(given[1].name), remember(*given))[1])
    assert once() == expected
    assert not ran
    with pytest.raises(IndexError, match="104 is out of bounds"):
        answer = fb.zeros(12) + 1
        answer[numbers[mask] + 99] = values_of[mask]
        answer.tolist()


def test_what_is_remembered_behind_inputs_keeps_to_its_arguments() -> None:
    """The same kinds of arguments with another index, other memory under it, or another value."""
    x = fb.arange(24.0).reshape(12, 2).clone()

    def once(k: int, wide: bool, value: float) -> Any:
        rows = fb.arange(12)[fb.arange(12) < k + 3]
        y = (fb.cat((x, x)) if wide else x.clone())[:12]
        found = y[rows, k % 2 :]
        y[rows] = value
        return found.tolist(), y.tolist()

    def all_of_them() -> Any:
        return [once(k, wide, value) for k in range(4) for wide in (False, True) for value in (0.5, -1.0)]

    with python_only():
        expected = all_of_them()
    for _ in range(14):
        assert all_of_them() == expected


def test_a_call_by_class_whose_arguments_always_differ_is_not_remembered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    from flambeau.ops import remembered

    made: list[str] = []
    remember = remembered._remember
    monkeypatch.setattr(remembered, "_remember", lambda tr, form, *rest: (made.append(form.name), remember(tr, form, *rest))[1])
    xs = [fb.arange(float(n)) for n in range(40, 52)]

    def once() -> list[float]:
        return [((x[1:] - x[k]) * x[k]).sum().item() for x in xs for k in range(3, 9)]

    expected = [float(((x[1:] - x[k]) * x[k]).sum()) for n in range(40, 52) for x in [np.arange(n, dtype=np.float32)] for k in range(3, 9)]
    for _ in range(12):
        assert once() == expected
    made.clear()
    for _ in range(4):
        assert once() == expected
    assert len(made) < len(expected)  # each of four rounds made three such calls for each before


_items = st.one_of(
    st.integers(-3, 2), st.none(), st.just(Ellipsis), st.slices(3), st.lists(st.integers(-3, 2), min_size=2, max_size=2).map(np.array),
    st.lists(st.integers(-3, 2), min_size=1, max_size=1).map(np.array),
)  # fmt: skip


@given(st.lists(_items, min_size=1, max_size=4).map(tuple))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_indices_with_tensors_among_others_are_those_of_numpy(index: tuple[Any, ...]) -> None:
    """Twice: what makes the view is remembered by all but the tensors."""
    if sum(i is Ellipsis for i in index) > 1 or any(isinstance(i, slice) and (i.step or 1) < 0 for i in index):
        return
    plain = np.arange(27.0, dtype=np.float32).reshape(3, 3, 3)
    x = fb.from_numpy(plain.copy()).clone()
    arrays = [i for i in index if isinstance(i, np.ndarray)]
    numbers_between = arrays and any(isinstance(i, int) for i in index)  # NumPy takes numbers for arrays there, PyTorch does not
    if numbers_between:
        return
    try:
        expected = plain[index]
    except IndexError:
        with pytest.raises(IndexError):
            x[tuple([fb.tensor(i) if isinstance(i, np.ndarray) else i for i in index])]
        return
    for shift in (0, 1):
        moved = tuple([(i + 3 + shift) % 3 if isinstance(i, np.ndarray) else i for i in index])
        found = x[tuple([fb.tensor(i) if isinstance(i, np.ndarray) else i for i in moved])]
        np.testing.assert_array_equal(found.numpy(), plain[moved])
        assert found.shape == expected.shape


def test_states_of_new_sizes_are_the_same_whether_native_code_copies_them() -> None:
    from flambeau.trace import from_model
    from flambeau.trace.state import State

    def program(n: int) -> list[Any]:
        x = fb.arange(float(2 * n)).reshape(n, 2)
        values, places = (x[1:] * 2 - x[:-1]).max(0)
        return [values.tolist(), places.tolist(), (x[fb.arange(n - 3)] + x[2]).sum().item()]

    def expected(n: int) -> list[Any]:
        x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
        y = x[1:] * 2 - x[:-1]
        return [y.max(0).tolist(), y.argmax(0).tolist(), float((x[: n - 3] + x[2]).sum())]

    for n in range(10, 20):
        assert program(n) == expected(n)
    before = counters.class_edges
    for n in range(20, 26):
        if n % 2:
            with python_only():
                assert program(n) == expected(n)
        else:
            assert program(n) == expected(n)
    assert counters.class_edges > before
    state = next(s for s in from_model.MADE or [local.trace.root] if isinstance(s, State))
    for copy in (from_model._copy, from_model.copied[0]):
        made = copy(state)
        assert made is not state
        assert all(getattr(made, name, None) is getattr(state, name, None) for name in State.__slots__)
