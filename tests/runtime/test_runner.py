"""The native runner and the thread team: relocation, phases, stealing, failures, threads that come and go."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import sys
import time
from array import array
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flambeau.runtime import native, runner, threads
from flambeau.runtime.runner import Program, Relocation, Task, flat
from flambeau.statistics import counters
from tests import processes
from tests.runtime import kernels
from tests.threads import Thread, join


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = threads.get_num_threads()
    threads.set_num_threads(2)
    yield
    threads.set_num_threads(before)


def test_addresses_and_dynamic_offsets_are_put_into_the_words() -> None:
    data = np.zeros(100, np.int64)
    relocations = [Relocation(0, 1, 80, ((0, 8), (2, -8))), Relocation(1, 2, 5)]
    program = Program([0, 0], relocations, [[Task(kernels.add_constant(), 0, 3)]], 3, "qQq")
    assert program.run((7, kernels.address(data), 2)) == 0
    expected = np.zeros(100, np.int64)
    expected[10 + 7 - 2 : 10 + 7 - 2 + 3] = 2 + 5
    np.testing.assert_array_equal(data, expected)
    assert program.run((0, kernels.address(data), 1)) == 0  # starts from the constants again
    expected[9:12] += 6
    np.testing.assert_array_equal(data, expected)


def test_relocations_may_come_as_arrays() -> None:
    data = np.zeros(100, np.int64)
    relocations = flat([Relocation(0, 1, 80, ((0, 8), (2, -8))), Relocation(1, 2, 5)])
    arrays = runner.Relocations(array("q", relocations.plain), array("q", relocations.dynamic))
    program = Program(array("q", [0, 0]), arrays, [[Task(kernels.add_constant(), 0, 3)]], 3, "qQq")
    assert program.run((7, kernels.address(data), 2)) == 0
    assert np.flatnonzero(data).tolist() == [15, 16, 17] and data.sum() == 3 * 7


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 300), st.integers(0, 9), st.integers(0, 200)), min_size=1, max_size=6))
def test_phases_of_one_task_have_the_tables_of_any_phase(count: int, tasks: list[tuple[int, int, int]]) -> None:
    threads.set_num_threads(count)
    phases = [[Task(0, 0, units, grain, least)] for units, grain, least in tasks]
    program = Program([0], [], phases, 0)
    _, _, tables, rows, begins = program._held
    at = 0
    for number, phase in enumerate(phases):
        lanes, ((size, chunks),) = runner._cut(phase, threads.count())
        assert rows[5 * number + 2 : 5 * number + 5].tolist() == [phase[0].units, size, 0]
        assert tables[5 * number : 5 * number + 4].tolist() == [number, 1, lanes, chunks]
        assert tables[5 * number + 4] == runner._address(begins) + 8 * at
        bounds = runner._bounds(phase, [chunks], lanes)
        assert begins[at : at + len(bounds)].tolist() == bounds
        at += len(bounds)


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_phases_wait_for_each_other(count: int) -> None:
    threads.set_num_threads(count)
    n, rounds = 4096, 40
    a, b = np.zeros(n + 1, np.int64), np.zeros(n + 1, np.int64)
    rng = np.random.default_rng(count)
    a[:] = rng.integers(-9, 9, n + 1)
    expected = a.copy()
    for _ in range(2 * rounds):
        expected[:n] = expected[:n] + expected[1:]
        expected[n] = 0
    phases = []
    for i in range(2 * rounds):
        phases.append([Task(kernels.running_sum(), 2 * (i % 2), n)])
    a[n] = 0
    source = a.copy()
    for _ in range(2 * rounds):
        source[:n] = source[:n] + source[1:]
    program = Program([0, 0, 0, 0], [Relocation(w, io, 0) for w, io in ((0, 0), (1, 1), (2, 1), (3, 0))], phases, 2)
    assert program.lanes == count
    for _ in range(20):
        buffers = a.copy(), b.copy()
        assert program.run([kernels.address(x) for x in buffers]) == 0
        np.testing.assert_array_equal(buffers[0], source)


def test_all_units_run_once_whatever_the_tasks() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        sizes = [int(n) for n in rng.choice([0, 1, 2, 7, 64, 1000], rng.integers(1, 40))]
        visits = np.zeros(sum(sizes) + 1, np.int64)
        who = np.zeros(sum(sizes) + 1, np.int64)
        words, tasks, start = [], [], 0
        for n in sizes:
            words += [kernels.address(who) + 8 * start, kernels.address(visits) + 8 * start, 0]
            tasks.append(Task(kernels.who(), len(words) - 3, n, int(rng.integers(1, 9)), int(rng.integers(1, 50))))
            start += n
        program = Program(words, [], [tasks], 0)
        for _ in range(3):
            assert program.run(()) == 0
        np.testing.assert_array_equal(visits[:-1], 3)
        assert visits[-1] == 0 and who.max() < program.lanes


def test_static_shares_are_contiguous_and_of_equal_work() -> None:
    address = 0
    for lanes in (2, 3, 7):
        phase = [Task(address, 0, 1, 1, 1)] * 5 + [Task(address, 0, 1000, 8, 10)] + [Task(address, 0, 300, 1, 3)]
        got, cuts = runner._cut(phase, lanes)
        assert got == lanes
        bounds = runner._bounds(phase, [c for _, c in cuts], lanes)
        assert bounds[0] == 0 and bounds[-1] == sum(c for _, c in cuts) and bounds == sorted(bounds)
        work = [runner.weight_of(t) / c for t, (_, c) in zip(phase, cuts, strict=True) for _ in range(c)]
        shares = [sum(work[a:b]) for a, b in itertools.pairwise(bounds)]
        assert max(shares) - min(shares) <= 2 * max(work)
        assert all(size % t.grain == 0 for t, (size, _) in zip(phase, cuts, strict=True))


def test_long_units_weigh_by_their_time() -> None:
    """Both tasks take as long, one has units longer than what a thread is worth starting for."""
    long, short = Task(0, 0, 16, 1, 1, 1e6), Task(0, 0, 10_000, 1, 100, 1e6)
    lanes, cuts = runner._cut([long, short], 2)
    assert lanes == 2 and [chunks for _, chunks in cuts] == [4, 4]
    assert runner._bounds([long, short], [4, 4], 2) == [0, 4, 8]


def test_little_work_stays_on_one_thread() -> None:
    small = Program([0, 0], [], [[Task(kernels.add_constant(), 0, 100, 1, 1000)]] * 3, 0)
    assert small.lanes == 1
    several = Program([0, 0], [], [[Task(kernels.add_constant(), 0, 500, 1, 1000)] * 5], 0)
    assert several.lanes == 2  # each task alone is too small, five of them are not


def test_a_free_thread_takes_the_work_of_a_busy_one() -> None:
    """The first half of the units is slow: the second lane's owner must help with it."""
    slow, fast = 32, 32
    spins = np.zeros(2, np.int64)
    spins[:] = 200_000, 0
    number, visits = np.full(slow + fast, -1, np.int64), np.zeros(slow + fast, np.int64)
    words = [kernels.address(number), kernels.address(visits), int(spins[0]),
             kernels.address(number) + 8 * slow, kernels.address(visits) + 8 * slow, int(spins[1])]  # fmt: skip
    program = Program(words, [], [[Task(kernels.who(), 0, slow), Task(kernels.who(), 3, fast)]], 0)
    helped = False
    for _ in range(50):  # on a loaded machine the worker may come too late
        assert program.run(()) == 0
        helped = helped or bool((number[:slow] == 1).any())
    assert helped
    np.testing.assert_array_equal(visits, 50)


@pytest.mark.parametrize("count", [1, 2])
def test_a_failure_names_the_first_failing_task_and_ends_the_program(count: int) -> None:
    threads.set_num_threads(count)
    data = np.zeros(64, np.int64)
    add, fail = kernels.add_constant(), kernels.fails_at()
    words = [kernels.address(data), 1, 63, 0, 99]
    phases = [[Task(add, 0, 64)], [Task(fail, 4, 64), Task(fail, 2, 64), Task(fail, 3, 64)], [Task(add, 0, 64)]]
    program = Program(words, [], phases, 0)
    for i in range(20):
        assert program.run(()) == 3  # tasks are numbered over all phases: 1 + index 2
        np.testing.assert_array_equal(data, i + 1)
    words[2] = words[3] = 99
    assert Program(words, [], phases, 0).run(()) == 0


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    results = []
    for count in (1, 2, 5):
        threads.set_num_threads(count)
        data = np.arange(10_007, dtype=np.int64)
        program = Program([kernels.address(data), 3], [], [[Task(kernels.add_constant(), 0, data.size, 16)]] * 5, 0)
        assert program.run(()) == 0
        results.append(data)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_fewer_threads_run_a_program_made_for_more() -> None:
    threads.set_num_threads(4)
    number, visits = np.full(4000, -1, np.int64), np.zeros(4000, np.int64)
    program = Program([kernels.address(number), kernels.address(visits), 10], [], [[Task(kernels.who(), 0, 4000)]], 0)
    for count in (1, 2, 3, 4):
        threads.set_num_threads(count)
        for _ in range(10):
            assert program.run(()) == 0
            assert number.max() < count
    np.testing.assert_array_equal(visits, 40)
    with pytest.raises(RuntimeError, match="positive integer, got 0"):
        threads.set_num_threads(0)
    with pytest.raises(TypeError, match="expects an int, but got float"):
        threads.set_num_threads(2.0)  # type: ignore[arg-type]


def test_several_python_threads_run_programs_at_once() -> None:
    data = [np.zeros(5000, np.int64) for _ in range(4)]
    shared = np.zeros(5000, np.int64)
    task = Task(kernels.add_constant(), 0, 5000, 1, 100)
    common = Program([0, 1], [Relocation(0, 0, 0)], [[task]] * 3, 1)

    def work(mine: np.ndarray) -> None:
        own = Program([kernels.address(mine), 1], [], [[task]] * 3, 0)
        for _ in range(200):
            assert own.run(()) == 0
            assert common.run((kernels.address(shared),)) == 0

    group = [Thread(target=work, args=(d,)) for d in data]
    for thread in group:
        thread.start()
    join(*group)
    for d in data:
        np.testing.assert_array_equal(d, 600)
    np.testing.assert_array_equal(shared, 4 * 600)


def test_a_small_program_may_be_run_by_several_threads() -> None:
    """It takes no lock: the GIL is held from the packing of the io words to the end of the run."""
    data = [np.zeros(8, np.int64) for _ in range(4)]
    relocations = [Relocation(0, 0, 0), Relocation(1, 1, 0)]
    program = Program([0, 0], relocations, [[Task(kernels.add_constant(), 0, 8, 1, 100)]], 2, small=True)

    def work(number: int) -> None:
        for _ in range(3000):
            assert program.run((kernels.address(data[number]), number + 1)) == 0

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        group = [Thread(target=work, args=(i,)) for i in range(4)]
        for thread in group:
            thread.start()
        join(*group)
    finally:
        sys.setswitchinterval(interval)
    for number, d in enumerate(data):
        np.testing.assert_array_equal(d, 3000 * (number + 1))


def test_a_word_may_be_the_address_of_an_io_word() -> None:
    for small in (False, True):
        words = [0, 0]
        program = Program(words, [Relocation(1, 1, 0)], [[Task(kernels.add_constant(), 0, 2, 1, 100)]], 2, "dq", small)
        program.words[0] = ctypes.addressof(program.io)  # the kernel adds to the io words themselves
        assert program.run((0.5, 3)) == 0
        assert struct.unpack("=dq", program.io.raw)[1] == 6


def test_sleeping_workers_are_woken() -> None:
    number, visits = np.zeros(64, np.int64), np.zeros(64, np.int64)
    program = Program([kernels.address(number), kernels.address(visits), 50_000], [], [[Task(kernels.who(), 0, 64)]], 0)
    came = 0
    for _ in range(20):
        time.sleep(0.01)  # longer than a worker spins
        assert program.run(()) == 0
        came += bool((number == 1).any())
        number[:] = 0
    assert came > 0
    np.testing.assert_array_equal(visits, 20)


def test_parallel_phases_are_counted() -> None:
    data = np.zeros(100, np.int64)
    phases = [[Task(kernels.add_constant(), 0, 100)], [Task(kernels.add_constant(), 0, 100, 1, 1000)]]
    program = Program([kernels.address(data), 1], [], phases, 0)
    before = counters.parallel_phases
    program.run(())
    assert counters.parallel_phases == before + 1


def test_a_wrong_number_of_values_is_refused() -> None:
    program = Program([0, 0], [], [], 2, "qd")
    assert program.run((1, 0.5)) == 0
    with pytest.raises(struct.error):
        program.run((1,))
    with pytest.raises(ValueError, match="makes 24 bytes, the io block has 16"):
        Program([0], [], [], 2, "qqq")


def _increment_in(pid_of_parent: int) -> bool:
    data = np.zeros(4096, np.int64)
    program = Program([kernels.address(data), 1], [], [[Task(kernels.add_constant(), 0, 4096)]] * 4, 0)
    for _ in range(50):
        assert program.run(()) == 0
    return bool((data == 200).all()) and os.getpid() != pid_of_parent


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_starts_its_own_team() -> None:
    data = np.zeros(4096, np.int64)
    program = Program([kernels.address(data), 1], [], [[Task(kernels.add_constant(), 0, 4096)]] * 4, 0)
    assert program.run(()) == 0
    parent = os.getpid()
    program._lock.acquire()  # as if another thread were in the middle of a run
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if program.run(()) == 0 and _increment_in(parent) and threads._team is not None else 2
        finally:
            os._exit(status)
    program._lock.release()
    assert processes.exit_code_of_child(child, 30) == 0
    assert program.run(()) == 0


def test_the_process_ends_cleanly_with_a_team() -> None:
    code = (
        "from tests.runtime.test_runner import _increment_in\n"
        "from flambeau.runtime import threads\n"
        "threads.set_num_threads(3)\n"
        "assert _increment_in(0) and len(threads._team.workers) == 2\n"
    )
    start = time.monotonic()
    done = processes.python("-c", code, timeout=60)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert time.monotonic() - start < 30


def test_the_teams_memory_has_room_for_everything() -> None:
    offsets = sorted(native.FIELDS.values())
    assert len(set(offsets)) == len(offsets) and native.FIELDS["LANES_AT"] >= max(offsets[:-2]) + 8
    assert native.FIELDS["THREADS_AT"] + 64 * native.MOST_LANES == native.TEAM_BYTES
    assert native.SEMAPHORE + 32 <= 64
