"""Calls whose results are looked at right away run at once, without a trace, and nobody can tell but by the counter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pytest

import flambeau as fb
from tests.threads import Thread, join

pytestmark = pytest.mark.usefixtures("whole")  # what is learned when does not depend on which short paths other tests have taken


def immediate(function: Callable[[], Any], times: int = 12) -> int:
    """How many of the calls of the last of `times` runs were immediate."""
    before = 0
    for _ in range(times):
        before = fb.stats()["immediate_calls"]
        function()
    return int(fb.stats()["immediate_calls"]) - before


def test_one_operation_and_a_view_of_its_result() -> None:
    a, b = fb.arange(8.0), fb.arange(8.0) * 10
    seen = []
    assert immediate(lambda: seen.append((a + b)[3].item())) == 2
    assert seen == [33.0] * 12


def test_numbers_and_indices_are_not_frozen() -> None:
    a = fb.arange(8.0)
    for i in range(24):
        assert (a * i)[i % 8].item() == i * (i % 8)
        assert (a + 0.5 * i).tolist() == [k + 0.5 * i for k in range(8)]
    assert a[-1].item() == 7
    with pytest.raises(IndexError):
        a[8]


def test_kept_results_keep_their_memory() -> None:
    a = fb.arange(4.0)
    results, views, arrays = [], [], []
    for i in range(20):
        r = a + i
        r.tolist()
        results.append(r)
        v = (a - i)[1]
        v.item()
        views.append(v)
        s = a * i
        s.tolist()
        arrays.append(s.numpy())
    assert fb.stats()["immediate_calls"] > 0
    for i in range(20):
        assert results[i].tolist() == [k + i for k in range(4)]
        assert views[i].item() == 1 - i
        assert arrays[i].tolist() == [k * i for k in range(4)]


def test_a_result_can_be_written_to() -> None:
    a = fb.arange(4.0)
    for i in range(20):
        r = a + 1
        assert r[0].item() == 1
        view = r[1:]
        r.mul_(i)
        view[0] = -1.0
        assert r.tolist() == [i, -1, 3 * i, 4 * i]
    assert a.tolist() == [0, 1, 2, 3]


def test_an_operand_that_is_written_to() -> None:
    a = fb.zeros(4)
    for i in range(20):
        assert (a + a.new_ones(4))[0].item() == i + 1 and (a + 1)[2].item() == i + 1
        a += 1
        assert a[3].item() == i + 1
        a[1] = a[0]


def test_in_place_forms_stay_recorded() -> None:
    a, b = fb.arange(4.0), fb.ones(4)
    for _ in range(12):
        (a + b).tolist()
    a.add_(b)
    assert a.tolist() == [1, 2, 3, 4]
    fb.add(a, b, out=b)
    assert b.tolist() == [2, 3, 4, 5]


def test_memory_that_numpy_sees() -> None:
    array = numpy.arange(4, dtype=numpy.float32)
    shared, b = fb.from_numpy(array), fb.ones(4)
    for i in range(12):
        assert (shared + b).tolist() == [i + 1, 2, 3, 4]
        array[0] += 1


def test_gradients_are_recorded() -> None:
    a, b = fb.arange(4.0), fb.ones(4)
    for _ in range(12):
        (a * b).sum().item(), (a * b).tolist()
    a.requires_grad_()
    y = a * b
    y.tolist()
    y.sum().backward()
    assert a.grad is not None and a.grad.tolist() == [1, 1, 1, 1]
    with fb.no_grad():
        assert immediate(lambda: (a.detach() * b).tolist()) >= 0
    assert (a * b).requires_grad


def test_a_view_of_what_requires_gradients_since() -> None:
    x, w = fb.ones(4), fb.full((4,), 2.0, requires_grad=True)
    for _ in range(12):
        x[1].item()
    x.mul_(w)
    y = x[1]
    y.backward()
    assert w.grad is not None and w.grad.tolist() == [0, 1, 0, 0]


def test_results_that_later_calls_take_are_fused_again() -> None:
    a, b = fb.arange(8.0), fb.ones(8)
    for _ in range(12):
        (a - b).tolist()
    assert immediate(lambda: (a - b).tolist(), 1) == 1

    def fused() -> None:
        assert ((a - b) * 2 + 1).tolist() == [2 * k - 1 for k in range(8)]

    assert immediate(fused, 40) == 0


def test_errors_stand_where_they_stood() -> None:
    table, good, bad = fb.arange(5.0), fb.tensor([1, 2]), fb.tensor([1, 7])
    for _ in range(12):
        assert table.take(good).tolist() == [1, 2]
    with pytest.raises(IndexError, match="out of"):
        table.take(bad).tolist()
    for _ in range(12):
        (good + 2).tolist()
        with pytest.raises(OverflowError, match=r"'other' .* 64 bits"):
            good + 2**70
    assert fb.where(good > 1, good, fb.iinfo(fb.int64).min).tolist() == [fb.iinfo(fb.int64).min, 2]


def test_other_sizes_dtypes_and_shared_operands() -> None:
    for size in (3, 5, 3, 5) * 6:
        a, b = fb.arange(float(size)), fb.ones(size)
        assert (a + b).tolist() == [k + 1 for k in range(size)]
        assert (a + a).tolist() == [2 * k for k in range(size)]
        assert (a[1:] + a[:-1]).tolist() == [2 * k + 1 for k in range(size - 1)]
        assert (a + fb.arange(size)).dtype == fb.float32


def test_the_profiler_sees_every_call() -> None:
    a, b = fb.arange(8.0), fb.ones(8)
    for _ in range(12):
        (a + b).tolist()
    with fb.profiler.profile() as profile:
        for _ in range(6):
            (a + b).tolist()
    assert sum(event.count for event in profile.key_averages()) >= 6


def test_threads_learn_for_themselves() -> None:
    a, b = fb.arange(8.0), fb.ones(8)
    a.tolist(), b.tolist()
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(300):
            got = (a + b)[2].item()
            if got != 3:
                wrong.append(got)

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    join(*threads)
    assert not wrong


def test_modes_have_calls_of_their_own() -> None:
    a, b = fb.ones(4, 4), fb.ones(4, 4)
    for _ in range(12):
        (a @ b).tolist()
    with fb.autocast("cpu", dtype=fb.bfloat16):
        assert (a @ b).dtype == fb.bfloat16
    assert (a @ b).dtype == fb.float32


def _half(i: int) -> fb.Tensor:
    return fb.tensor(float(i)).to(fb.bfloat16)  # after a few of these, immediate


def test_a_result_that_was_made_a_leaf_stays_one() -> None:
    for i in range(24):
        leaf = _half(i).requires_grad_()
        (leaf * 3).backward()
        assert leaf.requires_grad and leaf.is_leaf and leaf.grad is not None and leaf.grad.item() == 3
        _half(i).item()
