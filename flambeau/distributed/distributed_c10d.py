"""torch.distributed.distributed_c10d: where PyTorch's collectives are defined."""

from __future__ import annotations

from flambeau.distributed import is_gloo_available, is_mpi_available, is_nccl_available, is_ucc_available, is_xccl_available  # noqa: F401
from flambeau.distributed.collectives import *  # noqa: F403
from flambeau.distributed.errors import *  # noqa: F403
from flambeau.distributed.group import *  # noqa: F403
from flambeau.distributed.group import _rank_not_in_group as _rank_not_in_group
from flambeau.distributed.group import default_group as _get_default_group
from flambeau.distributed.group import group_named as _resolve_process_group  # noqa: F401
from flambeau.distributed.messages import *  # noqa: F403
from flambeau.distributed.objects import *  # noqa: F403
from flambeau.distributed.reduce_op import *  # noqa: F403
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
