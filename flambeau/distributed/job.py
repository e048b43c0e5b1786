"""Ranks that mpiexec or srun has started: what these say of a process, in place of torchrun's variables, and where the ranks find each other."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from flambeau.distributed.store import Store
from flambeau.distributed.tcp_store import TCPStore

# Of rank, number of ranks, rank on the machine. Who started last comes first: mpiexec starts its own processes by srun, one a machine.
_BY_MPI: Final = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
)
_BY_SLURM: Final = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID")  # the second is there for what srun has started only
_PORTS: Final = range(20_000, 32_000)  # below those that a system gives away by itself


@dataclass
class Job:
    """This process among those that were started together."""

    rank: int
    size: int
    local_rank: int | None
    by_mpi: bool  # else by srun


def found(variables: Mapping[str, str] | None = None) -> Job | None:
    """What mpiexec or srun says of this process; None where neither has started it, or torchrun has."""
    given = os.environ if variables is None else variables
    if "RANK" in given or "WORLD_SIZE" in given:
        return None
    for rank, size, local in (*_BY_MPI, _BY_SLURM):
        if rank in given and size in given:
            own = int(given[local]) if local in given else None
            return Job(int(given[rank]), int(given[size]), own, rank != _BY_SLURM[0])
    return None


def first_host(nodes: str) -> str:
    """The first name of SLURM's list of machines: a[1-3,7],b -> a1."""
    match = re.match(r"([^,\[]+)(?:\[([^\]]+)\]([^,]*))?", nodes)
    if match is None:
        raise ValueError(f"torch.distributed: SLURM's list of machines is not understood: {nodes!r}; set MASTER_ADDR")
    name, numbers, rest = match.groups()
    return name if numbers is None else name + re.split("[-,]", numbers)[0] + rest


def _slurm_address() -> tuple[str, int]:
    """Where rank 0 is, and a port that all processes of the step come to by themselves."""
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        raise ValueError("torch.distributed: srun has not said on which machines it runs (SLURM_STEP_NODELIST); set MASTER_ADDR and MASTER_PORT")
    number = int(os.environ.get("SLURM_JOB_ID", "0")) * 7 + int(os.environ.get("SLURM_STEP_ID", "0"))
    return first_host(nodes), _PORTS[number % len(_PORTS)]


def meet(job: Job, timeout: timedelta) -> Store:
    """The store of all ranks, which rank 0 has: at MASTER_ADDR and MASTER_PORT where these are set, else where MPI or SLURM can tell the others."""
    from flambeau.distributed.rendezvous import tcp_store

    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if host is None or port is None:
        if job.by_mpi:
            return _by_mpi(job, host, timeout)
        first, chosen = _slurm_address()
        host, port = host or first, port or str(chosen)
    return tcp_store(host, int(port), job.rank, job.size, timeout)


def _by_mpi(job: Job, host: str | None, timeout: timedelta) -> Store:
    from flambeau.distributed import mpi

    own = TCPStore(host or "localhost", 0, job.size, True, timeout, wait_for_workers=False) if job.rank == 0 else None
    name = host or socket.gethostname()
    first, port = mpi.told_by_first(f"{name} {own.port}" if own is not None else None).split()
    if own is not None:
        return own
    return TCPStore("localhost" if first == name else first, int(port), job.size, False, timeout)
