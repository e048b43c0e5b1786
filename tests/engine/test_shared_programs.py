"""Sizes of a plan by class share one native program, which is told what depends on them: the same bits as with programs of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import flambeau as torch
from flambeau.runtime import threads
from flambeau.trace import class_plans, classes
from tests.engine.nothing_known import forget_edges
from tests.threads import Thread, join

pytestmark = pytest.mark.usefixtures("whole")

F = torch.nn.functional
PROGRAMS: dict[str, Callable[[int, int], Any]] = {
    "one loop": lambda n, m: torch.randn(n, m) * 2 + 1,
    "several phases, and memory between them": lambda n, m: (torch.randn(n, m).softmax(-1).cumsum(0) @ torch.randn(m, n)).sum(1),
    "a product of three": lambda n, m: torch.randn(n, m) @ torch.randn(m, 7) @ torch.randn(7, n),
    "a view that starts inside": lambda n, m: torch.randn(n, m).T.exp()[1:].mean(0),
    "numbers": lambda n, m: torch.randn(n, m) * (n / 3) - m,
    "rows by an index": lambda n, m: torch.randn(n, m)[torch.arange(n) // 2] + 1,
    "lists": lambda n, m: torch.cat((torch.randn(n, m), torch.ones(n, 3)), 1).amax(1),
    "too long for the GIL": lambda n, m: torch.randn(n * 9, m * 9).tanh().sum(0),
}
SIZES = [(5, 7), (6, 7), (9, 8), (4, 11), (12, 3), (40, 33), (33, 40), (5, 64), (130, 70), (7, 9), (4, 11), (40, 33), (17, 129)]
SIZES += [(41 + n, 34 + n) for n in range(4)]  # of one class, also where a matrix unit makes more of them


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The plans that share a program."""
    found: list[Any] = []
    real = class_plans._sharing

    def sharing(*args: Any) -> Any:
        found.append(real(*args))
        return found[-1]

    forget_edges()
    monkeypatch.setattr(class_plans, "_sharing", sharing)
    monkeypatch.setattr(class_plans, "SHARED_AFTER", 2)
    yield found
    classes.ENABLED[0] = True


def bits(x: torch.Tensor) -> Any:
    return tuple(x.shape), x.numpy().tobytes()


def run(program: Callable[[int, int], Any], sizes: list[tuple[int, int]]) -> list[Any]:
    torch.manual_seed(0)
    return [bits(program(n, m)) for n, m in sizes]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("count", [1, 2])
def test_the_bits_are_those_of_programs_of_their_own(name: str, count: int, shared: list[Any]) -> None:
    before = threads.count()
    try:
        torch.set_num_threads(count)
        found = run(PROGRAMS[name], SIZES)
        assert shared, "no sizes shared a program"
        classes.ENABLED[0] = False
        assert found == run(PROGRAMS[name], SIZES)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_run_is_told_is_what_a_program_of_its_own_has(name: str, shared: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_plans, "CHECK", [True])  # each row is compared with the numbers of its sizes
    run(PROGRAMS[name], SIZES)
    assert shared


def test_a_wrong_row_is_seen(shared: list[Any]) -> None:
    run(PROGRAMS["one loop"], SIZES)
    plan = shared[0]
    numbers, row = plan.variant.numbers(plan.sizes), plan.variant.row(plan.sizes)
    class_plans._check_row(plan.variant, row, numbers)
    fresh, arena_bytes, words, small = row
    for wrong in (
        (fresh, arena_bytes, (words[0] + 1, *words[1:]), small),
        ((fresh[0] + 8,), arena_bytes, words, small),
        (fresh, arena_bytes, words, not small),
    ):
        with pytest.raises(AssertionError, match="of its sizes"):
            class_plans._check_row(plan.variant, wrong, numbers)


def test_sizes_that_come_back_get_a_program_of_their_own(shared: list[Any]) -> None:
    """By turns, so that each run finds the words of other sizes in the shared program."""
    x = {n: torch.randn(n, 6) for n in (4, 5, 6, 7, 8, 9)}

    def program(n: int) -> Any:
        return bits((x[n] * x[n]).sum(1) @ x[n])

    first = {n: program(n) for n in x}
    for _ in range(2 * class_plans.OWN_AFTER):
        assert {n: program(n) for n in x} == first
    assert shared
    assert any(plan.sharing == 0 for plan in shared)


def test_errors_of_a_shared_program_are_told(shared: list[Any]) -> None:
    """An index out of range at sizes that share a program; the next call is right."""
    for n in (5, 6, 7, 8, 9, 10):
        index = torch.arange(n)
        assert bits(torch.ones(n, 3)[index]) == bits(torch.ones(n, 3))
        index[1] = n
        with pytest.raises(IndexError, match=f"index {n} is out of bounds"):
            torch.ones(n, 3)[index].sum(1).tolist()
    assert shared


def test_threads_do_not_meet_in_a_shared_program() -> None:
    """Each thread at sizes of its own, all of one class."""
    x = {n: torch.randn(n, 6) for n in range(4, 20)}
    wrong: list[int] = []

    def program(n: int) -> Any:
        return bits((x[n] * x[n]).sum(1) @ x[n])

    expected = {n: program(n) for n in x}

    def work(sizes: list[int]) -> None:
        for _ in range(20):
            wrong.extend([n for n in sizes if program(n) != expected[n]])

    workers = [Thread(target=work, args=(list(range(first, 20, 2)),)) for first in (4, 5)]
    for worker in workers:
        worker.start()
    for worker in workers:
        join(worker)
    assert not wrong
