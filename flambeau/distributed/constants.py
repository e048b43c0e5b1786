"""torch.distributed.constants: the time after which a collective gives up."""

from __future__ import annotations

from flambeau.distributed.group import default_pg_timeout as default_pg_timeout

default_pg_nccl_timeout = default_pg_timeout
