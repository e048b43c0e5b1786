"""LSTMSaliencyPruner: of each gate of an LSTM the same number of rows goes: those with the least sums of absolute values."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.pruning._experimental.pruner.base_structured_sparsifier import BaseStructuredSparsifier
from flambeau.ao.pruning._experimental.pruner.parametrization import FakeStructuredSparsity


class LSTMSaliencyPruner(BaseStructuredSparsifier):
    """For weight_ih_l{k} and weight_hh_l{k}, in which the weights of four gates lie one after another."""

    def update_mask(self, module: Any, tensor_name: str, **kwargs: Any) -> None:
        """Mask the least rows of each gate."""
        weights = getattr(module, tensor_name)
        for entry in getattr(module.parametrizations, tensor_name):
            if not isinstance(entry, FakeStructuredSparsity):
                continue
            if weights.dim() <= 1:
                raise Exception(f"Structured pruning can only be applied to a 2+dim weight tensor! The shape of {tensor_name} is {tuple(weights.shape)}.")
            gate = len(entry.mask) // 4
            saliency = weights.norm(dim=tuple(range(1, weights.dim())), p=1)
            for first in range(0, 4 * gate, gate):
                least = torch.topk(saliency[first : first + gate], int(gate * kwargs["sparsity_level"]), largest=False, sorted=False).indices
                entry.mask.data[first + least] = False
