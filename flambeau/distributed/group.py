"""Process groups: none, or one of one process."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

default_pg_timeout = timedelta(minutes=30)


class DistError(RuntimeError):
    """An error of torch.distributed."""


class DistBackendError(DistError):
    """An error of a backend."""


class DistNetworkError(DistError):
    """An error of the network."""


class DistStoreError(DistError):
    """An error of a store."""


class Backend(str):
    """The name of a backend, in lower case."""

    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"

    def __new__(cls, name: str) -> Backend:
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish: {name!r}")
        return super().__new__(cls, name.lower())


class ProcessGroup:
    """The group of this process alone."""

    def __init__(self, backend: str) -> None:
        self._backend = Backend(backend)

    def rank(self) -> int:
        """0."""
        return 0

    def size(self) -> int:
        """1."""
        return 1

    def name(self) -> str:
        """The backend's name."""
        return str(self._backend)


class GroupMember:
    """What groups are called that this process is in, or not in."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER = -100


class group:
    """`group.WORLD`: the group of all processes, or None."""

    WORLD: ProcessGroup | None = None


def is_initialized() -> bool:
    """Whether init_process_group has made a group."""
    return GroupMember.WORLD is not None


def default_group() -> ProcessGroup:
    """The group; ValueError without one, as in PyTorch."""
    if GroupMember.WORLD is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return GroupMember.WORLD


def init_process_group(
    backend: str | None = None, init_method: str | None = None, timeout: Any = None, world_size: int = -1, rank: int = -1, store: Any = None,
    group_name: str = "", pg_options: Any = None, device_id: Any = None,
) -> None:  # fmt: skip
    """Make the group of one process. NotImplementedError for more than one: RuntimeError would look like a failure of the network.

    The number of processes is `world_size`, or the environment's WORLD_SIZE, or 1.
    """
    if GroupMember.WORLD is not None:
        raise ValueError("trying to initialize the default process group twice!")
    size = world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "1"))
    place = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
    if size != 1 or place != 0:
        raise NotImplementedError(
            f"torch.distributed.init_process_group: {size} processes were asked for (rank {place}); flambeau runs in one process so far: start "
            "the program once, with WORLD_SIZE=1"
        )
    GroupMember.WORLD = group.WORLD = ProcessGroup(backend or "gloo")


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Forget the group; ValueError without one."""
    default_group()
    GroupMember.WORLD = globals()["group"].WORLD = None


def new_group(
    ranks: list[int] | None = None, timeout: Any = None, backend: str | None = None, pg_options: Any = None, use_local_synchronization: bool = False,
    group_desc: str | None = None, device_id: Any = None,
) -> Any:  # fmt: skip
    """A group of this process, if rank 0 is among `ranks`."""
    whole = default_group()
    return ProcessGroup(backend or whole.name()) if ranks is None or 0 in ranks else GroupMember.NON_GROUP_MEMBER


def get_rank(group: Any = None) -> int:
    """0; ValueError without a group."""
    default_group()
    return 0 if group != GroupMember.NON_GROUP_MEMBER else -1


def get_world_size(group: Any = None) -> int:
    """1; ValueError without a group."""
    default_group()
    return 1 if group != GroupMember.NON_GROUP_MEMBER else -1


def get_backend(group: Any = None) -> Backend:
    """The name that init_process_group was given."""
    return (group or default_group())._backend  # type: ignore[no-any-return]


def get_global_rank(group: Any, group_rank: int) -> int:
    """0."""
    default_group()
    return group_rank


def get_group_rank(group: Any, global_rank: int) -> int:
    """0."""
    default_group()
    return global_rank


def get_process_group_ranks(group: Any) -> list[int]:
    """[0]."""
    default_group()
    return [0]


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The environment's LOCAL_RANK, or the fallback; RuntimeError without either."""
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work.")
