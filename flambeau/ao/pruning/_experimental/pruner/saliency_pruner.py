"""SaliencyPruner: the rows with the least sums of absolute values go."""

from __future__ import annotations

from typing import Any

from flambeau.ao.pruning._experimental.pruner.base_structured_sparsifier import BaseStructuredSparsifier


class SaliencyPruner(BaseStructuredSparsifier):
    """Masks a share `sparsity_level` of the rows: those with the least sums of absolute values."""

    def update_mask(self, module: Any, tensor_name: str, **kwargs: Any) -> None:
        """Mask the least rows."""
        weights = getattr(module, tensor_name)
        mask = getattr(module.parametrizations, tensor_name)[0].mask
        if weights.dim() <= 1:
            raise Exception(f"Structured pruning can only be applied to a 2+dim weight tensor! The shape of {tensor_name} is {tuple(weights.shape)}.")
        saliency = -weights.norm(dim=tuple(range(1, weights.dim())), p=1)
        if saliency.shape != mask.shape:
            raise AssertionError(f"saliency shape ({saliency.shape}) must match mask shape ({mask.shape})")
        mask.data[saliency.topk(int(len(mask) * kwargs["sparsity_level"])).indices] = False
