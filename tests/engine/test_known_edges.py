"""Known edges and learned calls in native code (ops/known_edge.py), and the builtins of runtime/native_calls.py: they answer as the
wrappers' Python code does, or not at all, and keep no reference that they should not."""

from __future__ import annotations

import copy
import gc
import math
import os
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as fb
from flambeau.ops import known_edge, wrapper
from flambeau.runtime import memory, native_calls
from flambeau.trace import evaluate
from flambeau.trace.recorder import local
from tests import processes
from tests.engine.python_only import python_only
from tests.threads import Thread, join

pytestmark = [
    pytest.mark.usefixtures("whole", "short_collections"),
    pytest.mark.skipif(not native_calls.available(), reason="no CPython whose objects are known"),
]


@pytest.fixture(autouse=True)
def started() -> Iterator[None]:
    (fb.ones(3) + 1).tolist()
    assert evaluate.start_native is None and wrapper._equip is not None
    yield


@pytest.fixture
def hits(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[bool]]:
    """Counts how often the builtin of an operation answers."""

    def count(function: Any) -> list[bool]:
        found: list[bool] = []
        scope = function.__globals__
        step = scope["step_"]
        assert step is not None

        def counted(*args: Any) -> Any:
            result = step(*args)
            found.append(result is not None)
            return result

        monkeypatch.setitem(scope, "step_", counted)
        return found

    return count


def test_the_second_pass_is_native(hits: Any) -> None:
    a, b = fb.arange(5.0), fb.full((5,), 1.5)
    fb.mul(a, b)
    found = hits(fb.mul)

    def chain() -> Any:
        y = a
        for _ in range(6):
            y = y * b
        return y.tolist()

    first = chain()
    assert first == pytest.approx([1.5**6 * i for i in range(5)])
    chain()
    del found[:]
    assert chain() == first
    assert found[1:] == [True] * 5  # whether the first one, which takes inputs, is depends on what was learned at the root before


CASES: dict[str, Callable[[Any], Any]] = {
    "float": lambda x: [(x + 1.0) * f for f in (0.5, -0.0, float("inf"), 2.5e300, float("nan"))],
    "integer": lambda x: [(x * 2.0) + i for i in (0, 1, -1, 2**62, -(2**63), 2**63 - 1)],
    "bool and number": lambda x: [(x * 1) + v for v in (True, 1, 1.0, False, 0, 0.0)],
    "alpha": lambda x: [fb.add(x * 2, x * 3, alpha=v) for v in (1, 2, 1, 1.0, 3, -1, 2)],
    "exponent": lambda x: [(x * 1.0) ** v for v in (2, 3, 2.0, 0.5, True, 2)],
    "clamp": lambda x: [(x * 1.5).clamp(low, high) for low, high in ((0, 1), (None, 1), (0, None), (0.5, None), (-1, 2))],
    "static": lambda x: [(x * 1.5).sum(dim, keepdim=k) for dim in (0, -1, (0,), None) for k in (False, True)],
    "dtype": lambda x: [(x * 1.5).sum(dtype=d) for d in (fb.float64, fb.float32, None)],
    "where": lambda x: [fb.where(x > 1, x * 2, v) for v in (0, 1.5, x)],
    "optional": lambda x: [fb.nn.functional.linear(x * 1.0, fb.ones(2, 5), b) for b in (None, fb.ones(2), None)],
    "reversed": lambda x: [2 - (x * 1.0), 2.5 - (x * 1.0), (x * 1.0) - 2, (x * 1.0).__rsub__(3)],
}


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_the_python_code(name: str) -> None:
    def run() -> Any:
        x = fb.tensor([0.5, -1.0, 2.0, 3.25, -0.0])
        x.tolist()
        return [(t.dtype, t.shape, [repr(v) for v in t.reshape(-1).tolist()]) for t in CASES[name](x)]

    with python_only():
        expected = run()
    for _ in range(4):
        assert run() == expected


def test_a_static_argument_is_never_taken_for_a_slot() -> None:
    a = fb.ones(2, 2, 2, 2, 2, 2)
    a.tolist()
    for _ in range(3):
        evaluate.synchronize()
        y = a * 2
        slot = y._slot
        assert 0 <= slot < 6
        assert (y * 1).sum(slot).shape == (2,) * 5
        y = a * 2
        z = y * 1
        with pytest.raises((TypeError, RuntimeError)):
            z.sum(y)


def test_an_integer_beyond_64_bits_is_refused_each_time() -> None:
    for _ in range(3):
        y = fb.ones(3) * 1
        (y + 5).tolist()
        y = fb.ones(3) * 1
        with pytest.raises(OverflowError):
            y + 2**64
        with pytest.raises(OverflowError):
            y + -(2**64)
        assert (y + -1).tolist() == [0.0] * 3


def test_another_thread_has_its_own_trace() -> None:
    a = fb.ones(4)
    a.tolist()

    def run() -> list[float]:
        y = a * 2
        for _ in range(5):
            y = y + a
        return y.tolist()  # type: ignore[no-any-return]

    expected = run()
    results: list[Any] = []
    pending = (a * 3) + a
    threads = [Thread(target=lambda: results.append([run() for _ in range(50)])) for _ in range(3)]
    for thread in threads:
        thread.start()
    mine = [run() for _ in range(50)]
    join(*threads)
    assert mine == [expected] * 50 and results == [mine] * 3
    assert pending.tolist() == [4.0] * 4


def test_an_argument_that_another_thread_has_taken_is_entered_again() -> None:
    evaluate.synchronize()
    a = fb.arange(3.0)
    a.tolist()
    y = a * 2
    slot = a._slot
    a._gen, a._storage.gen = -7, -1  # as a thread leaves it that has run its own trace between this call's key and its edge
    z = local.main.slow(fb.neg.operation, (fb.neg.operation, slot, "never met"), (a,))
    assert z.tolist() == [-0.0, -1.0, -2.0] and y.tolist() == [0.0, 2.0, 4.0]


def test_transforms_and_modes_see_every_call() -> None:
    x = fb.arange(6.0).reshape(2, 3)

    def function(v: Any) -> Any:
        y = v * 2
        return ((y + v) * y).sum()

    for _ in range(3):
        assert function(x[0] * 1).item() == 6.0 * 5
        assert fb.func.vmap(function)(x).tolist() == [30.0, 300.0]
        assert fb.func.grad(function)(x[1]).tolist() == [36.0, 48.0, 60.0]

    seen = []

    class Mode(fb.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    with Mode():
        function(x)
    assert "sum" in seen and len(seen) >= 4


def test_subclasses_answer_and_parameters_take_part(hits: Any) -> None:
    class Mine(fb.Tensor):
        pass

    plain, mine = fb.ones(3), fb.ones(3).as_subclass(Mine)
    weight = fb.nn.Parameter(fb.ones(3))
    for _ in range(3):
        y = (plain * 2) * mine
        assert type(y) is Mine and y.tolist() == [2.0] * 3
        z = (plain * weight) * weight
        assert type(z) is fb.Tensor and z.requires_grad
        z.sum().backward()
    assert weight.grad.tolist() == [6.0] * 3
    found = hits(fb.mul)
    with fb.no_grad():
        for _ in range(3):
            del found[:]
            (((plain * weight) * weight) * plain).tolist()
    assert found[1:] == [True, True]  # the first may be asked at a root that has learned calls of other tests


def test_results_are_ordinary_tensors() -> None:
    a = fb.arange(4.0)
    a.tolist()
    for _ in range(4):
        y = (a * 2) + 1
        z = y * a
        z.tag = "z"
        assert not hasattr(y, "tag") and vars(z)["tag"] == "z"
        reference = weakref.ref(z)
        assert copy.deepcopy(z).tag == "z" and pickle.loads(pickle.dumps(z)).tolist() == [0.0, 3.0, 10.0, 21.0]
        assert z.storage_offset() == 0 and z._version == 0 and z.grad is None and z.is_leaf
        z += 1
        assert z.tolist() == [1.0, 4.0, 11.0, 22.0]
        del z
        gc.collect()
        assert reference() is None
        single = (a + a)[2]
        single.tag = 1
        assert single.item() == 4.0 and single.storage_offset() == 2


def test_no_reference_is_kept_or_lost() -> None:
    a, b, number = fb.arange(4.0), fb.ones(4), 2.5e10
    a.tolist(), b.tolist()

    def recorded() -> None:
        y = a * b
        for _ in range(8):
            y = (y * b) + number
        y.tolist()

    def immediate() -> None:
        (a + b)[1].item()
        (a * number).tolist()

    for function in (recorded, immediate):
        for _ in range(20):
            function()
        watched = [a._meta, a._storage, a._storage.buffer, b._storage, number, fb.add.operation, fb.add.operation.recent, local.main.root, True, fb.Tensor]
        gc.collect()
        before = [sys.getrefcount(w) for w in watched], len(gc.get_objects())
        for _ in range(500):
            function()
        gc.collect()
        after = [sys.getrefcount(w) for w in watched], len(gc.get_objects())
        assert all(abs(x - y) < 50 for x, y in zip(before[0], after[0], strict=True)), (before, after)
        assert abs(before[1] - after[1]) < 50


def test_a_learned_result_that_somebody_keeps_is_not_written_over() -> None:
    a = fb.arange(4.0)
    kept = []
    for i in range(30):
        y = a + float(i)
        assert y[1].item() == i + 1
        if i % 3 == 0:
            kept.append((i, y))
    for i, y in kept:
        assert y.tolist() == [i + j for j in range(4)]


@pytest.mark.parametrize("d, values", [
    (fb.float32, [0.0, -0.0, 1.5, math.inf, -1.0, math.nan]), (fb.float64, [0.0, -0.0, 1e300, -math.inf, -1.0, math.nan]),
    (fb.int32, [0, -1, 2**31 - 1, -(2**31)]), (fb.int64, [0, -1, 2**63 - 1, -(2**63)]),
])  # fmt: skip
def test_readers(d: Any, values: list[Any]) -> None:
    t = fb.tensor(values, dtype=d)
    assert type(memory.READERS[d]).__name__ == "builtin_function_or_method"
    assert [repr(t[i].item()) for i in range(len(values))] == [repr(v) for v in values]


def test_the_entry_of_a_plan_checks_its_numbers() -> None:
    from flambeau.runtime import threads

    words = known_edge._held  # any plan will do: the entry raises before it runs
    assert words
    entry = native_calls.entry(threads.native_address(), 0, "Qd")
    for wrong in ((1.5, 1.0), (2**64, 1.0), ("x", 1.0), (1, "x")):
        with pytest.raises(native_calls.UNPACKABLE):
            entry(*wrong)
    with pytest.raises(SystemError):
        entry(1)


def test_offsets_are_those_of_the_slots() -> None:
    class Slotted:
        __slots__ = ("a", "b")

    s = Slotted()
    s.a, s.b = "a", "b"
    import ctypes

    for name in ("a", "b"):
        assert ctypes.c_void_p.from_address(id(s) + known_edge.offset_of(Slotted, name)).value == id(name)


_PROGRAM = """
import flambeau as fb
from flambeau.ops import wrapper
a, b = fb.arange(6.0), fb.full((6,), 0.3)
w = fb.nn.Parameter(fb.full((6,), 0.7))
for _ in range(8):
    y = a
    for _ in range(5):
        y = y * b + 1.1
    print(y.tolist(), (a + b)[2].item(), (a * 3).tolist())
    (w * a * w).sum().backward()
    print(w.grad.tolist())
print(wrapper._equip is not None)
"""


def test_without_native_calls_all_is_the_same() -> None:
    found = [processes.python("-c", _PROGRAM, env=os.environ | {"FLAMBEAU_NATIVE_CALLS": wanted}, check=True).stdout.splitlines() for wanted in ("1", "0")]
    assert found[0][:-1] == found[1][:-1] and len(found[0]) == 17
    assert [lines[-1] for lines in found] == ["True", "False"]
