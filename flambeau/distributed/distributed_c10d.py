"""torch.distributed.distributed_c10d: where PyTorch's collectives are defined."""

from __future__ import annotations

from typing import Any

from flambeau import distributed
from flambeau.distributed import (  # noqa: F401
    all_gather_single,
    get_default_backend_for_device,
    is_backend_available,
    is_gloo_available,
    is_mpi_available,
    is_nccl_available,
    is_torchelastic_launched,
    is_ucc_available,
    is_xccl_available,
    reduce_scatter_single,
)
from flambeau.distributed.collectives import *  # noqa: F403
from flambeau.distributed.errors import *  # noqa: F403
from flambeau.distributed.group import *  # noqa: F403
from flambeau.distributed.group import _rank_not_in_group as _rank_not_in_group
from flambeau.distributed.group import default_group as _get_default_group
from flambeau.distributed.group import group_named as _resolve_process_group  # noqa: F401
from flambeau.distributed.messages import *  # noqa: F403
from flambeau.distributed.objects import *  # noqa: F403
from flambeau.distributed.reduce_op import *  # noqa: F403
from flambeau.distributed.regroup import SHRINK_ABORT as SHRINK_ABORT
from flambeau.distributed.regroup import SHRINK_DEFAULT as SHRINK_DEFAULT
from flambeau.distributed.regroup import shrink_group as shrink_group
from flambeau.distributed.regroup import split_group as split_group
from flambeau.distributed.rendezvous import *  # noqa: F403
from flambeau.distributed.store import *  # noqa: F403
from flambeau.distributed.store_collectives import STORE_BASED_BARRIER_PREFIX as STORE_BASED_BARRIER_PREFIX
from flambeau.distributed.store_collectives import _store_based_barrier as _store_based_barrier
from flambeau.distributed.tags import _find_or_create_pg_by_ranks_and_tag as _find_or_create_pg_by_ranks_and_tag
from flambeau.distributed.tags import _find_pg_by_ranks_and_tag as _find_pg_by_ranks_and_tag
from flambeau.distributed.tags import _get_group_tag as _get_group_tag
from flambeau.distributed.tags import _new_group_with_tag as _new_group_with_tag
from flambeau.distributed.work import *  # noqa: F403


def _get_default_store() -> Store:  # noqa: F405
    """The store by which all ranks have found each other."""
    return _get_default_group().store


def _get_process_group_store(pg: ProcessGroup) -> Store:  # noqa: F405
    """The store by which a group's ranks have found each other."""
    return pg.store  # type: ignore[no-any-return]


def __getattr__(name: str) -> Any:
    if name in distributed._LAZY_NAMES:  # options, debug levels, gloo's groups
        return getattr(distributed, name)
    raise AttributeError(f"module 'torch.distributed.distributed_c10d' has no attribute {name!r}")
