"""Code that is made twice: plain code first, good code in its place later, with the same bits, whatever happens to the process that makes it."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import flambeau as ft
from flambeau.runtime import jit, object_cache, twice
from flambeau.statistics import counters
from tests import processes
from tests.runtime import kernels

CALL = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Nothing is compiled yet, another process may help, and it starts anew."""
    twice.settle()
    monkeypatch.setenv("FLAMBEAU_COMPILE_PROCESSES", "2")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    twice.settle()


def _light(key: str, number: int) -> int:
    return jit.functions([(key, lambda: kernels.text(key, lambda b: None, f"ret i64 {number}"))], light=frozenset((key,)))[0]


def test_good_code_takes_the_place_of_plain_code_in_programs() -> None:
    from flambeau.runtime.runner import Program, Task

    before = counters.snapshot()
    with twice.lock:  # nothing is replaced meanwhile
        address = _light("twice: placed", 0)
        assert twice.is_waiting("twice: placed") and counters.kernels_plain == before["kernels_plain"] + 1
        program = Program([address], [], [[Task(address, 0, 1)]], 0, functions=[0])
        tasks = program._held[3]
        assert tasks[0] == program.words[0] == address
    twice.settle()
    assert counters.kernels_replaced == before["kernels_replaced"] + 1 and not twice.is_waiting("twice: placed")
    assert tasks[0] == program.words[0] == twice.table[address] != address
    later = Program([address], [], [[Task(address, 0, 1)]], 0, functions=[0])  # the plain code's address stays the kernel's name
    assert later._held[3][0] == later.words[0] == tasks[0]
    assert CALL(tasks[0])(None, 0, 0, 0) == 0 == program.run(())
    assert object_cache.load("twice: placed") is not None


def test_a_kernel_with_much_to_do_is_not_left_with_plain_code() -> None:
    with twice.lock:
        address = _light("twice: heavy", 7)
        assert jit.functions([("twice: heavy", lambda: kernels.text("twice: heavy", lambda b: None, "ret i64 7"))]) == [address]
        assert not twice.is_waiting("twice: heavy") and CALL(twice.table[address])(None, 0, 0, 0) == 7


def test_a_process_that_dies_is_replaced() -> None:
    for number in range(3):
        _light(f"twice: killed {number}", number)
        worker = twice._worker
        if worker is not None:
            os.kill(worker._process.pid, signal.SIGKILL)
    twice.settle()
    assert not twice.waits()


@pytest.mark.parametrize("program", ["/nowhere/python", "/bin/false"])
def test_without_another_process_this_one_compiles(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with twice.lock:
        twice._close()
    monkeypatch.setattr(sys, "executable", program)
    address = _light(f"twice: {program}", 5)
    twice.settle()
    assert CALL(twice.table[address])(None, 0, 0, 0) == 5


def test_one_process_makes_good_code_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLAMBEAU_COMPILE_PROCESSES", "1")
    _light("twice: alone", 3)
    assert not twice.is_waiting("twice: alone")


PROGRAM = """
import sys
import flambeau as ft
x = ft.arange(1000.0).reshape(20, 50)
w = ft.linspace(-1, 1, 50 * 30).reshape(50, 30).requires_grad_()
y = ft.nn.functional.layer_norm((x / 100) @ w, (30,)).softmax(1).log().sin()
(y * y).sum().backward()
stats = ft.stats()
print(stats["kernels_plain"], stats["kernels_compiled"], *[x.numpy().tobytes().hex()[:4000] for x in (w.grad, y.detach())])
"""


def test_what_a_process_leaves_is_made_for_the_next_one(fresh: Path) -> None:
    """And plain code gives the bits of good code."""
    run = [sys.executable, "-c", PROGRAM]
    plain, _, *expected = processes.run(run, capture_output=True, text=True, check=True).stdout.split()
    assert int(plain) > 3
    end = time.monotonic() + 300  # its process has the lowest priority
    compiled, pause = "1", 0.5
    while time.monotonic() < end:
        time.sleep(pause)  # a program that runs all the time would take its processor
        pause = min(2 * pause, 4.0)
        again, compiled, *results = processes.run(run, capture_output=True, text=True, check=True).stdout.split()
        assert results == expected
        if int(again) == int(compiled) == 0:
            break
    assert (int(again), int(compiled)) == (0, 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_children_have_plain_code_and_start_their_own_process() -> None:
    _light("twice: before fork", 1)
    child = os.fork()
    if child == 0:
        try:
            _light("twice: in the child", 2)
            twice.settle()
            os._exit(twice.waits())
        finally:
            os._exit(9)
    assert processes.exit_code_of_child(child) == 0


def test_results_do_not_change_while_code_is_replaced() -> None:
    x = ft.linspace(-3, 3, 4321)
    expected = None
    for _ in range(300):
        found = (ft.sin(x) * ft.erf(x) + ft.log1p(x.abs())).cumsum(0).numpy()
        expected = found if expected is None else expected
        np.testing.assert_array_equal(found, expected)


def test_random_programs_with_plain_code() -> None:
    """Whole programs beside PyTorch, from an empty cache, so that plain code runs and is replaced while they do."""
    pytest.importorskip("torch")
    run = [sys.executable, "-m", "tests.engine.test_whole_programs", "12", "500"]
    done = processes.run(run, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0 and done.stdout.startswith("0 of 12"), done.stdout + done.stderr
