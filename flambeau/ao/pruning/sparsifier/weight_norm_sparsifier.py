"""WeightNormSparsifier: the blocks of a matrix that are least by a norm become zeros, whole or in part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import flambeau as torch
from flambeau.ao.pruning.sparsifier.base_sparsifier import BaseSparsifier
from flambeau.nn import functional as F
from flambeau.tensor import Tensor


def _missing(size: int, block: int) -> int:
    return -size % block


class WeightNormSparsifier(BaseSparsifier):
    """Zeros in the blocks (of `sparse_block_shape`, rows and columns) with the least norms: a share `sparsity_level` of the blocks.

    With `zeros_per_block` fewer than a block has, only as many of its elements become zeros, those that are least. `norm` is 1, 2 (the
    default), or a function that gives a number for each element.
    """

    def __init__(
        self,
        sparsity_level: float = 0.5,
        sparse_block_shape: tuple[int, int] = (1, 4),
        zeros_per_block: int | None = None,
        norm: Callable[[Tensor], Tensor] | int | None = None,
    ) -> None:
        if zeros_per_block is None:
            zeros_per_block = sparse_block_shape[0] * sparse_block_shape[1]
        if callable(norm):
            self.norm_fn: Callable[[Tensor], Tensor] = norm
        elif norm == 1:
            self.norm_fn = torch.abs
        elif norm is None or norm == 2:
            self.norm_fn = torch.square
        else:
            raise NotImplementedError(f"L-{norm} is not yet implemented.")
        super().__init__(defaults={"sparsity_level": sparsity_level, "sparse_block_shape": sparse_block_shape, "zeros_per_block": zeros_per_block})

    @staticmethod
    def _folded(chosen: Tensor, dim: int, elements: int, blocks: int, size: tuple[int, int], block: tuple[int, int]) -> Tensor:
        """A matrix of ones with zeros where `chosen` has indices along `dim` of [1, elements of a block, blocks]."""
        columns = torch.ones(1, elements, blocks)
        columns.scatter_(dim, chosen, 0.0)
        return F.fold(columns, output_size=size, kernel_size=block, stride=block)[0, 0]

    def _make_tensor_mask(
        self, data: Tensor, input_shape: Any, sparsity_level: float, sparse_block_shape: tuple[int, int], mask: Tensor | None = None
    ) -> Tensor:
        """Zeros in whole blocks, a share of all."""
        h, w = data.shape[-2:]
        bh, bw = sparse_block_shape
        if sparsity_level >= 1.0 or sparsity_level <= 0.0:
            return torch.full((h, w), float(sparsity_level <= 0.0))
        size = (h + _missing(h, bh), w + _missing(w, bw))
        norms = F.avg_pool2d(data[None, None], kernel_size=sparse_block_shape, stride=sparse_block_shape, ceil_mode=True) if bh * bw > 1 else data
        norms = norms.flatten()
        count = max(0, min(len(norms) - 1, round(sparsity_level * len(norms))))
        least = torch.topk(norms, k=count, largest=False).indices
        chosen = least.expand(1, bh * bw, count)
        return self._folded(chosen, 2, bh * bw, len(norms), size, sparse_block_shape)[:h, :w].contiguous()

    def _make_block_mask(self, data: Tensor, sparse_block_shape: tuple[int, int], zeros_per_block: int, mask: Tensor | None = None) -> Tensor:
        """Zeros at the least elements of each block; what lies beyond the edges counts as the greatest."""
        h, w = data.shape[-2:]
        bh, bw = sparse_block_shape
        if bh * bw == zeros_per_block:
            return torch.zeros(h, w)
        padded = F.pad(data, (0, _missing(w, bw), 0, _missing(h, bh)), value=torch.nan)
        columns = F.unfold(padded[None, None], kernel_size=sparse_block_shape, stride=sparse_block_shape)
        least = torch.topk(columns, k=zeros_per_block, dim=1, largest=False).indices
        size = (int(padded.shape[0]), int(padded.shape[1]))
        return self._folded(least, 1, bh * bw, int(columns.shape[2]), size, sparse_block_shape)[:h, :w].contiguous()

    def update_mask(  # type: ignore[override]
        self, module: Any, tensor_name: str, sparsity_level: float, sparse_block_shape: tuple[int, int], zeros_per_block: int, **kwargs: Any
    ) -> None:
        """Zeros at the least blocks."""
        values = sparse_block_shape[0] * sparse_block_shape[1]
        if zeros_per_block > values:
            raise ValueError(f"Number of zeros per block cannot be more than the total number of elements in that block: {zeros_per_block} of {values}.")
        if zeros_per_block < 0:
            raise ValueError(f"Number of zeros per block should be positive, not {zeros_per_block}.")
        mask = getattr(module.parametrizations, tensor_name)[0].mask
        if sparsity_level <= 0 or zeros_per_block == 0:
            mask.data = torch.ones_like(mask)
            return
        if sparsity_level >= 1.0 and zeros_per_block == values:
            mask.data = torch.zeros_like(mask)
            return
        weight = getattr(module, tensor_name)
        if weight.dim() != 2:
            raise ValueError(f"{type(self).__name__}: {tensor_name} must be a matrix; its shape is {tuple(weight.shape)}")
        norms = self.norm_fn(weight)
        chosen = self._make_tensor_mask(norms, norms.shape, sparsity_level, sparse_block_shape)
        if values != zeros_per_block:
            chosen = torch.logical_or(chosen, self._make_block_mask(norms, sparse_block_shape, zeros_per_block))
        mask.data = chosen
