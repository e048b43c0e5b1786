"""all_reduce of sparse tensors: each rank hands out its places and values, of which ranks have different numbers, and each adds up all of them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import flambeau
from flambeau.distributed.agreement import collective
from flambeau.distributed.calls import perform
from flambeau.distributed.group import ProcessGroup
from flambeau.distributed.memory import Memory
from flambeau.distributed.reduce_op import ReduceOp
from flambeau.distributed.work import Work
from flambeau.grad_modes import no_grad

if TYPE_CHECKING:
    from flambeau.tensor import Tensor


def all_reduce_sparse(group: ProcessGroup, tensor: Any, op: Any, async_op: bool) -> Work | None:
    """The tensor, sparse in the COO layout, becomes the sum over all ranks, coalesced; terms are added in the ranks' order. It is done when this returns."""
    if op is not ReduceOp.SUM:
        raise RuntimeError(f"all_reduce: unsupported reduction operation: sparse tensors are added up (ReduceOp.SUM), got ReduceOp.{op.name}")
    if tensor.layout is not flambeau.sparse_coo:
        raise RuntimeError(f"all_reduce: of sparse tensors those in the layout torch.sparse_coo are added up, got {tensor.layout}")
    n = group.size()
    own = tensor.detach().coalesce()
    text, key = collective("all_reduce", f"{op.name}, sparse in {own.sparse_dim()} dims", own.dtype, tuple(own.shape))
    counts = (ctypes.c_int64 * n)()
    places: list[Tensor] = []
    values: list[Tensor] = []

    def count() -> None:
        word = ctypes.c_int64(own._nnz())
        group.window.begin(text, key)
        group.window.swap([(ctypes.addressof(word), 8)], 8, [(r, 0, ctypes.addressof(counts) + 8 * r, 8) for r in range(n)])

    def hand_over() -> None:
        for mine, others in ((own.indices(), places), (own.values(), values)):
            _gather(group, text, key, mine, others)

    perform(group, count, False, text, tensor)
    for nnz in counts:
        places.append(flambeau.zeros(own.sparse_dim(), nnz, dtype=flambeau.int64))
        values.append(flambeau.zeros(nnz, *own.shape[own.sparse_dim() :], dtype=own.dtype))
    perform(group, hand_over, False, text, tensor)
    with no_grad():
        total = flambeau.sparse_coo_tensor(flambeau.cat(places, 1), flambeau.cat(values), tuple(own.shape)).coalesce()
        tensor.copy_(total)
    return Work([tensor]) if async_op else None


def _gather(group: ProcessGroup, text: str, key: int, mine: Tensor, others: Sequence[Tensor]) -> None:
    source, targets = Memory(mine, False), [Memory(t, True) for t in others]
    group.window.begin(text, key)
    group.window.swap([source.piece], max(t.nbytes for t in targets), [(r, 0, t.address, t.nbytes) for r, t in enumerate(targets)])
