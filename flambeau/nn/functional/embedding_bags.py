"""embedding_bag: sums, means and maxima of the rows of a table over bags of indices."""

from __future__ import annotations

import flambeau as torch
from flambeau.nn.functional.engine import Tensor
from flambeau.nn.functional.linear import embedding
from flambeau.ops.dtype_rules import refuse_dtype
from flambeau.trace.once import warn_here

__all__ = ["embedding_bag"]

_NARROW = (torch.float16, torch.bfloat16)


def embedding_bag(
    input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None, norm_type: float = 2,
    scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False, per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False, padding_idx: int | None = None,
) -> Tensor:  # fmt: skip
    """Sums, means or maxima of embedding rows over bags: input (bags, n), or 1-D with the bags' starts in `offsets`.

    The result is (bags, columns of weight); 0 for an empty bag. `include_last_offset`: `offsets` has one entry more, the end of the last bag. Rows of
    `padding_idx` take no part. Narrow floating-point numbers are summed in float32.
    """
    if not weight.is_floating_point() and input.is_floating_point():
        warn_here(
            "Argument order of nn.functional.embedding_bag was changed. Usage `embedding_bag(weight, input, ...)` is deprecated, and should now be "
            "`embedding_bag(input, weight, ...)`."
        )
        input, weight = weight, input
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and (scale_grad_by_freq or sparse):
        raise ValueError(f"max mode does not support {'scaling the gradient by the frequency' if scale_grad_by_freq else 'sparse weights'}")
    if per_sample_weights is not None:
        _check_factors(per_sample_weights, input, weight, mode)
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    refuse_dtype("embedding_bag", weight.dtype)
    table = weight.shape[0]
    if padding_idx is not None:
        if not -table <= padding_idx < table:
            raise RuntimeError(f"padding_idx must be within the number of embeddings, {-table} through {table - 1}, but got {padding_idx}")
        padding_idx %= table
    bag, bags = _bags(input, offsets, include_last_offset)
    input = input.reshape(-1)
    if padding_idx is not None:
        bag = torch.where(input == padding_idx, bags, bag)  # a bag of their own, which is left out
    rows = embedding(input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.reshape(-1, 1)
    if mode == "max":
        return _maxima(rows, bag, bags)
    wide = torch.float32 if rows.dtype in _NARROW else rows.dtype
    total = torch.zeros(bags + 1, weight.shape[1], dtype=wide, device=rows.device).index_add(0, bag, rows.to(wide))[:bags]
    if mode == "mean":
        counts = torch.zeros(bags + 1, dtype=wide, device=rows.device).index_add(0, bag, torch.ones(bag.shape[0], dtype=wide, device=rows.device))
        total = total / counts[:bags].clamp(min=1).unsqueeze(1)
    return total.to(rows.dtype)


def _check_factors(factors: Tensor, input: Tensor, weight: Tensor, mode: str) -> None:
    if factors.shape != input.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({tuple(factors.shape)}) is not None, then it must have the same shape as the input ({tuple(input.shape)})"
        )
    if mode != "sum":
        raise NotImplementedError(f"embedding_bag: per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got {mode=}).")
    if factors.dtype is not weight.dtype:
        raise RuntimeError(
            f"embedding_bag: expected weight to have the same type as per_sample_weights; but type {weight.dtype} does not equal {factors.dtype}"
        )


def _bags(input: Tensor, offsets: Tensor | None, include_last_offset: bool) -> tuple[Tensor, int]:
    """The bag of each index, and how many bags there are."""
    if input.ndim == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed length sequences. However, found offsets of type "
                f"{type(offsets)}"
            )
        return torch.arange(input.shape[0], device=input.device).repeat_interleave(input.shape[1]), input.shape[0]
    if input.ndim != 1:
        raise ValueError(f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.ndim}")
    if offsets is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    if offsets.ndim != 1:
        raise ValueError(f"offsets has to be a 1D Tensor, but has shape {tuple(offsets.shape)}")
    count = offsets.shape[0]
    if include_last_offset and not count:
        raise RuntimeError("include_last_offset: number of offsets should be at least 1")
    if count and not offsets.is_meta:
        first, last = offsets[:: max(count - 1, 1)].tolist() if count > 1 else offsets.tolist() * 2
        if first != 0:
            raise RuntimeError(f"offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {first}")
        if last > input.shape[0]:
            raise RuntimeError(f"offsets[-1] can not be greater than input's length({input.shape[0]}) but got offsets[-1] of {last}")
    starts = offsets[:-1] if include_last_offset else offsets
    if not starts.shape[0]:  # no bags: all indices into the one that is left out
        return torch.zeros(input.shape[0], dtype=torch.int64, device=input.device), 0
    places = torch.arange(input.shape[0], dtype=starts.dtype, device=input.device)
    return torch.searchsorted(starts, places, right=True) - 1, starts.shape[0]


def _maxima(rows: Tensor, bag: Tensor, bags: int) -> Tensor:
    """The maxima of the columns over each bag: the first of equal ones, which has the gradient."""
    count, columns = rows.shape
    index = bag.unsqueeze(1).expand(count, columns)
    with torch.no_grad():
        most = torch.full((bags + 1, columns), -torch.inf, dtype=rows.dtype, device=rows.device).scatter_reduce(0, index, rows.detach(), "amax")
        equal = (rows.detach() == most[bag]) | rows.detach().isnan()
        places = torch.where(equal, torch.arange(count, device=rows.device).unsqueeze(1), count)
        first = torch.full((bags + 1, columns), count, device=rows.device).scatter_reduce(0, index, places, "amin")[:bags]
    found = torch.cat([rows, torch.zeros(1, columns, dtype=rows.dtype, device=rows.device)])  # an empty bag has this one
    return found.gather(0, first)
