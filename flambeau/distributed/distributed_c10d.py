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
from flambeau.distributed.work import *  # noqa: F403


def _get_default_store() -> Store:  # noqa: F405
    """The store by which all ranks have found each other."""
    return _get_default_group().store


def _get_process_group_store(pg: ProcessGroup) -> Store:  # noqa: F405
    """The store by which a group's ranks have found each other."""
    return pg.store  # type: ignore[no-any-return]
