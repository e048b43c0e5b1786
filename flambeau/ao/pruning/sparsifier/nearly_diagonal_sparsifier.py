"""NearlyDiagonalSparsifier: what is far from the main diagonal becomes zero."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier


class NearlyDiagonalSparsifier(BaseSparsifier):
    """Of a matrix the `nearliness` diagonals (an odd number) that are nearest to the main one stay."""

    def __init__(self, nearliness: int = 1) -> None:
        super().__init__(defaults={"nearliness": nearliness})

    def update_mask(self, module: Any, tensor_name: str, nearliness: int = 1, **kwargs: Any) -> None:
        """Ones near the diagonal."""
        mask = getattr(module.parametrizations, tensor_name)[0].mask
        if nearliness <= 0:
            mask.data = torch.zeros_like(mask)
            return
        height, width = getattr(module, tensor_name).shape
        if nearliness % 2 == 0:
            raise ValueError(f"nearliness can only be an odd number, not {nearliness}")
        far = nearliness // 2
        if far >= min(height, width):
            raise ValueError(f"nearliness cannot be larger than the dimensions of tensor: it is {nearliness}, {tensor_name} is {height} x {width}")
        mask.data = torch.ones_like(mask).tril(far).triu(-far)
