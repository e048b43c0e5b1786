"""A script that asks nobody for its rank runs under mpiexec and srun."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flambeau.distributed.job import Job, first_host, found
from tests import processes
from tests.distributed.ranks import HERE, ROOT, environment

PROGRAM = [sys.executable, "-m", "flambeau", "run", str(HERE / "by_job.py")]


@pytest.mark.parametrize("variables, job", [
    ({}, None), ({"PMI_RANK": "1"}, None), ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}, None),  # a batch script's own process
    ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, Job(3, 4, 1, True)),
    ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, Job(1, 2, 0, True)), ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Job(1, 2, None, True)),
    ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "8", "SLURM_LOCALID": "1"}, Job(5, 8, 1, False)),
    ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "PMI_RANK": "3", "PMI_SIZE": "8"}, Job(3, 8, None, True)),  # mpiexec's own processes, by srun
    ({"RANK": "0", "PMI_RANK": "1", "PMI_SIZE": "2"}, None), ({"WORLD_SIZE": "1", "PMI_RANK": "1", "PMI_SIZE": "2"}, None),
])  # fmt: skip
def test_what_is_said(variables, job):
    assert found(variables) == job


@pytest.mark.parametrize("nodes, first", [
    ("alpha", "alpha"), ("alpha,beta", "alpha"), ("node[3-7]", "node3"), ("node[003-007,9],x", "node003"), ("node[12,14]", "node12"), ("a[1-2]-ib", "a1-ib"),
    ("n-1.example.org", "n-1.example.org"),
])  # fmt: skip
def test_the_first_machine_of_slurm(nodes, first):
    assert first_host(nodes) == first


def check(folder: Path, size: int) -> None:
    for rank in range(size):
        told = json.loads((folder / f"rank-{rank}").read_text())
        assert told == {"rank": rank, "size": size, "local": told["local"], "sum": size * (size + 1) / 2, "set": False}
    assert sorted(json.loads((folder / f"rank-{rank}").read_text())["local"] for rank in range(size)) == list(range(size))


@pytest.mark.parametrize("machines", [1, 2])
def test_by_mpiexec(machines, tmp_path):
    pytest.importorskip("mpi4py")
    mpiexec = shutil.which("mpiexec", path=str(Path(sys.executable).parent))
    if mpiexec is None:
        pytest.skip("there is no mpiexec beside Python")
    command = PROGRAM
    if machines > 1:
        command = ["sh", "-c", 'FLAMBEAU_MACHINE=m$((PMI_RANK / 2)) exec "$@"', "sh", *PROGRAM]
    done = processes.run([mpiexec, "-n", "3", *command, str(tmp_path)], env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    check(tmp_path, 3)


def test_by_srun(tmp_path):
    started = []
    try:
        for rank in range(2):
            variables = {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "417"}
            variables |= {"SLURM_STEP_ID": "3", "SLURM_STEP_NODELIST": "localhost"}
            started.append(processes.popen([*PROGRAM, str(tmp_path)], env=environment(**variables), cwd=ROOT, stderr=subprocess.PIPE))
        for process, (_, errors) in zip(started, processes.outputs(started, 200), strict=True):
            assert process.returncode == 0, errors.decode()
    finally:
        for process in started:
            processes.end(process)
    check(tmp_path, 2)
