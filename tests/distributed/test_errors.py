"""What goes wrong between ranks is told on every rank that it concerns, by name: disagreement, lateness, death."""

from __future__ import annotations

import os
import pickle
import random
import signal
import time

import pytest

from tests.distributed.ranks import ROOT, results, started
from tests.processes import line_of


@pytest.mark.parametrize("machines", ["aa", "aaa", "aaaa", "ab", "aab"])
def test_disagreement_and_lateness(machines, tmp_path):
    ranks = len(machines)
    if len(set(machines)) > 1:
        pytest.importorskip("mpi4py")
    found = results("errors.py", ranks, tmp_path, machines=machines)
    for rank, told in enumerate(found):
        for name, parts in {
            "shape": ("all_reduce(SUM) of float32 (3,)", "all_reduce(SUM) of float32 (4,)", "errors.py:"),
            "dtype": ("float32 (3,)", "float64 (3,)"), "operator": ("all_reduce(SUM)", "all_reduce(MAX)"),
            "operation": ("rank 1: barrier", "broadcast(from 0) of float32 (2,)"),
        }.items():  # fmt: skip
            kind, text = told[name]
            assert kind == "RuntimeError" and "ranks do not agree" in text, (rank, name, text)
            for part in parts:
                assert part in text, (rank, name, text)
        assert told["usable"] == [ranks] * 2
        assert told["bitwise"][1].startswith("all_reduce: Cannot use ReduceOp.BAND with torch.float32")
        assert told["list"][1] == f"all_gather: tensor_list must have one tensor a rank: {ranks}, got 1"
        assert "Expected parameter `tensor` of type torch.Tensor" in told["no tensor"][1]
        assert "should not be the same as the rank of the current process" in told["self"][1]
        assert "twice" in told["twice"][1] and "different" in told["backend"][1]
        if rank != 1:
            text = "Timed out waiting 300ms for rank 1, which did not come" if machines[rank] == machines[1] else "Timed out waiting 300ms"
            assert text in told["late"][1]
            assert "unusable since an earlier error" in told["broken"][1]
    assert "8 bytes and the tensor 12" in found[1]["message"][1]
    assert "failed to pass monitoredBarrier in 300 ms" in found[0]["monitored"][1] and "rank" in found[0]["monitored"][1]


@pytest.mark.parametrize("machines", ["aa", "aaa", "aaaa", "ab", "aab"])
@pytest.mark.parametrize("how", ["kill", "raise"])
def test_others_learn_of_a_death(machines, how, tmp_path):
    if len(set(machines)) > 1:
        pytest.importorskip("mpi4py")
    with started("killed.py", len(machines), tmp_path, ["raise"] if how == "raise" else [], machines=machines) as processes:
        for process in processes:
            assert line_of(process) == "trains\n", process.communicate(timeout=20)
        killed = time.time()
        if how == "kill":
            time.sleep(random.random() / 5)
            killed = time.time()
            os.kill(processes[1].pid, signal.SIGKILL)
        for rank, process in enumerate(processes):
            process.communicate(timeout=150)
            if rank != 1:
                at, _, text = pickle.loads((tmp_path / f"killed.py-True-{rank}").read_bytes())
                died = f"rank 1 died (process {processes[1].pid}" if machines[rank] == machines[1] else "rank 1 died, or cannot be reached"
                expected = died if how == "kill" else "rank 1 left the group"
                assert expected in text and f"rank {rank} in" in text, text
                assert how == "raise" or at - killed < 5, at - killed  # some ms on a machine that has nothing else to do


def test_without_mpi_the_extra_is_named(tmp_path):
    (tmp_path / "mpi4py.py").write_text("raise ImportError('no MPI')")
    with started("killed.py", 2, tmp_path, machines="ab", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}") as processes:
        for process in processes:
            _, errors = process.communicate(timeout=100)
            assert process.returncode == 1
            assert "ImportError: torch.distributed: the ranks are on several machines (ranks 0 on a; ranks 1 on b)" in errors
            assert "flambeau[distributed]" in errors


@pytest.mark.parametrize("last", [0, 1])
def test_machines_that_end_late_end_well(last, tmp_path):
    pytest.importorskip("mpi4py")
    assert results("late.py", 2, tmp_path, [str(last)], machines="ab") == [[2.0, 2.0]] * 2
