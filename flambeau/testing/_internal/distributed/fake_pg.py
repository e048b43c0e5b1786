"""torch.testing._internal.distributed.fake_pg: the store of groups that have no other processes."""

from __future__ import annotations

from flambeau.distributed.fake import FakeStore

__all__ = ["FakeStore"]
