"""FPGMPruner: the rows that are nearest to all the others go, as the others can do their work (He et al., arXiv 1811.00250)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.ao.pruning._experimental.pruner.base_structured_sparsifier import BaseStructuredSparsifier
from flambeau.tensor import Tensor


class FPGMPruner(BaseStructuredSparsifier):
    """Masks a share `sparsity_level` of the rows: those with the least sums of distances to the others.

    `dist` is 1, 2 (the default), or a function from a matrix of rows to the matrix of their distances.
    """

    def __init__(self, sparsity_level: float = 0.5, dist: Callable[[Tensor], Tensor] | int | None = None) -> None:
        if callable(dist):
            self.dist_fn: Callable[[Tensor], Tensor] = dist
        elif dist in (None, 1, 2):
            self.dist_fn = lambda x: torch.cdist(x, x, p=2 if dist is None else dist)
        else:
            raise NotImplementedError(f"Distance function is not yet implemented: dist is {dist!r}, not 1, 2 or a function.")
        super().__init__(defaults={"sparsity_level": sparsity_level})

    def _compute_distance(self, t: Tensor) -> Tensor:
        """The sum of each row's distances to all rows."""
        return torch.sum(torch.abs(self.dist_fn(t.reshape(t.shape[0], -1))), 1)

    def update_mask(self, module: Any, tensor_name: str, sparsity_level: float = 0.5, **kwargs: Any) -> None:
        """Mask the rows nearest to the others."""
        weight = getattr(module, tensor_name)
        mask = getattr(module.parametrizations, tensor_name)[0].mask
        if sparsity_level <= 0 or sparsity_level >= 1.0:
            mask.data = torch.full_like(mask, sparsity_level <= 0, dtype=torch.bool)
            return
        rows = weight.shape[0]
        count = min(max(round(sparsity_level * rows), 0), rows)
        mask[torch.topk(self._compute_distance(weight), k=count, largest=False).indices] = False
