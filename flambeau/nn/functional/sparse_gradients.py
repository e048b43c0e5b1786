"""Rows of a table whose gradient is a sparse tensor of the rows that were looked up: embeddings with sparse=True."""

from __future__ import annotations

from typing import Any

import flambeau as torch
from flambeau.autograd.function import Function
from flambeau.nn.functional.linear import embedding
from flambeau.sparse.tensor import coo
from flambeau.tensor import Tensor


class SparseLookUp(Function):
    """embedding(input, weight) with a COO gradient: one element for each index, not coalesced, without those of padding_idx."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, padding_idx: int) -> Tensor:
        ctx.save_for_backward(input)
        ctx.shape, ctx.padding_idx = tuple(weight.shape), padding_idx
        return embedding(input, weight, padding_idx if padding_idx >= 0 else None)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (input,) = ctx.saved_tensors
        index, rows = input.reshape(-1).to(torch.int64), grads[0].reshape(input.numel(), ctx.shape[1])
        if ctx.padding_idx >= 0:
            kept = torch.nonzero(index != ctx.padding_idx).view(-1)
            index, rows = index.index_select(0, kept), rows.index_select(0, kept)
        return None, coo(index.unsqueeze(0), rows, ctx.shape), None
