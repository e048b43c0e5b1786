"""t[...] of a sparse tensor: one dim after another, by select, narrow, index_select and unsqueeze."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.sparse.structure import as_coo, cut, picked, selected, with_dim
from flambeau.sparse.tensor import CooTensor, SparseTensor
from flambeau.tensor import Tensor


def getitem(t: SparseTensor, index: Any) -> Any:
    """What `t[index]` gives: sparse while a sparse dim remains."""
    items = list(index) if isinstance(index, tuple) else [index]
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    if used > t.ndim:
        raise IndexError(f"too many indices for tensor of dimension {t.ndim}")
    if Ellipsis in [i for i in items if not isinstance(i, (Tensor, list))]:
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        items[at : at + 1] = [slice(None)] * (t.ndim - used)
    made: Any = as_coo(t)
    dim = 0
    for i in items:
        if not isinstance(made, CooTensor):  # the last sparse dim is gone: what is left is dense
            return made[tuple(items[items.index(i) :])]
        if i is None:
            made = with_dim(made, dim)
            dim += 1
        elif isinstance(i, slice):
            start, stop, step = i.indices(made.shape[dim])
            if step != 1:
                raise NotImplementedError(f"slices of a sparse tensor have step 1, got {step}; use index_select")
            if (start, stop) != (0, made.shape[dim]):
                made = cut(made, dim, start, max(stop - start, 0))
            dim += 1
        elif isinstance(i, (Tensor, list)) and not (isinstance(i, Tensor) and i.ndim == 0):
            chosen = i if isinstance(i, Tensor) else torch.tensor(i)
            if chosen.ndim != 1:
                raise NotImplementedError(f"a sparse tensor is indexed by vectors, got an index of shape {tuple(chosen.shape)}")
            if chosen.dtype is torch.bool:
                chosen = torch.nonzero(chosen).view(-1)
            made = picked(made, dim, chosen)
            dim += 1
        else:
            made = selected(made, dim, int(i))
    return made
