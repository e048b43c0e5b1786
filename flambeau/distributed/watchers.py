"""Who is told of collectives, and of functions of DTensors, as they are called: CommDebugMode."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, Protocol

# PyTorch's operators by the names of ours; barriers are not counted, as in PyTorch.
_OPERATORS: Final = {
    "all_reduce": "allreduce_", "all_reduce_coalesced": "allreduce_coalesced_", "all_gather": "allgather_", "all_gather_coalesced": "allgather_coalesced_",
    "all_gather_into_tensor": "_allgather_base_", "reduce_scatter": "reduce_scatter_", "reduce_scatter_tensor": "_reduce_scatter_base_",
    "all_to_all": "alltoall_", "all_to_all_single": "alltoall_base_", "broadcast": "broadcast_", "broadcast_coalesced": "broadcast_", "gather": "gather_",
    "scatter": "scatter_", "reduce": "reduce_",
}  # fmt: skip


class Watcher(Protocol):
    """What is told."""

    def collective(self, operator: Any) -> None:
        """A collective was called: its operator of torch.ops."""

    def operation(self, name: str, tensors: Sequence[Any]) -> None:
        """A function was given these DTensors."""


WATCHERS: list[Watcher] = []
_depth = [0]  # of blocks that are one collective to those who watch


@cache
def _operator(space: str, name: str) -> Any:
    from flambeau._ops import ops

    return getattr(getattr(ops, space), name)


def tell(text: str) -> None:
    """Tell all of a collective, by the text that begins with its name."""
    name = _OPERATORS.get(re.split(r"[( ]", text, maxsplit=1)[0])
    if name is not None and not _depth[0]:
        for watcher in WATCHERS:
            watcher.collective(_operator("c10d", name))


@contextmanager
def one(name: str, space: str = "c10d_functional") -> Iterator[None]:
    """A block that is one collective, whatever it is made of; those who watch are told of the outermost."""
    if WATCHERS and not _depth[0]:
        for watcher in WATCHERS:
            watcher.collective(_operator(space, name))
    _depth[0] += 1
    try:
        yield
    finally:
        _depth[0] -= 1
